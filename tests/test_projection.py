"""`--project`: a layer to the dimensions of the model that is followed, fitted, trained, and kept in the saved folder.

Breaks that turn a test red: the layer behind the normalisation, a random start, the matrix the wrong way round, one
tower without its layer.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import RunCli
from sentence_transformers import SentenceTransformer
from tiny_models import checkpoint

from embedtrain import backbone, console, projection
from embedtrain.collection import Collection
from embedtrain.drawing import Row
from embedtrain.encoder import Encoder
from embedtrain.errors import UsageError
from embedtrain.models import MINILM, find_model
from embedtrain.processes import Processes
from embedtrain.rows import Sources

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bi-encoder whose vectors are shorter than MiniLM's."""
    folder = tmp_path_factory.mktemp("teacher")
    raw = find_model(str(checkpoint(folder / "raw", "mlm")))
    Encoder.load(raw, CPU, pooling="auto").save(folder / "teacher")
    return folder / "teacher"


def load(name: Path | str) -> Encoder:
    return Encoder.load(find_model(str(name)), CPU)


def rows_of(collection: Path) -> list[Row]:
    return Sources([Collection(collection)]).pairs("train")[0]


def towards(encoder: Encoder, teacher: Path, tiny: Path) -> tuple[Encoder, str]:
    sources = Sources([Collection(tiny)])
    return projection.towards(encoder, load(teacher), sources, rows_of(tiny), 0, console.silent, Processes())


def near(model: Encoder, teacher: Encoder, texts: list[str]) -> float:
    own, wanted = (encoder.encode(texts, "document", stored=False)[:] for encoder in (model, teacher))
    return projection.closeness(own, wanted)


def test_the_fit_by_hand() -> None:
    own = np.eye(2, dtype=np.float32)
    wanted = np.array([[2, 0, 1], [0, 4, 0]], dtype=np.float32)
    # U'U = 1 and its mean diagonal 1, so that the ridge is 0.01: W = V' / 1.01.
    assert projection.fitted(own, wanted) == pytest.approx(wanted.T / 1.01)
    with pytest.raises(ValueError, match="every vector is zero"):
        projection.fitted(np.zeros((3, 2), np.float32), wanted[[0, 0, 1]])


def test_the_fit_finds_a_linear_map() -> None:
    rng = np.random.default_rng(0)
    own = rng.normal(size=(500, 8)).astype(np.float32)
    matrix = rng.normal(size=(12, 8)).astype(np.float32)
    found = projection.fitted(own, own @ matrix.T)
    assert np.abs(found - matrix).max() < 0.05
    assert projection.closeness(own @ found.T, own @ matrix.T) > 0.999
    # Fewer texts than dimensions: still a number everywhere.
    assert np.isfinite(projection.fitted(own[:3], (own @ matrix.T)[:3])).all()


def test_closeness_by_hand() -> None:
    one = np.array([[1, 0], [1, 1], [0, 0]], dtype=np.float32)
    other = np.array([[2, 0], [0, 3], [1, 0]], dtype=np.float32)
    assert projection.closeness(one, other) == pytest.approx((1 + 0.5**0.5 + 0) / 3)


def test_the_layer_is_part_of_the_model(teacher: Path, tiny: Path, tmp_path: Path) -> None:
    base = load(MINILM)
    base.set_prompts("query: ", None)
    found, note = towards(base, teacher, tiny)
    wide = load(teacher).dimension
    assert (base.dimension, found.dimension) == (384, wide)
    assert f"teacher's {wide} dimensions" in note
    texts = ["a cell", "the gene of a mouse"]
    vectors = found.encode(texts, "query", stored=False)[:]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    found.save(tmp_path / "saved")
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu", local_files_only=True)
    assert np.abs(plain.encode_query(texts) - vectors).max() < 1e-5
    assert load(tmp_path / "saved").prompts["query"] == "query: "
    # Fitted, it starts nearer to the teacher than a layer that was drawn.
    rows = rows_of(tiny)
    shown = [Sources([Collection(tiny)]).document(row.positives[0]) for row in rows[:20]]
    drawn = torch.nn.Linear(384, wide, bias=False).weight.detach().numpy()
    assert near(found, load(teacher), shown) > 0.5 > near(projection._behind(base, drawn), load(teacher), shown)


def test_both_towers_have_the_layer(teacher: Path, tiny: Path) -> None:
    found, _ = towards(load(MINILM), teacher, tiny)
    towers = backbone.two_towers(found)
    assert towers.dimension == found.dimension
    for role in ("query", "document"):
        one, both = (model.encode(["a cell"], role, stored=False)[:] for model in (found, towers))
        assert np.abs(one - both).max() < 1e-6
    with pytest.raises(UsageError, match=r"--project: .* has two towers already"):
        towards(towers, teacher, tiny)


def test_a_small_model_follows_a_bigger_one(run_here: RunCli, tiny: Path, tmp_path: Path) -> None:
    command = ["pretrain", tiny, "--static", "8", "--batch-size", "8", "--json"]
    command += ["--loss", "cosine", "--embedding-teacher", MINILM, "--epochs", "10", "--out", "out"]
    done = run_here(*command)
    assert done.returncode == 2
    assert "8 dimensions and the teacher 384" in done.stderr
    assert "add --project" in done.stderr
    done = run_here(*command, "--project")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (note,) = (note for note in told["notes"] if "was added and is kept" in note)
    before = float(note.split("mean cosine with the teacher ")[1].rstrip(")"))
    tuned, minilm = load(tmp_path / "out"), load(MINILM)
    assert tuned.dimension == 384
    sources = Sources([Collection(tiny)])
    texts = [sources.document(row.positives[0]) for row in rows_of(tiny)]
    assert near(tuned, minilm, texts) > before + 0.02


def test_a_projection_is_for_cosine(run_here: RunCli, tiny: Path) -> None:
    done = run_here(
        "pretrain", tiny, "--loss", "score", "--embedding-teacher", MINILM, "--project", "--out", "out"
    )
    assert done.returncode == 2
    assert "--project acts on --loss cosine" in done.stderr
