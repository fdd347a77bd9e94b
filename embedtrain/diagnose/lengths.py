"""What a model does not read: texts longer than its limit, counted in its own tokens."""

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from embedtrain.advice import CUT
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.pictures import BASE, MODEL, Picture, label, picture
from embedtrain.diagnose.section import Measure, Section, Table, limited
from embedtrain.errors import EmbedtrainError

DOCUMENT_LIMIT = CUT  # of the documents: where `eval` says that passages come first
# Of the documents' tokens: what lies beyond is found by nothing, and titles and openings stand before it.
TOKEN_LIMIT = 0.2
# Of the queries: what is cut off a question is often what was asked.
QUERY_LIMIT = 0.01

# The lengths that models are made for; what each would read is shown.
LIMITS = (64, 128, 256, 512, 1_024, 2_048, 8_192)
QUANTILES = (0.05, 0.5, 0.95, 1.0)
_BINS = 40


def section(
    document_counts: npt.ArrayLike, query_counts: npt.ArrayLike, document_limit: int, query_limit: int
) -> Section:
    """The shares of documents, queries and their tokens that are cut.

    Counts (n,) are tokens of each text with its prompt, whatever the limit (`truncation.token_counts`); limits are
    `Encoder.limit`. A text as long as the limit is read whole. Raises EmbedtrainError where there is no text.
    """
    found = Section("lengths", "What it does not read", "How many texts end after the model has stopped reading.")
    for noun, given, limit in (
        ("documents", document_counts, document_limit),
        ("queries", query_counts, query_limit),
    ):
        counts = np.asarray(given, dtype=np.int64)
        if counts.ndim != 1 or not counts.size:
            raise EmbedtrainError(f"no lengths of {noun} are given; a collection with {noun} is needed")
        found.measures.extend(_measures(noun, counts, limit))
        found.numbers[noun] = _numbers(counts, limit)
    documents = np.asarray(document_counts, dtype=np.int64)
    found.tables.extend(
        [
            _lengths(documents, np.asarray(query_counts, dtype=np.int64), document_limit, query_limit),
            _limits(documents, document_limit),
        ]
    )
    found.pictures.append(_picture(documents, document_limit))
    found.notes.extend(_notes(found.measures, documents, document_limit))
    return found


def cut_tokens(counts: npt.NDArray[np.int64], limit: int) -> int:
    """Tokens beyond the limit, of all texts together."""
    return int(np.maximum(counts - limit, 0).sum())


def _measures(noun: str, counts: npt.NDArray[np.int64], limit: int) -> list[Measure]:
    cut, lost, total = int((counts > limit).sum()), cut_tokens(counts, limit), int(counts.sum())
    text_limit = DOCUMENT_LIMIT if noun == "documents" else QUERY_LIMIT
    advice = {
        "documents": "Cut them into passages (harvest --chunk-tokens), or raise the limit where the model has more.",
        "queries": "Raise the limit for queries, or shorten them: no answer is found by what is not read.",
    }
    token_limit = TOKEN_LIMIT if noun == "documents" else QUERY_LIMIT
    return [
        limited(
            f"{noun}_cut",
            f"{noun} cut",
            cut / len(counts),
            text_limit,
            f"{cut:,} of {len(counts):,} {noun} are longer than the {limit:,} tokens that the model reads.",
            advice[noun],
        ),
        limited(
            f"{noun}_tokens_cut",
            f"tokens of {noun} cut",
            lost / total if total else 0.0,
            token_limit,
            f"{lost:,} of {total:,} tokens of {noun} are not read.",
            "What they say is found by nothing.",
        ),
    ]


def _numbers(counts: npt.NDArray[np.int64], limit: int) -> dict[str, object]:
    total = int(counts.sum())
    return {
        "texts": len(counts),
        "limit": limit,
        "cut": int((counts > limit).sum()),
        "share_cut": rounded((counts > limit).mean()),
        "tokens": total,
        "tokens_cut": cut_tokens(counts, limit),
        "share_of_tokens_cut": rounded(cut_tokens(counts, limit) / total if total else 0.0),
        "quantiles": {str(share): value for share, value in zip(QUANTILES, _quantiles(counts), strict=True)},
    }


def _quantiles(counts: npt.NDArray[np.int64]) -> list[int]:
    return np.quantile(counts, QUANTILES, method="lower").astype(int).tolist()


def _lengths(
    documents: npt.NDArray[np.int64], queries: npt.NDArray[np.int64], document_limit: int, query_limit: int
) -> Table:
    rows = [
        [noun, f"{len(counts):,}", *(f"{value:,}" for value in _quantiles(counts)), f"{limit:,}"]
        for noun, counts, limit in (
            ("documents", documents, document_limit),
            ("queries", queries, query_limit),
        )
    ]
    columns = ["texts", "number", "5 % have at most", "half", "95 %", "longest", "limit"]
    return Table("Lengths in tokens", columns, rows)


def _limits(counts: npt.NDArray[np.int64], limit: int) -> Table:
    """What other limits would read, up to the first that reads everything."""
    total = max(1, int(counts.sum()))
    rows = []
    for other in sorted({*LIMITS, limit}):
        whole = float((counts <= other).mean())
        read = 1.0 - cut_tokens(counts, other) / total
        name = f"{other:,}{' (now)' if other == limit else ''}"
        rows.append([name, f"{100 * whole:.1f} %", f"{100 * read:.1f} %"])
        if whole == 1.0 and other >= limit:
            break
    return Table("What a limit reads", ["tokens", "documents read whole", "tokens read"], rows)


def _notes(measures: list[Measure], documents: npt.NDArray[np.int64], limit: int) -> list[str]:
    cut = next(measure for measure in measures if measure.key == "documents_cut")
    longest = int(documents.max())
    if cut.value > DOCUMENT_LIMIT:
        return [
            f"The longest document has {longest:,} tokens, {longest / limit:.1f} times the limit. Training cannot mend "
            "what is not read: passages or a longer limit come before tuning."
        ]
    if longest * 4 <= limit:
        return [f"No document is longer than {longest:,} tokens: a limit of {longest:,} loses nothing."]
    return []


def _picture(counts: npt.NDArray[np.int64], limit: int) -> Picture:
    # Lengths spread over powers of ten; an axis that counts doublings shows short and long ones alike. One edge lies
    # between the longest text that is read whole and the next, so that no bar is of both.
    lengths = np.maximum(counts, 1)
    border = limit + 0.5
    step = max(float(np.log(lengths.max() + 1) - np.log(lengths.min())), np.log(2)) / _BINS
    first = int(np.floor(np.log((lengths.min() - 0.5) / border) / step))
    last = int(np.ceil(np.log((lengths.max() + 0.5) / border) / step))
    edges = border * np.exp(step * np.arange(first, last + 1))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        heights = np.histogram(lengths, edges)[0] / len(counts)
        whole = edges[:-1] < limit
        for kept, colour in ((whole, MODEL), (~whole, BASE)):
            axes.stairs(np.where(kept, heights, 0.0), edges, fill=True, color=colour, alpha=0.6, linewidth=0)
        axes.set_xscale("log", base=2)
        ticks = [tick for tick in (1, 4, 16, 64, 256, 1_024, 4_096, 16_384) if edges[0] <= tick <= edges[-1]]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        top = axes.get_ylim()[1] * 1.15
        if border <= edges[-1]:
            axes.axvline(border, color=BASE, linewidth=1, linestyle=(0, (3, 2)))
            side = "right" if np.log(border / edges[0]) > np.log(edges[-1] / edges[0]) / 2 else "left"
            offset = {"textcoords": "offset points", "xytext": (-3 if side == "right" else 3, 0)}
            label(axes, border, top, f"limit {limit:,}", va="top", ha=side, color=BASE, **offset)
        axes.set_ylim(0, top)
        axes.set_yticks([])
        axes.set_xlabel("tokens of a document")

    return picture(
        "lengths",
        "How long documents are",
        "Documents by their number of tokens, on a scale of doublings. Those beyond the limit are read up to it.",
        2.3,
        draw,
    )
