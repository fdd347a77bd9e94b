"""Artifacts know where they came from, are refused where they are of the wrong kind, and are not made twice.

Deliberate breaks that turn a test red: leaving the seed, the version or an input out of the key; counting the record
in the content hash; not looking at the files of an up-to-date folder; letting --out lie inside an input.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embedtrain import artifacts, atomic
from embedtrain.artifacts import Claim, Input
from embedtrain.errors import EmbedtrainError, UsageError


@dataclass(frozen=True)
class Options:
    top_k: int = 3
    names: tuple[str, ...] = ("a",)
    seed: int = 0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    return folder


def table_claim(out: Path, source: Path, options: Options | None = None, force: bool = False) -> Claim:
    inputs = [Input.of("collection", source)]
    return Claim(out, kind="mined", stage="mine", options=options or Options(), inputs=inputs, force=force)


def make_table(out: Path, source: Path) -> Claim:
    claim = table_claim(out, source)
    claim.write_table(pa.table({"query_id": ["1", "2"]}), dropped={"blank line": 1}, summary={"queries": 2})
    return claim


def folder_claim(out: Path, source: Path, options: Options | None = None) -> Claim:
    inputs = [Input.of("source", source)]
    return Claim(out, kind="collection", stage="harvest", options=options or Options(), inputs=inputs)


def make_folder(out: Path, source: Path) -> Claim:
    claim = folder_claim(out, source)
    with atomic.atomic_folder(out) as folder:
        (folder / "corpus.jsonl").write_text("{}\n")
        claim.write_folder(folder, rows=1, dropped={}, summary={})
    return claim


def test_content_counts_names_and_bytes_and_nothing_else(source: Path) -> None:
    first = artifacts.content_sha256(source)
    for name in (".hidden", "embedtrain.json", "README.md"):
        (source / name).write_text("x")
    assert artifacts.content_sha256(source) == first
    (source / "sub" / "README.md").write_text("x")
    assert artifacts.content_sha256(source) != first
    (source / "sub" / "README.md").unlink()
    (source / "a.txt").rename(source / "c.txt")
    assert artifacts.content_sha256(source) != first


def test_a_table_carries_its_record(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "mined.parquet"
    make_table(out, source)
    record = artifacts.require_kind(out, "mined")
    assert (record["kind"], record["stage"], record["rows"], record["seed"]) == ("mined", "mine", 2, 0)
    assert record["options"] == {"top_k": 3, "names": ["a"]}
    assert record["dropped"] == {"blank line": 1}
    entry = {"role": "collection", "name": "source", "sha256": artifacts.content_sha256(source)}
    assert record["inputs"] == [entry]
    assert str(tmp_path) not in json.dumps(record)


def test_the_same_work_gives_the_same_bytes(tmp_path: Path, source: Path) -> None:
    for name in ("one", "two"):
        make_table(tmp_path / f"{name}.parquet", source)
        make_folder(tmp_path / name, source)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    records = [(tmp_path / name / "embedtrain.json").read_bytes() for name in ("one", "two")]
    assert records[0] == records[1]


@pytest.mark.parametrize(
    "options", [Options(top_k=4), Options(names=("a", "b")), Options(seed=1)], ids=["option", "list", "seed"]
)
def test_up_to_date_until_something_changes(tmp_path: Path, source: Path, options: Options) -> None:
    out = tmp_path / "mined.parquet"
    make_table(out, source)
    assert table_claim(out, source).up_to_date
    assert not table_claim(out, source, force=True).up_to_date
    assert not table_claim(out, source, options).up_to_date
    (source / "a.txt").write_text("changed")
    assert not table_claim(out, source).up_to_date


def test_another_version_does_the_work_again(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path / "out", source)
    assert folder_claim(tmp_path / "out", source).up_to_date
    monkeypatch.setattr(artifacts, "__version__", "99")
    assert not folder_claim(tmp_path / "out", source).up_to_date


def test_a_folder_whose_files_changed_is_not_up_to_date(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    make_folder(out, source)
    (out / "corpus.jsonl").write_text("touched\n")
    assert not folder_claim(out, source).up_to_date


def test_the_wrong_kind_is_refused_with_the_command_that_makes_the_right_one(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "mined.parquet"
    make_table(out, source)
    with pytest.raises(
        EmbedtrainError,
        match=r"is a mined artifact where a scored one is needed; .*embedtrain score-teacher mined\.parquet",
    ):
        artifacts.require_kind(out, "scored")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foreign.parquet")
    with pytest.raises(EmbedtrainError, match=r"is not an artifact of embedtrain; .*embedtrain mine COLLECTION"):
        artifacts.require_kind(tmp_path / "foreign.parquet", "mined")
    with pytest.raises(EmbedtrainError, match=r"nowhere does not exist; .*embedtrain harvest SOURCE"):
        artifacts.require_kind(tmp_path / "nowhere", "collection")
    with pytest.raises(EmbedtrainError, match=r"source is not an artifact of embedtrain"):
        artifacts.require_kind(source, "model")


def test_another_schema_is_refused(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "mined.parquet"
    make_table(out, source)
    schema = artifacts.SCHEMA_VERSION["mined"]
    monkeypatch.setitem(artifacts.SCHEMA_VERSION, "mined", schema - 1)
    with pytest.raises(
        EmbedtrainError, match=f"has mined schema {schema} .* reads {schema - 1}; update embedtrain"
    ):
        artifacts.require_kind(out, "mined")
    monkeypatch.setitem(artifacts.SCHEMA_VERSION, "mined", schema + 1)
    with pytest.raises(EmbedtrainError, match=f"reads {schema + 1}; make it again with: embedtrain mine"):
        artifacts.require_kind(out, "mined")


def test_a_table_written_in_parts_is_one_artifact(tmp_path: Path, source: Path) -> None:
    whole, parts, nothing = (table_claim(tmp_path / f"{name}.parquet", source) for name in ("a", "b", "c"))
    table = pa.table({"query_id": ["q1", "q2", "q3"]})
    whole.write_table(table, dropped={}, summary={"n": 3})
    with parts.table_writer(table.schema) as writer:
        for start in (0, 3, 1):
            writer.write(table.slice(start, 1 if start == 0 else 2))
        writer.finish(dropped={}, summary={"n": 3})
    assert pq.read_table(parts.out).column("query_id").to_pylist() == ["q1", "q2", "q3"]
    assert artifacts.read_record(parts.out) == artifacts.read_record(whole.out) == parts.record
    with pytest.raises(RuntimeError, match="has no record"), nothing.table_writer(table.schema) as writer:
        writer.write(table)
    assert not nothing.out.exists()


def test_broken_artifacts_are_refused(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "mined.parquet"
    make_table(out, source)
    out.write_bytes(out.read_bytes()[:-5])
    with pytest.raises(EmbedtrainError, match=r"is not a whole Parquet file"):
        artifacts.require_kind(out, "mined")
    with pytest.raises(UsageError, match=r"is there and cannot be read; remove it"):
        table_claim(out, source)
    make_folder(tmp_path / "out", source)
    (tmp_path / "out" / "embedtrain.json").write_text("{")
    with pytest.raises(EmbedtrainError, match=r"embedtrain\.json is not JSON"):
        artifacts.require_kind(tmp_path / "out", "collection")


def test_outputs_that_would_destroy_something_are_refused(tmp_path: Path, source: Path) -> None:
    with pytest.raises(UsageError, match="is also the source that is read"):
        folder_claim(source, source)
    with pytest.raises(UsageError, match=r"lies inside the source .*source and would change it"):
        folder_claim(source / "out", source)
    with pytest.raises(UsageError, match=r"lies around the source"):
        folder_claim(tmp_path, source)
    with pytest.raises(UsageError, match=r"is a file that ends in \.parquet"):
        table_claim(tmp_path / "mined", source)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="exists and was not made by embedtrain"):
        folder_claim(tmp_path / "mine", source)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file; choose another --out"):
        folder_claim(tmp_path / "file", source)
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(UsageError, match="is a folder; choose another --out"):
        table_claim(tmp_path / "folder.parquet", source)
    make_folder(tmp_path / "out", source)
    with pytest.raises(UsageError, match="holds a collection artifact and this makes a model one"):
        Claim(tmp_path / "out", kind="model", stage="finetune", options=Options(), inputs=[])


def test_an_empty_folder_may_be_filled(tmp_path: Path, source: Path) -> None:
    (tmp_path / "out").mkdir()
    make_folder(tmp_path / "out", source)
    assert artifacts.require_kind(tmp_path / "out", "collection")["rows"] == 1


def test_ancestry_is_handed_on(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "collection"
    make_folder(out, source)
    make_table(tmp_path / "mined.parquet", out)
    record = artifacts.require_kind(tmp_path / "mined.parquet", "mined")
    (parent,) = record["ancestry"].values()
    assert list(record["ancestry"]) == [artifacts.content_sha256(out)]
    assert (parent["kind"], parent["inputs"][0]["sha256"]) == ("collection", artifacts.content_sha256(source))
    scored = Claim(
        tmp_path / "scored.parquet",
        kind="scored",
        stage="score-teacher",
        options=Options(),
        inputs=[Input.of("mined", tmp_path / "mined.parquet")],
    )
    kinds = {entry["kind"] for entry in scored.make_record(rows=0, dropped={}, summary={})["ancestry"].values()}
    assert kinds == {"mined", "collection"}


def test_inputs_are_found_again_by_content(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_table(tmp_path / "mined.parquet", Path("source"))
    record = artifacts.require_kind(tmp_path / "mined.parquet", "mined")
    assert artifacts.find_input(record, "collection", Path("mined.parquet")) == Path("source")
    monkeypatch.chdir("/")
    assert artifacts.find_input(record, "collection", tmp_path / "mined.parquet") == source
    with pytest.raises(UsageError, match="does not say which teacher it was made from; give --teacher"):
        artifacts.find_input(record, "teacher", tmp_path / "mined.parquet")
    (source / "a.txt").write_text("changed")
    with pytest.raises(UsageError, match="is not here or has changed since; give --collection"):
        artifacts.find_input(record, "collection", tmp_path / "mined.parquet")
    with pytest.raises(EmbedtrainError, match=r"was made from another collection \(source\)"):
        artifacts.check_same_input(record, "collection", artifacts.content_sha256(source), Path("mined.parquet"))


def test_the_name_of_an_input_is_never_a_machine_path(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Input.of("source", source / "sub").name == "source/sub"
    assert Input.of("source", Path("source/sub")).name == "source/sub"
    monkeypatch.chdir(source / "sub")
    assert Input.of("source", source).name == "source"
    with pytest.raises(EmbedtrainError, match="source nowhere does not exist; check the path"):
        Input.of("source", Path("nowhere"))


@pytest.mark.parametrize("name", ["mined.parquet", "mined[1].parquet"])  # a name is no pattern
def test_workspaces_of_other_work_are_cleared(tmp_path: Path, source: Path, name: str) -> None:
    claim = table_claim(tmp_path / name, source)
    claim.workspace.mkdir()
    stale = tmp_path / f".{name}.work-0123456789ab"
    stale.mkdir()
    again = table_claim(tmp_path / name, source)
    assert again.workspace.is_dir()
    assert not stale.exists()
    table_claim(tmp_path / name, source, force=True)
    assert not again.workspace.exists()


def test_an_abandoned_claim_leaves_no_empty_folders(tmp_path: Path, source: Path) -> None:
    claim = folder_claim(tmp_path / "deep" / "er" / "out", source)
    assert (tmp_path / "deep" / "er").is_dir()
    claim.abandon()
    assert not (tmp_path / "deep").exists()
