"""One side of a training benchmark, in a process of its own: `training_side.py JOB`, a `Job` as JSON; prints a `Run`.

Ours is the stage itself, timed by its progress; the other side is SentenceTransformerTrainer as its manual has it, timed
by a callback. Loading, a first small run that warms everything up, and saving are outside the time of both; so is the
tokenising that ours does once before the first step (a hundredth of a CPU's time or less).
"""

import dataclasses
import json
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

TEMPERATURE = 0.05  # the scale of 20 that MultipleNegativesRankingLoss has by default
LOSS = "infonce"


@dataclasses.dataclass(frozen=True)
class Job:
    """What one process does: the first `rows` rows of prepared data, once, `batch` a step."""

    side: str  # ours, theirs
    data: str  # the folder that `training.prepare` filled
    rows: int
    batch: int
    length: int  # tokens of a query and of a document, at most
    negatives: int
    precision: str  # float32, bfloat16
    dropout: float | None = 0.0  # None: as the model has it (theirs only)
    mini_batch: int = 0  # of CachedMultipleNegativesRankingLoss; 0: the loss without caching
    warm: int = 8  # rows of the first run, which is not timed


@dataclasses.dataclass(frozen=True)
class Run:
    """What a job took: seconds of its steps, each step's loss, peak memory in MB, padding of all tokens processed."""

    seconds: float
    losses: list[float]
    peak: float
    padding: float


class Padding:
    """Counts what a transformer is given while it is on: places of tokens, and those that are padding."""

    def __init__(self) -> None:
        from sentence_transformers.sentence_transformer.modules import Transformer

        self._kind = Transformer
        self._places = self._tokens = 0
        self._lock = threading.Lock()  # ours encodes chunks side by side

    def __enter__(self) -> "Padding":
        from torch.nn.modules import module

        self._handle = module.register_module_forward_pre_hook(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def _count(self, module: Any, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, self._kind):
            features = inputs[0]
            places = int(features["input_ids"].numel())
            mask = features.get("attention_mask")  # absent where texts stand end to end, without padding
            tokens = places if mask is None else int(mask.sum())
            with self._lock:
                self._places += places
                self._tokens += tokens

    @property
    def share(self) -> float:
        """Padding over all places."""
        return 1 - self._tokens / self._places


def supports_precision() -> bool:
    """Whether our training can be told its precision; else it is float32."""
    from embedtrain.config import FinetuneOptions

    return "precision" in {field.name for field in dataclasses.fields(FinetuneOptions)}


def trainer_precision(precision: str) -> dict[str, bool]:
    """The arguments that make sentence-transformers' trainer compute in a precision, on a processor too."""
    import torch

    # Without a GPU it refuses bfloat16, which the processor may have, unless it is told to stay on the processor.
    return {"bf16": precision == "bfloat16", "use_cpu": not torch.cuda.is_available()}


class Marks:
    """The progress of a stage: when each step of `what` was done."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.times: list[float] = []

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        if what == self._what:
            self.times.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """From the beginning of the first step, which is reported too, to the end of the last."""
        return self.times[-1] - self.times[0]


def ours(job: Job) -> tuple[float, list[float], float]:
    """The stage `finetune`: its seconds, losses and padding."""
    from embedtrain.artifacts import Claim, Input
    from embedtrain.config import FinetuneOptions
    from embedtrain.models import MINILM, find_model
    from embedtrain.train import finetune

    mined, collection = Path(job.data) / "mined.parquet", Path(job.data) / "collection"
    inputs = [
        Input.of("mined", mined),
        Input.of("collection", collection),
        find_model(MINILM).as_input(),
    ]

    def once(rows: int) -> tuple[float, list[float]]:
        named: dict[str, Any] = {"precision": job.precision} if supports_precision() else {}
        options = FinetuneOptions(
            batch_size=job.batch,
            epochs=1.0,
            temperature=TEMPERATURE,
            max_query_length=job.length,
            max_document_length=job.length,
            dropout=job.dropout or 0.0,
            limit=rows,
            loss=LOSS,
            negatives=job.negatives,
            **named,
        )
        out = Path(job.data) / "ours"
        claim = Claim(out, kind="model", stage="finetune", options=options, inputs=inputs, force=True)
        marks = Marks("finetune")
        finetune(claim, options, mined, collection, MINILM, marks)
        claim.close()
        lines = (out / "metrics.jsonl").read_text("utf-8").splitlines()
        return marks.seconds, [json.loads(line)["loss"] for line in lines]

    with Padding() as padding:
        once(job.warm)
    return *once(job.rows), padding.share


def theirs(job: Job) -> tuple[float, list[float], float]:
    """SentenceTransformerTrainer with its defaults, but for what the job says: its seconds, losses and padding."""
    import torch
    from sentence_transformers import SentenceTransformer

    from embedtrain.models import MINILM, find_model

    model = SentenceTransformer(str(find_model(MINILM).path), local_files_only=True)
    model.max_seq_length = job.length
    if job.dropout is not None:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = job.dropout
    columns = texts(Path(job.data), job.rows, job.negatives)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    with Padding() as padding:
        fit(job, model, {name: values[: job.warm] for name, values in columns.items()})
    model.load_state_dict(weights)
    return *fit(job, model, columns), padding.share


def texts(data: Path, rows: int, negatives: int) -> dict[str, list[str]]:
    """The first rows as the trainer wants them: a column each of queries, positives and the n-th negatives."""
    from embedtrain.collection import Collection
    from embedtrain.mined import read_mined

    collection = Collection(data / "collection")
    mined = read_mined(data / "mined.parquet")[:rows]
    columns = {"query": [collection.queries.by_id(row.query_id) for row in mined]}
    documents = [[row.positive_ids[0], *row.negatives[:negatives]] for row in mined]
    names = ["positive", *(f"negative_{n + 1}" for n in range(negatives))]
    for name, ids in zip(names, zip(*documents, strict=True), strict=True):
        columns[name] = [collection.corpus.by_id(document) for document in ids]
    return columns


def fit(job: Job, model: Any, columns: dict[str, list[str]]) -> tuple[float, list[float]]:
    """One epoch; its seconds, the making of batches included, and the losses."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer import losses
    from transformers import TrainerCallback

    times: list[float] = []

    class Clock(TrainerCallback):
        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(time.perf_counter())

    if job.mini_batch:
        loss: Any = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=job.mini_batch)
    else:
        loss = losses.MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(Path(job.data) / "theirs"),
            num_train_epochs=1,
            per_device_train_batch_size=job.batch,
            **trainer_precision(job.precision),
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict(columns),
        loss=loss,
        callbacks=[Clock()],
    )
    trainer.train()
    return times[-1] - times[0], [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def main() -> int:
    job = Job(**json.loads(sys.argv[1]))
    seconds, losses, padding = (ours if job.side == "ours" else theirs)(job)
    import torch

    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated() / 2**20
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(dataclasses.asdict(Run(seconds, losses, peak, padding))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
