"""The pictures of the page: SVG by matplotlib, the same bytes every time.

Their colours are stand-ins that become CSS variables of the page, so that a picture is dark where the page is dark;
their text stays text.
"""

import dataclasses
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.style
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Stand-in colour in the drawing -> variable in the page.
INK, MUTED, LINE, MODEL, BASE, RANDOM = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
_VARIABLES = {INK: "ink", MUTED: "muted", LINE: "line", MODEL: "model", BASE: "base", RANDOM: "random"}

_WIDTH = 4.6  # inches; shown at 360 pixels, the text is still about 9 pixels high
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.parse_math": False,  # a "$" in a name is a dollar
    "text.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
}


@dataclasses.dataclass(frozen=True)
class Picture:
    """A drawing with what it shows in one line (read aloud in its place) and what to see in it."""

    key: str
    title: str
    caption: str
    svg: Markup


@dataclasses.dataclass(frozen=True)
class System:
    """One system of an evaluation: a mean with its interval (None where one query gives none)."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


def short(text: str, width: int = 44) -> str:
    """A text on one line of at most `width` characters; of a path or name its end is kept."""
    line = " ".join(text.split())
    return line if len(line) <= width else "…" + line[-(width - 1) :]


def _svg(key: str, title: str, figure: Figure) -> Markup:
    """The drawing as an element of the page: its own ids, colours as variables, nothing that points outside."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=nothing, bbox_inches="tight", pad_inches=0.03)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    box = re.search(r'viewBox="[^"]+"', text)
    head = f'<svg {box[0] if box else ""} role="img" aria-label="{Markup.escape(title)}">'
    text = head + text[text.index(">") + 1 :]
    text = text.replace("xlink:href", "href")
    # Ids are unique within a drawing; on a page with several the key keeps them apart.
    text = re.sub(r'\bid="', f'id="{key}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    # The page's own font, at the size the drawing asks for.
    text = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font-size: \1px", text)
    return Markup(text)  # matplotlib has escaped every text in it


def picture(key: str, title: str, caption: str, height: float, draw: Callable[[Figure], None]) -> Picture:
    """What `draw` puts on a figure of a page's width and `height` inches; `key` is unique on the page."""
    style = {**_STYLE, "svg.hashsalt": key}
    with matplotlib.style.context(["default", style]):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure)
        return Picture(key, title, caption, _svg(key, title, figure))


def label(axes: Axes, x: float, y: float, text: str, **keywords: Any) -> None:
    """Write a text at a place of the data; it may stand beyond the axes."""
    axes.annotate(text, (x, y), fontsize=10, annotation_clip=False, **keywords)


def similarities(spaces: Sequence[tuple[str, Any, Any]], *, title: str, caption: str) -> Picture:
    """Histograms of (name, cosines of positives, cosines of random pairs), one panel a model on one scale."""
    low = min(float(min(close.min(), far.min())) for _, close, far in spaces)
    fewest = min(len(close) for _, close, _ in spaces)
    edges = np.linspace(max(-1.0, np.floor(low * 10) / 10), 1.0, 61 if fewest >= 200 else 31)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(len(spaces), 1, sharex=True, squeeze=False, gridspec_kw={"hspace": 0.12})[:, 0]
        for axes, (name, close, far), own in zip(panels, spaces, (MODEL, BASE), strict=False):
            for values, colour in ((far, RANDOM), (close, own)):
                heights, _ = np.histogram(values, edges)
                axes.stairs(heights / len(values), edges, fill=True, color=colour, alpha=0.5, linewidth=0)
                axes.stairs(heights / len(values), edges, color=colour, linewidth=1.2)
            top = axes.get_ylim()[1] * 1.22
            for values, colour, kind in ((far, RANDOM, "random"), (close, own, "positive")):
                mean = float(np.mean(values))
                axes.axvline(mean, color=colour, linewidth=1, linestyle=(0, (3, 2)))
                side = {"ha": "right", "xytext": (-3, 0)} if values is far else {"ha": "left", "xytext": (3, 0)}
                where = {"textcoords": "offset points", "va": "top", "color": colour, **side}
                label(axes, mean, top, f"{kind} {mean:.2f}", **where)
            axes.set_ylim(0, top)
            axes.set_yticks([])
            axes.set_title(short(name, 52), loc="left", fontsize=10.5, color=INK)
        panels[-1].set_xlabel("cosine with the query")

    return picture("similarities", title, caption, 0.6 + 1.55 * len(spaces), draw)


def spectrum(curves: Sequence[tuple[str, Any]], *, title: str, caption: str) -> Picture:
    """Cumulative variance of (name, shares of variance by component), the model first, with the 95 % line."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        most = max(len(shares) for _, shares in curves)
        axes.plot([0, most], [0, 100], color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
        label(axes, most * 0.21, 19, "even sphere", color=MUTED, va="top", ha="left")
        for (_, shares), colour in reversed(list(zip(curves, (MODEL, BASE), strict=False))):
            total = 100 * np.concatenate([[0.0], np.cumsum(shares)])
            axes.plot(np.arange(len(total)), total, color=colour, linewidth=2)
            reach = int(np.searchsorted(total, 95 - 1e-9))
            axes.plot([reach], [95], "o", color=colour, markersize=5)
            axes.plot([reach, reach], [0, 95], color=colour, linewidth=1, linestyle=(0, (3, 2)))
        marks = [int(np.searchsorted(100 * np.cumsum(shares), 95 - 1e-9)) + 1 for _, shares in curves]
        for row, ((name, _), colour, reach) in enumerate(zip(curves, (MODEL, BASE), marks, strict=False)):
            words = f"{short(name.rstrip('/').rpartition('/')[2], 30)}: {reach:,}"
            axes.text(0.98, 0.16 - 0.085 * row, words, transform=axes.transAxes, ha="right", color=colour)
        axes.set_xlim(0, most)
        axes.set_ylim(0, 103)
        axes.set_yticks([0, 25, 50, 75, 95], ["0", "25", "50", "75", "95 %"])
        axes.grid(axis="y")
        axes.set_xlabel("principal components, strongest first")

    return picture("spectrum", title, caption, 3.1, draw)


def scatter(
    documents: Any, queries: Any, positives: Sequence[Sequence[int]], *, title: str, caption: str
) -> Picture:
    """Points of documents (n, 2) and queries (q, 2), the latter joined to their positives (rows of documents)."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(*np.asarray(documents).T, ".", color=RANDOM, markersize=2.5, alpha=0.6, label="documents")
        for query, rows in zip(queries, positives, strict=True):
            for row in rows:
                axes.plot(
                    [query[0], documents[row][0]],
                    [query[1], documents[row][1]],
                    color=MODEL,
                    linewidth=0.6,
                    alpha=0.5,
                )
        axes.plot(*np.asarray(queries).T, "o", color=MODEL, markersize=3.5, label="queries")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, labelcolor=MUTED)

    return picture("map", title, caption, 3.6, draw)


def ladder(systems: Sequence[System], measure: str, *, title: str, caption: str) -> Picture:
    """Systems from best to worst, each a point with its interval and its number."""
    ordered = sorted(systems, key=lambda system: (-system.value, system.name))
    lows = [s.value if s.low is None else s.low for s in ordered]
    highs = [s.value if s.high is None else s.high for s in ordered]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for row, (system, low, high) in enumerate(zip(ordered, lows, highs, strict=True)):
            axes.plot([low, high], [row, row], color=MODEL, linewidth=5, alpha=0.3, solid_capstyle="round")
            axes.plot([system.value], [row], "o", color=MODEL, markersize=6.5)
            offset = {"textcoords": "offset points", "xytext": (0, 8), "va": "bottom"}
            label(axes, min(lows), row, short(system.name, 46), ha="left", color=INK, **offset)
            label(axes, max(highs), row, f"{system.value:.3f}", ha="right", color=MODEL, **offset)
        axes.set_ylim(len(ordered) - 0.5, -0.85)
        pad = (max(highs) - min(lows) or 0.1) * 0.03
        axes.set_xlim(min(lows) - pad, max(highs) + pad)
        axes.set_yticks([])
        axes.grid(axis="x")
        axes.set_xlabel(measure)

    return picture("ladder", title, caption, 0.7 + 0.5 * len(ordered), draw)
