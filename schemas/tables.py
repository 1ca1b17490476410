"""The only definition of Tagloom's tables.

Every table is an Arrow schema whose fields carry a description. `build` makes a table from columns, `validate`
checks one; whatever is written to storage passes through `validate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from schemas.errors import SchemaError

_NAME = pa.dictionary(pa.int32(), pa.string())
_ID = pa.string()
_TEXT = pa.large_string()
_TIME = pa.timestamp("us", tz="UTC")
_STRINGS = pa.list_(pa.field("element", pa.string(), nullable=False))
_INTS = pa.list_(pa.field("element", pa.int32(), nullable=False))
_CODES = pa.list_(pa.field("element", pa.int8(), nullable=False))
_FLOATS = pa.list_(pa.field("element", pa.float32(), nullable=False))

NOTE_FIELDS = ("who", "what", "when", "where", "why", "extra")
"""The tag fields of a note, in the order that builders and documents use."""

NOTE_STATUSES = ("ok", "repaired", "empty", "failed")
"""What can have become of a note; `failed` and `empty` notes keep their interaction reachable."""


@dataclass(frozen=True)
class TableSpec:
    """One table: its name, the version of its layout, what it holds, and its Arrow schema."""

    name: str
    version: int
    doc: str
    schema: pa.Schema


def _field(name: str, kind: pa.DataType, doc: str, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"doc": doc})


def _table(name: str, version: int, doc: str, *fields: pa.Field) -> TableSpec:
    meta = {"tagloom.table": name, "tagloom.version": str(version)}
    return TableSpec(name, version, doc, pa.schema(list(fields), metadata=meta))


_CASE = _field("case_id", _NAME, "Case (memory store) that the row belongs to")
_GRAPH = _field("graph", _NAME, "Graph kind, the name of its builder")
_RETRIEVER = _field("retriever", _NAME, "Preset that ranked")
_INTERACTION = _field("interaction_id", _ID, "Interaction, unique within the case")

_SPECS = (
    _table(
        "interactions",
        1,
        "Retrieval units (file nodes), in order of case_id and position. The full text is user_text and "
        "assistant_text; transforms.interactions.full_text joins them.",
        _CASE,
        _field("session_id", _NAME, "Conversation that the interaction is part of"),
        _INTERACTION,
        _field("content_hash", _ID, "xxh3-128 of time (or its text, if not understood), speakers and texts"),
        _field("position", pa.int32(), "Rank in time order within the case, from 0"),
        _field("started_at", _TIME, "When it began (UTC); null where the source tells no time", null=True),
        _field("started_at_text", pa.string(), "The time as the source wrote it", null=True),
        _field("user_text", _TEXT, "What the user, or a person in a dialogue, said"),
        _field("assistant_text", _TEXT, "What assistants, tools and systems said"),
        _field("speakers", _STRINGS, "Names, or else roles, of who spoke, in order of first appearance"),
        _field("message_ids", _STRINGS, "Ids of the messages joined here, in order"),
        _field("source", _NAME, "Input file, relative to the input that named it"),
        _field("source_offset", pa.int64(), "Number of the session among those of its case in the source, from 0"),
    ),
    _table(
        "questions",
        1,
        "Questions with their gold evidence, in order of case_id and of appearance.",
        _CASE,
        _field("question_id", _ID, "Question, unique within the case"),
        _field("question", pa.string(), "The question's text"),
        _field("question_type", _NAME, "Type as the benchmark names it; empty when it has none"),
        _field("asked_at", _TIME, "When it was asked (UTC)", null=True),
        _field("answer", pa.string(), "Gold answer", null=True),
        _field("gold_session_ids", _STRINGS, "Sessions that hold the evidence"),
        _field("gold_message_ids", _STRINGS, "Messages that hold the evidence"),
        _field("gold_interaction_ids", _STRINGS, "Interactions that hold those messages"),
        _field("expected_contains", _STRINGS, "Substrings that a relevant interaction holds"),
        _field("answerable", pa.bool_(), "False where the benchmark says that the history has no answer"),
    ),
    _table(
        "rejects",
        1,
        "Records, or parts of one, that could not be taken, each with its reason.",
        _field("source", _NAME, "Input file"),
        _field(
            "source_offset",
            pa.int64(),
            "Place of the record in the source (docs/formats.md); of a question without evidence, as in interactions",
        ),
        _field("reason", _NAME, "One of transforms.records.REJECT_REASONS"),
        _field("detail", pa.string(), "What exactly was wrong"),
        _field("sample", pa.string(), "The start of the record, cut to 200 characters"),
    ),
    _table(
        "notes",
        1,
        "What an extractor made of each interaction; one row an interaction, in the same order.",
        _CASE,
        _INTERACTION,
        *(_field(name, _STRINGS, f"Tags of the field '{name}'") for name in NOTE_FIELDS),
        _field("summary", pa.string(), "One or two sentences"),
        _field("status", _NAME, "One of NOTE_STATUSES"),
        _field("error", pa.string(), "Why the note is repaired, empty or failed", null=True),
        _field("prompt_tokens", pa.int32(), "Tokens of the first prompt; 0 without a model"),
        _field("completion_tokens", pa.int32(), "Tokens of the reply that counts; 0 without a model"),
    ),
    _table(
        "facts",
        1,
        "Atomic claims with absolute dates (GAAMA).",
        _CASE,
        _field("fact_id", _ID, "Fact, unique within the case"),
        _field("text", pa.string(), "The claim"),
        _field("interaction_ids", _STRINGS, "Interactions that it was taken from"),
        _field("concepts", _STRINGS, "Concept labels"),
    ),
    _table(
        "reflections",
        1,
        "Insights over facts (GAAMA).",
        _CASE,
        _field("reflection_id", _ID, "Reflection, unique within the case"),
        _field("text", pa.string(), "The insight"),
        _field("fact_ids", _STRINGS, "Facts that it rests on"),
        _field("interaction_ids", _STRINGS, "Interactions behind those facts"),
        _field("concepts", _STRINGS, "Concept labels"),
    ),
    _table(
        "triples",
        1,
        "Open triples (HippoRAG style).",
        _CASE,
        _INTERACTION,
        _field("subject", pa.string(), "Subject phrase"),
        _field("predicate", pa.string(), "Relation phrase"),
        _field("object", pa.string(), "Object phrase"),
    ),
    _table(
        "concepts",
        1,
        "Concept labels of each interaction (GAAMA); one row an interaction, in the same order.",
        _CASE,
        _INTERACTION,
        _field("concepts", _STRINGS, "Labels in lower snake_case, 2-5 words"),
    ),
    _table(
        "entities",
        1,
        "Typed nodes (Selective Forgetting), as each interaction mentions them; graph builders merge equal ones.",
        _CASE,
        _INTERACTION,
        _field("title", pa.string(), "Name or short statement of the node"),
        _field("kind", _NAME, "entity, fact, event, preference, task, ..."),
        _field("attributes", _STRINGS, "KEY: VALUE, in the order of the reply"),
        _field("role", _NAME, "Whose statement it rests on: user or assistant"),
    ),
    _table(
        "relations",
        1,
        "Typed edges between entities (Selective Forgetting), as each interaction states them.",
        _CASE,
        _INTERACTION,
        _field("source", pa.string(), "Title of the entity that the edge leaves"),
        _field("target", pa.string(), "Title of the entity that the edge enters"),
        _field("kind", pa.string(), "Relation in lower snake_case"),
        _field("attributes", _STRINGS, "KEY: VALUE, in the order of the reply"),
    ),
    _table(
        "outcomes",
        1,
        "What became of each piece that a task other than notes asked about.",
        _CASE,
        _field("key", _ID, "Interaction id, or number of the group of facts within the case"),
        _field("status", _NAME, "One of NOTE_STATUSES"),
        _field("error", pa.string(), "Why it is repaired, empty or failed", null=True),
        _field("prompt_tokens", pa.int32(), "Tokens of the first prompt"),
        _field("completion_tokens", pa.int32(), "Tokens of the reply that counts"),
    ),
    _table(
        "nodes",
        1,
        "Graph nodes, in order of case and node_id.",
        _CASE,
        _GRAPH,
        _field("node_id", pa.int32(), "Dense number from 0, per case and graph"),
        _field("kind", _NAME, "Node kind, such as tag, topic, file, ontology"),
        _field("key", _ID, "What identifies the node within its kind (tag path, topic key, interaction id)"),
        _field("text", pa.string(), "Text to show, where the key does not serve", null=True),
        _field("interaction_id", _ID, "The interaction of a file node", null=True),
    ),
    _table(
        "edges",
        1,
        "Directed graph edges, in order of case, source, target and kind.",
        _CASE,
        _GRAPH,
        _field("source", pa.int32(), "node_id that the edge leaves"),
        _field("target", pa.int32(), "node_id that the edge enters"),
        _field("kind", _NAME, "Edge kind"),
        _field("weight", pa.float32(), "Weight, above 0"),
        _field("interaction_id", _ID, "Interaction that gave rise to the edge", null=True),
    ),
    _table(
        "matrices",
        1,
        "One row a case and graph: its adjacency in CSR form, edge kinds kept so that an ablation is a mask.",
        _CASE,
        _GRAPH,
        _field("node_kinds", _CODES, "Per node: index into node_kind_names"),
        _field("node_kind_names", _STRINGS, "Node kinds of this graph"),
        _field("file_nodes", _INTS, "node_id of the file node of the interaction at each position"),
        _field("indptr", _INTS, "CSR row starts, nodes + 1 values"),
        _field("indices", _INTS, "CSR columns (targets), ascending within a row"),
        _field("edge_kinds", _CODES, "Per edge: index into edge_kind_names"),
        _field("edge_kind_names", _STRINGS, "Edge kinds of this graph"),
        _field("weights", _FLOATS, "Per edge: weight"),
    ),
    _table(
        "vocabulary",
        1,
        "Terms of one shard; postings refer to them by number.",
        _field("term_id", pa.int32(), "Dense number from 0 within the shard"),
        _field("term", pa.string(), "The term"),
    ),
    _table(
        "postings",
        1,
        "One row a case and field: (term) x document counts in CSR form, and document lengths. Documents are "
        "numbered by position (fields raw, note) or by tag node in node_id order (field tag).",
        _CASE,
        _field("field", _NAME, "raw (interaction), note (tags, summary and interaction) or tag (tag paths)"),
        _field("terms", _INTS, "term_id of each row, ascending"),
        _field("indptr", _INTS, "CSR row starts, terms + 1 values"),
        _field("documents", _INTS, "CSR columns, ascending within a row"),
        _field("counts", _INTS, "Occurrences of the term in the document"),
        _field("lengths", _INTS, "Tokens of each document"),
    ),
    _table(
        "vectors",
        2,
        "Dense vectors of unit length (all zeros for a text without words), in the order of what they stand for.",
        _CASE,
        _field("kind", _NAME, "What the vector stands for: interaction, chunk, question, or a node kind"),
        _field("key", _ID, "Id within that kind"),
        _field("content_hash", _ID, "xxh3-128 of the text that was embedded; equal texts have equal vectors"),
        _field("vector", _FLOATS, "The vector; with embed.dtype float16 its values are those of float16"),
    ),
    _table(
        "runs",
        1,
        "Ranked interactions, in order of case, question and rank. Rows past `rank.depth` are the best "
        "interactions of sessions not seen before, so that session metrics are exact to depth 40.",
        _CASE,
        _field("question_id", _ID, "Question"),
        _RETRIEVER,
        _field("rank", pa.int32(), "Rank from 1, ties broken by position"),
        _INTERACTION,
        _field("score", pa.float64(), "Score, never NaN"),
    ),
    _table(
        "question_metrics",
        1,
        "Metrics of each question with gold at that level; a question that a run lacks counts 0.",
        _CASE,
        _field("question_id", _ID, "Question"),
        _field("question_type", _NAME, "Type of the question"),
        _field("answerable", pa.bool_(), "As in questions"),
        _RETRIEVER,
        _field("level", _NAME, "interaction, message or session"),
        _field("metric", _NAME, "mrr, recall@k, hit@k, ndcg@10, map"),
        _field("value", pa.float64(), "Value in [0, 1]"),
    ),
    _table(
        "metrics",
        1,
        "Means over questions with bootstrap intervals by case.",
        _RETRIEVER,
        _field("level", _NAME, "interaction, message or session"),
        _field("scope", _NAME, "all, answerable, unanswerable, or type:NAME"),
        _field("metric", _NAME, "mrr, recall@k, hit@k, ndcg@10, map"),
        _field("mean", pa.float64(), "Mean over the questions of the scope"),
        _field("low", pa.float64(), "Lower end of the 95 % interval; null with fewer than two cases", null=True),
        _field("high", pa.float64(), "Upper end of the 95 % interval; null with fewer than two cases", null=True),
        _field("questions", pa.int32(), "Questions in the scope"),
        _field("cases", pa.int32(), "Cases in the scope"),
    ),
    _table(
        "results",
        1,
        "What an experiment measured; one row a value.",
        _field("experiment", _NAME, "Name of the experiment"),
        _field("variant", _NAME, "What was changed, such as distractors=8"),
        _field("x", pa.float64(), "Place of the variant on an axis", null=True),
        _field("retriever", _NAME, "Preset, or empty where the value is none's"),
        _field("baseline", _NAME, "Preset or variant that the value is a paired difference to", null=True),
        _field("level", _NAME, "interaction, message or session; empty where it does not apply"),
        _field("scope", _NAME, "all, answerable, unanswerable, or type:NAME"),
        _field("metric", _NAME, "mrr, recall@k, ..., or a count such as nodes or bytes"),
        _field("value", pa.float64(), "The value"),
        _field("low", pa.float64(), "Lower end of the 95 % interval", null=True),
        _field("high", pa.float64(), "Upper end of the 95 % interval", null=True),
        _field("p_value", pa.float64(), "Two-sided sign-flip p-value by case", null=True),
        _field("questions", pa.int32(), "Questions behind it"),
        _field("cases", pa.int32(), "Cases behind it"),
    ),
    _table(
        "comparisons",
        1,
        "Paired differences between presets on the same questions (scope all).",
        _field("retriever", _NAME, "Preset A"),
        _field("baseline", _NAME, "Preset B"),
        _field("level", _NAME, "interaction, message or session"),
        _field("metric", _NAME, "Metric compared"),
        _field("difference", pa.float64(), "Mean of A minus mean of B"),
        _field("low", pa.float64(), "Lower end of the 95 % interval", null=True),
        _field("high", pa.float64(), "Upper end of the 95 % interval", null=True),
        _field("effect", pa.float64(), "Mean case difference over its standard deviation", null=True),
        _field("p_value", pa.float64(), "Two-sided sign-flip p-value by case", null=True),
        _field("p_holm", pa.float64(), "The same, Holm-corrected within level and metric", null=True),
        _field("questions", pa.int32(), "Questions compared"),
        _field("cases", pa.int32(), "Cases compared"),
    ),
)

TABLES: Mapping[str, TableSpec] = {spec.name: spec for spec in _SPECS}


@cache
def schema(name: str) -> pa.Schema:
    """Return the Arrow schema of a table.

    Raises:
        SchemaError: No table has that name.
    """
    try:
        return TABLES[name].schema
    except KeyError:
        raise SchemaError(f"no table is called '{name}'", remedy=f"Tables: {', '.join(TABLES)}.") from None


def empty(name: str) -> pa.Table:
    """Return a table without rows."""
    return schema(name).empty_table()


def build(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Make a valid table from columns (Arrow arrays, numpy arrays or lists), cast to the schema's types.

    Raises:
        SchemaError: A column is missing, unknown, of another length, or does not cast.
    """
    wanted = schema(name)
    if set(columns) != set(wanted.names):
        missing, extra = set(wanted.names) - set(columns), set(columns) - set(wanted.names)
        raise SchemaError(f"missing columns {sorted(missing)}, unknown columns {sorted(extra)}", where=name)
    arrays = [_cast(name, field, columns[field.name]) for field in wanted]
    if len({len(a) for a in arrays}) > 1:
        lengths = {f.name: len(a) for f, a in zip(wanted, arrays, strict=True)}
        raise SchemaError(f"columns differ in length: {lengths}", where=name)
    table = pa.Table.from_arrays(arrays, schema=wanted)
    validate(name, table)
    return table


def _cast(table: str, field: pa.Field, values: Any) -> pa.ChunkedArray:
    try:
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            values = pa.array(values, type=plain)
        chunked = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
        if chunked.type == field.type:
            return chunked
        if pa.types.is_dictionary(field.type):
            if pa.types.is_dictionary(chunked.type):
                chunked = chunked.cast(chunked.type.value_type)
            return chunked.cast(pa.string()).dictionary_encode().cast(field.type)
        return chunked.cast(field.type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"column does not fit {field.type}: {error}", where=f"{table}.{field.name}") from error


def validate(name: str, table: pa.Table) -> None:
    """Check that a table has the schema's fields, in order, of its types, with no null where none may be.

    Raises:
        SchemaError: It does not.
    """
    wanted = schema(name)
    if table.schema.names != wanted.names:
        raise SchemaError(f"columns are {table.schema.names}, expected {wanted.names}", where=name)
    for field, column in zip(wanted, table.columns, strict=True):
        where = f"{name}.{field.name}"
        if column.type != field.type:
            raise SchemaError(f"type is {column.type}, expected {field.type}", where=where)
        if not field.nullable and column.null_count:
            raise SchemaError(f"{column.null_count} null values in a column that has none", where=where)
        if pa.types.is_list(field.type) and any(c.flatten().null_count for c in column.chunks):
            raise SchemaError("null values inside lists", where=where)
