"""The model card that goes into a model folder: what it was made from, with what, and how to load it."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import yaml

from embedtrain.artifacts import Claim
from embedtrain.models import ModelSource

_LOAD = {
    "model": """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH")
queries = model.encode_query(["a question"])
documents = model.encode_document(["a document"])
print(model.similarity(queries, documents))""",
    "teacher": """from sentence_transformers import CrossEncoder

model = CrossEncoder("PATH")
print(model.predict([("a question", "a document")]))  # raw logits: higher is better, no probabilities""",
}

_HOW = {
    "model": """`encode_query` and `encode_document` apply the prompts and length limits that stand in this folder, once;
give the plain texts. `encode` knows of no role and applies neither.""",
    "teacher": "",
}

# What a card may say of a licence, and of the model on the hub another was made from.
_INHERITED = ("license", "license_name", "license_link", "base_model")


@dataclasses.dataclass(frozen=True)
class Base:
    """The model training started from, and what its own card says that has to be passed on."""

    name: str
    hub: bool  # the name is one of the hub, not of a folder here
    said: dict[str, str]

    @classmethod
    def of(cls, source: ModelSource) -> "Base":
        """Read the card of a model folder; one that is missing or not to be read says nothing."""
        said: dict[str, str] = {}
        try:
            lines = (source.path / "README.md").read_text("utf-8").splitlines()
            settings = (
                yaml.safe_load("\n".join(lines[1 : lines.index("---", 1)])) if lines[:1] == ["---"] else None
            )
        except (OSError, ValueError, yaml.YAMLError):
            settings = None
        found = settings if isinstance(settings, dict) else {}
        for key in _INHERITED:
            value = found.get(key)
            value = value[0] if isinstance(value, list) and len(value) == 1 else value
            if isinstance(value, str):
                said[key] = value
        # A model of the hub lies in a folder of another name: its snapshot, or the package that carries it.
        hub = source.name.count("/") == 1 and source.path.name != source.name.split("/")[1]
        return cls(source.name, hub, said)

    @property
    def header(self) -> dict[str, str]:
        """Lines of the card's header: the licence, and the nearest model of the hub this one goes back to."""
        said = {key: value for key, value in self.said.items() if key != "base_model"}
        model = self.name if self.hub else self.said.get("base_model")
        return said | ({"base_model": model} if model else {})

    @property
    def licence(self) -> str:
        """A sentence on the licence of the weights."""
        named = self.said.get("license_name") or self.said.get("license")
        if not named:
            return f"The card of {self.name}, from whose weights these were trained, names no licence."
        return f"The weights were trained from {self.name}, whose card names the licence {named}."


def model_card(
    claim: Claim,
    summary: dict[str, Any],
    *,
    base: Base | None = None,
    about: Mapping[str, str] | None = None,
    results: Mapping[str, Any] | None = None,
) -> str:
    """Markdown text of the card of a model or teacher; the same training gives the same text.

    `base` is the model it was trained from, `about` what decides how a text becomes a vector (backbone.describe),
    `results` what was measured on it, by measure and split as the user typed them.
    """
    library = "sentence-transformers"
    header = {
        "library_name": library,
        "pipeline_tag": "sentence-similarity" if claim.kind == "model" else "text-ranking",
        "tags": ["embedtrain", library],
        **(base.header if base else {}),
    }
    told = [(name.replace("_", " "), value) for name, value in summary.items() if name != "notes"]
    made = [f"{item.role}: {item.name} (sha256 {item.sha256[:12]})" for item in claim.inputs]
    training = [f"{name}: {value}" for name, value in told] + list(summary.get("notes", []))
    sections = [
        f"# {claim.kind} made by `embedtrain {claim.stage}`",
        f"```python\n{_LOAD[claim.kind]}\n```",
        _HOW[claim.kind],
        _section("How a text becomes a vector", [f"{name}: {value}" for name, value in (about or {}).items()]),
        _section("Made from", made),
        _section("Training", training),
        f"```json\n{json.dumps({**claim.options, 'seed': claim.seed}, indent=1)}\n```",
        _section("Results", [f"{name}: {value}" for name, value in (results or {}).items()]),
        f"## Licence\n\n{base.licence}" if base else "",
        "The whole ancestry stands in `embedtrain.json`; `embedtrain inspect` prints it.",
    ]
    front = yaml.safe_dump(header, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return f"---\n{front}---\n\n" + "\n\n".join(section for section in sections if section) + "\n"


def _section(title: str, lines: list[str]) -> str:
    return f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines) if lines else ""
