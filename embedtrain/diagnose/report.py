"""The page: one self-contained HTML file, no network, no script, the same bytes every time."""

from collections.abc import Mapping
from importlib import resources
from typing import Any

import jinja2

TEMPLATE = "report.html.j2"


def place(value: float, low: float, high: float) -> float:
    """Where a value stands between the ends of a scale, in percent, kept within the scale."""
    return round(100 * min(1.0, max(0.0, (value - low) / (high - low))), 2) if high != low else 0.0


def render(page: Mapping[str, Any]) -> str:
    """The page. Every text is escaped but the drawings; a name the template lacks is an error."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["place"] = place
    source = resources.files("embedtrain.diagnose").joinpath(TEMPLATE).read_text("utf-8")
    return environment.from_string(source).render(page).rstrip() + "\n"
