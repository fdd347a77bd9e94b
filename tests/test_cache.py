"""`embedtrain cache`: what is kept is listed, what is chosen is removed, and nothing that is not the store's own.

Breaks that turn a test red: a folder removed whole, links followed, files of another name removed, --model or
--older-than not passed on to the removal, the store of an earlier version not seen; replies removed under a run that
reads them again, replies of another model or a later day removed, the file of the replies left as large as it was.
"""

import datetime
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, RunCli

from embedtrain import cache, replies
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.generated.cache import RepliesCache, reply_key
from embedtrain.harvest.generated.replies import Reply
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
    assert cache.contents(older_than=10**9) == []
    assert cache.contents("encoder") == []
    cleared = cache.clear(cache.contents("bi/encoder", 10))
    assert ([e.what for e in cleared.entries], cleared.stays) == (["query"], [])
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
    assert cache.clear(cache.contents()).stays == [f"{own} stays: it holds files that are not the cache's"]
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
    assert cache.clear([]) == cache.Cleared([], [])
    assert not (tmp_path / "none").exists()


def test_the_command(run_cli: RunCli, folder: Path) -> None:
    where = str(folder)
    done = run_cli("cache", EMBEDTRAIN_CACHE=where)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bi/encoder" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("cache: 10 vectors, 0 replies, ")
    assert done.stdout.endswith(f"in {folder}\n")
    listed = json.loads(run_cli("cache", "--json", EMBEDTRAIN_CACHE=where).stdout)
    assert [entry["vectors"] for entry in listed["entries"]] == [5, 2, 3]
    assert listed["cleared"] is False
    done = run_cli(
        "cache", "--clear", "--model", "bi/encoder", "--older-than", "5", "--json", EMBEDTRAIN_CACHE=where
    )
    assert json.loads(done.stdout)["cleared"] is True
    assert [e.what for e in cache.contents()] == ["document", "scores"]
    done = run_cli("cache", "--clear", EMBEDTRAIN_CACHE=where)
    assert done.stdout.splitlines()[-1].startswith("removed: 8 vectors, 0 replies, ")
    assert list(folder.iterdir()) == []
    assert "cache: 0 vectors, 0 replies, 0 bytes, in " in run_cli("cache", EMBEDTRAIN_CACHE=where).stdout


# -- replies -----------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with replies of two models: 3 of `big` used today, 5 of it 40 days ago, 2 of `small` 10 days ago."""
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path / "cache"))
    with RepliesCache() as open_cache:
        for number in range(8):
            open_cache.keep(reply_key({"n": number}), Reply(f"{number} " * 2_000), "big")
        for number in range(8, 10):
            open_cache.keep(reply_key({"n": number}), Reply("ä" * 1_000), "small")
        for first, last, days in ((3, 8, 40), (8, 10, 10)):
            used = (datetime.date.today() - datetime.timedelta(days)).isoformat()
            keys = [(used, reply_key({"n": number})) for number in range(first, last)]
            open_cache._db.executemany("UPDATE replies SET used = ? WHERE key = ?", keys)
    return tmp_path / "cache"


def days_ago(days: int) -> datetime.date:
    return datetime.date.today() - datetime.timedelta(days)


def test_replies_are_listed_by_model(kept: Path) -> None:
    big, small = cache.contents()
    assert (big.model, big.what, big.count, big.last_used) == ("big", "replies", 8, days_ago(0))
    assert (small.model, small.what, small.count, small.last_used) == ("small", "replies", 2, days_ago(10))
    whole = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    assert abs(big.bytes + small.bytes - whole) <= 1
    # 4,000 bytes of text and 100 of the rest each, and 2,000 and 100.
    assert big.bytes / small.bytes == pytest.approx(8 * 4_100 / (2 * 2_100), rel=1e-3)


def test_replies_of_a_model_and_an_age_are_chosen(kept: Path) -> None:
    assert [(e.model, e.count, e.last_used) for e in cache.contents(older_than=10)] == [
        ("big", 5, days_ago(40)),
        ("small", 2, days_ago(10)),
    ]
    assert [(e.model, e.count) for e in cache.contents("big", 11)] == [("big", 5)]
    assert cache.contents("big", 41) == cache.contents("medium") == []
    before = (kept / "replies" / "replies-2.sqlite").stat().st_size
    cleared = cache.clear(cache.contents("big", 11))
    assert ([e.count for e in cleared.entries], cleared.stays) == ([5], [])
    assert (kept / "replies" / "replies-2.sqlite").stat().st_size < before - 4 * 4_000
    with RepliesCache() as open_cache:
        found = [open_cache.find(reply_key({"n": number})) is not None for number in range(10)]
    assert found == [True] * 3 + [False] * 5 + [True] * 2
    # That was use: nothing is 10 days old any more.
    assert cache.contents(older_than=1) == []
    cache.clear(cache.contents())
    assert cache.contents() == []
    with RepliesCache() as open_cache:
        assert open_cache.find(reply_key({"n": 0})) is None


HOLDS = """
import sys
from embedtrain.harvest.generated.cache import RepliesCache, reply_key
from embedtrain.harvest.generated.replies import Reply
with RepliesCache() as cache:
    print("open", flush=True)
    sys.stdin.readline()
    cache.keep(reply_key({"new": 1}), Reply("late"), "big")
    print(all(cache.find(reply_key({"n": number})) for number in range(10)), flush=True)
"""


def test_a_run_that_reads_its_replies_again_is_not_disturbed(kept: Path, run_here: RunCli) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert run.stdin
    assert run.stdout
    assert run.stdout.readline() == "open\n"
    assert [e.count for e in cache.contents()] == [8, 2]  # to look is no harm
    done = run_here("cache", "--clear")
    assert done.returncode == 0
    assert done.stdout.startswith("removed: 0 vectors, 0 replies, 0 bytes, in ")
    file = kept / "replies" / "replies-2.sqlite"
    assert done.stderr == f"{file} stays as it is: a run has it open; clear it when that has ended\n"
    listed = json.loads(run_here("cache", "--clear", "--json").stdout)
    assert (listed["entries"], len(listed["stays"])) == ([], 1)
    said, _ = run.communicate("go on\n", timeout=60)
    assert (run.returncode, said) == (0, "True\n")
    assert run_here("cache", "--clear").stdout.splitlines()[-1].startswith("removed: 0 vectors, 11 replies, ")


def test_a_run_that_starts_while_replies_are_removed_waits(kept: Path) -> None:
    with replies._opened(replies.replies_file()) as database:
        assert replies._alone(database)
        run = subprocess.Popen(
            [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        time.sleep(1.5)
        assert run.poll() is None
    said, _ = run.communicate("\n", timeout=60)
    assert (run.returncode, said) == (0, "open\nTrue\n")


def test_replies_of_another_form_and_broken_ones_can_be_removed(kept: Path, tmp_path: Path) -> None:
    folder = kept / "replies"
    with sqlite3.connect(folder / "replies-1.sqlite") as database:
        database.execute("CREATE TABLE replies (key BLOB PRIMARY KEY, text TEXT NOT NULL)")
        database.execute("INSERT INTO replies VALUES (x'00', 'old')")
    database.close()
    for name in ("replies-3.sqlite", "notes.sqlite"):  # of a later version, and the user's own
        (folder / name).write_bytes(b"theirs")
    (folder / "replies-0.sqlite").symlink_to(tmp_path / "elsewhere.sqlite")
    used = time.time() - 20 * DAY
    os.utime(folder / "replies-1.sqlite", (used, used))
    assert [(e.model, e.count) for e in cache.contents(older_than=20)] == [("big", 5), (cache.EARLIER, 1)]
    assert cache.contents(cache.EARLIER, 21) == []
    cache.clear(cache.contents(cache.EARLIER))
    assert sorted(path.name for path in folder.iterdir()) == [
        *("notes.sqlite", "replies-0.sqlite", "replies-2.sqlite", "replies-3.sqlite")
    ]
    replies.replies_file().write_bytes(b"no database, " * 100)
    with pytest.raises(EmbedtrainError, match="file is not a database"):
        RepliesCache()
    assert [(e.model, e.count, e.bytes) for e in cache.contents()] == [(cache.BROKEN, 0, 1_300)]
    cache.clear(cache.contents())
    with RepliesCache() as open_cache:
        assert open_cache.find(b"0" * 32) is None
    replies.replies_file().write_bytes(b"")  # as it is before its table is made
    assert cache.contents() == []


def test_the_command_shows_replies(kept: Path, run_here: RunCli) -> None:
    done = run_here("cache")
    assert (done.returncode, done.stderr) == (0, "")
    shown = [line.split() for line in done.stdout.splitlines() if line.split()[:1] in (["big"], ["small"])]
    assert [row[:5] for row in shown] == [["big", "replies", "8", "-", "-"], ["small", "replies", "2", "-", "-"]]
    assert done.stdout.splitlines()[-1].startswith("cache: 0 vectors, 10 replies, ")
    (entry,) = json.loads(run_here("cache", "--model", "small", "--json").stdout)["entries"]
    assert entry == {
        "id": "replies-2.sqlite",
        "model": "small",
        "what": "replies",
        "replies": 2,
        "bytes": entry["bytes"],
        "last_used": days_ago(10).isoformat(),
    }
    done = run_here("cache", "--clear", "--model", "big", "--older-than", "30")
    assert done.stdout.splitlines()[-1].startswith("removed: 0 vectors, 5 replies, ")
    assert [(e.model, e.count) for e in cache.contents()] == [("big", 3), ("small", 2)]


def test_listing_loads_no_heavy_library(kept: Path) -> None:
    script = "import sys; from embedtrain import cache; cache.contents(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "pyarrow", "scipy", "ftfy"} & set(done.stdout.split())
