"""A trained model as ONNX, beside its weights, where sentence-transformers' backend="onnx" looks for it."""

import contextlib
import copy
import dataclasses
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Router, Transformer
from torch import nn

from embedtrain.encoder import Encoder, quiet_loading
from embedtrain.errors import EmbedtrainError, UsageError

PLACE = Path("onnx") / "model.onnx"
TOLERANCE = 1e-4

# The packages of the extra: torch's exporter needs the first two, the check the third.
_NEEDED = ("onnx", "onnxscript", "onnxruntime")

# A protobuf holds 2 GiB at most; beyond this the weights lie in a file beside it.
_ONE_FILE = 1_500_000_000
_OPSET = 18  # the oldest torch's exporter writes without converting


@dataclasses.dataclass(frozen=True)
class Exported:
    """An ONNX file and the largest difference of a vector from torch's, as a share of the vector's length."""

    path: Path
    difference: float
    texts: int

    def __str__(self) -> str:
        return f"{self.path.name}: within {self.difference:.1e} of torch on {self.texts} texts"


def check_export(encoder: Encoder) -> None:
    """Raise UsageError, before any training, where `encoder` could not be exported afterwards."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"--export onnx needs {', '.join(missing)}; install it with: pip install embedtrain[onnx]"
        )
    first = encoder.model[0]
    if isinstance(first, Router):
        raise UsageError(
            "--export onnx: two towers are two graphs, and there is one model.onnx; leave the flag out"
        )
    if not isinstance(first, Transformer):
        raise UsageError(f"--export onnx: model {encoder.source.name} has no transformer to export; leave it out")


class _TokenVectors(nn.Module):
    """The transformer alone, inputs in the order of their names; pooling stays where it is, in torch."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.names = list(names)

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, tensors, strict=True)), return_dict=True).last_hidden_state


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the exporter says about itself off standard output and error."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), quiet_loading():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def to_onnx(folder: Path, encoder: Encoder, texts: Sequence[str], *, tolerance: float = TOLERANCE) -> Exported:
    """Write `folder`/onnx/model.onnx and compare it with torch on `texts`, alone and beside each other.

    `texts` should be real ones of several lengths. The graph takes a tokenizer's output at any batch size and length
    and gives token vectors in float32. Raises UsageError as `check_export` does, EmbedtrainError where the exporter
    fails or a vector differs by more than `tolerance` of its length; then no file is left.
    """
    check_export(encoder)
    if not texts:
        raise ValueError("texts to check the export with are wanting")
    model = copy.deepcopy(encoder.model).float().cpu().eval()
    first: Any = model[0]
    path = folder / PLACE
    path.parent.mkdir(parents=True, exist_ok=True)
    example = first.preprocess(["a text", "another one of more words"])
    names = [name for name in first.tokenizer.model_input_names if name in example]
    size = sum(p.numel() * 4 for p in first.parameters())
    axes = tuple({0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")} for _ in names)
    try:
        with _quiet(), torch.no_grad():
            torch.onnx.export(
                _TokenVectors(first.model, names).eval(),
                tuple(example[name] for name in names),
                path,
                input_names=names,
                output_names=["last_hidden_state"],
                dynamic_shapes=(axes,),
                opset_version=_OPSET,
                external_data=size > _ONE_FILE,
                dynamo=True,
            )
        difference = _difference(model, path, names, list(texts))
    except Exception as error:  # the exporter fails in as many ways as there are architectures
        _remove(path)
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EmbedtrainError(
            f"--export onnx: {encoder.source.name} could not be exported ({reason}); the model itself is whole, leave "
            "--export out to keep it"
        ) from error
    if not difference <= tolerance:
        _remove(path)
        raise EmbedtrainError(
            f"--export onnx: vectors differ from torch's by {difference:.1e} of their length, more than "
            f"{tolerance:g}; the model itself is whole, leave --export out to keep it"
        )
    return Exported(path, difference, len(texts))


def _difference(model: Any, path: Path, names: list[str], texts: list[str]) -> float:
    """The largest length of a difference of two vectors, as a share of the length of torch's."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    worst = 0.0
    for part in [*([text] for text in texts), texts]:
        with torch.no_grad():
            expected = model(model.preprocess(part))["sentence_embedding"]
            features = model.preprocess(part)
            (tokens,) = session.run(None, {name: features[name].numpy() for name in names})
            features["token_embeddings"] = torch.from_numpy(np.asarray(tokens))
            for module in list(model)[1:]:
                features = module(features)
        found = features["sentence_embedding"]
        share = (found - expected).norm(dim=1) / expected.norm(dim=1).clamp(min=1e-12)
        worst = max(worst, float(share.max())) if bool(torch.isfinite(share).all()) else float("nan")
        if worst != worst:
            break
    return worst


def _remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    with contextlib.suppress(OSError):
        path.parent.rmdir()
