"""TREC collections: topics in three forms, qrels, documents in SGML and TSV; what is judged stays as it was judged.

Deliberate breaks that turn a test red: labels ("Number:") left in front; a title taken where the description is asked
for; grades below 0 made 0; the split of every qrels file called test; a folder of text files taken for pages; entities
left; a document cut off by the end of its file read as a whole one; numbers with leading zeros; ids that nothing has
passed over.
"""

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import RunCli, write_collection
from harvested import documents, qrels, queries
from hypothesis import given
from hypothesis import strategies as st

from embedtrain.collection import Collection
from embedtrain.config import HarvestOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest import recognise, trec
from embedtrain.harvest.draft import Document, Draft, Query
from embedtrain.harvest.trec.files import Role, role, split_of
from embedtrain.harvest.trec.markup import elements, plain

# As TREC 6 to 8 print them: no field is closed, and labels stand in front of the texts.
SGML_TOPICS = """
<top>

<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations that participate in international criminal
activity, the activity, and, if possible, collaborating organizations
and the countries involved.

<narr> Narrative:
A relevant document must as a minimum identify the organization and the
type of illegal activity (e.g., Columbian cartel exporting cocaine).
Vague references to international drug trade without identification of
the organization(s) involved would not be relevant.

</top>

<top>

<num> Number: 028
<title> Topic: AT&amp;T's Technical Efforts

<desc> Description:
Document will report on a technical effort of American Telephone.

</top>
"""

# As TREC-COVID has them.
XML_TOPICS = """<?xml version="1.0" encoding="UTF-8"?>
<!-- rounds 1 to 5 -->
<topics>
  <topic number="1">
    <query>coronavirus origin</query>
    <question>what is the origin of COVID-19</question>
    <narrative>seeking range of information about the SARS-CoV-2 virus's origin, including its evolution &amp; animal
      source</narrative>
  </topic>
  <topic number="2">
    <query>coronavirus response to weather changes</query>
    <question>how does the coronavirus respond to changes in the weather</question>
    <narrative>seeking range of information about virus viability in different weather conditions</narrative>
  </topic>
</topics>
"""

DOCUMENTS = """<DOC>
<DOCNO> FT911-3 </DOCNO>
<PROFILE>_AN-BEOA7AAIFT</PROFILE>
<DATE>910514
</DATE>
<HEADLINE>
FT  14 MAY 91 / International Company News: Cartel trial
opens
</HEADLINE>
<TEXT>
Prosecutors in Palermo said the group had moved Pounds
100m through four banks.
<P>
Trading at R&amp;D &blank;sites went on.<!-- PJG FTAG 4700 -->
</P>
</TEXT>
<PUB>The Financial Times
</PUB>
</DOC>
<DOC>
<DOCNO>FT911-4</DOCNO>
<TEXT>
AT&amp;T said its laboratories would hire.
</TEXT>
</DOC>
<DOC><DOCNO>AP880212-0001</DOCNO><HEAD>Weather</HEAD><HEAD>in Brief</HEAD><BYLINE>By A. Reporter</BYLINE>
Rain is likely.</DOC>
"""
QRELS = "301 0 FT911-3 1\n301 0 FT911-4 0\n301 0 AP880212-0001 -2\n28 0 FT911-4 2\n"


def write(folder: Path, **files: str) -> Path:
    """Files by name, two underscores for a point."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        data = text.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return folder


def read(source: Path, draft: Draft | None = None, **options: Any) -> Draft:
    draft = draft or Draft(keep_dropped=True)
    trec.read(source, HarvestOptions(**options), draft, silent)
    return draft


def test_a_folder_as_trec_has_it(tmp_path: Path) -> None:
    source = write(
        tmp_path / "robust",
        topics__301__txt=SGML_TOPICS,
        qrels__trec6__txt__gz=QRELS,
        ft911__gz=DOCUMENTS,
        README="read me",
    )
    assert recognise(source) == "trec"
    draft = read(source)
    assert documents(draft) == {
        "FT911-3": Document(
            "FT 14 MAY 91 / International Company News: Cartel trial opens",
            "Prosecutors in Palermo said the group had moved Pounds\n100m through four banks.\n\n"
            "Trading at R&D  sites went on.",
            {},
        ),
        "FT911-4": Document("", "AT&T said its laboratories would hire.", {}),
        "AP880212-0001": Document("Weather in Brief", "By A. Reporter\nRain is likely.", {}),
    }
    found = queries(draft)
    assert {name: query.text for name, query in found.items()} == {
        "301": "International Organized Crime",
        "28": "AT&T's Technical Efforts",
    }
    assert list(found["301"].extra) == ["description", "narrative"]
    assert found["301"].extra["description"].startswith("Identify organizations that participate in international")
    # Judged by people: grades stay, those below 0 too.
    assert qrels(draft) == {
        "trec6": {"301": {"FT911-3": 1.0, "FT911-4": 0.0, "AP880212-0001": -2.0}, "28": {"FT911-4": 2.0}}
    }
    assert set(draft.names("source")) == {"judged"}
    assert draft.notes == [
        "the query of a topic in topics.301.txt is its title (2); numbers lose their leading zeros (028 is 28)",
        "qrels.trec6.txt.gz judges the split trec6",
        "1 files of robust hold no topics, qrels or documents: README",
    ]
    assert draft.dropped == {"file that holds neither topics nor qrels nor documents": 1}


@pytest.mark.parametrize(
    ("field", "first"),
    [
        ("auto", "coronavirus origin"),
        ("query", "coronavirus origin"),
        ("question", "what is the origin of COVID-19"),
        (
            "narrative",
            "seeking range of information about the SARS-CoV-2 virus's origin, including its evolution & animal source",
        ),
    ],
)
def test_topics_of_xml_and_their_fields(tmp_path: Path, field: str, first: str) -> None:
    draft = read(write(tmp_path, topics_rnd5__xml=XML_TOPICS), topic_field=field)
    found = queries(draft)
    assert list(found) == ["1", "2"]
    assert found["1"].text == first
    assert len(found["1"].extra) == 2
    assert draft.notes == [
        f"the query of a topic in topics_rnd5.xml is its {'query' if field == 'auto' else field} (2)"
    ]


def test_other_spellings_of_xml(tmp_path: Path) -> None:
    titled = """<topics><topic><number>7</number><title> Is  water <b>wet</b>? </title><description>d</description>
        </topic><topic id="8"><title/><description>only this</description></topic></topics>"""
    trial = '<topics task="trials"><topic number="1">A 63-year-old <i>male</i>\n with anaemia.</topic></topics>'
    web = """<webtrack2009 type="web"><topic number="1" type="faceted"><query> obama family tree </query>
        <description>Find it.</description><subtopic number="1" type="nav">the tree</subtopic>
        <subtopic number="2" type="inf">his parents</subtopic></topic></webtrack2009>"""
    draft = read(write(tmp_path / "a", topics__xml=titled))
    assert queries(draft) == {"7": Query("Is water wet?", {"description": "d"})}
    assert draft.dropped == {"empty query": 1}
    assert draft.notes == ["the query of a topic in topics.xml is its title (1); 1 have none"]
    assert queries(read(write(tmp_path / "b", ct21__xml=trial)))["1"].text == "A 63-year-old male with anaemia."
    assert queries(read(write(tmp_path / "c", wt09__xml__gz=web))) == {
        "1": Query("obama family tree", {"description": "Find it.", "subtopic": "the tree\nhis parents"})
    }


def test_topics_closed_and_not(tmp_path: Path) -> None:
    text = (
        "<top><num>Number: MB001</num><query> BBC World Service staff cuts </query></top>\n"
        "<top>\n<num> 451\n<title> What is a <i>Bengals</i> cat?\n<desc> Description:\n5 < 6 &c; &lt;b&gt;\n"
        "<top>\n<num> 452\n<title> Beavers\n"
    )
    draft = read(write(tmp_path, mixed=text))
    assert {name: query.text for name, query in queries(draft).items()} == {
        "MB001": "BBC World Service staff cuts",
        "451": "What is a Bengals cat?",
        "452": "Beavers",
    }
    assert queries(draft)["451"].extra == {"description": "5 < 6 &c; <b>"}
    assert draft.notes == ["the query of a topic in mixed is its query (1) or title (2)"]


def test_tsv_as_ir_datasets_has_it(tmp_path: Path) -> None:
    source = write(
        tmp_path / "marco",
        collection__tsv__gz='0\tThe presence of "communication" amid minds.\n1\tThe Manhattan Project.\n2\t \n',
        queries__dev__small__tsv="11\twho ran the manhattan project\n",
        topics__dl20__txt="12\twhat is communication\n",
        qrels__dev__small__tsv="11\t0\t1\t1\n",
        **{"2020qrels-pass__txt": "12 Q0 0 3\n12 Q0 2 1\n"},
    )
    assert recognise(source) == "trec"
    draft = read(source, topic_field="narrative")
    assert documents(draft) == {
        "0": Document("", 'The presence of "communication" amid minds.', {}),
        "1": Document("", "The Manhattan Project.", {}),
    }
    assert {name: query.text for name, query in queries(draft).items()} == {
        "11": "who ran the manhattan project",
        "12": "what is communication",
    }
    assert qrels(draft) == {"dev.small": {"11": {"1": 1.0}}, "2020-pass": {"12": {"0": 3.0}}}
    assert draft.dropped == {"empty document": 1, "judgement of an empty document": 1}
    assert (
        "topics of topics.dl20.txt are one text each, which is the query: --topic-field chooses nothing"
        in draft.notes
    )


def test_more_columns_and_headers_of_tsv(tmp_path: Path) -> None:
    made = {
        "three": "d1\tTitle\tText\n",
        "four": "d1\thttp://a\tTitle\tText\n",
        "header": "docid\ttitle\ttext\nd1\tTitle\tText\n",
    }
    for name, text in made.items():
        draft = read(write(tmp_path / name, docs__tsv=text, topics__tsv="query_id\tquery\nq1\twhy\n"))
        extra = {"url": "http://a"} if name == "four" else {}
        assert documents(draft) == {"d1": Document("Title", "Text", extra)}
        assert queries(draft) == {"q1": Query("why", {})}
    with pytest.raises(EmbedtrainError, match=r"docs\.tsv has 5 columns and no header .* docid url title text"):
        read(write(tmp_path / "five", docs__tsv="a\tb\tc\td\te\n"))
    with pytest.raises(EmbedtrainError, match=r"docs\.tsv line 2 has 3 columns where .* needs 2"):
        read(write(tmp_path / "uneven", docs__tsv="a\tb\na\tb\tc\n"))


def test_texts_for_ids(tmp_path: Path) -> None:
    known = write_collection(
        tmp_path / "known",
        [{"_id": "d1", "title": "T", "text": "x"}, {"_id": "d2", "title": "", "text": "y"}],
        [{"_id": "q1", "text": "from the collection"}, {"_id": "q9", "text": "not judged"}],
        {},
    )
    source = write(tmp_path / "s", qrels__test__txt="q1 0 d1 1\nq2 0 d2 0\n", topics__tsv="q2\tour own\n")
    draft = read(source, collection=str(known))
    assert list(documents(draft)) == ["d1", "d2"]
    assert {name: query.text for name, query in queries(draft).items()} == {
        "q2": "our own",
        "q1": "from the collection",
    }
    assert qrels(draft) == {"test": {"q1": {"d1": 1.0}, "q2": {"d2": 0.0}}}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("qrels.test.txt", "test"),
        ("test.qrels", "test"),
        ("qrels.tsv", "test"),
        ("qrels", "test"),
        ("qrels.dev.tsv.gz", "dev"),
        ("qrels/train.tsv", "train"),
        ("qrels.robust2004.txt", "robust2004"),
        ("2019qrels-pass.txt", "2019-pass"),
        ("QRELS_val.txt.zst", "val"),
    ],
)
def test_splits_by_name(name: str, split: str) -> None:
    assert split_of(Path(name)) == split


def test_what_files_are(tmp_path: Path) -> None:
    made = {
        "judged.txt": ("301 0 FT911-3 1\n", Role("qrels", "table")),
        "run.txt": ("301 Q0 FT911-3 1 12.5 tag\n", Role()),
        "notes.txt": ("They were 0 or 1.\n", Role()),
        "topics.md": ("# Topics\n", Role()),
        "qrels.md": ("1 0 2 1\n", Role()),
        "a.xml": ("<html><body/></html>", Role()),
        "docs.txt": ("a\tb\n", Role()),
        "docs00.tsv": ("a\tb\n", Role("documents", "table")),
        "queries.jsonl": ("{}", Role("topics", "table")),
        "b": ("\ufeff\n <!-- x --><!DOCTYPE x>\n<doc id='1'>", Role("documents", "sgml")),
        "c": ("<TOPICS>\n<TOPIC>", Role("topics", "xml")),
        "empty": ("", Role()),
    }
    for name, (text, wanted) in made.items():
        (tmp_path / name).write_text(text, "utf-8")
        assert role(tmp_path / name) == wanted, name
    (tmp_path / "d.Z").write_bytes(b"\x1f\x9d\x90\xff\xfe" * 900)
    assert role(tmp_path / "d.Z") == Role()
    (tmp_path / "e.gz").write_bytes(gzip.compress(DOCUMENTS.encode() * 50)[:100])
    with pytest.raises(EmbedtrainError, match=r"e\.gz is not a whole gzip file; fetch"):
        role(tmp_path / "e.gz")


def test_other_kinds_are_recognised_as_before(tmp_path: Path) -> None:
    pages = write(
        tmp_path / "pages", a__txt="Title\n\nSome words.", topics__md="# Topics\n", qrels_notes__md="1 0 2 1"
    )
    assert recognise(pages) == "documents"
    assert recognise(pages / "a.txt") == "text"
    beir = write_collection(tmp_path / "beir", [{"_id": "d", "text": "x"}], [{"_id": "q", "text": "y"}], {})
    assert recognise(write(beir, topics__txt=SGML_TOPICS)) == "beir"
    assert recognise(write(tmp_path / "only", corpus__jsonl='{"_id": "d", "title": "t", "text": "x"}')) == "beir"
    table = write(tmp_path / "t", qrels__tsv="query\tdocument\na\tb\n")
    assert recognise(table / "qrels.tsv") == "table"
    for name in ("topics.txt", "qrels.test.txt", "ft911", "topics.xml"):
        text = {"t": SGML_TOPICS, "q": QRELS, "f": DOCUMENTS}[name[0]] if name != "topics.xml" else XML_TOPICS
        (tmp_path / name).write_text(text)
        assert recognise(tmp_path / name) == "trec", name
    nested = write(tmp_path / "disk4" / "FT" / "FT911", ft911_1=DOCUMENTS)
    assert recognise(nested.parent.parent) == "trec"


def test_faults_are_said_with_their_place(tmp_path: Path) -> None:
    whole = {"topics__txt": SGML_TOPICS, "docs": DOCUMENTS}

    def refused(message: str, **files: str) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with pytest.raises(EmbedtrainError, match=message):
            read(write(folder, **files))

    refused("1 query ids are not in the queries: 999; add", **whole, qrels__txt=QRELS + "999 0 FT911-3 1\n")
    refused("2 document ids are not in the corpus: X-1, X-2;", **whole, qrels__txt="301 0 X-1 1\n301 0 X-2 1\n")
    refused(
        r"qrels\.txt line 2 has 5 columns; query-id", **whole, qrels__txt="301 0 FT911-3 1\n301 0 FT911-3 1 1\n"
    )
    refused(r"qrels\.txt is empty; a split needs", **whole, qrels__txt="")
    refused(r"line 2 judges query 301 .* second time", **whole, qrels__txt="301 0 FT911-3 1\n301 0 FT911-3 0\n")
    refused("would both be the split test; rename one", **whole, qrels__txt=QRELS, qrels__test__txt=QRELS)
    refused("no document that they judge; .* or say what the ids stand for with --texts", qrels__txt=QRELS)
    refused(r"docs line 1 starts a <DOC> that no </DOC> ends; fetch", docs="<DOC>\n<DOCNO>1</DOCNO>\n<DOC>\n")
    refused(r"docs line 2 starts a <DOC> that no </DOC> ends", docs="<!-- x -->\n<DOC>\n<DOCNO>1</DOCNO>\n<TEXT>")
    refused(r"docs line 1 starts a <DOC> without a <DOCNO>", docs="<DOC>\n<TEXT>x</TEXT></DOC>")
    refused(
        r"docs: 1 duplicate ids, each with different document texts: FT911-3",
        docs=DOCUMENTS + DOCUMENTS.replace("100m", "9m"),
    )
    refused(r"topics\.txt line 1 starts a <top> without a <num>", topics__txt="<top>\n<title> x\n</top>\n")
    refused(
        r"topics\.txt: 1 duplicate ids, each with different query texts: 1;",
        topics__txt="<top><num>1<title>a\n<top><num>1<title>b",
    )
    refused(
        "no topic of .*t4 has a title or query; they have description: choose with --topic-field",
        t4="<top>\n<num> 201\n<desc> Description:\nWhat is it?\n</top>",
    )
    refused("topic 2 of .* has no number", topics__xml="<topics><topic id='1'>a</topic><topic>b</topic></topics>")
    refused(
        r"topics\.xml line 2 is not XML \(.*, column",
        topics__xml="<topics><topic number='1'>\nAT&T</topic></topics>",
    )
    refused(r"topics\.xml holds no topic", topics__xml="<topics></topics>")
    refused("holds nothing of a TREC collection: topics", notes__txt="hello")
    with pytest.raises(EmbedtrainError, match="nowhere does not exist"):
        read(tmp_path / "nowhere")
    with pytest.raises(
        UsageError, match="--topic-field desc: auto, title, description, narrative, question, query"
    ):
        read(tmp_path, topic_field="desc")


def test_text_outside_of_documents_is_said(tmp_path: Path) -> None:
    text = DOCUMENTS.replace("</DOC>\n<DOC>\n", "</DOC>\nstray words\n<DOC>\n", 1) + "\n\nthe end\n"
    draft = read(write(tmp_path, docs=text))
    assert len(documents(draft)) == 3
    assert draft.notes == ["text outside of the documents of docs is not read: line 20, 31"]


def test_text_outside_of_topics_is_said(tmp_path: Path) -> None:
    # The second topic has lost its first line.
    text = (
        '<?xml version="1.0"?>\n<!DOCTYPE topics>\n<top>\n<num> 51\n<title> ships\n</top>\n'
        "<num> 52\n<title> planes\n</top>\n"
    )
    draft = read(write(tmp_path, topics=text))
    assert list(queries(draft)) == ["51"]
    assert "text outside of the topics of topics is not read: line 7, 8" in draft.notes


def test_a_lead_paragraph_is_text_and_what_has_no_text_is_all_text(tmp_path: Path) -> None:
    text = (
        "<DOC><DOCNO>WSJ1</DOCNO><HL>Markets</HL><LP>\nStocks fell.\n</LP><TEXT>\nBonds rose.\n</TEXT></DOC>"
        "<DOC id='AFP_1' type='story'>\n<HEADLINE>\nHead\n</HEADLINE>\n<TEXT>\n<P>\nOne.\n</P>\n<P>\nTwo.\n</P>\n</TEXT>\n</DOC>"
        "<doc><docno>cran 1</docno><title>wings</title><author>x</author><text></text></doc>"
    )
    assert documents(read(write(tmp_path, docs=text))) == {
        "WSJ1": Document("Markets", "Stocks fell.\n\nBonds rose.", {}),
        "AFP_1": Document("Head", "One.\n\nTwo.", {}),
        "cran 1": Document("wings", "", {}),
    }


def test_a_read_that_was_killed_goes_on_to_the_same_draft(tmp_path: Path) -> None:
    source = write(tmp_path / "s", topics__txt=SGML_TOPICS, qrels__txt=QRELS, docs=DOCUMENTS, readme="x")
    whole = read(source)
    stopped = 0
    for stop_at in range(1, 9):
        path = tmp_path / f"{stop_at}.sqlite"
        draft = Draft(path, keep_dropped=True)
        left, keep = stop_at, draft._done

        def stop(name: str, items: int, *, whole: bool, keep: Any = keep) -> None:
            nonlocal left
            keep(name, items, whole=whole)
            left -= 1
            if not left:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(draft, "_done", stop)
            read(source, draft)
        stopped += not left
        draft.leave()
        draft = read(source, Draft(path, keep_dropped=True))
        assert (documents(draft), queries(draft), qrels(draft)) == (documents(whole), queries(whole), qrels(whole))
        assert (draft.notes, draft.dropped) == (whole.notes, whole.dropped), stop_at
        draft.discard()
    assert stopped == 4  # documents, topics, qrels, files without a role


def test_the_command(tmp_path: Path, run_here: RunCli) -> None:
    source = write(tmp_path / "robust", topics__301__txt=SGML_TOPICS, qrels__txt=QRELS, ft911__gz=DOCUMENTS)
    done = run_here("harvest", source, "--topic-field", "description", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "recognised as trec: robust" in done.stdout
    found = Collection(tmp_path / "out")
    assert found.queries.by_id("28") == "Document will report on a technical effort of American Telephone."
    assert found.qrels("test")["301"] == {"FT911-3": 1, "FT911-4": 0, "AP880212-0001": -2}
    assert found.positives("test") == {"301": ["FT911-3"], "28": ["FT911-4"]}
    assert "title" in pq.read_schema(tmp_path / "out" / "queries.parquet").names
    # The same as single files, the documents before the judgements.
    parts = [source / name for name in ("ft911.gz", "topics.301.txt", "qrels.txt")]
    done = run_here("harvest", *parts, "--topic-field", "description", "--out", "parts", "--json")
    assert done.returncode == 0, done.stderr
    for name in ("corpus.parquet", "queries.parquet", "qrels/test.parquet"):
        one, two = (pq.read_table(tmp_path / folder / name).to_pylist() for folder in ("out", "parts"))
        assert one == two
    assert json.loads(done.stdout)["kind"] == "trec"
    # Text files of a collection that is called another kind stay what they are called.
    assert run_here("harvest", source, "--kind", "trec", "--topic-field", "x", "--out", "no").returncode == 2


@given(
    st.lists(
        st.tuples(st.text("abAB <>&;\n/", max_size=20), st.sampled_from(["", "stray", "\n"])),
        min_size=1,
        max_size=5,
    )
)
def test_every_document_comes_back_whatever_stands_in_it(
    tmp_path_factory: Any, made: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("e") / "docs"
    text = "".join(f"{between}<doc>{content}</doc>" for content, between in made)
    path.write_text(text, "utf-8")
    found = list(elements(path, "doc"))
    assert "".join(element.content for element in found if element.inside).replace("\n", "") == "".join(
        content for content, _ in made
    ).replace("\n", "")
    assert [element.content for element in found if element.inside] == [content for content, _ in made]


def test_plain_text_by_hand() -> None:
    assert (
        plain(" a<P>b</P>\n\n \n c &amp;amp; &hyph; &#65;&#x42; &nope; x<y z>3 ")
        == "a\nb\n\n c &amp; - AB &nope; x3"
    )
