"""Which headings are questions that stand alone, in English, German, French and Spanish."""

import re

_FEWEST_WORDS = 3  # "Why?" and "How so?" ask nothing without the page around them
_NUMBERING = re.compile(
    r"\s*(?:(?:q|question|frage|pregunta)\s*\d*\s*[:.)-]|\d+(?:\.\d+)*\s*[.:)]?(?=\s))\s*", re.IGNORECASE
)
_WORD = re.compile(r"\w+(?:['’]\w+)*")
# Without a question mark: an interrogative and a verb, or a verb and a pronoun. "How it works" and "When to use" are titles.
_QUESTIONS = re.compile(
    r"(?:"
    # English
    r"(?:what|which|who|whom|whose|when|where|why|how)(?:\s+\w+)?\s+"
    r"(?:is|are|was|were|do|does|did|can|could|should|would|will|has|have|must|may)\b"
    r"|how\s+(?:to|do|can|many|much|long|often)\s+\w+"
    r"|(?:is|are|can|could|do|does|did|should|will|would|may|must|has|have)\s+(?:i|we|you|they|it|he|she|there|this|that)\b"
    # German
    r"|(?:was|wer|wen|wem|wessen|welche[rsnm]?|wann|wo|woher|wohin|warum|weshalb|wieso|wie|womit|wofür|wodurch)\s+(?:\w+\s+)?"
    r"(?:ist|sind|war|waren|kann|können|muss|müssen|soll|sollte|sollten|darf|dürfen|wird|werden|hat|haben|bedeutet|heißt|"
    r"funktioniert|geht|gibt|macht|mache|finde|bekomme|erhalte|kostet)\b"
    r"|(?:kann|darf|muss|soll|sollte|brauche|habe|gibt|ist)\s+(?:ich|wir|man|es|das)\b"
    # French
    r"|(?:est-ce\s+qu|qu['’]est-ce|comment\s+\w|pourquoi\s+\w|combien\s+de\b|(?:quel|quelle|quels|quelles)\s+(?:est|sont)\b"
    r"|où\s+\w|à\s+quoi\s+sert\b|(?:puis-je|peut-on|dois-je|faut-il)\b)"
    # Spanish, whose interrogatives are told by their accents
    r"|(?:¿|(?:qué|cómo|cuándo|cuánto|cuánta|cuántos|cuántas|dónde|quién|quiénes|cuál|cuáles|por\s+qué|para\s+qué)\s+\w)"
    r")",
    re.IGNORECASE,
)


def question(heading: str) -> str:
    """A heading as a question that stands alone, without its numbering; empty where it is none.

    It ends with a question mark, or begins as a question does, and has at least three words.
    """
    text = _NUMBERING.sub("", heading, count=1) if _NUMBERING.match(heading) else heading
    text = text.strip()
    asks = text.rstrip(" )\"'»”*_").endswith(("?", "？")) or _QUESTIONS.match(text) is not None
    # A script without spaces has no words to count.
    long_enough = len(_WORD.findall(text)) >= _FEWEST_WORDS or (not text.isascii() and len(text) >= 6)
    return text if asks and long_enough else ""
