"""Generated queries against a real server process: what is asked, kept, filtered and said.

Deliberate breaks that turn a test red: replies kept at the end of the run instead of one by one; a key of the
cache without the seed, or with the address; the first documents instead of a sample; replies in the order they
come; queries of a test split rephrased, or asked again in train; rephrased queries rephrased; a retry that does not wait for Retry-After, or forgets the error; the API key in an error or in the cache;
text with braces formatted twice; a round trip over the sampled documents alone.
"""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from completion_server import KEY, reply_to
from conftest import ROOT, RunCli, write_collection

from embedtrain.collection import Collection, Texts
from embedtrain.config import GenerateOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest.draft import Document, Draft, Query
from embedtrain.harvest.finders import round_trip
from embedtrain.harvest.generated import ELSEWHERE, LOST, TOO_LONG, check, generate, parse_price, sampled
from embedtrain.harvest.generated.cache import RepliesCache, reply_key
from embedtrain.harvest.generated.endpoint import Endpoint, base_of, retry_after, waiting_time
from embedtrain.harvest.generated.prompts import BUILT_IN, Prompt, check_template, find_prompt
from embedtrain.harvest.generated.rephrasing import rephrase
from embedtrain.harvest.generated.replies import Reply
from embedtrain.harvest.generated.reply_lines import PREAMBLE
from embedtrain.hits import Hits
from embedtrain.replies import replies_file

PLAIN = GenerateOptions(round_trip=0, generate_model="list")


class Served:
    """The server process: its address, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/v1"

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.root + path, timeout=30) as response:
            return json.loads(response.read())

    @property
    def log(self) -> list[dict[str, Any]]:
        return self.get("/log")


@pytest.fixture(scope="module")
def process() -> Iterator[Served]:
    command = [sys.executable, str(ROOT / "tests" / "completion_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout
        yield Served(int(started.stdout.readline()))
        started.kill()


@pytest.fixture
def served(process: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path / "cache"))
    for name in ("EMBEDTRAIN_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    process.get("/reset")
    return process


def texts(count: int) -> Texts:
    """Documents of four words each that no other has."""
    names = ("aloe", "birch", "cedar", "dahlia")
    return Texts(
        [f"d{n}" for n in range(count)], None, [" ".join(f"{name}{n}" for name in names) for n in range(count)]
    )


def drafted(documents: Texts) -> Draft:
    draft = Draft(keep_dropped=True)
    for row, identifier in enumerate(documents.ids):
        assert draft.add_document(identifier, Document(documents.title(row), documents.body(row), {}))
    return draft


def made(documents: Texts, options: GenerateOptions, served: Served, **more: Any) -> Draft:
    draft = drafted(documents)
    generate(documents, replace(options, generate=options.generate or served.url), draft, **more)
    return draft


def pairs(draft: Draft) -> list[tuple[str, str]]:
    return [(draft.query(query).text, document) for query, document, *_ in draft.judgements("train")]


def expected(documents: Texts, wanted: int = 2) -> list[tuple[str, str]]:
    prompt = Prompt("questions", BUILT_IN["questions"])
    found = []
    for row, identifier in enumerate(documents.ids):
        lines = reply_to(prompt.filled(documents.body(row), wanted, documents.title(row))).splitlines()[1:]
        found += [(line.partition(". ")[2], identifier) for line in lines]
    return found


def test_pairs_of_all_documents_in_their_order_from_a_server_that_answers_in_another(served: Served) -> None:
    documents = texts(12)
    draft = made(documents, replace(PLAIN, generate_model="uneven"), served)
    assert pairs(draft) == expected(documents)
    assert draft.dropped == {PREAMBLE: 12}
    assert set(draft.names("source")) == {"generated"}
    log = served.log
    assert [row["prompt"] for row in log] != sorted(row["prompt"] for row in log)
    assert {(row["model"], row["temperature"], row["seed"], row["max_tokens"]) for row in log} == {
        ("uneven", 0.7, 0, 512)
    }
    # 100 tokens in and 10 out each, as the server counts them: 1,200 and 120.
    assert draft.notes == [
        "uneven was asked for 2 queries of each of 12 documents: 24 came, 0 fewer than asked for",
        f"prompt questions: {' '.join(BUILT_IN['questions'].split())}",
        "that took 1,200 tokens of prompts and 120 of replies",
    ]


def test_what_was_answered_once_is_never_asked_again(served: Served) -> None:
    documents = texts(6)
    first = made(documents, PLAIN, served)
    assert len(served.log) == 6
    second = made(documents, PLAIN, served)
    assert len(served.log) == 6
    assert (pairs(second), second.dropped, second.notes) == (pairs(first), first.dropped, first.notes)
    # The same model elsewhere is the same model.
    made(documents, replace(PLAIN, generate=f"{served.root}/one/v1", generate_model=""), served)
    assert len(served.log) == 6
    for number, other in enumerate(
        (
            replace(PLAIN, seed=1),
            replace(PLAIN, temperature=0.1),
            replace(PLAIN, queries_per_document=3),
            replace(PLAIN, prompt="keywords"),
            replace(PLAIN, generate_tokens=99),
            replace(PLAIN, generate_model="parts"),
        ),
        start=2,
    ):
        made(documents, other, served)
        assert len(served.log) == 6 * number
    titled = Texts(documents.ids, ["Trees"] * 6, documents[:])
    made(titled, PLAIN, served)
    assert len(served.log) == 6 * 8


def test_the_same_document_twice_is_asked_for_once(served: Served) -> None:
    documents = Texts(["a", "b", "c"], None, ["aloe birch cedar", "elm fir", "aloe birch cedar"])
    draft = made(documents, PLAIN, served)
    assert len(served.log) == 2
    assert Counter(document for _, document in pairs(draft)) == {"a": 2, "b": 2, "c": 2}


SCRIPT = """
import sys
from embedtrain.config import GenerateOptions
from embedtrain.harvest.generated import generate
sys.path.insert(0, sys.argv[1])
from test_harvest_generate import drafted, texts
documents = texts(40)
options = GenerateOptions(generate=sys.argv[2], generate_model="slow", generate_workers=3, round_trip=0)
generate(documents, options, drafted(documents))
"""


def test_killed_in_the_middle_it_asks_only_for_what_is_missing(served: Served, tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(ROOT / "tests"), served.url],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while len(served.log) < 12 and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    _, said = run.communicate()
    assert run.returncode == -signal.SIGKILL, said  # it had not ended before
    time.sleep(0.3)  # what was under way at the server
    before = served.log
    with sqlite3.connect(tmp_path / "cache" / "replies" / replies_file().name) as database:
        (kept,) = database.execute("SELECT COUNT(*) FROM replies").fetchone()
    database.close()
    # Three at a time, and as many more may have been answered in the moment of the kill: the others are kept.
    assert 12 - 6 <= len(before) - 6 <= kept < 40
    documents = texts(40)
    draft = made(documents, replace(PLAIN, generate_model="slow", generate_workers=8), served)
    again = served.log[len(before) :]
    assert len(again) == 40 - kept
    assert len({row["prompt"] for row in before} - {row["prompt"] for row in again}) == kept
    assert pairs(draft) == expected(documents)


def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    script = """
import sys
from embedtrain.harvest.generated.replies import Reply
from embedtrain.harvest.generated.cache import RepliesCache, reply_key
with RepliesCache() as cache:
    for number in range(60):
        cache.keep(reply_key({"n": number}), Reply(sys.argv[1], prompt_tokens=number), "m")
"""
    env = {**os.environ, "EMBEDTRAIN_CACHE": str(tmp_path)}
    runs = [subprocess.Popen([sys.executable, "-c", script, name], env=env, cwd=ROOT) for name in "ab"]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBEDTRAIN_CACHE", str(tmp_path))
        with RepliesCache() as cache:
            found = [cache.find(reply_key({"n": number})) for number in range(60)]
            assert all(reply and reply.text in "ab" and reply.prompt_tokens == n for n, reply in enumerate(found))
            cache.keep(reply_key({"n": 0}), Reply("late"), "m")
            assert cache.find(reply_key({"n": 0})) == found[0]  # the first stays
            assert cache.find(reply_key({"n": 60})) is None
            cache.keep(reply_key({"half": 1}), Reply("\ud83d x", "length"), "m")
            assert cache.find(reply_key({"half": 1})) == Reply("? x", "length")


def test_a_broken_cache_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path))
    (tmp_path / "replies").mkdir()
    replies_file().write_bytes(b"no database, " * 100)
    with pytest.raises(EmbedtrainError, match=r"cannot be read or written \(file is not a database\); see that"):
        RepliesCache()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EMBEDTRAIN_CACHE", str(tmp_path / "file"))
    with pytest.raises(EmbedtrainError, match="set EMBEDTRAIN_CACHE to another folder"):
        RepliesCache()


def asked(served: Served, model: str, prompts: int = 1, **more: Any) -> list[str]:
    """The replies of a server, quick to try again, in the order of the prompts."""
    how = {"temperature": 0.5, "seed": 7, "max_tokens": 64, "first_wait": 0.01, "workers": 3, **more}
    endpoint = Endpoint(how.pop("base", served.url), model, **how)
    found = dict(endpoint.replies([f"exactly 1 Document: oak{n}" for n in range(prompts)], 1))
    return [found[place].text for place in range(prompts)]


@pytest.mark.parametrize(
    ("model", "tries"), [("limited", 3), ("flaky", 3), ("broken", 2), ("truncated", 2), ("reset", 2)]
)
def test_what_passes_is_tried_again(served: Served, model: str, tries: int) -> None:
    assert asked(served, model, 4) == [reply_to(f"exactly 1 Document: oak{n}") for n in range(4)]
    log = served.log
    assert Counter(row["prompt"] for row in log) == {f"exactly 1 Document: oak{n}": tries for n in range(4)}
    if model == "limited":  # Retry-After: 0.4, twice
        times = [row["at"] for row in log if row["prompt"].endswith("oak2")]
        assert np.diff(times).min() >= 0.4


@pytest.mark.parametrize(
    ("model", "message", "requests"),
    [
        ("down", r"/v1: HTTP 500 \(out of memory\), 8 times in a row; replies that came are kept", 8),
        (
            "page",
            r"no chat completion \('<html><body>Welcome to nginx</body></html>'\); see .*, 3 times in a row",
            3,
        ),
        ("tomorrow", r"asks to come back in 86,400 seconds \(HTTP 429\); replies that came are kept", 1),
        ("poor", r"has no credit left \(HTTP 429: You exceeded your quota insufficient_quota\)", 1),
        ("odd", r"refuses the request \(HTTP 400: temperature is not known here\); mend the flags", 1),
        ("moved", r"sends requests on to http://elsewhere\.example/v1; give the address that answers itself", 1),
        ("locked", r"/v1 wants a key: set EMBEDTRAIN_API_KEY \(HTTP 401\)", 1),
        ("gone", r"has no model 'gone'; it has list, limited, flaky, \.\.\.: choose with --generate-model", 1),
    ],
)
def test_what_does_not_pass_is_said(served: Served, model: str, message: str, requests: int) -> None:
    with pytest.raises(EmbedtrainError, match=message):
        asked(served, model)
    assert len(served.log) == requests


def test_other_errors_are_sentences_too(served: Served) -> None:
    with pytest.raises(
        EmbedtrainError, match=r"/v2/chat/completions is not there, or the server has no model 'list'"
    ):
        asked(served, "list", base=f"{served.root}/v2")
    with pytest.raises(
        EmbedtrainError, match=r"no answer within 0\.2 seconds \(give more with --generate-timeout"
    ):
        asked(served, "sleepy", timeout=0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(
        EmbedtrainError, match=rf"127.0.0.1:{port}/v1 cannot be reached \(Connection refused\); start"
    ):
        asked(served, "list", base=f"http://127.0.0.1:{port}/v1")
    assert time.monotonic() - started < 5
    with pytest.raises(
        UsageError, match=r"needs the name of a model; it has list, limited, flaky, \.\.\.: give it with"
    ):
        asked(served, "")
    with pytest.raises(UsageError, match="it does not say which it has, or cannot be reached"):
        asked(served, "", base=f"{served.root}/none")
    assert asked(served, "", base=f"{served.root}/one/v1") == [reply_to("exactly 1 Document: oak0")]


def test_replies_under_way_are_kept_when_another_fails(served: Served) -> None:
    documents = Texts(["a", "b", "c"], None, ["aloe birch cedar", "elm fir", "gorse " * 400])
    draft = drafted(documents)
    with pytest.raises(EmbedtrainError, match="wants a key"):
        generate(documents, replace(PLAIN, generate=served.url, generate_model="locked"), draft)
    narrow = made(documents, replace(PLAIN, generate_model="narrow", queries_per_document=1), served)
    assert narrow.dropped == {PREAMBLE: 2, TOO_LONG: 1}
    assert [json.loads(row) for row in narrow.dropped_rows()][-1] == {"reason": TOO_LONG, "document": "c"}
    count = len(served.log)
    again = made(documents, replace(PLAIN, generate_model="narrow", queries_per_document=1), served)
    # What did not fit is asked again: the server may have another limit by now.
    assert len(served.log) == count + 1
    assert (pairs(again), again.dropped) == (pairs(narrow), narrow.dropped)


def test_the_key_goes_into_the_header_and_nowhere_else(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    draft = made(texts(2), replace(PLAIN, generate_model="locked"), served)
    assert {row["key"] for row in served.log} == {f"Bearer {KEY}"}
    with pytest.raises(EmbedtrainError, match=r"HTTP 400: what is \*\*\*\?"):
        asked(served, "echo")
    monkeypatch.setenv("EMBEDTRAIN_API_KEY", "wrong-key-987")  # the project's own name comes first
    with pytest.raises(EmbedtrainError, match="refuses the key of EMBEDTRAIN_API_KEY or OPENAI_API_KEY") as caught:
        asked(served, "locked")
    endpoint = Endpoint(served.url, "list", temperature=0, seed=0, max_tokens=1)
    shown = [str(caught.value), repr(endpoint), *draft.notes, *draft.dropped_rows(), *capfd.readouterr()]
    shown += [path.read_bytes().decode("latin-1") for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not any(key in text for text in shown for key in (KEY, "wrong-key-987"))
    monkeypatch.setenv("EMBEDTRAIN_API_KEY", "wrong-key\n987")
    with pytest.raises(UsageError, match="EMBEDTRAIN_API_KEY holds a character that stands in no key") as caught:
        asked(served, "list")
    assert "987" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1"),
        ("https://api.example.com/v1/chat/completions", "https://api.example.com/v1"),
    ],
)
def test_addresses(url: str, base: str) -> None:
    assert base_of(url) == base


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/v1",
        "http://",
        "http:///v1",
        "http://[::1/v1",
        "http://host:99999/v1",
        "http://a b/v1",
        "http://hö/v1",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError, match="an address as http://localhost:8000/v1 is needed"):
        base_of(url)


@pytest.mark.parametrize("url", ["https://me:secret@host/v1", "https://host/v1?api-key=secret"])
def test_addresses_with_secrets_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match="the address of host carries a user name or parameters") as caught:
        base_of(url)
    assert "secret" not in str(caught.value)


def test_waiting_times() -> None:
    assert retry_after("3", 0) == 3
    assert retry_after("0.5", 0) == 0.5
    assert retry_after("-3", 0) == retry_after("soon", 0) == retry_after(None, 0) == retry_after("", 0) == 0
    # 1994-11-06 08:49:37 is 784111777 seconds after the epoch.
    assert retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111770) == 7
    assert retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111780) == 0
    for attempt, least in ((1, 0.5), (2, 1.0), (3, 2.0), (8, 60.0), (20, 60.0)):
        assert least <= waiting_time(attempt, "a") <= 1.25 * least
        assert waiting_time(attempt, "a") == waiting_time(attempt, "a")
    assert len({waiting_time(1, str(n)) for n in range(20)}) > 10  # workers do not come back together


def test_replies_of_other_kinds(served: Served) -> None:
    documents = texts(3)
    assert pairs(made(documents, replace(PLAIN, generate_model="parts"), served)) == expected(documents)
    mute = drafted(documents)
    generate(documents, replace(PLAIN, generate=served.url, generate_model="mute"), mute)
    assert mute.dropped == {"empty reply": 3}
    assert mute.notes[0].endswith("0 came, 6 fewer than asked for")
    uncounted = made(documents, replace(PLAIN, generate_model="uncounted"), served)
    assert uncounted.notes[2] == "that took 0 tokens of prompts and 0 of replies; of 3 replies it is not known"


def test_price() -> None:
    assert parse_price("") is None
    assert parse_price("0.15,0.6") == (0.15, 0.6)
    for wrong in ("1", "a,b", "1,2,3", "-1,2", "nan,1", "inf,1"):
        with pytest.raises(UsageError, match=r"two numbers are needed, .*: 0\.15,0\.6"):
            parse_price(wrong)


def test_cost_and_rate_are_said(served: Served) -> None:
    said: list[tuple[str, int, int, str]] = []
    draft = made(texts(3), replace(PLAIN, price="100,500"), served, progress=lambda *told: said.append(told))
    # 300 tokens at 100 and 30 at 500 a million: (30,000 + 15,000) / 1,000,000 = 0.0450.
    assert draft.notes[2] == "that took 300 tokens of prompts and 30 of replies: 0.0450 at --price 100,500"
    steps = [("ask list for queries", done, 3) for done in range(4)]
    assert [(what, done, total) for what, done, total, _ in said] == [*steps, ("read replies", 3, 3)]
    assert all(note.endswith("tokens/s") and " requests/s, " in note for *_, note in said[1:4])
    more: list[str] = []
    again = made(texts(4), replace(PLAIN, price="100,500"), served, progress=lambda *told: more.append(told[3]))
    assert more[0] == "(3 more were in the cache)"
    assert more[1].endswith("tokens/s (3 more were in the cache)")
    assert again.notes[2].startswith("that took 400 tokens")  # all of them, whenever they were asked


def test_a_sample_of_documents_that_more_documents_do_not_move(served: Served) -> None:
    ids = [f"d{n}" for n in range(200)]
    chosen = {ids[place] for place in sampled(ids, 50, 0)}
    assert len(chosen) == 50
    assert sampled(ids, 50, 0) == sorted(sampled(ids, 50, 0))
    assert chosen != set(ids[:50])
    assert chosen != {ids[place] for place in sampled(ids, 50, 1)}
    assert chosen == {ids[::-1][place] for place in sampled(ids[::-1], 50, 0)}
    more = [f"d{n}" for n in range(220)]
    assert {more[place] for place in sampled(more, 50, 0)} - set(ids[:200]) | chosen >= {
        more[place] for place in sampled(more, 50, 0)
    }
    assert sampled(ids, None, 0) == sampled(ids, 200, 0) == list(range(200))
    draft = made(texts(20), replace(PLAIN, generate_limit=5), served)
    assert len(served.log) == 5
    assert draft.notes[0].startswith(
        "list was asked for 2 queries of each of 5 documents (a sample of 20): 10 came"
    )


def test_prompts() -> None:
    for name, template in BUILT_IN.items():
        check_template(template, name)
    prompt = Prompt("x", "{n} about {title}: {{{text}}}")
    # Braces of a document are its own, whatever they spell.
    assert prompt.filled("{n} {text} {0} {{x}} }{", 2, "{title}") == "2 about {title}: {{n} {text} {0} {{x}} }{}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("Write {n} queries.", r"has no \{text\}, so the model would not see the document"),
        (
            "{text} in {language}",
            r"\{language\} is none of \{text\}, \{n\} and \{title\}; braces that are to be shown are doubled",
        ),
        ("{text!r}", r"\{text!r\} is none of"),
        ("{text:>9}", r"\{text:>9\} is none of"),
        ("{text} {}", r"\{\} is none of"),
        ("{text.__class__}", r"\{text\.__class__\} is none of"),
        ("{text[0]}", r"\{text\[0\]\} is none of"),
        ('{text} as {"queries": []}', r"is none of"),
        ("{text} }", r"a brace stands alone \(Single '\}' encountered in format string\)"),
        ("{text", r"a brace stands alone"),
    ],
)
def test_prompts_that_cannot_be(template: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text(template)
    with pytest.raises(EmbedtrainError, match=rf"p\.txt:? .*{message}|p\.txt {message}|p\.txt: {message}"):
        find_prompt(str(tmp_path / "p.txt"))


def test_a_prompt_of_the_user(served: Served, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--prompt qestions: the prompts are questions, keywords, rephrase, plain; .* file"
    ):
        find_prompt("qestions")
    (tmp_path / "latin.txt").write_bytes(b"{text} caf\xe9")
    with pytest.raises(EmbedtrainError, match="is not UTF-8 text; convert the file"):
        find_prompt(str(tmp_path / "latin.txt"))
    (tmp_path / "mine.txt").write_bytes("\ufeffexactly {n} {{json}}\r\n{title}\r\nDocument: {text}".encode())
    documents = Texts(["a"], ["Trees {n}"], ["aloe {text} birch"])
    draft = made(documents, replace(PLAIN, prompt=str(tmp_path / "mine.txt")), served)
    assert served.log[0]["prompt"] == "exactly 2 {json}\nTrees {n}\nDocument: aloe {text} birch"
    assert draft.notes[1] == "prompt mine: exactly {n} {{json}} {title} Document: {text}"
    assert len(pairs(draft)) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"queries_per_document": 0}, "--queries-per-document 0: give at least 1"),
        ({"generate_limit": 0}, "--generate-limit 0: give at least 1"),
        ({"generate_workers": 0}, "--generate-workers 0: give at least 1"),
        ({"generate_tokens": 0}, "--generate-tokens 0: give at least 1"),
        ({"temperature": float("nan")}, "--generate-temperature nan: give at least 0"),
        ({"round_trip": -1}, "--round-trip -1: give at least 0"),
        ({"generate_timeout": 0.0}, "--generate-timeout 0: give more than 0 seconds"),
        ({"round_trip_need": "most"}, "--round-trip-need most: any and all are known"),
        ({"price": "1"}, "--price 1: two numbers"),
        ({"prompt": "none"}, "--prompt none: the prompts are"),
    ],
)
def test_options_that_cannot_be(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(replace(GenerateOptions(), **wrong))


def test_round_trip_by_hand() -> None:
    # Query 0 finds 4, 2, 7 in this order, query 1 nothing.
    hits = Hits(
        [np.array([4, 2, 7]), np.array([], dtype=np.int64)], [np.ones(3, np.float32), np.ones(0, np.float32)]
    )
    asked_for = [(0, 4), (0, 2), (0, 7), (0, 5), (1, 4)]
    assert round_trip(asked_for, hits, 1).tolist() == [True, False, False, False, False]
    assert round_trip(asked_for, hits, 2).tolist() == [True, True, False, False, False]
    assert round_trip(asked_for, hits, 10).tolist() == [True, True, True, False, False]
    assert round_trip([], hits, 10).tolist() == []


def test_queries_that_do_not_find_their_document_are_dropped(served: Served) -> None:
    # The words of d0 to d4 stand in no other document; s0 to s10 are one text.
    own = texts(5)
    ids = [*own.ids, *(f"s{n}" for n in range(12))]
    documents = Texts(ids, None, [*own[:], *(["same alike equal"] * 11), "same alike equal unlike"])
    options = replace(PLAIN, round_trip=3, queries_per_document=1)
    draft = made(documents, options, served)
    kept = pairs(draft)
    assert [document for _, document in kept[:5]] == own.ids
    # BM25 ranks equal documents by id: s0, s1 and s10 come first for their queries; s11 has a word of its own.
    assert {document for _, document in kept[5:]} == {"s0", "s1", "s10", "s11"}
    lost = [json.loads(row) for row in draft.dropped_rows()]
    lost = [row for row in lost if row["reason"] == LOST]
    assert draft.dropped[LOST] == len(lost) == 8
    assert {row["document"] for row in lost} == {f"s{n}" for n in range(2, 10)}
    assert (
        draft.notes[3]
        == "round trip by BM25 (none (auto: stop words of no language in 17 documents)): queries stay "
        "whose document is among the first 3 they find"
    )
    # All documents are searched, not only those that were asked about.
    few = made(documents, replace(options, generate_limit=9), served)
    chosen = {ids[place] for place in sampled(ids, 9, 0)}
    assert {document for _, document in pairs(few)} == chosen - {row["document"] for row in lost}
    assert few.dropped[LOST] == len(chosen & {row["document"] for row in lost}) == 3
    with pytest.raises(UsageError, match="--round-trip-by bm25 bm25: name bm25, a model, or each of several once"):
        made(documents, replace(options, round_trip_by=("bm25", "bm25")), served)


def test_rephrased_queries_have_the_documents_of_theirs(served: Served) -> None:
    documents = texts(3)
    queries = Texts(["q0", "q1"], None, ["where does aloe0 grow", "dahlia2 in winter"])
    answers = {"q0": ["d0", "d1"], "q1": ["d2"]}
    draft = drafted(documents)
    options = replace(PLAIN, generate=served.url, prompt="rephrase", queries_per_document=1)
    generate(queries, options, draft, corpus=documents, positives=answers.__getitem__)
    assert "where does aloe0 grow" in served.log[0]["prompt"] + served.log[1]["prompt"]
    assert set(draft.names("source")) == {"rephrased"}
    assert [document for _, document in pairs(draft)] == ["d0", "d1", "d2"]

    assert draft.notes[0] == ("list was asked for 1 queries of each of 2 queries: 2 came, 0 fewer than asked for")


CORPUS = [
    {"_id": "d1", "title": "Aloe", "text": "Aloe grows on dry slopes where frost is rare."},
    {"_id": "d2", "title": "", "text": "Cut birch in late summer, when little sap runs."},
    {"_id": "d3", "title": "", "text": "Cedar oil keeps moths away from wool."},
    {"_id": "d4", "title": "", "text": "Dahlias are dug up before the first frost."},
]
QUERIES = {
    "q1": "does aloe stand frost",
    "q2": "best month for pruning birch",
    "q3": "what repels clothes moths",
    "q4": "when are dahlias lifted",
    "q5": "which plants die of cold",
    "q6": "is wool a plant",
}
JUDGED = {
    "train": [
        ("q1", "d1", 1),
        ("q1", "d4", 2),
        ("q1", "d2", 0),
        ("q2", "d2", 1),
        ("q5", "d4", 1),
        ("q6", "d3", 0),
    ],
    "dev": [("q4", "d4", 1)],
    "test": [("q3", "d3", 1), ("q5", "d1", 1)],
}
# The server answers with the words behind "Document:".
REPHRASE = "Say it in exactly {n} other ways.\nDocument: {text}"


def judged_collection(folder: Path, splits: dict[str, list[tuple[str, str, int]]]) -> Path:
    return write_collection(folder, CORPUS, [{"_id": i, "text": text} for i, text in QUERIES.items()], splits)


def rows_of(out: Path, split: str) -> list[tuple[str, str, float, str]]:
    """(query text, document, grade, source) of a split."""
    texts = Collection(out).queries
    table = pq.read_table(out / "qrels" / f"{split}.parquet").to_pylist()
    return [(texts.by_id(row["query-id"]), row["corpus-id"], row["score"], row["source"]) for row in table]


def test_the_command_rephrases_training_queries_and_no_others(
    served: Served, tmp_path: Path, run_here: RunCli
) -> None:
    source = judged_collection(tmp_path / "source", JUDGED)
    asked = ("--generate", served.url, "--generate-model", "list", "--queries-per-document", "1")
    done = run_here("harvest", source, *asked, "--prompt", "rephrase", "--round-trip", "0", "--out", "out")
    assert done.returncode == 0, done.stderr
    # q5 is asked in test too, q6 has no relevant document, q3 and q4 are not in train.
    prompts = {row["prompt"].partition("Query:\n")[2].strip() for row in served.log}
    assert prompts == {QUERIES["q1"], QUERIES["q2"]}
    new = [row for row in rows_of(tmp_path / "out", "train") if row[3] == "rephrased"]
    assert [row[1:3] for row in new] == [("d1", 1), ("d4", 1), ("d2", 1)]
    for split in ("dev", "test"):
        old = [(QUERIES[query], document, grade, "judged") for query, document, grade in JUDGED[split]]
        assert rows_of(tmp_path / "out", split) == old
    assert "list was asked for 1 queries of each of 2 queries: 2 came" in done.stdout
    assert len(Collection(tmp_path / "out").corpus) == 4


def test_a_prompt_of_the_user_that_is_called_rephrase(served: Served, tmp_path: Path, run_here: RunCli) -> None:
    source = judged_collection(tmp_path / "source", JUDGED)
    (tmp_path / "rephrase.txt").write_text(REPHRASE)
    asked = ("--generate", served.url, "--generate-model", "list", "--queries-per-document", "2")
    done = run_here("harvest", source, *asked, "--prompt", "rephrase.txt", "--round-trip", "0", "--out", "out")
    assert done.returncode == 0, done.stderr
    wanted = []
    for query, documents in (("q1", ["d1", "d4"]), ("q2", ["d2"])):
        lines = reply_to(REPHRASE.format(n=2, text=QUERIES[query])).splitlines()[1:]
        wanted += [(line.partition(". ")[2], document) for document in documents for line in lines]
    new = [row[:2] for row in rows_of(tmp_path / "out", "train") if row[3] == "rephrased"]
    assert sorted(new) == sorted(wanted)
    assert len(new) == 6


def test_rephrased_queries_stay_out_of_splits_that_are_cut_from_train(
    served: Served, tmp_path: Path, run_here: RunCli
) -> None:
    judged = {"train": [("q1", "d1", 1), ("q2", "d2", 1), ("q3", "d3", 1), ("q4", "d4", 1)]}
    source = judged_collection(tmp_path / "source", judged)
    (tmp_path / "rephrase.txt").write_text(REPHRASE)
    asked = ("--generate", served.url, "--generate-model", "list", "--queries-per-document", "1", "--json")
    done = run_here(
        *("harvest", source, *asked, "--prompt", "rephrase.txt", "--round-trip", "0"),
        *("--split", "test=0.5", "--out", "out"),
    )
    assert done.returncode == 0, done.stderr
    test, train = rows_of(tmp_path / "out", "test"), rows_of(tmp_path / "out", "train")
    assert {row[3] for row in test} == {"judged"}
    assert len(test) + len(train) - len([row for row in train if row[3] == "rephrased"]) == 4
    assert {row[1] for row in train if row[3] == "rephrased"} == {row[1] for row in train}
    # Cut before anything was asked for: the counts are of what people asked, and no reply is paid for and thrown away.
    notes = json.loads(done.stdout)["notes"]
    assert any(note.startswith(f"test was cut from train: {len(test)} of 4 queries") for note in notes)
    assert len(served.log) == len({row[0] for row in train if row[3] == "judged"})
    # Queries that nothing names any more left with their pairs.
    assert len(Collection(tmp_path / "out").queries) == len({row[0] for row in test + train}) + 2  # q5, q6


def test_a_rephrased_query_of_an_excluded_collection_leaves(
    served: Served, tmp_path: Path, run_here: RunCli
) -> None:
    source = judged_collection(tmp_path / "source", JUDGED)
    (tmp_path / "rephrase.txt").write_text(REPHRASE)
    said = reply_to(REPHRASE.format(n=1, text=QUERIES["q1"])).splitlines()[1].partition(". ")[2]
    corpus = [{"_id": "x", "title": "", "text": "Nothing of all this."}]
    judged = {"test": [("asked", "x", 1)]}
    measured = write_collection(tmp_path / "measured", corpus, [{"_id": "asked", "text": said}], judged)
    asked = ("--generate", served.url, "--generate-model", "list", "--queries-per-document", "1")
    command = ["harvest", source, *asked, "--prompt", "rephrase.txt", "--round-trip", "0"]
    for flags, expected in (((), {"d1", "d4", "d2"}), (("--exclude", measured), {"d2"})):
        done = run_here(*command, *flags, "--out", "out")
        assert done.returncode == 0, done.stderr
        new = [row for row in rows_of(tmp_path / "out", "train") if row[3] == "rephrased"]
        assert {row[1] for row in new} == expected


def test_what_another_split_asks_is_no_training_query(served: Served) -> None:
    documents = texts(4)
    draft = drafted(documents)
    asked = expected(documents, 1)
    draft.add_query("own", Query(asked[2][0].upper(), {}))
    draft.judge("test", "own", "d0", 1, "here")
    generate(documents, replace(PLAIN, generate=served.url, queries_per_document=1), draft)
    assert pairs(draft) == [asked[0], asked[1], asked[3]]
    assert draft.dropped[ELSEWHERE] == 1


def test_what_was_rephrased_is_not_rephrased_again(served: Served) -> None:
    documents = texts(3)
    draft = drafted(documents)
    for query in ("q0", "q1"):
        draft.add_query(query, Query(f"where does aloe grow, {query}", {}))
        draft.judge("train", query, "d0", 1, "here")
    options = replace(PLAIN, generate=served.url, prompt="rephrase")
    rephrase(options, draft, silent, lambda: documents)
    assert set(draft.names("source")) == {"judged", "rephrased"}
    draft.db.execute("DELETE FROM done")  # as if it had been killed after its last commit
    rephrase(options, draft, silent, lambda: documents)
    assert len(served.log) == 2


@pytest.mark.parametrize("splits", [{"test": JUDGED["test"]}, {}, {"train": [("q1", "d1", 0)]}])
def test_nothing_to_rephrase_is_said(
    served: Served, tmp_path: Path, run_here: RunCli, splits: dict[str, list[tuple[str, str, int]]]
) -> None:
    source = judged_collection(tmp_path / "source", splits)
    done = run_here("harvest", source, "--generate", served.url, "--prompt", "rephrase", "--out", "out")
    assert done.returncode == 1
    assert (
        "--prompt rephrase has nothing to rephrase: none of the 6 queries has a relevant document" in done.stderr
    )
    assert served.log == []
    assert not (tmp_path / "out").exists()


def test_a_finished_step_is_not_done_again(served: Served, tmp_path: Path) -> None:
    documents = texts(3)
    path = tmp_path / "draft.sqlite"
    draft = Draft(path)
    for row, identifier in enumerate(documents.ids):
        draft.add_document(identifier, Document("", documents.body(row), {}))
    options = replace(PLAIN, generate=served.url)
    generate(documents, options, draft)
    before = pairs(draft), dict(draft.dropped), list(draft.notes)
    draft.close()
    again = Draft(path)
    generate(documents, options, again)
    assert (pairs(again), dict(again.dropped), list(again.notes)) == before
    again.discard()
