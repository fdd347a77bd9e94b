"""The options of every stage. This is the only home of defaults; standard library only."""

from dataclasses import dataclass

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PRECISIONS = ("auto", "float32", "bfloat16")

# Retrievers by name: BM25, and for every model a dense one.
LEXICAL = "bm25"
DENSE = "dense"


def dense_names(count: int) -> list[str]:
    """Names of `count` dense retrievers: dense, dense2, dense3."""
    return [DENSE if number == 1 else f"{DENSE}{number}" for number in range(1, count + 1)]


def is_dense(name: str) -> bool:
    """Whether a retriever's name is that of a dense one."""
    return name.startswith(DENSE)


@dataclass(frozen=True)
class HarvestOptions:
    """`harvest`: where pairs come from and how they are set out."""

    kind: str = "auto"  # auto, beir, table, markdown, titles
    query_column: str = "query"
    document_column: str = "document"
    title_column: str = "title"
    split: str = ""  # shares cut from train: "dev=0.2"; queries that share a document stay together
    documents: int | None = None  # keep judged documents and a seeded sample of others up to this many
    format: str = "parquet"  # parquet or jsonl
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class LexicalOptions:
    """What BM25 needs to know, wherever it is asked: `mine` and `eval`."""

    language: str = "english"  # auto: the one that most documents show
    bm25_backend: str = "bm25s"
    bm25_variant: str = "lucene"
    k1: float = 0.9  # Anserini's values for BEIR
    b: float = 0.4


@dataclass(frozen=True)
class MineOptions(LexicalOptions):
    """`mine`: which candidates are found and which of them become negatives."""

    split: str = "train"
    retrievers: tuple[str, ...] = ("bm25", "dense")  # a second model is dense2, and so on
    index: str = "exact"  # of the dense search: exact, ivf, hnsw
    precision: str = "auto"  # of encoding; auto: bfloat16 where the processor or GPU has it, else float32
    top_k: int = 50
    negatives: int = 7  # DPR, ANCE and NV-Retriever use 4 to 8 of them a query
    mix: str = ""  # negatives by where they come from, as "dense=2,bm25=1,random=1"; "": from the fused order
    sampling: str = "top"  # top, random, stratified, softmax
    ranks: str = ""  # "30:100": only candidates with these ranks in the fused order
    max_ratio: float | None = (
        0.95  # share of the positive's score a negative may reach (NV-Retriever, TopK-PercPos)
    )
    max_margin: float | None = None  # how far below the positive's score a negative must stay (TopK-MarginPos)
    max_score: float | None = None
    min_score: float | None = None
    near_duplicate: float = 0.8  # Jaccard index of shingles from which a candidate repeats a positive; 0: off
    group_column: str = ""  # corpus column; documents of a positive's group are no negatives
    min_negatives: int = 0  # rows with fewer are left out
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class TrainTeacherOptions:
    """`train-teacher`: an encoder becomes a cross-encoder on mined rows, by a softmax over each row."""

    negatives: int = 5  # drawn anew each epoch from the whole window
    batch_size: int = 8
    # From a fresh head on 630 claims of SciFact, 5e-5 had not left chance after 150 rows; 2e-4 had after 100.
    learning_rate: float = 2e-4
    warmup: float = 0.1
    weight_decay: float = 0.01
    epochs: float = 2.0
    max_length: int = 256
    dev_share: float = 0.1  # of the queries, held out to measure the teacher on
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class ScoreOptions:
    """`score-teacher`: what the teacher says of every candidate, and what follows from it."""

    candidates: str = "selected"  # those training uses; all: every candidate, so that others can be chosen later
    policy: str = "drop"  # drop: what the teacher likes as well as a positive goes; keep: nothing goes
    drop_margin: float = 0.0  # logits: drop when score > lowest positive's score - margin
    max_length: int | None = None  # None: the teacher's own
    limit: int | None = None


@dataclass(frozen=True)
class TrainOptions:
    """What `pretrain` and `finetune` share; each has its own defaults below."""

    batch_size: int = 32
    learning_rate: float = 3e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    epochs: float = 1.0
    temperature: float = 0.05
    max_query_length: int = 64
    max_document_length: int = 256
    dropout: float = 0.0  # the fused attention of PyTorch needs 0; a tuned encoder loses nothing by it
    query_prompt: str | None = None  # None: as the model has it
    document_prompt: str | None = None
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class PretrainOptions(TrainOptions):
    """`pretrain`: weak pairs, in-batch negatives, the largest batch that is affordable (E5, GTE)."""

    split: str = "train"
    batch_size: int = 128
    learning_rate: float = 5e-5


@dataclass(frozen=True)
class FinetuneOptions(TrainOptions):
    """`finetune`: mined negatives, the teacher's scores where there are some."""

    loss: str = ""  # "" : infonce:0.2,kl:1.0 for a scored artifact, infonce for a mined one
    negatives: int = 4
    epochs: float = 3.0
    temperature: float = 0.05
    teacher_temperature: float = 1.0
    dev_split: str = ""  # "": no selection by a dev split, the last step is kept


@dataclass(frozen=True)
class EvalOptions(LexicalOptions):
    """`eval`: what is measured and how sure one can be."""

    split: str = "test"
    measures: tuple[str, ...] = ("nDCG@10", "Recall@100")
    bm25: bool = False
    hybrid: bool = False
    rerank_depth: int = 50
    top_k: int = 100
    precision: str = "auto"  # of encoding; auto: bfloat16 where the processor or GPU has it, else float32
    resamples: int = 10_000
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class DiagnoseOptions:
    """`diagnose`: how large a sample the geometry is measured on."""

    split: str = "test"
    sample: int = 2_000
    precision: str = "auto"  # of encoding; auto: bfloat16 where the processor or GPU has it, else float32
    limit: int | None = None
    seed: int = 0
