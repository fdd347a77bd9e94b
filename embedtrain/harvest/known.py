"""What `--texts` names, on its way into the draft: all of its documents, under their ids."""

from embedtrain.collection import is_blank
from embedtrain.harvest.draft import Document, Draft, refuse_clashes
from embedtrain.harvest.tables.lookup import Lookup


def add_documents(known: Lookup, collection: str, draft: Draft) -> None:
    """Add all documents of a lookup; once, whoever asks. Raises EmbedtrainError for an id with two texts."""
    for found in draft.new(f"{collection} collection", known.documents()):
        if is_blank(found.title) and is_blank(found.text):
            draft.drop("empty document", document=found.id)
            draft.mark("empty document", found.id)
        elif not draft.add_document(found.id, Document(found.title, found.text, {})):
            refuse_clashes("document", collection, [found.id])
