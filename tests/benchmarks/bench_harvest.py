"""`harvest` of a large table: rate and peak memory; and the near-duplicates among many documents.

    python tests/benchmarks/bench_harvest.py [--pairs 200000] [--near 100000] [--json]

The table is made of SciFact's sentences: a document is three of them from anywhere, its query seven words of one of them, so
that nearly every text is another and nothing is merged or capped. The whole command is run on it as one types it, with
`--split dev=0.02,test=0.02`, near-duplicates looked for and all else by default; a process of its own says what it took.
`--pairs 10000000` is the size that must stay below 8 GB; it needs 25 GB of disk and some hours. `--near` counts the documents
of the second part: signatures, candidates and comparisons, nothing else.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures import machine
from training import SCIFACT

SENTENCES = 3  # of a document
WORDS = 7  # of a query
MOST_GB, MOST_PAIRS = 8.0, 10_000_000
NEAR_SECONDS = 60.0  # for 100,000 documents

# What the command took of its own: children are counted apart.
RUN = """
import json, resource, sys, time
from embedtrain.cli import main
start = time.perf_counter()
sys.argv[1:] = json.loads(sys.argv[1])
code = 0
try:
    main()
except SystemExit as ended:
    code = ended.code or 0
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"code": code, "seconds": time.perf_counter() - start, "cpu": used.ru_utime + used.ru_stime,
                  "peak_mb": used.ru_maxrss / 1024}), file=sys.stderr)
"""


def sentences() -> list[str]:
    """The sentences of SciFact's abstracts, those of 8 to 40 words."""
    from embedtrain.collection import Collection

    corpus = Collection(SCIFACT).corpus
    found = [part for row in range(len(corpus)) for part in corpus.body(row).split(". ")]
    return sorted({part for part in found if 8 <= len(part.split()) <= 40})


def write_table(path: Path, pairs: int) -> None:
    """Write so many pairs as JSONL, the same ones each time."""
    rng = np.random.default_rng(0)
    known = sentences()
    words = [part.split() for part in known]
    with path.open("w", encoding="utf-8") as file:
        for begun in range(0, pairs, 100_000):
            count = min(100_000, pairs - begun)
            chosen = rng.integers(0, len(known), (count, SENTENCES)).tolist()
            asked = rng.random((count, 2)).tolist()
            for places, (which, where) in zip(chosen, asked, strict=True):
                source = words[places[int(which * SENTENCES)]]
                start = int(where * (len(source) - WORDS))
                row = {
                    "query": " ".join(source[start : start + WORDS]),
                    "document": ". ".join(known[place] for place in places),
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def harvested(folder: Path, pairs: int) -> dict[str, Any]:
    """What the command took for so many pairs."""
    table = folder / "pairs.jsonl"
    write_table(table, pairs)
    command = [
        "harvest",
        str(table),
        "--split",
        "dev=0.02,test=0.02",
        "--out",
        str(folder / "collection"),
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(command)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    took = json.loads(done.stderr.splitlines()[-1])
    if took["code"]:
        sys.exit(done.stderr)
    result = json.loads(done.stdout)
    size = sum(path.stat().st_size for path in (folder / "collection").rglob("*") if path.is_file())
    return {
        **{name: took[name] for name in ("seconds", "cpu", "peak_mb")},
        "read_gb": table.stat().st_size / 1e9,
        "written_gb": size / 1e9,
        "pairs": pairs,
        "kept": sum(result["pairs"].values()),
        "dropped": result["dropped"],
        "rate": pairs / took["seconds"],
    }


def near(documents: int) -> dict[str, Any]:
    """Seconds to find the near-duplicates among so many documents, a tenth of them copies with a word more."""
    from embedtrain.harvest.near import near_pairs, signatures

    rng = np.random.default_rng(1)
    known = sentences()
    texts = [
        ". ".join(known[place] for place in row) for row in rng.integers(0, len(known), (documents, SENTENCES))
    ]
    copies = rng.choice(documents, (documents // 10, 2), replace=False)
    for first, second in copies.tolist():
        texts[second] = texts[first] + " too"  # four more of a hundred shingles and more
    start = time.perf_counter()
    first_places, second_places = near_pairs(signatures(texts), texts.__getitem__, 0.95)
    seconds = time.perf_counter() - start
    found = set(zip(first_places.tolist(), second_places.tolist(), strict=True))
    missed = sum((min(pair), max(pair)) not in found for pair in copies.tolist())
    characters = sum(map(len, texts)) / documents
    return {
        "documents": documents,
        "seconds": seconds,
        "characters": characters,
        "copies": len(copies),
        "missed": missed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200_000, help="[default: 200000]; 0: leave this part out")
    parser.add_argument("--near", type=int, default=100_000, help="[default: 100000]; 0: leave this part out")
    parser.add_argument("--folder", type=Path, help="where to write [default: a temporary folder]")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        if arguments.pairs:
            found["harvest"] = harvested(Path(name), arguments.pairs)
    if arguments.near:
        found["near"] = near(arguments.near)
    met = True
    if arguments.json:
        print(json.dumps({**found, "machine": machine()}, indent=2))
    if took := found.get("harvest"):
        # What fewer pairs need says nothing of that many, but where it is too much already.
        met = took["peak_mb"] <= MOST_GB * 1000
        verdict = ("met" if took["pairs"] >= MOST_PAIRS else "not judged with fewer") if met else "MISSED"
        if not arguments.json:
            print(
                f"harvest of {took['pairs']:,} pairs ({took['read_gb']:.2f} GB read, {took['written_gb']:.2f} GB written, "
                f"{took['kept']:,} pairs kept) | {took['seconds']:,.0f} s, {took['rate']:,.0f} pairs/s | peak "
                f"{took['peak_mb']:,.0f} MB, at most {MOST_GB:g} GB for {MOST_PAIRS:,}: {verdict}"
            )
    if took := found.get("near"):
        fast = took["seconds"] * 100_000 / took["documents"] <= NEAR_SECONDS
        met = met and fast and not took["missed"]
        if not arguments.json:
            print(
                f"near-duplicates among {took['documents']:,} documents of {took['characters']:.0f} characters | "
                f"{took['seconds']:.1f} s, at most {NEAR_SECONDS:g} s for 100,000: {'met' if fast else 'MISSED'} | "
                f"{took['missed']} of {took['copies']:,} copies missed"
            )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
