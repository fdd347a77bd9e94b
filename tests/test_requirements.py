"""Requirements: the grammar, what they are measured by, and corrupted models that they keep from going live.

Deliberate breaks that turn a test red: a p below 0.05 met by a model that is worse, the mean in the place of the low
end against the baseline, guards passed over.
"""

import json
import re
import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
import yaml
from conftest import ROOT, RunCli
from safetensors.torch import load_file, save_file
from typer.main import get_command

from embedtrain import ci, cli, requirements
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.models import MINILM, find_model
from embedtrain.requirements import Outcome, Requirement, parse

COMMAND = get_command(cli.app)

# Reading


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("nDCG@10>=0.70", ("system", "", "nDCG@10", "mean", ">=", 0.7)),
        (" Recall@100  >  .5 ", ("system", "", "Recall@100", "mean", ">", 0.5)),
        ("hybrid + teacher: nDCG@10 low >= 6e-1", ("system", "hybrid + teacher", "nDCG@10", "low", ">=", 0.6)),
        ("guard:nDCG@10>=-0.005", ("guard", "", "nDCG@10", "difference", ">=", -0.005)),
        ("guard stsb-en: Spearman low>=-0.01", ("guard", "stsb-en", "Spearman", "low", ">=", -0.01)),
        ("guard: nDCG@10 mean>=0.3", ("guard", "", "nDCG@10", "mean", ">=", 0.3)),
        ("vs base: nDCG@10 p<0.05", ("vs", "base", "nDCG@10", "p", "<", 0.05)),
        ("vs BM25: nDCG(gain=exp)@10>0", ("vs", "BM25", "nDCG(gain=exp)@10", "difference", ">", 0.0)),
        ("a:b: P@1 high<=1", ("system", "a:b", "P@1", "high", "<=", 1.0)),
    ],
)
def test_what_a_requirement_says(text: str, read: tuple[Any, ...]) -> None:
    assert parse(text) == Requirement(text.strip(), *read)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at column 1 a measure is needed"),
        ("nDCG@10=>0.7", "at column 8 one of >= > <= < is needed"),
        ("nDCG@10 >= high", "at column 12 a number is needed"),
        ("nDCG@10 >= 0.7 or so", "at column 16 'or so' is too much"),
        ("nDCG@10 median >= 0.7", "at column 9 median is none of mean, low, high, difference, p"),
        ("nDCG@10 p<0.05", "at column 9 p compares two systems; write vs SYSTEM:"),
        ("guard: nDCG@10 p<0.05", "at column 16 a guard has no p"),
        ("vs: nDCG@10>0", "at column 3 a system is needed after vs"),
        (": nDCG@10>0", "at column 1 a system, vs SYSTEM or guard is needed"),
        ("F1@3>0.5", "at column 1 F1@3: the measures are nDCG@k"),
        ("vs base: nDCG@10 mean>=0.5", "at column 18 vs compares; write SYSTEM: before the measure"),
        ("vs base: hole@10 p<0.05", "at column 18 more of hole@10 is not better"),
    ],
)
def test_an_error_says_where_it_is(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse(text)


def test_what_will_not_be_measured_is_said_first() -> None:
    with pytest.raises(UsageError, match="there is no guard; give --guard or --guard-sts"):
        requirements.check([parse("guard:nDCG@10>=0")], ["nDCG@10"], guards={}, compared=True)
    with pytest.raises(UsageError, match="RR@10 is not measured; nDCG@10 are, and --measure adds to them"):
        requirements.check([parse("RR@10>=0")], ["nDCG@10"], guards={}, compared=True)
    guards = {"general": "nDCG@10", "stsb": "Spearman"}
    for text, message in (
        ("guard other: nDCG@10>0", "no guard is called other; there are general, stsb"),
        ("guard: Recall@10>0", r"no such guard is measured by Recall@10; there are general \(nDCG@10\), stsb"),
    ):
        with pytest.raises(UsageError, match=message):
            requirements.check([parse(text)], ["nDCG@10"], guards=guards, compared=True)
    with pytest.raises(UsageError, match="a guard compares with the base; give the tuned --model too"):
        requirements.check([parse("guard: nDCG@10>0")], ["nDCG@10"], guards=guards, compared=False)
    requirements.check([parse("guard: nDCG@10 mean>0")], ["nDCG@10"], guards=guards, compared=False)


# What is measured


def compared(difference: float, low: float, high: float, p: float) -> dict[str, float]:
    return {"difference": difference, "low": low, "high": high, "p_randomization": p, "p_holm": p}


SUMMARY: dict[str, Any] = {
    "judged_system": "tuned",
    "split": "test",
    "queries": 300,
    "systems": {
        "BM25": {
            "P@1": {"mean": 0.5, "low": 0.4, "high": 0.6},
            "versus_base": {"P@1": compared(-0.1, -0.2, 0.0, 0.2)},
        },
        "base": {"P@1": {"mean": 0.6, "low": 0.5, "high": 0.7}},
        "tuned": {
            "P@1": {"mean": 0.7, "low": 0.6, "high": 0.8},
            "versus_base": {"P@1": compared(0.1, 0.02, 0.2, 0.01)},
        },
    },
    "guards": [
        {
            "name": "general",
            "measure": "P@1",
            "queries": 50,
            "systems": {
                "base": {"mean": 0.5},
                "tuned": {"mean": 0.49, "versus_base": compared(-0.01, -0.03, 0.01, 1)},
            },
        },
        {
            "name": "stsb",
            "measure": "Spearman",
            "pairs": 90,
            "systems": {
                "base": {"mean": 0.8},
                "tuned": {"mean": 0.81, "versus_base": {"difference": 0.01, "low": -0.002, "high": 0.02}},
            },
        },
    ],
    "table": {"columns": ["system", "P@1"], "rows": [["tuned | it", "0.7"]]},
    "tables": [{"title": "Guards", "columns": ["guard"], "rows": [["general"]]}],
    "notes": ["better than base"],
}


def results(tmp_path: Path, **values: list[float]) -> Path:
    rows = [
        {"query_id": f"q{n}", "system": system, "measure": "P@1", "value": value}
        for system, of_system in values.items()
        for n, value in enumerate(of_system)
    ]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "per_query.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "value", "met"),
    [
        ("P@1>=0.7", 0.7, True),
        ("P@1>0.7", 0.7, False),
        ("P@1 low>=0.65", 0.6, False),
        ("base: P@1<=0.6", 0.6, True),
        ("vs base: P@1>=0.05", 0.1, True),
        ("vs base: P@1 p<0.05", 0.01, True),
        ("vs base: P@1 p<0.001", 0.01, False),
        ("guard: P@1>=-0.005", -0.01, False),
        ("guard general: P@1 mean>=0.4", 0.49, True),
        ("guard: Spearman low>=-0.005", -0.002, True),
    ],
)
def test_a_requirement_and_its_value(tmp_path: Path, text: str, value: float, met: bool) -> None:
    (found,) = requirements.outcomes([parse(text)], tmp_path, SUMMARY)
    assert (found.text, found.value, found.met) == (text, value, met)


def test_a_p_is_not_met_by_what_is_worse(tmp_path: Path) -> None:
    worse = json.loads(json.dumps(SUMMARY))
    worse["systems"]["tuned"]["versus_base"]["P@1"] = compared(-0.1, -0.2, -0.02, 0.01)
    (found,) = requirements.outcomes([parse("vs base: P@1 p<0.05")], tmp_path, worse)
    assert (found.value, found.met) == (0.01, False)


def test_another_system_than_the_base_is_compared_query_by_query(tmp_path: Path) -> None:
    # 6 of 6 won: sign flips give 2 of 64.
    folder = results(tmp_path, tuned=[1.0] * 6 + [0.0] * 2, BM25=[0.0] * 8)
    (difference, p) = requirements.outcomes(
        [parse("vs BM25: P@1>0.5"), parse("vs BM25: P@1 p<0.05")], folder, SUMMARY
    )
    assert (difference.value, difference.met) == (0.75, True)
    assert (p.value, p.met) == (2 / 64, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("best: P@1>0", "no system is called best; there are BM25, base, tuned"),
        ("vs tuned: P@1>0", "tuned would be compared with itself"),
        ("guard other: P@1>0", "no guard is called other; there are general, stsb"),
        ("guard stsb: P@1>0", r"no such guard is measured by P@1; there are stsb \(Spearman\)"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        requirements.outcomes([parse(text)], tmp_path, SUMMARY)


def test_a_drop_is_judged_by_the_interval() -> None:
    # On both guards the mean lost at most 0.01; the interval of one reaches down to 0.03.
    found = requirements.kept(SUMMARY, 0.02)
    assert [(one.value, one.met) for one in found] == [(-0.03, False), (-0.002, True)]
    one_query = json.loads(json.dumps(SUMMARY))
    one_query["guards"][0]["systems"]["tuned"]["versus_base"].update(low=None, high=None)
    with pytest.raises(UsageError, match="one query alone has no interval; give a guard with more"):
        requirements.kept(one_query, 0.02)


def test_files_for_ci(tmp_path: Path) -> None:
    outcomes = [
        Outcome("P@1>=0.7", 0.71, True, "mean of tuned"),
        Outcome("P@1 low>=0.7 & <", 0.6, False, "low of tuned"),
    ]
    ci.write_junit(tmp_path / "gate.xml", outcomes)
    suites = ET.parse(tmp_path / "gate.xml").getroot()
    assert (suites.tag, suites.attrib) == ("testsuites", {"tests": "2", "failures": "1", "errors": "0"})
    met, failed = suites.findall("testsuite/testcase")
    assert (met.get("name"), met.find("failure")) == ("P@1>=0.7", None)
    failure = failed.find("failure")
    assert failure is not None
    assert failure.get("message") == "P@1 low>=0.7 & < (low of tuned: 0.6)"
    ci.write_markdown(tmp_path / "gate.md", SUMMARY, outcomes)
    text = (tmp_path / "gate.md").read_text("utf-8")
    assert text.startswith("## embedtrain eval: 300 queries of test\n\n**1 of 2 requirements met**\n")
    assert "| **not met** | `P@1 low>=0.7 & <` | low of tuned | 0.6 |" in text
    assert "| tuned \\| it | 0.7 |" in text
    assert "### Guards\n\n| guard |\n|---|\n| general |" in text
    assert text.endswith("- better than base\n")


# The gate as a CI job runs it


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base, one with noise in its weights as large as they are, and one whose vectors differ in two dimensions only."""
    folder = tmp_path_factory.mktemp("models")
    source = find_model(MINILM).path
    weights = load_file(source / "model.safetensors")
    torch.manual_seed(0)
    noisy = {
        name: value + torch.randn_like(value) * value.std() if value.is_floating_point() else value
        for name, value in weights.items()
    }
    # The last LayerNorm lets two of 384 dimensions vary: in every other all texts are the same.
    last = max(name for name in weights if name.endswith(".output.LayerNorm.weight"))
    kept = torch.zeros_like(weights[last])
    kept[:2] = weights[last][:2]
    collapsed = {**weights, last: kept}
    for name, changed in (("noisy", noisy), ("collapsed", collapsed)):
        shutil.copytree(source, folder / name)
        (folder / name / "model.safetensors").unlink()
        save_file(changed, folder / name / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("name", ["noisy", "collapsed"])
def test_a_corrupted_model_does_not_go_live(
    run_here: RunCli, tiny: Path, models: Path, tmp_path: Path, name: str
) -> None:
    command = [
        "eval",
        str(tiny),
        "--model",
        MINILM,
        "--model",
        str(models / name),
        "--out",
        "out",
        "--top-k",
        "20",
    ]
    command += ["--measure", "nDCG@10", "--require", "vs base: nDCG@10 low>=-0.05", "--require", "nDCG@10>=0.5"]
    done = run_here(*command, "--junit", "gate.xml", "--markdown", "gate.md", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "error: a requirement was not met: vs base: nDCG@10 low>=-0.05 (low of" in done.stderr
    assert "nDCG@10>=0.5 (mean of" in done.stderr
    assert done.stdout.count("NOT MET") == 2
    suites = ET.parse(tmp_path / "gate.xml").getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("2", "2")
    assert "**0 of 2 requirements met**" in (tmp_path / "gate.md").read_text("utf-8")
    # The same is said of what is there already, and what the base itself must meet is met.
    again = run_here(*command, "--json", cwd=tmp_path)
    printed = json.loads(again.stdout)
    assert (again.returncode, printed["up_to_date"]) == (3, True)
    assert [one["met"] for one in printed["requirements"]] == [False, False]
    fine = run_here(*command[:-4], "--require", "base: nDCG@10>=0.5", cwd=tmp_path)
    assert fine.returncode == 0, fine.stderr


def test_an_earlier_evaluation_must_be_kept_up_with(
    run_here: RunCli, tiny: Path, models: Path, tmp_path: Path
) -> None:
    command = ["eval", str(tiny), "--measure", "nDCG@10", "--top-k", "20"]
    assert run_here(*command, "--model", MINILM, "--out", "before", cwd=tmp_path).returncode == 0
    same = run_here(
        *command,
        "--model",
        MINILM,
        "--baseline",
        "before/summary.json",
        "--max-drop",
        "0.01",
        "--out",
        "now",
        cwd=tmp_path,
    )
    assert same.returncode == 0, same.stderr
    noisy = ("--model", models / "noisy", "--baseline", "before", "--max-drop", "0.01", "--out", "noisy")
    worse = run_here(*command, *noisy, cwd=tmp_path)
    assert worse.returncode == 3
    assert "--baseline nDCG@10 low>=-0.01 (the low end of -" in worse.stderr
    other = run_here(*command, *noisy, "--limit", "5", cwd=tmp_path)
    assert other.returncode == 1
    assert "--baseline before has 15 queries and this evaluation 5; 10 are in one of them only" in other.stderr
    counted = run_here(*command, *noisy, "--ties", "descending", cwd=tmp_path)
    assert counted.returncode == 1
    assert "--baseline before has another conventions (as trec_eval" in counted.stderr
    unmeasured = run_here("eval", str(tiny), "--measure", "P@5", *noisy, cwd=tmp_path)
    assert unmeasured.returncode == 1
    assert "--baseline before did not measure P@5" in unmeasured.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--require", "nDCG@10=>1"], "at column 8 one of"),
        (["--baseline", "before"], "--baseline needs --max-drop"),
        (["--max-drop", "0.1"], "--max-drop is about a --baseline or a --guard, and there is none"),
        (["--guard", "x"], "--guard measures models; give --model"),
        (["--baseline", "none", "--max-drop", "0.1"], "none does not exist"),
        (["--junit", "out/gate.xml"], "--junit out/gate.xml lies in --out"),
    ],
)
def test_wrong_flags_are_said_before_any_work(
    run_here: RunCli, tiny: Path, tmp_path: Path, flags: list[str], message: str
) -> None:
    done = run_here("eval", str(tiny), "--bm25", "--out", "out", *flags, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_values_of_one_query_have_no_interval(tmp_path: Path) -> None:
    folder = results(tmp_path, tuned=[1.0], BM25=[0.0])
    with pytest.raises(UsageError, match="one query alone has no interval"):
        requirements.outcomes([parse("vs BM25: P@1 low>0")], folder, SUMMARY)
    assert issubclass(UsageError, EmbedtrainError)


# The recipes


def test_the_gate_of_the_recipe_can_be_read() -> None:
    done = subprocess.run(
        ["make", "-n", "-f", "recipes/gate.mk", "BASELINE=live", "GUARDS=--guard general"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    words = shlex.split(done.stdout)
    texts = [words[place + 1] for place, word in enumerate(words) if word == "--require"]
    assert len(texts) == 4
    guards = {"sts-en-test": "Spearman", "general": "nDCG@10"}
    requirements.check([parse(text) for text in texts], ["nDCG@10", "Recall@100"], guards=guards, compared=True)
    assert words[words.index("--baseline") : words.index("--baseline") + 4] == [
        "--baseline",
        "live",
        "--max-drop",
        "0.02",
    ]
    flags = {option for parameter in COMMAND.commands["eval"].params for option in parameter.opts}  # type: ignore[attr-defined]
    assert {word for word in words if word.startswith("--")} <= flags


def test_the_workflow_runs_the_gate_and_shows_its_page() -> None:
    workflow = yaml.safe_load((ROOT / "recipes" / "github-actions.yml").read_text("utf-8"))
    steps = workflow["jobs"]["gate"]["steps"]
    runs = [step["run"] for step in steps if "run" in step]
    assert runs[:2] == ["make demo", "make -f recipes/gate.mk EMBEDTRAIN=.venv/bin/embedtrain"]
    assert "build/demo/gate.md" in runs[2]
