"""The README's commands run, in its order, as a reader would run them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

README = (ROOT / "README.md").read_text("utf-8")


def test_the_file_tree_names_every_module() -> None:
    tree = README.split("## The files")[1].split("## ")[0]
    for module in (ROOT / "embedtrain").glob("*.py"):
        if not module.name.startswith("__") and module.name != "errors.py":
            assert re.search(rf"\b{re.escape(module.name)}\b", tree), module.name
    for name in re.findall(r"(\w+\.py)", tree):
        assert (ROOT / "embedtrain" / name).is_file(), name


def test_its_commands_run_in_order(tmp_path: Path) -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(commands) >= 12
    assert all(command.startswith("embedtrain ") for command in commands)
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    binaries = str(Path(sys.executable).parent)
    if not shutil.which("embedtrain", path=binaries):
        pytest.fail("the package is not installed beside this Python; run `make setup`")
    env = {**os.environ, "PATH": binaries + os.pathsep + os.environ["PATH"]}
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout.strip(), command
    # And the Python that loads the result.
    code = re.search(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert code
    done = subprocess.run(
        [sys.executable, "-c", code[1]], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "tensor([[" in done.stdout
    assert (tmp_path / "report" / "report.html").is_file()
