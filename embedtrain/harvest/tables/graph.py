"""Citations: rows of (source, target) ids become pairs of what cites and the document that is cited."""

from collections.abc import Iterator

from embedtrain import readers
from embedtrain.collection import is_blank
from embedtrain.harvest.tables.lookup import Lookup
from embedtrain.harvest.tables.pairs import Drop, Pair, source_of
from embedtrain.harvest.tables.settings import Settings
from embedtrain.harvest.tables.shapes import Shape
from embedtrain.readers import Row


def citation(
    row: Row, shape: Shape, settings: Settings, lookup: Lookup, time: float | None, where: str
) -> Iterator[Pair | Drop]:
    """The pair of a citation: the citing text where the table has one, else the title of what cites -> what is cited.

    Documents that cite themselves, unknown ids and sources without a title are left out, each counted.
    """
    source, target = (
        readers.as_id(row[name], f"{where} column {name}") for name in (shape.query[0], shape.positives[0])
    )
    ids = {"query": source, "document": target, "where": where}
    if source == target:
        yield Drop("document that cites itself", ids)
        return
    document = lookup.document(target)
    query = readers.as_text(row.get(shape.title), f"{where} column {shape.title}") if shape.title else ""
    if is_blank(query):
        citing = lookup.document(source)
        if citing is None:
            yield Drop("unknown document id", ids | {"document": source})
            return
        query = citing.title
    if document is None:
        yield Drop("unknown document id", ids)
    elif is_blank(document.title) and is_blank(document.text):
        yield Drop("empty document", ids)
    elif is_blank(query):
        yield Drop("citing document without a title", ids)
    else:
        yield Pair(query, document, source_of(shape), weight=settings.weight, time=time, where=where)
