"""Tokens of every script, and the language that documents show.

Deliberate breaks that turn a test red: marks left out of words, NFKC left out, `_DIGIT` not asked before stemming,
the sample taken by position instead of by id, the majority asked of those that speak alone (Finnish becomes French),
scripts without blanks not looked for.
"""

import gzip

import pytest
from conftest import SHARED, RunCli
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.errors import UsageError
from embedtrain.tokens import Language, Tokenizer, check_language, languages, settle_language


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("crème brûlée", ["crème", "brûlée"]),
        ("cre\u0300me", ["crème"]),  # decomposed, as files from a Mac
        ("морской берег", ["морской", "берег"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("ＡＢＣ１２", ["abc12"]),  # full width
        ("下雪", ["下雪"]),
        ("雪", ["雪"]),
        ("冬天会下雪。春天", ["冬天", "天会", "会下", "下雪", "春天"]),
        ("使用Python3语言", ["使用", "python3", "语言"]),
        ("カタカナ", ["カタ", "タカ", "カナ"]),
        ("한국어", ["한국", "국어"]),
        ("ที่นี่", ["ที่นี่"]),  # two characters, each with its marks
        ("ที่นี่ดี", ["ที่นี่", "นี่ดี"]),
        ("SSO-4012", ["sso-4012", "sso", "4012"]),
        ("max_length", ["max_length", "max", "length"]),
        ("3.5 or 10,000", ["3.5", "or", "10,000"]),
        ("state-of-the-art, and/or", ["state", "of", "the", "art", "and", "or"]),
        ("one,two. three:four", ["one", "two", "three", "four"]),
        ("10.1038/nature", ["10.1038/nature", "10", "1038", "nature"]),
        ("rock’n’roll don't", ["rock'n'roll", "don't"]),
        ("soft\u00adhyphen", ["softhyphen"]),
        ("__init__ - ... '", ["init"]),
        ("", []),
        (" \u200b\u00a0\t", []),
    ],
)
def test_tokens_without_a_language(text: str, tokens: list[str]) -> None:
    """P16: words keep their marks, unspaced scripts give pairs, numbers and codes stay whole."""
    assert Tokenizer("none")(text) == tokens
    assert Tokenizer("none")(text) == tokens


def test_tokens_of_english() -> None:
    tokenize = Tokenizer()
    assert tokenize("The parents' running of Alzheimer's studies, and the IL-6") == [
        "parent",
        "run",
        "alzheim",
        "studi",
        "il-6",
        "il",
        "6",
    ]
    assert tokenize("the of and") == []
    assert tokenize("p53s SSO4012s") == ["p53s", "sso4012s"]  # what holds a digit is a code, not a word


def test_tokens_of_other_languages() -> None:
    assert Tokenizer("french")("l'homme et les chevaux") == ["homm", "cheval"]
    assert Tokenizer("german")("die Häuser") == ["haus"]


@given(st.text(st.characters(max_codepoint=127)))
def test_the_short_way_for_ascii_is_the_long_way(text: str) -> None:
    # A soft hyphen at the end goes in the long way, and sends the text there.
    for language in ("none", "english"):
        assert Tokenizer(language)(text) == Tokenizer(language)(text + " \u00ad")


def test_an_unknown_language_names_the_known_ones() -> None:
    assert {"english", "german", "french", "none"} <= set(languages())
    with pytest.raises(UsageError, match=r"--language klingon: the languages are arabic, .*english, .*none"):
        Tokenizer("klingon")
    for language in [*languages(), "auto"]:
        check_language(language)


# --- --language auto ------------------------------------------------------------------------------------------

ENGLISH = "the wind in the north is not as strong as it was"  # 8 of 12 words
GERMAN = "der Wind im Norden ist nicht so stark wie er war"
FINNISH = "tuuli puhaltaa nyt pohjoisesta et kovaa on myrsky"  # `et` and `on` are French


def settled(texts: list[str]) -> str:
    return str(settle_language("auto", texts, [f"d{number:04d}" for number in range(len(texts))]))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([ENGLISH] * 3 + ["SSO-4012"], "english (auto: 75 % of 4 documents)"),
        ([GERMAN, "", "Wind"], "german (auto: 33 % of 3 documents)"),
        (["冬天会下雪", "夏天很炎热 the", ENGLISH], "none (auto: a script without blanks in 67 % of 3 documents)"),
        ([ENGLISH, GERMAN], "none (auto: no language shows in enough of 2 documents: english 50 %, german 50 %)"),
        ([FINNISH] + ["tuuli"] * 4, "none (auto: no language shows in enough of 5 documents: french 20 %)"),
        (["", "4012 !"], "none (auto: stop words of no language in 2 documents)"),
        ([], "none (auto: stop words of no language in 0 documents)"),
    ],
)
def test_auto_says_what_it_chose_and_why(texts: list[str], said: str) -> None:
    assert settled(texts) == said


def test_a_named_language_is_taken_without_a_look() -> None:
    assert settle_language("german", [ENGLISH], ["d"]) == Language("german")
    assert str(Language("german")) == "german"


def test_the_sample_does_not_depend_on_the_order_of_documents() -> None:
    texts = [ENGLISH if number % 3 else GERMAN for number in range(3_000)]
    ids = [f"d{number}" for number in range(3_000)]
    chosen = settle_language("auto", texts, ids)
    assert chosen.name == "english"
    assert chosen.why.endswith(" of 1,000 documents")
    assert settle_language("auto", texts[::-1], ids[::-1]) == chosen


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("en", "english"),
        ("de", "german"),
        ("es", "spanish"),
        ("fr", "french"),
        ("it", "italian"),
        ("nl", "dutch"),
        ("pt", "portuguese"),
        ("ru", "russian"),
        ("ja", "none"),
        ("zh", "none"),
        ("pl", "none"),
    ],
)
def test_sentences_of_the_sts_benchmark(code: str, name: str) -> None:
    with gzip.open(SHARED / "stsb" / f"stsb-{code}-test.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.split("\t") for line in file][1:]
    texts = [row[1] for row in rows if len(row) > 1]
    assert settle_language("auto", texts, [str(number) for number in range(len(texts))]).name == name


def test_the_command_says_the_language(tiny, run_cli: RunCli) -> None:
    done = run_cli("mine", tiny, "--retriever", "bm25", "--language", "auto", "--out", "m.parquet")
    assert done.returncode == 0, done.stderr
    assert "english (auto: 100 % of " in done.stdout
    done = run_cli("eval", tiny, "--bm25", "--language", "auto", "--out", "e")
    assert done.returncode == 0, done.stderr
    assert "BM25: language: english (auto: 100 % of " in done.stdout


@pytest.mark.parametrize("language", ["english", "none"])
def test_distinct_tokens_are_those_of_the_list(language: str) -> None:
    split = Tokenizer(language)
    for text in ("", "The cells, the Cell and SSO-4012; max_length 3.5 of 10,000", "東京タワー cells 東京タワー"):
        assert split.distinct(text) == set(split(text))
