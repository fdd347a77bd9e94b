"""The obvious loops that fast code is compared with."""

from collections.abc import Callable, Mapping, Sequence

from embedtrain.drawing import Chosen

Table = list[list[bool]]


def batch_masks(
    chosen: Sequence[Chosen],
    text: Callable[[str], str],
    query_text: Callable[[str], str],
    group: Callable[[str], str],
    in_batch: bool = True,
) -> Mapping[str, Table]:
    """mask, positives, negative, query_mask and reverse_mask of a batch, cell by cell."""
    rows = range(len(chosen))
    own = [[one.positive, *one.negatives, *one.further] for one in chosen]
    width = max(len(part) for part in own)
    shown = {(i, k): document for i in rows for k, document in enumerate(own[i])}
    words = [query_text(one.row.query_id) for one in chosen]

    def right(i: int, t: str) -> bool:
        return any(text(document) == t for document in chosen[i].row.positives)

    def hidden(i: int, t: str) -> bool:
        row = chosen[i].row
        if right(i, t) or words[i] == t:
            return True
        if any(text(document) == t for document in row.explicit):
            return False
        if any(text(document) == t for document in row.not_negatives):
            return True
        return any(
            text(document) == t and group(document) != "" and group(document) == group(positive)
            for document in shown.values()
            for positive in row.positives
        )

    def stands_for(i: int, t: str) -> tuple[int, int]:
        there = [place for place in sorted(shown) if text(shown[place]) == t]
        return next((place for place in there if place[0] == i), there[0])

    def first_to_ask(j: int) -> bool:
        return words.index(words[j]) == j

    mask, positives, negative = [], [], []
    for i in rows:
        mask.append([False] * len(chosen) * width)
        positives.append([False] * len(chosen) * width)
        for place, document in shown.items():
            column = place[0] * width + place[1]
            t = text(document)
            if stands_for(i, t) == place:
                positives[i][column] = right(i, t)
                mask[i][column] = not hidden(i, t) and (in_batch or place[0] == i)
            if place == (i, 0):
                mask[i][column] = True
        negative.append([k > 0 and mask[i][i * width + k] for k in range(width)])

    query_mask = [[False] * len(chosen) for _ in rows]
    reverse_mask = [[False] * len(chosen) for _ in rows]
    for i in rows:
        for j in rows:
            alike = [other for other in rows if words[other] == words[j]]
            stands = in_batch and words[i] != words[j] and first_to_ask(j)
            mine = text(chosen[i].positive)
            reverse_mask[i][j] = i == j or (stands and not any(hidden(other, mine) for other in alike))
            query_mask[i][j] = stands and not any(
                hidden(other, mine) or hidden(i, text(chosen[other].positive)) for other in alike
            )
    return {
        "mask": mask,
        "positives": positives,
        "negative": negative,
        "query_mask": query_mask,
        "reverse_mask": reverse_mask,
    }
