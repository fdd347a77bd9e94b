"""The model card that goes into a model folder: what it was made from, with what, and how to load it."""

import json
from typing import Any

from embedtrain.artifacts import Claim

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


def model_card(claim: Claim, summary: dict[str, Any]) -> str:
    """Markdown text of the card of a model or teacher; the same training gives the same text."""
    library = "sentence-transformers"
    pipeline = "sentence-similarity" if claim.kind == "model" else "text-ranking"
    inputs = "\n".join(f"- {item.role}: {item.name} (sha256 {item.sha256[:12]})" for item in claim.inputs)
    told = [(name.replace("_", " "), value) for name, value in summary.items() if name != "notes"]
    results = "\n".join(
        [*(f"- {name}: {value}" for name, value in told), *(f"- {n}" for n in summary.get("notes", []))]
    )
    options = json.dumps({**claim.options, "seed": claim.seed}, indent=1)
    return f"""---
library_name: {library}
pipeline_tag: {pipeline}
tags: [embedtrain, {library}]
---

# {claim.kind} made by `embedtrain {claim.stage}`

```python
{_LOAD[claim.kind]}
```

## Made from

{inputs}

## Training

{results}

```json
{options}
```

The whole ancestry stands in `embedtrain.json`; `embedtrain inspect` prints it.
"""
