"""What a language model answers, and the queries in it: without numbers, preamble, remarks, reasoning and quotes.

Pure functions of the reply. Whatever is no query is left out under a reason; nothing is filled up.
"""

import re
from typing import NamedTuple

from embedtrain.harvest.generated.references import speaks_of_its_document
from embedtrain.harvest.generated.reply_json import CUT, structured
from embedtrain.harvest.generated.reply_lines import Dropped, listed, unquoted
from embedtrain.harvest.identity import query_key

LONGEST = 400  # characters: what is longer is an essay, not a query

REASONING = "reasoning in a reply"
REFUSAL = "refusal in a reply"
EMPTY = "empty reply"
LONG = f"generated query over {LONGEST} characters"
COPIED = "generated query is a line of its document"
REFERRING = "generated query speaks of its document"
REPEATED = "generated query repeated in its reply"
BEYOND = "generated query beyond the number asked for"


class Reply(NamedTuple):
    """A model's answer. `finish`: stop, length (cut at the token limit), or too long (the prompt did not fit).

    Tokens as the model counts them; None where it does not say.
    """

    text: str
    finish: str = "stop"
    prompt_tokens: int | None = None
    reply_tokens: int | None = None


class Queries(NamedTuple):
    """The queries of a reply in their order, what was left out of it, and how many are missing."""

    kept: list[str]
    dropped: list[Dropped]
    short: int


_TAGS = "think|thinking|reasoning|thought|reflection|scratchpad|analysis"
_REASONING = (
    re.compile(r"\A.*<\|channel\|>final<\|message\|>", re.DOTALL),  # harmony, the format of gpt-oss
    re.compile(rf"<({_TAGS})>.*?</\1>", re.DOTALL | re.IGNORECASE),
    re.compile(rf"\A.*</(?:{_TAGS})>", re.DOTALL | re.IGNORECASE),  # its start was in the prompt
    re.compile(rf"<(?:{_TAGS})>.*\Z", re.DOTALL | re.IGNORECASE),  # it never came to an end
)
_TOKENS = re.compile(r"<\|[\w ]+\|>|</?s>|<(?:start|end)_of_turn>|[\u200b\u2060\ufeff]")
_ELEMENTS = re.compile(r"</?(?:quer(?:y|ies)|questions?|q\d*|output|ul|ol|li|p|br)\s*/?>", re.IGNORECASE)
_REFUSES = re.compile(
    r"(?:i(?:['’]| a)m (?:really |very )?sorry\b|sorry, (?:but )?i\b|as an ai\b|"
    r"i(?: cannot| can['’]t| can not|['’]m unable to| am unable to|['’]m not able to| am not able to) "
    r"(?:help|assist|comply|fulfil|provide|(?:generate|create|write) (?:any |\w+ )?(?:quer|quest)))",
    re.IGNORECASE,
)
_MARKS_OF_LINE = re.compile(r"\s*(?:[#>*•-]+\s+)*(?:\d{1,2}[.)]\s+)?")


def queries_of(reply: str, wanted: int, document: str, *, cut: bool = False) -> Queries:
    """The first `wanted` queries of a reply about `document` (its title and text).

    `cut`: the reply ended at the token limit, so its last line may be half of one. White space, rules and marks
    are no content and are not counted; everything else that is left out is.
    """
    text, dropped = _without_reasoning(reply.replace("\r\n", "\n"))
    found = structured(text, dropped)
    items = listed(text, dropped) if found is None else found
    if cut and found is None and items and items[-1][-1] not in "?？؟.!。":
        dropped.append(Dropped(CUT, items.pop()))
    if not items and not dropped:
        dropped.append(Dropped(EMPTY, reply))
    own = {_comparable(_MARKS_OF_LINE.sub("", line, count=1)) for line in document.splitlines()}
    kept: dict[str, str] = {}
    for query in map(_tidy, items):
        if not any(map(str.isalnum, query)):
            continue
        why = ""
        if _REFUSES.match(query):
            why = REFUSAL
        elif len(query) > LONGEST:
            why = LONG
        elif _comparable(query) in own:
            why = COPIED
        elif speaks_of_its_document(query, document):
            why = REFERRING
        elif query_key(query) in kept:
            why = REPEATED
        elif len(kept) == wanted:
            why = BEYOND
        if why:
            dropped.append(Dropped(why, query))
        else:
            kept[query_key(query)] = query
    return Queries(list(kept.values()), dropped, wanted - len(kept))


def _without_reasoning(text: str) -> tuple[str, list[Dropped]]:
    dropped: list[Dropped] = []

    def take(match: re.Match[str]) -> str:
        words = _TOKENS.sub(" ", re.sub(rf"</?(?:{_TAGS})>", " ", match[0])).strip()
        if words:  # models that were told not to think leave an empty pair of tags
            dropped.append(Dropped(REASONING, words))
        return "\n"

    for pattern in _REASONING:
        text = pattern.sub(take, text)
    return _ELEMENTS.sub("\n", _TOKENS.sub("", text)), dropped


def _comparable(text: str) -> str:
    return query_key(text.replace("*", "").rstrip(" .:!?？。"))


def _tidy(text: str) -> str:
    text = " ".join(unquoted(text).split())
    return text.replace('"', "").strip() if text.count('"') == 1 else text
