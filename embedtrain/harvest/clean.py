"""What is mended in a harvested text without a word lost, and what makes it no text to train on."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import ftfy
from ftfy.badness import is_bad

from embedtrain.collection import is_blank
from embedtrain.config import HarvestOptions
from embedtrain.errors import UsageError
from embedtrain.harvest.identity import query_key
from embedtrain.tokens import language_of, languages

# Signs that nobody sees and no word needs. Joiners (U+200C, U+200D) stay: Persian, Hindi and emoji are written with them.
_UNSEEN = dict.fromkeys(
    [
        0xAD,
        0x180E,
        0x200B,
        0x200E,
        0x200F,
        0xFEFF,
        *range(0x202A, 0x202F),
        *range(0x2060, 0x206A),
        *range(0xE0000, 0xE0080),
    ]
)
# Control characters, but for tab, line feed and what ends a line elsewhere.
_CONTROLS = {
    point: " " for point in (*range(0x20), *range(0x7F, 0xA0)) if chr(point) not in "\t\n\v\f\r\x1c\x1d\x1e\x85"
}
_LINK = re.compile(r"(?:https?://|www\.)\S+|\S+@\S+\.\S+", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_COPIED = 3  # a query's words are one of so many of the line they stand in, or more

MOJIBAKE = "looks as if it was decoded with the wrong encoding"


@dataclass(frozen=True)
class Cleaner:
    """The rules for texts that come without judgements, as the options have them."""

    options: HarvestOptions
    count: Callable[[str], int]  # tokens of a text

    def __post_init__(self) -> None:
        wanted = self.options.only_language
        if wanted and wanted not in languages():
            raise UsageError(f"--only-language {wanted}: the languages are {', '.join(languages())}")

    def tidied(self, text: str, changed: Counter[str]) -> str:
        """The text in Unicode's composed form (NFC), without controls and unseen signs; what changed is counted.

        Text decoded with the wrong encoding ("â€™" for an apostrophe) is counted, and mended where that is asked for.
        """
        if text.isascii() and text.isprintable():
            return text
        found = text.translate(_UNSEEN)
        if found != text:
            changed["unseen signs taken out"] += 1
        text, found = found, found.translate(_CONTROLS)
        if found != text:
            changed["control characters made blanks"] += 1
        if not found.isascii():
            if is_bad(found.replace("\x85", "\n")):
                mended = ftfy.fix_encoding(found) if self.options.mend_encoding else found
                changed["mended: " + MOJIBAKE if mended != found else MOJIBAKE] += 1
                found = mended
            text, found = found, unicodedata.normalize("NFC", found)
            if found != text:
                changed["accents composed (NFC)"] += 1
        return found

    def against(self, noun: str, text: str, title: str = "") -> str:
        """The reason to leave out a query or document; empty where there is none. `title` stands before a document's text."""
        if is_blank(text):
            return f"empty {noun}"
        options = self.options
        # Most texts hold no link; taking out none takes longer than all the rest.
        linked = any(sign in text for sign in ("@", "://")) or "www." in text.casefold()
        if not _WORD.search(_LINK.sub("", text) if linked else text):
            return f"{noun} of links or signs only"
        shortest = options.min_query_characters if noun == "query" else options.min_document_characters
        if len(" ".join(text.split())) < shortest:
            return f"{noun} under {shortest} characters"
        longest = options.max_query_tokens if noun == "query" else options.max_document_tokens
        if longest and self.count(f"{title} {text}" if title else text) > longest:
            return f"{noun} over {longest} tokens"
        if options.only_language and language_of(text) not in (None, options.only_language):
            return f"{noun} in another language"
        return ""


def copies_first_line(query: str, text: str) -> bool:
    """Whether a query's words stand, together and in order, in the first line of a text that has further ones.

    Such a pair is found by its copy; what the rest of the text says is not learned. They must be a third of the line's
    words: a paragraph that takes up the words of a query is how documents answer.
    """
    first, _, rest = text.lstrip().partition("\n")
    if is_blank(rest):
        return False
    words, line = (_WORD.findall(query_key(part)) for part in (query, first))
    return bool(words) and _COPIED * len(words) >= len(line) and f" {' '.join(words)} " in f" {' '.join(line)} "
