"""What a language model is asked: built-in prompts, or a file with {text} and, if wanted, {n} and {title}."""

import string
from pathlib import Path
from typing import NamedTuple

from embedtrain.errors import EmbedtrainError, UsageError

_FIELDS = ("text", "n", "title")

BUILT_IN = {
    "questions": """\
Below is a document. Write questions that people would type into a search engine before they know this document, \
and that it answers.
- Write exactly {n}, each about something else that the document says.
- Each is understood without the document: name what it is about, never write "the document" or "the text".
- Use other words than the document where people would.
- Write in the language of the document.
- One question a line: no numbers, no introduction, no answers, nothing else.

Title: {title}
Document:
{text}
""",
    "keywords": """\
Below is a document. Write queries of 2 to 5 keywords that people would type into a search engine to find it.
- Write exactly {n}, each for something else that the document says.
- Each is understood without the document: name what it is about.
- Write in the language of the document.
- One query a line: no numbers, no introduction, no quotation marks, nothing else.

Title: {title}
Document:
{text}
""",
    "rephrase": """\
Below is a query that people type into a search engine. Say the same in other words.
- Write exactly {n} versions, each in other words than the rest.
- What is asked for stays the same; names and numbers stay as they are.
- Write in the language of the query.
- One version a line: no numbers, no introduction, nothing else.

Query:
{text}
""",
    "plain": "{text}",  # for doc2query, which was trained on documents without a word around them
}


class Prompt(NamedTuple):
    """A prompt and the name it was asked for by."""

    name: str
    template: str

    def filled(self, text: str, wanted: int, title: str) -> str:
        """The prompt for a document. Braces in its text and title are left as they are."""
        return self.template.format(text=text, n=wanted, title=title)

    @property
    def shown(self) -> str:
        """The prompt in one line, for the summary."""
        return f"prompt {self.name}: {' '.join(self.template.split())}"


def check_template(template: str, where: str) -> None:
    """Raise EmbedtrainError for a template without {text}, or with other things in braces than the three."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise EmbedtrainError(
            f"{where}: a brace stands alone ({error}); braces that are to be shown are doubled: {{{{ and }}}}"
        ) from error
    fields = [(name, spec, conversion) for _, name, spec, conversion in parts if name is not None]
    for name, spec, conversion in fields:
        if name not in _FIELDS or spec or conversion:
            shown = "{" + name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
            raise EmbedtrainError(
                f"{where}: {shown} is none of {{text}}, {{n}} and {{title}}; braces that are to be shown are "
                "doubled: {{ and }}"
            )
    if not any(name == "text" for name, _, _ in fields):
        raise EmbedtrainError(
            f"{where} has no {{text}}, so the model would not see the document; put it where it belongs"
        )


def find_prompt(wanted: str) -> Prompt:
    """A built-in prompt by its name, or the content of a file. EmbedtrainError for a content that cannot be."""
    if wanted in BUILT_IN:
        return Prompt(wanted, BUILT_IN[wanted])
    path = Path(wanted)
    try:
        template = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise EmbedtrainError(f"--prompt {wanted} is not UTF-8 text; convert the file to UTF-8") from error
    except OSError as error:
        raise UsageError(
            f"--prompt {wanted}: the prompts are {', '.join(BUILT_IN)}; anything else is a file, and there is none"
        ) from error
    check_template(template, f"--prompt {wanted}")
    return Prompt(path.stem, template)
