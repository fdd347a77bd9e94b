"""Queries that only make sense beside their document: "according to the text", "this article"."""

import re

_TEXTS = r"texts?|passages?|documents?|articles?|excerpts?|paragraphs?|snippets?|extracts?|abstracts?"
_PLACES = (
    rf"(?:{_TEXTS}|sections?|pages?|chunks?|chapters?|contents?|contexts?|topics?|guides?|tutorials?|stor(?:y|"
    rf"ies)|"
    r"reports?|stud(?:y|ies)|papers?|posts?|blog posts?|descriptions?|information|material)"
)
_SPEAKERS = rf"(?:{_TEXTS}|section|study|paper|report|authors?|writers?|speakers?|narrators?)"
_SAYS = (
    "say|describe|mention|explain|state|discuss|suggest|recommend|define|list|tell|talk|focus|imply|refer|claim|argue|"
    "present|provide|propose|conclude|cover|find|show|aim|highlight|emphasi[sz]e|warn"
)
_SAID = (
    "mentioned|described|discussed|stated|provided|listed|given|presented|outlined|explained|covered|included|"
    "contained|specified|highlighted"
)

# Whatever the document is about, these point at it.
_POINTS = re.compile(
    "|".join(
        (
            rf"\bth(?:is|ese) {_PLACES}\b",
            rf"\b(?:the|this) (?:above|given|provided|following|preceding|present|attached|original|"
            rf"source) {_PLACES}\b",
            rf"\bthe {_PLACES} (?:above|below|provided|given|shown)\b",
            r"\b(?:mentioned|described|shown|listed|given|discussed) (?:above|below|here)\b",
            rf"\b(?:according to|based on|as per) the (?:{_SPEAKERS}|{_PLACES})\b",
            rf"\b(?:{_SAID}) (?:in|by|of|within) the {_SPEAKERS}\b",
            rf"\b(?:do(?:es)?|did|is|are|was|were|can) the {_SPEAKERS} (?:{_SAYS}|about)\b",
            rf"\bthe {_SPEAKERS} (?:{_SAYS})s\b",
            rf"\b(?:main|central|primary|key|overall) (?:idea|topic|point|purpose|theme|subject|message|"
            rf"focus) of the {_SPEAKERS}\b",
            r"\b(?:laut|gemäß) (?:dem |diesem )?(?:text|dokument|artikel|abschnitt|absatz|auszug)\b",
            r"\b(?:dies\w{1,2}|(?:der|dem|des|den|die|das) (?:obig|vorliegend|folgend|gegeben)\w+) "
            r"(?:text(?:es)?|abschnitts?|artikels?|dokuments?|absatz(?:es)?|auszugs?|passage|seite|beitrags?)\b",
            r"\b(?:ce|cet|cette) (?:texte|document|article|passage|extrait|paragraphe|section|page)\b|\b(?:selon|"
            r"d['’]après) "
            r"(?:le |l['’])(?:texte|document|article|passage|extrait)\b",
            r"\b(?:este|esta|dicho) (?:texto|documento|artículo|pasaje|fragmento|párrafo|sección|página)\b|"
            r"\bsegún el (?:texto|documento|artículo|pasaje|fragmento)\b",
            r"\bquest[oa] (?:testo|documento|articolo|brano|passaggio|pagina)\b|\bsecondo il (?:testo|documento|"
            r"brano)\b",
            r"\b(?:n?d?este) (?:documento|artigo|trecho|parágrafo)\b|\b(?:segundo|de acordo com) o (?:texto|"
            r"documento|artigo)\b",
            r"\b(?:deze|dit) (?:tekst|document|artikel|passage|fragment|pagina)\b|\bvolgens de tekst\b",
            r"\b(?:эт\w{1,3}|данн\w{2,3}) (?:текст\w*|документ\w*|стать\w*)|\bсогласно тексту",
            r"本文|上文|上述|该文|这段|这篇|此文|根据(?:文本|文章|段落|文档|内容)|この(?:文章|テキスト|記事|文書)|上記の",
        )
    ),
    re.IGNORECASE,
)
# These may be about something in the document, and then it says the word itself ("upload the document").
_MAY_POINT = re.compile(
    rf"\bthe (?P<en>{_TEXTS})\b|\b(?:im|der|dem|den|des) (?P<de>text|artikel|abschnitt|dokument|absatz|auszug)\b|"
    r"\b(?:le |du |au |l['’])(?P<fr>texte|document|article|passage|extrait|paragraphe)\b|"
    r"\b(?:el|del|al) (?P<es>texto|documento|artículo|pasaje|fragmento|párrafo)\b|"
    r"\b(?:il|nel|del|dal) (?P<it>testo|documento|articolo|brano)\b|\bn?o (?P<pt>texto|documento|artigo|trecho)\b",
    re.IGNORECASE,
)


def speaks_of_its_document(query: str, document: str) -> bool:
    """Whether a query points at the document it was made from, which nobody who searches has before them."""
    if _POINTS.search(query):
        return True
    said = document.casefold()
    nouns = (match[match.lastgroup or 0].casefold() for match in _MAY_POINT.finditer(query))
    return any(noun.removesuffix("s") not in said for noun in nouns)
