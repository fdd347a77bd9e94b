"""`embedtrain cache`: what is kept is listed, what is chosen is removed, and nothing that is not the store's own.

Breaks that turn a test red: a folder removed whole, links followed, files of another name removed, --model or
--older-than not passed on to the removal, the store of an earlier version not seen.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import RunCli

from embedtrain import cache
from embedtrain.store import DESCRIPTION, VectorStore, pack, text_key

DAY = 86_400


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with documents and queries of one model and scores of a teacher, last used 0, 10 and 40 days ago."""
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path / "cache"))
    made = (
        ("bi/encoder", {"kind": "vectors", "role": "document", "precision": "float32"}, 5, 4, 0),
        ("bi/encoder", {"kind": "vectors", "role": "query", "precision": "bfloat16"}, 2, 4, 10),
        ("teacher", {"kind": "scores", "precision": "float32"}, 3, 1, 40),
    )
    for model, identity, count, dimension, days in made:
        store = VectorStore(identity, {"model": model})
        store.add(pack(text_key(str(n)) for n in range(count)), np.ones((count, dimension), dtype=np.float32))
        used = time.time() - days * DAY
        os.utime(store.folder / DESCRIPTION, (used, used))
    return tmp_path / "cache"


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()
    }


def test_what_is_there_is_listed_by_size(folder: Path) -> None:
    found = cache.contents()
    assert [(e.model, e.what, e.vectors, e.dimension, e.precision) for e in found] == [
        ("bi/encoder", "document", 5, 4, "float32"),
        ("bi/encoder", "query", 2, 4, "bfloat16"),
        ("teacher", "scores", 3, 1, "float32"),
    ]
    assert sum(e.bytes for e in found) == sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def test_a_choice_is_listed_and_removed_alone(folder: Path) -> None:
    assert [e.what for e in cache.contents("bi/encoder")] == ["document", "query"]
    assert [e.what for e in cache.contents(older_than=10)] == ["query", "scores"]
    assert [e.what for e in cache.contents("bi/encoder", 10)] == ["query"]
    assert cache.contents("encoder") == []
    assert cache.clear(cache.contents("bi/encoder", 10)) == []
    assert [e.what for e in cache.contents()] == ["document", "scores"]


def test_opening_a_store_counts_as_use(folder: Path) -> None:
    VectorStore({"kind": "scores", "precision": "float32"})
    assert [e.what for e in cache.contents(older_than=5)] == ["query"]


def test_nothing_that_is_not_the_store_s_own_is_removed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "000000-1-00000000.safetensors").write_bytes(b"theirs")
    own = folder / "vectors" / cache.contents()[0].id
    theirs = [
        folder / "notes.txt",
        folder / "models" / "000000-1-00000000.safetensors",
        folder / "vectors" / "model.safetensors",
        folder / "vectors" / "not-a-store" / "000000-1-00000000.safetensors",
        own / "model.safetensors",
        own / "sub" / "000000-1-00000000.safetensors",
    ]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"theirs")
    (own / "000009-1-00000000.safetensors").symlink_to(elsewhere / "000000-1-00000000.safetensors")
    (folder / "vectors" / ("0" * 32)).symlink_to(elsewhere)
    (own / ".000001-1-00000000.safetensors.1.partial").write_bytes(b"ours, half")
    assert cache.clear(cache.contents()) == [own]
    kept = {path.relative_to(folder).as_posix() for path in theirs}
    assert files(folder) == kept | {
        f"vectors/{own.name}/000009-1-00000000.safetensors",
        f"vectors/{'0' * 32}",
    }
    assert (elsewhere / "000000-1-00000000.safetensors").read_bytes() == b"theirs"


def test_what_an_earlier_version_left_is_listed_and_goes(folder: Path) -> None:
    for entry in cache.contents():
        (folder / "vectors" / entry.id / DESCRIPTION).unlink()
    found = cache.contents()
    assert {e.model for e in found} == {cache.EARLIER}
    assert sum(e.vectors for e in found) == 10
    cache.clear(found)
    assert list(folder.iterdir()) == []


def test_an_empty_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path / "none"))
    assert cache.contents() == []
    assert cache.clear([]) == []
    assert not (tmp_path / "none").exists()


def test_the_command(run_cli: RunCli, folder: Path) -> None:
    where = str(folder)
    done = run_cli("cache", EMBEDTRAIN_CACHE=where)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bi/encoder" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("cache: 10 vectors, ")
    assert done.stdout.endswith(f"in {folder / 'vectors'}\n")
    listed = json.loads(run_cli("cache", "--json", EMBEDTRAIN_CACHE=where).stdout)
    assert [entry["vectors"] for entry in listed["entries"]] == [5, 2, 3]
    assert listed["cleared"] is False
    done = run_cli(
        "cache", "--clear", "--model", "bi/encoder", "--older-than", "5", "--json", EMBEDTRAIN_CACHE=where
    )
    assert json.loads(done.stdout)["cleared"] is True
    assert [e.what for e in cache.contents()] == ["document", "scores"]
    done = run_cli("cache", "--clear", EMBEDTRAIN_CACHE=where)
    assert done.stdout.splitlines()[-1].startswith("removed: 8 vectors, ")
    assert list(folder.iterdir()) == []
    assert "cache: 0 vectors, 0 bytes, in " in run_cli("cache", EMBEDTRAIN_CACHE=where).stdout
