"""The speed table of training, for `bench_train.py` (CPU) and `gpu.py`: the data, the runs of both sides, the rows.

Every run is a process of its own with the machine's default threads (see `training_side.py`); sides alternate. Both train
on the same rows once: queries with one relevant document, all different, and BM25's best others as negatives, cut at the
same number of tokens. With our `batch` of rows a step the batches are the same up to the order of the rows.
"""

import dataclasses
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from figures import Row, beside, in_process
from training_side import Job, Run, supports_precision

ROOT = Path(__file__).parents[2]
MEDQUAD = ROOT.parent / "shared" / "data" / "medquad"
SCIFACT = ROOT / "recipes" / "data" / "scifact"
SIDE = Path(__file__).parent / "training_side.py"
TRAINER = "SentenceTransformerTrainer"
CACHED = "CachedMultipleNegativesRankingLoss"
PACKAGES = ("torch", "sentence-transformers", "transformers", "accelerate")

DROPOUT = 0.1  # what MiniLM's own settings say
SAME_LOSS = 1e-3
MEMORY = 1.5  # peak at the large batch over peak at the small one, at most
PADDING = 0.1
CUT_QUERY = 12  # words of a query that is cut from a document, where the collection has too few


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured. `large` holds (batch, rounds) pairs for gradient caching."""

    collection: Path
    rounds: int
    batch: int
    steps: int
    length: int
    negatives: int
    large: tuple[tuple[int, int], ...]
    large_length: int
    large_negatives: int
    search: tuple[int, ...]  # mini_batch_size of the other side, the best of which is taken
    search_rows: int
    agree_rows: int  # of the batch on which the losses are compared
    warm: (
        int | None
    )  # rows of the first run, which is not timed; None: a whole batch, so that a GPU has had its shapes
    parts: tuple[str, ...]
    alone: bool = False


PARTS = ("small", "large", "memory")


def source(wanted: Path | None) -> Path:
    """The collection that is trained on; says so where it is not MedQuAD."""
    found = wanted or (MEDQUAD if MEDQUAD.is_dir() else SCIFACT)
    if found != MEDQUAD:
        why = "" if wanted else f", for {MEDQUAD.name} is not there"
        print(f"trained on {found.name}{why}", file=sys.stderr)
    return found


def native_bfloat16() -> bool:
    """Whether the GPU, or else the processor, multiplies bfloat16 itself."""
    import torch

    from embedtrain.precision import resolve

    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    return resolve("auto", capability) == "bfloat16"


def pairs(collection: Path) -> Iterator[tuple[str, str]]:
    """(query text, document id) pairs in a seeded order, no text twice: the collection's, then queries cut from its
    other documents; where all documents have had their turn, further queries of the same documents."""
    from embedtrain.collection import Collection
    from embedtrain.duplicates import normalised

    found = Collection(collection)
    rng = np.random.default_rng(0)
    judged = [
        (found.queries.by_id(query), documents[0])
        for split in found.splits
        for query, documents in found.positives(split).items()
        if len(documents) == 1
    ]
    asked: set[str] = set()
    shown: set[str] = set()
    for place in rng.permutation(len(judged)):
        query, document = judged[place]
        texts = normalised(query), normalised(found.corpus.by_id(document))
        if all(texts) and texts[0] not in asked and texts[1] not in shown:
            asked.add(texts[0])
            shown.add(texts[1])
            yield query, document
    order = [found.corpus.ids[place] for place in rng.permutation(len(found.corpus))]
    fresh = (i for i in order if (text := normalised(found.corpus.by_id(i))) not in shown and not shown.add(text))
    for document in itertools.chain(fresh, *([order] * CUT_QUERY)):
        words = found.corpus.by_id(document).split()
        start = int(rng.integers(max(1, len(words) - CUT_QUERY)))
        query = " ".join(words[start : start + CUT_QUERY])
        if normalised(query) and normalised(query) not in asked:
            asked.add(normalised(query))
            yield query, document


def prepare(folder: Path, plan: Plan) -> None:
    """A collection of as many pairs as any run needs, over all documents, and its mined artifact."""
    import pyarrow as pa
    import pyarrow.parquet

    from embedtrain.collection import Collection

    rows, most = 4 * plan.batch, plan.large_negatives
    if "small" in plan.parts:
        rows, most = max(rows, plan.batch * plan.steps), max(most, plan.negatives)
    if plan.parts != ("small",):
        rows = max(rows, plan.search_rows, plan.agree_rows, *(size for size, _ in plan.large))
    corpus = Collection(plan.collection).corpus
    # More than are needed: some may have fewer negatives than the other side, which knows no gaps, wants.
    chosen = list(itertools.islice(pairs(plan.collection), rows + rows // 2))
    queries = [f"q{number}" for number in range(len(chosen))]
    (folder / "collection" / "qrels").mkdir(parents=True)
    tables = {
        "corpus": {"_id": corpus.ids, "text": list(corpus)},
        "queries": {"_id": queries, "text": [query for query, _ in chosen]},
        "qrels/train": {
            "query-id": queries,
            "corpus-id": [document for _, document in chosen],
            "score": [1] * len(chosen),
        },
    }
    for name, columns in tables.items():
        pyarrow.parquet.write_table(pa.table(columns), folder / "collection" / f"{name}.parquet")
    # Near-duplicates of a positive may stand beside it: ours would leave them out of the softmax, the other side not.
    command = ["mine", folder / "collection", "--retriever", "bm25", "--near-duplicate", "0", "--quiet"]
    command += ["--negatives", max(most, 1), "--min-negatives", most, "--out", folder / "mined.parquet", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "embedtrain", *map(str, command)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"mining failed:\n{done.stderr}")
    if (mined := json.loads(done.stdout)["rows"]) < rows:
        sys.exit(f"{plan.collection} gives {mined} rows with {most} negatives, and {rows} are needed")


class Table:
    """Runs the sides and makes the rows."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._data = str(folder)
        self._bfloat16 = native_bfloat16()
        self._tried: dict[int, float] = {}  # seconds by mini_batch_size of the other side
        # Ours in what it trains in here; the other side in the same where the precision has to be the same.
        self._own = "bfloat16" if self._bfloat16 and supports_precision() else "float32"

    def _run(self, job: Job) -> Run:
        run = Run(**in_process(SIDE, json.dumps(dataclasses.asdict(job)), HF_HUB_OFFLINE="1"))
        what = f"{job.precision}, dropout {'its own' if job.dropout is None else job.dropout}"
        what += f", mini_batch_size {job.mini_batch}" if job.mini_batch else ""
        about = f"loss {run.losses[0]:.4f}, {run.peak:,.0f} MB, padding {run.padding:.1%}"
        print(
            f"  {job.side} ({what}), {job.rows:,} rows, batch {job.batch:,}: {run.seconds:.1f} s, {about}",
            file=sys.stderr,
            flush=True,
        )
        return run

    def _rounds(self, jobs: dict[str, Job], rounds: int) -> dict[str, list[Run]]:
        found: dict[str, list[Run]] = {name: [] for name in jobs}
        for number in range(rounds):
            for name in list(jobs)[:: 1 if number % 2 == 0 else -1]:
                found[name].append(self._run(jobs[name]))
        return found

    def rows(self) -> list[Row]:
        """The table, as far as the plan goes."""
        made: list[Row] = []
        if "small" in self._plan.parts:
            made += self._small()
        large: dict[int, float] = {}
        if "large" in self._plan.parts:
            for size, rounds in self._plan.large:
                more, large[size] = self._large(size, rounds)
                made += more
        if "memory" in self._plan.parts:
            made.append(self._memory(large))
        return made

    def _small(self) -> list[Row]:
        plan = self._plan
        job = Job(
            "ours",
            self._data,
            plan.batch * plan.steps,
            plan.batch,
            plan.length,
            plan.negatives,
            self._own,
            warm=plan.batch,
        )
        default = dataclasses.replace(job, side="theirs", precision="float32", dropout=None)
        best, best_name = dataclasses.replace(default, dropout=0.0), "float32 (bfloat16 is not native here)"
        if self._bfloat16:
            best, best_name = dataclasses.replace(default, precision="bfloat16"), "bf16"
        sides = {"ours": job, "ours with dropout": dataclasses.replace(job, dropout=DROPOUT)}
        sides |= {} if plan.alone else {"defaults": default, "best": best}
        found = self._rounds(sides, plan.rounds)
        work = f"train, batch {plan.batch}, {plan.negatives} negatives, {plan.length} tokens"
        share = found["ours"][0].padding
        other = "" if plan.alone else f"; {TRAINER} {found['defaults'][0].padding:.1%}"
        padding = _at_most(f"{work}: padding share{other}", 100 * share, 100 * PADDING, "%", plan.rounds)
        if plan.alone:
            return [
                self._alone(f"{work}, {self._own}, dropout 0", found["ours"], job),
                self._alone(f"{work}, {self._own}, dropout {DROPOUT}", found["ours with dropout"], job),
                padding,
            ]
        with_dropout = best if self._bfloat16 else default
        compared = [
            (f"{work}, {self._own}, dropout 0", f"{TRAINER}, its defaults (float32)", "ours", "defaults", 4.0),
            (
                f"{work}, {self._own}, dropout {DROPOUT}",
                f"{TRAINER}, {best_name}, its dropout",
                "ours with dropout",
                "best" if with_dropout is best else "defaults",
                1.5,
            ),
            (
                f"{work}, {self._own}, dropout 0",
                f"{TRAINER}, {best_name}, {'its dropout' if best.dropout is None else 'dropout 0'}",
                "ours",
                "best",
                2.0,
            ),
        ]
        made = [
            beside(
                named,
                against,
                [run.seconds for run in found[own]],
                [run.seconds for run in found[theirs]],
                amount=job.rows,
                unit="pairs/s",
                least=least,
            )
            for named, against, own, theirs, least in compared
        ]
        return [*made, padding]

    def _large_job(self, size: int) -> Job:
        plan = self._plan
        return Job(
            "ours",
            self._data,
            size,
            size,
            plan.large_length,
            plan.large_negatives,
            self._own,
            warm=plan.warm or size,
        )

    def _large(self, size: int, rounds: int) -> tuple[list[Row], float]:
        """The row of a batch with gradient caching, and our peak memory there in MB."""
        plan, job = self._plan, self._large_job(size)
        work = f"train, batch {size:,}, {plan.large_negatives} negatives, {plan.large_length} tokens, "
        work += f"gradient caching, {self._own}, dropout 0"
        if plan.alone:
            runs = [self._run(job) for _ in range(rounds)]
            return [self._alone(work, runs, job)], runs[0].peak
        other = dataclasses.replace(job, side="theirs")
        if not self._tried:
            few = min(size, plan.search_rows)
            part = dataclasses.replace(other, rows=few, batch=few, warm=min(few, job.warm))
            sizes = [items for items in plan.search if items <= few] or [few]
            self._tried = {n: self._run(dataclasses.replace(part, mini_batch=n)).seconds for n in sizes}
        best = min(self._tried, key=self._tried.__getitem__)
        other = dataclasses.replace(other, mini_batch=best)
        found = self._rounds({"ours": job, "theirs": other}, rounds)
        self._agree(job, other, found)
        row = beside(
            work,
            f"{CACHED}, mini_batch_size {best} (best of {', '.join(map(str, self._tried))})",
            [run.seconds for run in found["ours"]],
            [run.seconds for run in found["theirs"]],
            amount=size,
            unit="pairs/s",
            least=1.5,
        )
        return [row], max(run.peak for run in found["ours"])

    def _agree(self, job: Job, other: Job, found: dict[str, list[Run]]) -> None:
        """Compare the losses of one untrained batch, without dropout and in float32; exit where they differ.

        Where rows share documents ours counts a document once and the other side each time, so that the losses are
        compared on rows without negatives, all of whose texts are different.
        """
        own, theirs = found["ours"][0], found["theirs"][0]
        if job.negatives or job.precision != "float32":
            size = self._plan.agree_rows
            both = {"negatives": 0, "precision": "float32", "rows": size, "batch": size, "warm": 8}
            own = self._run(dataclasses.replace(job, **both))
            theirs = self._run(dataclasses.replace(other, **both))
        if abs(own.losses[0] - theirs.losses[0]) > SAME_LOSS:
            sys.exit(f"the losses of the same batch differ: {own.losses[0]} here, {theirs.losses[0]} there")

    def _memory(self, known: dict[int, float]) -> Row:
        """Peak memory of ours at the first of the large batches against the small one, all else the same."""
        plan = self._plan
        size = plan.large[0][0]
        large = known.get(size) or self._run(self._large_job(size)).peak
        job = dataclasses.replace(self._large_job(size), rows=4 * plan.batch, batch=plan.batch, warm=plan.batch)
        small = self._run(job).peak
        work = f"train, {plan.large_negatives} negatives, {plan.large_length} tokens: peak memory, "
        work += f"batch {size:,} over batch {plan.batch} ({large:,.0f} and {small:,.0f} MB)"
        return _at_most(work, large / small, MEMORY, "x", 1)

    def _alone(self, work: str, runs: list[Run], job: Job) -> Row:
        """Ours beside itself, for a figure without a ratio."""
        seconds = [run.seconds for run in runs]
        return beside(work, "itself", seconds, seconds, amount=job.rows, unit="pairs/s", least=0.0)


def _at_most(work: str, value: float, most: float, unit: str, rounds: int) -> Row:
    """A row for a figure that shall not pass a limit: the ratio is the limit over the figure."""
    return Row(work, "the most allowed", value, most, unit, most / max(value, 1e-9), 1.0, rounds)


def measure(plan: Plan) -> list[Row]:
    """Prepare the data in a temporary folder and make the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, plan)
        return Table(plan, folder).rows()
