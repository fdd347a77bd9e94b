"""The flags of `harvest`, by the option they set."""

from typing import Annotated, Any

import typer

from embedtrain.cli import flags


def _flag(kind: Any, name: str, text: str, **limits: Any) -> Any:
    return Annotated[kind, typer.Option(name, help=text, **limits)]


PAGES: dict[str, Any] = {
    "pairs": _flag(
        str,
        "--pairs",
        "Pairs of pages: title, description, heading, faq, opening, adjacent, links, self; with commas.",
    ),
    "code": _flag(str, "--code", "Code blocks of pages: keep or drop."),
    "chunk_tokens": _flag(
        int, "--chunk-tokens", "Cut sections to documents of about so many tokens; 0: sections stay whole.", min=0
    ),
    "chunk_overlap": _flag(int, "--chunk-overlap", "Tokens of whole sentences that two chunks share.", min=0),
}

TABLES: dict[str, Any] = {
    "shape": _flag(
        str,
        "--shape",
        "Rows of a table: auto, pairs, lists, labelled, graded, scored, nli, duplicates, clusters, classes, msmarco, "
        "qrels, graph.",
    ),
    "query_column": _flag(str, "--query-column", "Column with the query; several with commas are joined."),
    "document_column": _flag(
        list[str], "--document-column", "Column with a document or its id; may be given again."
    ),
    "negative_column": _flag(list[str], "--negative-column", "Column with a negative; may be given again."),
    "title_column": _flag(str, "--title-column", "Column with the document's title, if there is one."),
    "label_column": _flag(str, "--label-column", "Column with the grade, class or entailment."),
    "score_column": _flag(str, "--score-column", "Column with a score of the pair; needs --min-score."),
    "min_score": _flag(float | None, "--min-score", "From this score on a pair is a positive; it is its weight."),
    "negatives_below": _flag(
        float | None,
        "--negatives-below",
        "Below this score, or surely below this relevance, a pair is a negative.",
    ),
    "time_column": _flag(str, "--time-column", "Column with the time: ISO dates or seconds since 1970."),
    "collection": _flag(
        str, "--texts", "What the ids in a table or log stand for: a collection, or a table of texts."
    ),
    "topic_field": _flag(
        str,
        "--topic-field",
        "What of a TREC topic is the query: title, description, narrative, question, query; auto: title, or query "
        "where there is none.",
    ),
    "max_pairs_per_class": _flag(
        int | None, "--max-pairs-per-class", "Pairs made of one class or cluster [default: 10 a text].", min=1
    ),
    "weight": _flag(float, "--weight", "Weight of the pairs."),
    "input_format": _flag(
        str,
        "--input-format",
        "How to read standard input (-), or a file in spite of its name: jsonl, csv, tsv, ...",
    ),
    "max_bad": _flag(float, "--max-bad", "Share of lines that may be no rows; more end the run."),
}

LOGS: dict[str, Any] = {
    "clicked_column": _flag(str, "--clicked-column", "Column of a log: clicked or not, or the number of clicks."),
    "impressions_column": _flag(str, "--impressions-column", "Column of a log of counts: how often it was shown."),
    "position_column": _flag(str, "--position-column", "Column of a log: the rank it was shown at, from 1."),
    "session_column": _flag(str, "--session-column", "Column of a log: what was shown together."),
    "propensities": _flag(
        str, "--propensities", "How likely each rank is looked at, as 1:1.0,2:0.6 [default: from the log]."
    ),
    "min_clicks": _flag(int, "--min-clicks", "Clicks a positive has at least.", min=1),
    "min_relevance": _flag(
        float | None, "--min-relevance", "Relevance a positive surely has [default: the log's mean]."
    ),
    "min_skips": _flag(int, "--min-skips", "Times a negative was skipped above a click at least.", min=1),
}

GENERATED: dict[str, Any] = {
    "generate": _flag(
        str,
        "--generate",
        "Let a language model write queries: the address of an OpenAI-compatible server, or a local model.",
        metavar="URL|MODEL",
    ),
    "generate_model": _flag(str, "--generate-model", "The server's model [default: the only one it has]."),
    "generate_limit": _flag(
        int | None, "--generate-limit", "Documents (or queries to rephrase) at most, a seeded sample.", min=1
    ),
    "generate_workers": _flag(int, "--generate-workers", "Requests at a time.", min=1),
    "generate_timeout": _flag(float, "--generate-timeout", "Seconds a request may take."),
    "generate_tokens": _flag(int, "--generate-tokens", "Tokens of a reply at most.", min=1),
    "queries_per_document": _flag(int, "--queries-per-document", "Queries asked for of each document.", min=1),
    "prompt": _flag(
        str,
        "--prompt",
        "questions, keywords, rephrase, plain, or a file with {text}, and {n} and {title} if wanted.",
    ),
    "temperature": _flag(
        float, "--generate-temperature", "Of the language model; 0: the likeliest words.", min=0.0
    ),
    "price": _flag(str, "--price", "Price of a million tokens of prompts and of replies, as 0.15,0.6."),
    "round_trip": _flag(
        int, "--round-trip", "A generated query stays when its document is among so many it finds; 0: off.", min=0
    ),
    "round_trip_by": _flag(list[str], "--round-trip-by", "Who finds: bm25 or a model; may be given again."),
    "round_trip_need": _flag(str, "--round-trip-need", "Of several: any or all."),
}

CLEANED: dict[str, Any] = {
    "mend_encoding": _flag(
        bool, "--mend-encoding", "Repair texts that were decoded with the wrong encoding; else they are counted."
    ),
    "min_query_characters": _flag(int, "--min-query-characters", "Shorter queries are left out.", min=1),
    "min_document_characters": _flag(int, "--min-document-characters", "Shorter documents are left out.", min=1),
    "max_query_tokens": _flag(int, "--max-query-tokens", "Longer queries are left out; 0: none.", min=0),
    "max_document_tokens": _flag(int, "--max-document-tokens", "Longer documents are left out; 0: none.", min=0),
    "only_language": _flag(
        str, "--only-language", "Leave out texts that clearly are in another language than this one."
    ),
    "keep_copies": _flag(
        bool, "--keep-copies", "Keep pairs whose query stands in the first line of its document."
    ),
    "boilerplate": _flag(
        float,
        "--boilerplate",
        "Take out lines that stand in this share of the documents; 0: none.",
        min=0.0,
        max=1.0,
    ),
    "near_duplicate": _flag(
        float,
        "--near-duplicate",
        "Jaccard index of 8-byte shingles from which two texts are one; 0: off.",
        min=0.0,
        max=1.0,
    ),
    "max_queries_per_document": _flag(
        int, "--max-queries-per-document", "Pairs a document keeps at most; 0: all.", min=0
    ),
    "max_documents_per_query": _flag(
        int, "--max-documents-per-query", "Pairs a query keeps at most; 0: all.", min=0
    ),
    "consistency": _flag(
        str,
        "--consistency",
        "Keep pairs whose document is near the top for its query by bm25, a model, or both (bm25,MODEL).",
    ),
    "consistency_k": _flag(int, "--consistency-k", "What near the top is.", min=1),
    "consistency_sample": _flag(
        int, "--consistency-sample", "Documents that a pair's document is ranked among.", min=2
    ),
}

HARVEST: dict[str, Any] = {
    "kind": _flag(
        str,
        "--kind",
        "auto, beir, trec, table, clicks, documents (or one of markdown, html, rst, text, pdf), or titles (title -> text of "
        "a corpus).",
    ),
    **PAGES,
    **TABLES,
    **LOGS,
    **GENERATED,
    **CLEANED,
    "split": _flag(str, "--split", "Shares of the training queries to set apart, as dev=0.2,test=0.1."),
    "split_by": _flag(str, "--split-by", "hash, or time: the newest is in the last split named."),
    "documents": _flag(
        int | None, "--documents", "Keep the judged documents and a sample of others up to N.", min=1
    ),
    "format": _flag(str, "--format", "parquet, or jsonl (with TSV qrels)."),
    "dropped": _flag(
        str, "--dropped", "Write what was left out, with the reason, to this JSONL file.", metavar="FILE"
    ),
    "limit": flags.Limit,
    "seed": flags.Seed,
}
