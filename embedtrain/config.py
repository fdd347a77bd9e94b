"""The options of every stage. This is the only home of defaults; standard library only."""

from dataclasses import dataclass

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PRECISIONS = ("auto", "float32", "bfloat16")
TRAINING_PRECISIONS = (*PRECISIONS, "float16")

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
class PageOptions:
    """What becomes of pages."""

    pairs: str = "title,description,heading,faq"
    code: str = "keep"  # keep, drop
    # What MiniLM reads; 0: sections stay whole.
    chunk_tokens: int = 256
    chunk_overlap: int = 0  # tokens, in whole sentences


@dataclass(frozen=True)
class TableOptions:
    """How tables and logs are read."""

    shape: str = "auto"
    query_column: str = "query"  # several with commas: joined with a blank
    document_column: tuple[str, ...] = ("document",)  # several: several positives
    negative_column: tuple[str, ...] = ()
    title_column: str = "title"
    label_column: str = ""
    score_column: str = ""
    min_score: float | None = None
    negatives_below: float | None = None  # score of a table, relevance of a log
    time_column: str = ""
    collection: str = ""  # what ids stand for
    topic_field: str = "auto"  # of TREC topics: title or, where they have none, query
    max_pairs_per_class: int | None = None  # None: 10 a text
    weight: float = 1.0
    input_format: str = ""
    max_bad: float = 0.01  # share of lines that may be no rows


@dataclass(frozen=True)
class LogOptions:
    """What is believed of a click log. An empty column is recognised by common spellings."""

    clicked_column: str = ""  # of a log of counts: the clicks
    impressions_column: str = ""  # makes it a log of counts
    position_column: str = ""
    session_column: str = ""
    propensities: str = ""  # "1:1.0,2:0.6"; "": from the log
    min_clicks: int = 2
    min_relevance: float | None = None  # None: the mean relevance of what is shown
    min_skips: int = 2


@dataclass(frozen=True)
class GenerateOptions:
    """Queries by a language model."""

    generate: str = ""  # address of an OpenAI-compatible server, or a local model; "": nothing is generated
    generate_model: str = ""  # of the server; "": the only one it has
    generate_limit: int | None = None  # documents at most, a seeded sample
    generate_workers: int = 4  # requests at a time
    generate_timeout: float = 120.0  # seconds for one
    generate_tokens: int = 512  # of a reply at most
    queries_per_document: int = 2
    prompt: str = "questions"  # or keywords, rephrase, plain, or a file
    temperature: float = 0.7
    price: str = ""  # "0.15,0.6": of a million tokens of prompts and of replies
    round_trip: int = 10  # a query stays when its document is among so many it finds; 0: off
    round_trip_by: tuple[str, ...] = (LEXICAL,)  # or models
    round_trip_need: str = "any"  # of those; or all
    seed: int = 0


@dataclass(frozen=True)
class CleanOptions:
    """What is mended in texts without judgements, and what leaves."""

    mend_encoding: bool = False  # repair texts that were decoded with the wrong encoding; else they are counted
    min_query_characters: int = 1
    min_document_characters: int = 1
    max_query_tokens: int = 0  # 0: any length
    max_document_tokens: int = 0
    only_language: str = ""  # texts that clearly show another language leave
    keep_copies: bool = False  # pairs whose query stands in the first line of its document
    boilerplate: float = 0.05  # share of the documents that hold a line from which it says nothing; 0: off
    # Jaccard index of shingles from which documents are one; 0: off. At 0.9 articles on two diseases, filled into one
    # template, were one (MedQuAD).
    near_duplicate: float = 0.95
    max_queries_per_document: int = 100  # 0: any number
    max_documents_per_query: int = 20
    consistency: str = ""  # bm25, a model, or both with a comma: a pair stays when its document is near the top
    consistency_k: int = 20
    consistency_sample: int = 100_000  # documents a pair's document is ranked among


@dataclass(frozen=True)
class HarvestOptions(PageOptions, TableOptions, LogOptions, GenerateOptions, CleanOptions):
    """`harvest`: where pairs come from and how they are set out."""

    kind: str = "auto"
    split: str = ""  # shares cut from train: "dev=0.2"; queries that share a document stay together
    split_by: str = "hash"  # hash, time
    documents: int | None = None  # keep judged documents and a seeded sample of others up to this many
    format: str = "parquet"  # parquet or jsonl
    dropped: str = ""  # a file for what is left out
    limit: int | None = None


@dataclass(frozen=True)
class ExportOptions:
    """`export`: which format, and of which rows."""

    to: str = "tuples"
    split: str = "train"  # of the collection, where no mined artifact says which
    negatives: int | None = None  # a row of tuples has; None: as many as most rows have
    ragged: bool = False  # tuples: a list of negatives in the place of n columns
    labels: str = "grades"  # lists: grades, or the teacher's scores


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
    """`train-teacher`: an encoder becomes a cross-encoder on mined rows."""

    loss: str = "listwise"  # over the row; binary and margin compare pairs
    rounds: int = 1  # 2: the first teacher takes suspected positives from its negatives, and a second is trained
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
    """`score-teacher`: what teachers say of every candidate, and what follows from it."""

    kinds: tuple[str, ...] = ("cross",)  # cross, bi: one for all teachers, or one each
    candidates: str = "selected"  # those training uses; all: every one; a number: the first ranks too
    policy: str = "drop"  # what becomes of a suspected positive: keep, drop, promote, mask
    drop_margin: float | None = None  # suspected above the row's lowest positive less this; alone by default, at 0
    drop_ratio: float | None = None  # the same, as a share of the lowest positive's score
    drop_above: float | None = None  # suspected from this probability on
    keep_below: float | None = None  # what lies between this probability and drop_above goes
    calibrate: str = ""  # temperature, platt: probabilities fitted to labels; "": the teacher's own sigmoid
    sample: str = "rank"  # who stands for a negative afterwards: rank, stratified (by the teacher's scores)
    negatives: int | None = None  # None: as many as were mined
    trust: bool = False  # go on with a teacher that is worse than the retriever
    precision: str = "auto"
    max_length: int | None = None  # None: the teacher's own
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class TrainOptions:
    """What `pretrain` and `finetune` share; each has its own defaults below."""

    loss: str = ""  # "": see LOSS and DISTILLED
    directions: str = "q2d"  # whose softmax: q2d, d2q, q2q, d2d
    joint: bool = False  # one softmax over all directions instead of one each
    temperature: float | None = None  # None: see temperature_for
    learn_temperature: bool = False
    hardness: float = 0.0  # weight of hard negatives by their similarity (as EmbeddingGemma); 0: all alike
    margin: float = 0.2  # of triplet, in similarity; not measured here
    matryoshka: str = ""  # "384,192:0.5": dimensions and their weights
    gor: float = 0.0  # weight of the spread-out regulariser (Zhang et al. 2017)
    embedding_teacher: str = ""  # the bigger bi-encoder of cosine and score
    project: bool = False  # a linear layer to the embedding teacher's dimensions, kept in the model (LEAF)
    mask_margin: float | None = None  # documents of other rows this far above the positive are no negatives
    guide: str = ""  # a model: what it ranks above the positive is no negative (GISTEmbed)
    guide_margin: float = 0.0
    group_column: str = ""  # corpus column; documents of a positive's group are no negatives
    positives: int = 1  # of several, drawn anew each epoch
    homogeneous: str = ""  # source, topic: what the rows of a batch have in common
    topics: int = 0  # 0: one for every 4 batches
    batch_size: int = 32
    learning_rate: float | None = None  # None: see learning_rate_for
    warmup: float = 0.1
    weight_decay: float = 0.01
    epochs: float = 1.0
    max_query_length: int = 64
    max_document_length: int = 256
    dropout: float = 0.0  # the fused attention of PyTorch needs 0; a tuned encoder loses nothing by it
    precision: str = "auto"  # of the layers; weights, losses and the optimiser are float32 always
    query_prompt: str | None = None  # None: as the model has it
    document_prompt: str | None = None
    pooling: str = ""  # "": as the model has it
    two_towers: bool = False
    static: int = 0  # dimensions of a new static model; 0: the model as it is
    lora: int = 0  # rank; 0: all weights are trained
    freeze: str = ""  # "embeddings", or the number of lower layers that are not trained either
    gradient_checkpointing: bool = False
    dev_split: str = ""  # "": no selection by a dev split, the last step is kept
    dev_documents: int = 0  # judged documents and a seeded sample of others up to this many; 0: all
    patience: int = 0  # evaluations without a gain after which training ends; 0: none ends it
    merge: str = ""  # "auto", or the tuned model's share of weights between it and the one it started from
    guard: str = ""  # a collection on which merging may lose half a point at most
    guard_split: str = "test"
    max_minutes: float | None = None
    track: str = ""  # tensorboard, wandb, trackio, mlflow
    export: str = ""  # onnx
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class PretrainOptions(TrainOptions):
    """`pretrain`: weak pairs, in-batch negatives, the largest batch that is affordable (E5, GTE)."""

    split: str = "train"
    negatives: int = 4  # of the documents judged not relevant, drawn anew each epoch
    directions: str = "q2d,d2q"
    homogeneous: str = "source"  # worth 3.2 points to Arctic-Embed
    sources: str = ""  # weights of several collections, "2,1"; "": as many batches as they have rows
    batch_size: int = 128


@dataclass(frozen=True)
class FinetuneOptions(TrainOptions):
    """`finetune`: mined negatives, the teacher's scores where there are some."""

    negatives: int = 4  # 1 to 7 are usual; time grows in proportion
    curriculum: str = "none"  # linear, stepped: mined negatives grow harder by their score
    mix: str = "in-batch,mined"  # what negatives are; "in-batch:1,mined:3": three rows of four have mined ones
    epochs: float = 3.0
    teacher_temperature: float = 1.0
    standardize: bool = False  # the teacher's scores of each row to mean 0, deviation 1, before kl


# The loss of each stage where none is named: with a teacher's scores, and without.
LOSS = "infonce"
DISTILLED = "infonce:0.2,kl:1.0"  # the teacher sees a row's own documents alone, infonce those of the batch too


def temperature_for(stage: str, batch_size: int, *, on_gpu: bool) -> float:
    """The temperature of the softmax where none is named."""
    # Lower where many negatives share the softmax; 0.05 (a scale of 20) for small batches, which finetune has on a GPU too.
    # MedQuAD (1,000 questions, one epoch, batches of 32; one run each) has an nDCG@10 of 0.864 on its dev split with 0.02, and
    # of 0.883 with 0.05.
    small = batch_size < 1_024 and (stage == "finetune" or not on_gpu)
    return 0.05 if small else 0.02


def learning_rate_for(stage: str, parameters: int, *, raw: bool) -> float:
    """The highest learning rate where none is named, by the number of parameters outside the token embeddings."""
    if stage == "pretrain":
        return 2e-4 if raw else 5e-5  # a raw checkpoint has no similarity to lose yet
    if parameters < 50_000_000:
        return 3e-5  # small models; base and large ones below
    return 2e-5 if parameters < 200_000_000 else 1e-5


# Queries without a relevant document: left out of the measurement, or counted 0.
LEFT_OUT, ZERO = "leave-out", "zero"


@dataclass(frozen=True)
class EvalOptions(LexicalOptions):
    """`eval`: what is measured and how sure one can be."""

    split: str = "test"
    measures: tuple[str, ...] = ("nDCG@10", "Recall@100")
    bm25: bool = False
    hybrid: bool = False
    dev_split: str = "dev"  # where the weight of a model's scores beside BM25's is chosen
    advise: bool = False
    dims: tuple[int, ...] = ()  # of the last model: prefixes of its vectors
    quantize: tuple[str, ...] = ()  # of the last model: int8, binary
    rerank_depth: int = 50
    top_k: int = 100
    precision: str = "auto"  # of encoding; auto: bfloat16 where the processor or GPU has it, else float32
    resamples: int = 10_000
    ties: str = "ascending"  # document ids among equal scores; trec_eval: descending
    no_relevant: str = LEFT_OUT  # queries without a relevant document
    keep_self: bool = False  # hits whose id is the query's
    group_duplicates: bool = False  # documents of one text are one document
    passage_column: str = "page"  # of the passages' corpus: the document each was cut from
    guard_split: str = "test"
    recipes: tuple[str, ...] = ()  # NAME=COUNT: so many of the last models are seeds of a recipe
    slices: tuple[str, ...] = ()  # columns of the queries whose values make slices
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class DiagnoseOptions:
    """`diagnose`: how large a sample the geometry is measured on, and what is looked at besides."""

    split: str = "test"
    sample: int = 2_000
    temperature_lab: bool = False
    label_column: str | None = None  # of the corpus: its values are the clusters; k-means without one
    precision: str = "auto"  # of encoding; auto: bfloat16 where the processor or GPU has it, else float32
    limit: int | None = None
    seed: int = 0
