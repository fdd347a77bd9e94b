"""The exported graph gives torch's vectors on texts of several lengths, or is not kept.

Breaks that turn a test red: an axis that is not dynamic; attention_mask left out; a difference that is not looked at;
a file left behind by an export that failed; two towers let through.
"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import checkpoint

from embedtrain import backbone, export
from embedtrain.encoder import Encoder
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.models import MINILM, find_model

CPU = torch.device("cpu")
TEXTS = [
    "a",
    "Zero-dimensional biomaterials show inductive properties.",
    "word " * 400,
    "cells of the mouse " * 20,
]

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in export._NEEDED),
    reason="onnx, onnxscript and onnxruntime are not installed (the extra embedtrain[onnx])",
)


def tiny(folder: Path, kind: str) -> Encoder:
    return Encoder.load(find_model(str(checkpoint(folder / "raw", kind))), CPU, pooling="auto")


@needs_onnx
def test_minilm_is_exported_as_sentence_transformers_expects_it(tmp_path: Path) -> None:
    import onnxruntime

    encoder = Encoder.load(find_model(MINILM), CPU)
    done = export.to_onnx(tmp_path, encoder, TEXTS)
    assert done.path == tmp_path / "onnx" / "model.onnx"
    assert [file.name for file in done.path.parent.iterdir()] == ["model.onnx"]
    assert 0 < done.difference < 1e-5
    session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    # The names optimum's ORTModelForFeatureExtraction looks for.
    assert {one.name for one in session.get_inputs()} == {"input_ids", "attention_mask", "token_type_ids"}
    assert [one.name for one in session.get_outputs()] == ["last_hidden_state"]
    # A batch and a length that were not in the export or in its check.
    features = encoder.model.preprocess(["immune system", "a", "b c d", "e", "f"])
    (tokens,) = session.run(None, {one.name: features[one.name].numpy() for one in session.get_inputs()})
    expected = encoder.model[0](dict(features))["token_embeddings"].detach().numpy()
    assert tokens.dtype == np.float32
    assert np.abs((tokens - expected)[features["attention_mask"].numpy() == 1]).max() < 1e-4


@needs_onnx
@pytest.mark.parametrize("kind", ["mlm", "qwen2", "t5"])
def test_encoders_and_decoders_are_exported(tmp_path: Path, kind: str) -> None:
    encoder = tiny(tmp_path, kind)
    backbone.gradient_checkpointing(encoder)
    encoder.model.train()
    state = {name: p.clone() for name, p in encoder.model.state_dict().items()}
    done = export.to_onnx(tmp_path / "out", encoder, ["a", "the cell grows", "a mouse gene " * 5])
    assert done.difference < 1e-5
    assert encoder.model.training
    assert all(torch.equal(p, state[name]) for name, p in encoder.model.state_dict().items())
    assert "onnx" not in str(next(encoder.model.parameters()).device)


@needs_onnx
def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    encoder = tiny(tmp_path, "mlm")
    one, two = (export.to_onnx(tmp_path / name, encoder, ["a", "the cell"]).path for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


@needs_onnx
def test_a_difference_is_an_error_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny(tmp_path, "mlm")
    original = export._TokenVectors.forward

    def off(self: Any, *tensors: torch.Tensor) -> torch.Tensor:
        return original(self, *tensors) + 0.01

    monkeypatch.setattr(export._TokenVectors, "forward", off)
    with pytest.raises(EmbedtrainError, match=r"vectors differ from torch's by .* more than 0.0001; the model"):
        export.to_onnx(tmp_path / "out", encoder, ["a", "the cell"])
    assert not list((tmp_path / "out").rglob("*"))

    def broken(self: Any, *tensors: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(export._TokenVectors, "forward", broken)
    with pytest.raises(EmbedtrainError, match=r"raw could not be exported \(.*\); the model itself is whole"):
        export.to_onnx(tmp_path / "out", encoder, ["a", "the cell"])
    assert not list((tmp_path / "out").rglob("*"))


def test_what_cannot_be_exported_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny(tmp_path, "mlm")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"needs onnx, onnxscript, onnxruntime; install it with: pip install embed"
    ):
        export.check_export(encoder)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    export.check_export(encoder)
    with pytest.raises(UsageError, match="two towers are two graphs"):
        export.check_export(backbone.two_towers(encoder))
    (tmp_path / "w.txt").write_text("mouse 1 0\n")
    from embedtrain import static

    with pytest.raises(UsageError, match="has no transformer to export"):
        export.check_export(static.from_word_vectors(tmp_path / "w.txt", CPU))
