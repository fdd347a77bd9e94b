"""What follows on reading: caps, consistency, and a run that is killed anywhere and goes on.

Deliberate breaks that turn a test red: what was judged capped too; the first pairs kept in the place of the heaviest; any
judge's word enough; a pair ranked among another part's documents; a counter saved before the items it counts; a loop that
forgets how far it was; a step done twice.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import RunCli, write_collection
from harvested import draft_of, pairs, qrels, queries

from embedtrain.collection import Collection
from embedtrain.console import silent
from embedtrain.errors import UsageError
from embedtrain.harvest.caps import cap
from embedtrain.harvest.consistency import keep_consistent, parse
from embedtrain.harvest.draft import Document, Draft, Query

# -- caps ----------------------------------------------------------------------------------------------------------


def popular(weights: dict[str, float]) -> Draft:
    draft = Draft()
    one = draft.add_weak_document("", "The popular document.", {})
    for query, weight in weights.items():
        draft.add_weak_pair(query, one, "click", weight=weight)
    draft.add_weak_pair("rare", draft.add_weak_document("", "Another.", {}), "click")
    return draft


def test_popular_documents_keep_their_heaviest_pairs() -> None:
    draft = popular({"a": 0.1, "b": 0.9, "c": 0.5, "d": 0.7})
    cap(draft, 2, 0, seed=0)
    assert sorted(query for query, _ in pairs(draft)) == ["b", "d", "rare"]
    assert draft.dropped == {"pair of a popular document": 2}
    assert draft.notes == ["2 pairs beyond 2 queries a document were left out: 'The popular document.' has 4"]
    assert [query.text for query in queries(draft).values()] == ["b", "d", "rare"]
    draft = popular({"a": 0.1, "b": 0.9})
    cap(draft, 2, 1, seed=0)
    assert len(pairs(draft)) == 3
    assert not draft.notes


def test_among_equals_a_stable_hash_chooses() -> None:
    names = [f"query {n}" for n in range(30)]
    kept = []
    for order in (names, names[::-1], [*names, *(f"later {n}" for n in range(3))]):
        draft = popular(dict.fromkeys(order, 1.0))
        cap(draft, 10, 0, seed=1)
        kept.append({query for query, _ in pairs(draft)} - {"rare"})
    assert kept[0] == kept[1]
    assert len(kept[2] & kept[0]) >= 7  # three that came later take the place of three at most
    draft = popular(dict.fromkeys(names, 1.0))
    cap(draft, 10, 0, seed=2)
    assert {query for query, _ in pairs(draft)} - {"rare"} != kept[0]


def test_templates_are_capped_and_judgements_are_not() -> None:
    draft = draft_of(
        {f"d{n}": Document("", f"document {n}", {}) for n in range(5)},
        {"q": Query("judged", {})},
        {"train": {"q": {f"d{n}": 1.0 for n in range(5)}}},
    )
    for n in range(6):
        draft.add_weak_pair("Overview", draft.add_weak_document("", f"Section {n}.", {}), "heading")
    draft.add_weak_pair("Overview", "d0", "skip", grade=0.0)
    cap(draft, 2, 4, seed=0)
    found = qrels(draft)["train"]
    assert len(found.pop("q")) == 5
    (judged,) = found.values()
    assert sorted(judged.values()) == [0.0, 1.0, 1.0, 1.0, 1.0]  # a negative takes no place
    assert draft.dropped == {"pair of a query for many documents": 2}


# -- consistency ---------------------------------------------------------------------------------------------------


def weak(rows: list[tuple[str, str]]) -> Draft:
    draft = Draft()
    for query, text in rows:
        draft.add_weak_pair(query, draft.add_weak_document("", text, {}), "heading")
    return draft


ROWS = [
    ("reset password", "The password is reset in the settings."),
    ("invoice address", "An invoice is sent to the address of the contract."),
    ("invoice address", "The weather was fine on that day."),  # shares no word with its query
    ("password", "Cats purr and dogs bark."),
]


def test_pairs_stay_that_the_judge_finds() -> None:
    draft = weak(ROWS)
    keep_consistent(draft, ["bm25"], 1, 100, 0, silent)
    assert pairs(draft) == ROWS[:2]
    assert draft.dropped == {"pair that is not consistent": 2}
    assert draft.notes == ["consistent by bm25 (top 1): 2 of 4 pairs of heading (50.0%)"]


def test_what_was_judged_is_not_judged_again() -> None:
    draft = draft_of({"d": Document("", "Cats purr.", {})}, {"q": Query("dogs", {})}, {"train": {"q": {"d": 1.0}}})
    draft.add_weak_pair("dogs", draft.add_weak_document("", "Dogs bark.", {}), "heading")
    keep_consistent(draft, ["bm25"], 1, 100, 0, silent)
    assert pairs(draft) == [("dogs", "Cats purr."), ("dogs", "Dogs bark.")]


def test_a_document_is_ranked_among_its_part() -> None:
    # 40 documents that all hold the word; each query finds 40 of them in one part, and all of its part in parts of 4.
    rows = [(f"word{n} shared", f"The shared text number {n} with word{n + 1000}.") for n in range(40)]
    whole, parts = weak(rows), weak(rows)
    keep_consistent(whole, ["bm25"], 5, 40, 0, silent)
    keep_consistent(parts, ["bm25"], 5, 4, 0, silent)
    assert len(pairs(whole)) == 5
    assert len(pairs(parts)) > 25


def test_both_judges_must_agree() -> None:
    draft = weak([*ROWS, ("kittens", "Cats purr, and so do their young.")])
    keep_consistent(draft, ["bm25", "sentence-transformers/all-MiniLM-L6-v2"], 1, 100, 0, silent)
    assert pairs(draft) == ROWS[:2]
    alone = weak([*ROWS, ("kittens", "Cats purr, and so do their young.")])
    keep_consistent(alone, ["sentence-transformers/all-MiniLM-L6-v2"], 1, 100, 0, silent)
    assert ("kittens", "Cats purr, and so do their young.") in pairs(alone)


def test_judges_are_named_once() -> None:
    assert parse("bm25, some/model") == ["bm25", "some/model"]
    for text in ("bm25,bm25", ",", "bm25,"):
        with pytest.raises(UsageError, match="--consistency "):
            parse(text)


# -- killed and gone on --------------------------------------------------------------------------------------------

# Keeps what was done after every item, and kills itself after so many of them.
KILLED = """
import os, signal, sys
from embedtrain.harvest import ledger
ledger._LOOK, ledger._SECONDS = 1, -1.0
left = int(sys.argv.pop(1))
whole = ledger.Ledger.drop, ledger.Ledger._done
def done(self, name, items, *, whole):
    global left
    real(self, name, items, whole=whole)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
real, ledger.Ledger._done = ledger.Ledger._done, done
from embedtrain.cli import main
sys.argv = ["embedtrain", *sys.argv[1:]]
main()
"""


def sources(folder: Path) -> list[str]:
    write_collection(
        folder / "judged",
        [{"_id": f"d{n}", "title": f"Title {n}", "text": f"text {n}" if n else ""} for n in range(4)]
        + [{"_id": "blank", "text": " "}],
        [{"_id": f"q{n}", "text": f"question {n}"} for n in range(3)],
        {"train": [("q0", "d1", 1), ("q0", "blank", 1), ("q1", "d2", 1)], "test": [("q2", "d3", 1)]},
    )
    rows = [{"query": f"ask {n}", "document": "" if n == 2 else f"answer {n % 4}"} for n in range(6)]
    (folder / "pairs.jsonl").write_text("\n".join(json.dumps(row) for row in [*rows, rows[0]]) + "\n\n")
    (folder / "docs").mkdir()
    for n in range(3):
        (folder / "docs" / f"{n}.md").write_text(
            f"# Page {n}\n\nThis page says something about number {n}.\n\n## Part {n}\n\nAnd this part says more of it.\n"
        )
    return ["judged", "pairs.jsonl", "docs", "--split", "dev=0.3", "--dropped", "dropped.jsonl"]


def content(folder: Path) -> dict[str, bytes]:
    files = [*(folder / "c").rglob("*"), folder / "dropped.jsonl"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("after", [1, 6, 17, 30, 38])
def test_a_killed_run_goes_on_to_the_same_bytes(run_here: RunCli, tmp_path: Path, after: int) -> None:
    arguments = ["harvest", *sources(tmp_path), "--format", "jsonl", "--out", "c"]
    assert run_here(*arguments).returncode == 0
    whole = content(tmp_path)
    assert len(whole["dropped.jsonl"].splitlines()) >= 3
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "dropped.jsonl").unlink()
    struck = subprocess.run(
        [sys.executable, "-c", KILLED, str(after), *arguments, "-q"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert struck.returncode == -signal.SIGKILL, struck.stderr
    assert not (tmp_path / "c" / "corpus.jsonl").exists()
    done = run_here(*arguments)
    assert done.returncode == 0, done.stderr
    assert content(tmp_path) == whole
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_documents_and_drops_of_the_command(run_here: RunCli, tmp_path: Path) -> None:
    result = run_here("harvest", *sources(tmp_path), "--out", "c", "--json", "-q")
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["dropped"] == {
        "blank line": 1,
        "empty document": 2,
        "judgement of an empty document": 1,
        "repeated pair": 1,
    }
    rows = [json.loads(line) for line in (tmp_path / "dropped.jsonl").read_text("utf-8").splitlines()]
    # Blank lines are counted by their reader, without a row.
    assert sorted(row["reason"] for row in rows) == [
        "blank line", "empty document", "empty document", "judgement of an empty document", "repeated pair",
    ]  # fmt: skip
    assert said["sources"] == {"heading": 3, "table": 5, "title": 3}


def test_a_missing_source_or_output(run_here: RunCli, tmp_path: Path) -> None:
    for arguments, sentence in (
        (["--out", "c"], "missing SOURCE: name the files or folders to read"),
        (["x.jsonl"], "missing --out: name the folder to write"),
        (["*.jsonl", "--out", "c"], "*.jsonl matches no file; check the pattern"),
        (["-", "--out", "c"], "standard input has no name that tells its format; give --input-format, as jsonl"),
    ):
        result = run_here("harvest", *arguments)
        assert result.returncode in (1, 2)
        assert result.stderr.startswith("error: ")
        assert sentence in result.stderr


def test_time_copies_and_parts_from_the_command_line(run_here: RunCli, tmp_path: Path) -> None:
    rows = [
        {"query": f"title {n}", "document": f"Title {n}\nIts text.", "when": f"2024-01-{n + 1:02}"}
        for n in range(10)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    command = [
        "harvest",
        "t.jsonl",
        "--time-column",
        "when",
        "--split",
        "test=0.2",
        "--split-by",
        "time",
        "--json",
        "-q",
    ]
    refused = run_here(*command, "--out", "c")
    assert "no documents" not in refused.stderr
    assert "query stands in the first line of its document 10" in refused.stderr  # nothing is left
    parts = ["--consistency", "bm25", "--consistency-k", "1", "--consistency-sample", "5"]
    kept = run_here(*command, "--keep-copies", *parts, "--out", "c")
    assert kept.returncode == 0, kept.stderr
    assert json.loads(kept.stdout)["queries"] == {"test": 2, "train": 8}
    found = Collection(tmp_path / "c")
    newest = {found.queries.by_id(query) for query in found.qrels("test")}
    assert newest == {"title 8", "title 9"}


def test_a_file_of_dropped_rows_that_is_gone_is_written_again(run_here: RunCli, tmp_path: Path) -> None:
    table = tmp_path / "rows.jsonl"
    table.write_text(
        '{"query": "red fox", "document": "It lives in dens."}\n{"query": "", "document": "Nobody asks."}\n',
        "utf-8",
    )
    dropped = tmp_path / "dropped.jsonl"
    command = ["harvest", str(table), "--dropped", str(dropped), "--out", str(tmp_path / "out"), "--json"]
    first = json.loads(run_here(*command).stdout)
    text = dropped.read_text("utf-8")
    assert "empty query" in text
    assert json.loads(run_here(*command).stdout)["up_to_date"]
    dropped.unlink()
    again = json.loads(run_here(*command).stdout)
    assert (first["up_to_date"], again["up_to_date"]) == (False, False)
    assert dropped.read_text("utf-8") == text
