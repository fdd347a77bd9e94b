"""The page: self-contained, escaped, the same bytes every time, and readable in a real browser.

Breaks that turn a test red: autoescape off, a fixed colour in a picture, equal ids in two pictures, a date in the
SVG, a table wider than a phone.
"""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embedtrain.diagnose import pictures, report
from embedtrain.diagnose.section import Measure, Section, Table
from embedtrain.lineage import Node

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """What a page is made of; raises for a tag that is not closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def assert_self_contained(html: str) -> Page:
    """Nothing on the page points outside it, and no id stands twice."""
    page = Page(html)
    assert not page.named("script")
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            value = value or ""
            assert "//" not in value, (tag, name, value)
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "xlink:href"):
                assert value.startswith(("#", "data:")), (tag, name, value)
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for reference in re.findall(r'(?:href="#|url\(#)([^")]+)', html):
        assert reference in ids
    return page


def random(seed: int, mean: float, count: int = 300) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).normal(mean, 0.1, count), -1, 1)


def drawn() -> list[pictures.Picture]:
    words = {"title": "A title", "caption": "A caption"}
    spaces = [("tuned", random(0, 0.7), random(1, 0.2)), ("base", random(2, 0.5), random(3, 0.1))]
    curves = [("runs/tuned", np.full(40, 1 / 40)), ("base", np.array([0.9, 0.06, 0.04]))]
    return [pictures.similarities(spaces, **words), pictures.spectrum(curves, **words)]


def ladder(name: str = "tuned") -> pictures.Picture:
    systems = [
        pictures.System("BM25", 0.68, 0.63, 0.73),
        pictures.System(name, 0.74, 0.69, 0.78),
        pictures.System("one query", 0.5),
    ]
    return pictures.ladder(systems, "nDCG@10", title="Ladder", caption="Best first")


def measure(**changes: Any) -> Measure:
    values: dict[str, Any] = {
        "key": "alignment",
        "name": "alignment",
        "value": 0.7,
        "base": 0.9,
        "reference": "0 perfect",
        "verdict": "healthy",
        "sentence": "Fine.",
        "low": 0,
        "high": 2,
        "mark": 0,
    }
    return Measure(**values | changes)


def page(**changes: Any) -> dict[str, Any]:
    columns = ["system", "nDCG@10 [95 %]", "Recall@100", "vs base", "p"]
    table = Table(
        "A table", columns, [["base (all-MiniLM-L6-v2)", "0.6451 [0.6012, 0.6890]", "0.9250", "", ""]] * 4
    )
    numbers = Section(
        "space", "Numbers", "So many.", [measure(), measure(base=None, verdict="collapsed")], drawn()
    )
    evaluation = Section("evaluation", "Evaluation", "From ev.", pictures=[ladder()], tables=[table], notes=["so"])
    return {
        "version": "0.1.0",
        "model": "runs/tuned",
        "base": "sentence-transformers/all-MiniLM-L6-v2",
        "collection": "scifact",
        "verdict": "watch",
        "verdict_sentence": "Something to look at.",
        "facts": [("documents", "2,000")],
        "notes": ["A note."],
        "sections": [numbers, evaluation],
        "lineage": (Node("model", "tuned", "a" * 64, stage="finetune", parents=(Node("base", "b", "b" * 64),)),),
        "command": "embedtrain diagnose runs/tuned",
        "dropped": {"empty documents": 3},
        "words": [("alignment", "how near")],
    } | changes


def test_the_page_is_self_contained_and_whole() -> None:
    html = report.render(page())
    found = assert_self_contained(html)
    drawings = found.named("svg")
    assert [drawing["aria-label"] for drawing in drawings] == ["A title", "A title", "Ladder"]
    assert all(drawing["viewbox"] for drawing in drawings)
    policy = next(m for m in found.named("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in (policy["content"] or "")
    for text in ("0.700", "base 0.900", "empty documents 3", "so", "by finetune", "from outside", "aaaaaaaaaaaa"):
        assert text in found.text


def test_a_page_without_base_and_evaluation() -> None:
    found = assert_self_contained(
        report.render(page(base=None, dropped={}, sections=[Section("space", "N", "l", [measure(base=None)])]))
    )
    assert "base 0" not in found.text
    assert "Left out" not in found.text
    assert not found.named("table")


def test_text_from_data_is_escaped() -> None:
    evil = "</h1><script>alert('x')</script> $x$ & \"y\""
    picture = pictures.similarities([(evil, random(0, 0.7), random(1, 0.2))], title=evil, caption=evil)
    table = Table(evil, [evil], [[evil]], evil)
    measures = [measure(name=evil, sentence=evil, reference=evil)]
    everywhere = page(
        model=evil,
        base=evil,
        collection=evil,
        verdict_sentence=evil,
        facts=[(evil, evil)],
        notes=[evil],
        sections=[Section("space", evil, evil, measures, [picture, ladder(evil)], [table], [evil])],
        lineage=(Node("model", evil, "a" * 64),),
        command=evil,
        dropped={evil: 1},
    )
    html = report.render(everywhere)
    assert "<script" not in html
    found = assert_self_contained(html)
    assert found.text.count("<script>alert('x')</script>") >= 12
    assert found.named("svg")[0]["aria-label"] == evil


def test_a_name_the_template_lacks_is_an_error() -> None:
    values = page()
    del values["verdict"]
    with pytest.raises(Exception, match="verdict"):
        report.render(values)


def test_colours_of_pictures_are_the_page_s() -> None:
    for picture in (*drawn(), ladder()):
        fixed = set(re.findall(r"#[0-9a-fA-F]{3,8}\b", re.sub(r'(url\(#|href="#)[^")]+', "", picture.svg)))
        assert not fixed, (picture.key, fixed)
        assert "var(--model)" in picture.svg


def test_pictures_are_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_report as t; "
        "sys.stdout.write(t.report.render(t.page()))"
    )
    pages = []
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONUTF8": "1"}
        command = [sys.executable, "-c", code, str(Path(__file__).parent)]
        pages.append(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
    assert pages[0] == pages[1] == report.render(page()).encode()


def test_the_user_s_matplotlib_settings_do_not_matter() -> None:
    import matplotlib

    plain = ladder().svg
    with matplotlib.rc_context({"axes.grid": True, "font.size": 30, "svg.fonttype": "path"}):
        assert ladder().svg == plain


def test_short_keeps_the_end_of_a_name() -> None:
    assert pictures.short("a  b\nc") == "a b c"
    assert pictures.short("models/of/mine", 5) == "…mine"


@pytest.mark.parametrize(("value", "percent"), [(0.5, 25.0), (-1, 0.0), (9, 100.0)])
def test_place_on_a_scale(value: float, percent: float) -> None:
    assert report.place(value, 0, 2) == percent
    assert report.place(-value, 0, -2) == percent, "a scale may run downwards"


# A window of a browser is never as narrow as a phone; a frame in a page is as narrow as one likes.
_FRAME = """<!DOCTYPE html><body style="margin: 0"><script>
const frame = Object.assign(document.createElement("iframe"), {width: %d, height: 900, srcdoc: %s});
frame.style.border = 0;
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const box = e => { const r = e.getBoundingClientRect(); return [r.width, r.height, r.left, r.right]; };
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify({
    inner: frame.contentWindow.innerWidth,
    scroll: root.scrollWidth,
    pictures: [...page.querySelectorAll("svg")].map(box),
    texts: [...page.querySelectorAll("svg text")].map(t => t.getBoundingClientRect().height).filter(h => h > 0),
    cut: [...page.querySelectorAll(".scroll")].map(e => e.scrollWidth - e.clientWidth),
  });
  document.body.append(result);
};
document.body.append(frame);
</script>"""


def _chromium(page: Path, profile: Path) -> tuple[str, list[str]]:
    """The page's document once it has loaded, and what the browser's console said."""
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
    flags += ["--window-size=1400,900", "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run(
        [CHROMIUM, *flags, page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine (Debian: apt-get install chromium)")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    html = report.render(page())
    (tmp_path / "report.html").write_text(html, encoding="utf-8")
    _, said = _chromium(tmp_path / "report.html", tmp_path / "profile")
    assert not said
    for width in (360, 1280):
        frame = tmp_path / f"frame-{width}.html"
        frame.write_text(_FRAME % (width, json.dumps(html).replace("</", "<\\/")), encoding="utf-8")
        dom, said = _chromium(frame, tmp_path / "profile")
        assert not said
        seen = json.loads(re.findall(r'<pre id="result">(.*?)</pre>', dom)[0])
        assert seen["inner"] == width
        assert seen["scroll"] <= width, "the page must not scroll sideways"
        assert len(seen["pictures"]) == 3
        for wide, high, left, right in seen["pictures"]:
            assert wide >= 260
            assert high >= 100
            assert left >= 0
            assert right <= width
        assert min(seen["texts"]) >= 8, "text in pictures stays readable"
        assert max(seen["cut"]) <= 0, "the table fits"
