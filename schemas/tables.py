"""The only definition of Tagloom's tables.

Every table is an Arrow schema whose fields carry a description. `build` makes a table from columns, `validate`
checks one; whatever is written to storage passes through `validate`. The tables that measure are written down in
`schemas._measured`, the words they share in `schemas._spec`; this module is the one place to import from.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from schemas._measured import MEASURED
from schemas._spec import (
    CASE,
    CODES,
    FLOATS,
    GRAPH,
    ID,
    INTERACTION,
    INTS,
    NAME,
    NOTE_FIELDS,
    NOTE_STATUSES,
    STRINGS,
    TEXT,
    TIME,
    TableSpec,
    col,
    spec,
)
from schemas.errors import SchemaError

__all__ = ["NOTE_FIELDS", "NOTE_STATUSES", "TABLES", "TableSpec", "build", "empty", "schema", "validate"]

_SPECS = (
    spec(
        "interactions",
        1,
        "Retrieval units (file nodes), in order of case_id and position. The full text is user_text and "
        "assistant_text; transforms.interactions.full_text joins them.",
        CASE,
        col("session_id", NAME, "Conversation that the interaction is part of"),
        INTERACTION,
        col("content_hash", ID, "xxh3-128 of time (or its text, if not understood), speakers and texts"),
        col("position", pa.int32(), "Rank in time order within the case, from 0"),
        col("started_at", TIME, "When it began (UTC); null where the source tells no time", null=True),
        col("started_at_text", pa.string(), "The time as the source wrote it", null=True),
        col("user_text", TEXT, "What the user, or a person in a dialogue, said"),
        col("assistant_text", TEXT, "What assistants, tools and systems said"),
        col("speakers", STRINGS, "Names, or else roles, of who spoke, in order of first appearance"),
        col("message_ids", STRINGS, "Ids of the messages joined here, in order"),
        col("source", NAME, "Input file, relative to the input that named it"),
        col("source_offset", pa.int64(), "Number of the session among those of its case in the source, from 0"),
    ),
    spec(
        "questions",
        1,
        "Questions with their gold evidence, in order of case_id and of appearance.",
        CASE,
        col("question_id", ID, "Question, unique within the case"),
        col("question", pa.string(), "The question's text"),
        col("question_type", NAME, "Type as the benchmark names it; empty when it has none"),
        col("asked_at", TIME, "When it was asked (UTC)", null=True),
        col("answer", pa.string(), "Gold answer", null=True),
        col("gold_session_ids", STRINGS, "Sessions that hold the evidence"),
        col("gold_message_ids", STRINGS, "Messages that hold the evidence"),
        col("gold_interaction_ids", STRINGS, "Interactions that hold those messages"),
        col("expected_contains", STRINGS, "Substrings that a relevant interaction holds"),
        col("answerable", pa.bool_(), "False where the benchmark says that the history has no answer"),
    ),
    spec(
        "rejects",
        1,
        "Records, or parts of one, that could not be taken, each with its reason.",
        col("source", NAME, "Input file"),
        col(
            "source_offset",
            pa.int64(),
            "Place of the record in the source (docs/formats.md); of a question without evidence, as in interactions",
        ),
        col("reason", NAME, "One of transforms.records.REJECT_REASONS"),
        col("detail", pa.string(), "What exactly was wrong"),
        col("sample", pa.string(), "The start of the record, cut to 200 characters"),
    ),
    spec(
        "notes",
        1,
        "What an extractor made of each interaction; one row an interaction, in the same order.",
        CASE,
        INTERACTION,
        *(col(name, STRINGS, f"Tags of the field '{name}'") for name in NOTE_FIELDS),
        col("summary", pa.string(), "One or two sentences"),
        col("status", NAME, "One of NOTE_STATUSES"),
        col("error", pa.string(), "Why the note is repaired, empty or failed", null=True),
        col("prompt_tokens", pa.int32(), "Tokens of the first prompt; 0 without a model"),
        col("completion_tokens", pa.int32(), "Tokens of the reply that counts; 0 without a model"),
    ),
    spec(
        "facts",
        1,
        "Atomic claims with absolute dates (GAAMA).",
        CASE,
        col("fact_id", ID, "Fact, unique within the case"),
        col("text", pa.string(), "The claim"),
        col("interaction_ids", STRINGS, "Interactions that it was taken from"),
        col("concepts", STRINGS, "Concept labels"),
    ),
    spec(
        "reflections",
        1,
        "Insights over facts (GAAMA).",
        CASE,
        col("reflection_id", ID, "Reflection, unique within the case"),
        col("text", pa.string(), "The insight"),
        col("fact_ids", STRINGS, "Facts that it rests on"),
        col("interaction_ids", STRINGS, "Interactions behind those facts"),
        col("concepts", STRINGS, "Concept labels"),
    ),
    spec(
        "triples",
        1,
        "Open triples (HippoRAG style).",
        CASE,
        INTERACTION,
        col("subject", pa.string(), "Subject phrase"),
        col("predicate", pa.string(), "Relation phrase"),
        col("object", pa.string(), "Object phrase"),
    ),
    spec(
        "concepts",
        1,
        "Concept labels of each interaction (GAAMA); one row an interaction, in the same order.",
        CASE,
        INTERACTION,
        col("concepts", STRINGS, "Labels in lower snake_case, 2-5 words"),
    ),
    spec(
        "entities",
        1,
        "Typed nodes (Selective Forgetting), as each interaction mentions them; graph builders merge equal ones.",
        CASE,
        INTERACTION,
        col("title", pa.string(), "Name or short statement of the node"),
        col("kind", NAME, "entity, fact, event, preference, task, ..."),
        col("attributes", STRINGS, "KEY: VALUE, in the order of the reply"),
        col("role", NAME, "Whose statement it rests on: user or assistant"),
    ),
    spec(
        "relations",
        1,
        "Typed edges between entities (Selective Forgetting), as each interaction states them.",
        CASE,
        INTERACTION,
        col("source", pa.string(), "Title of the entity that the edge leaves"),
        col("target", pa.string(), "Title of the entity that the edge enters"),
        col("kind", pa.string(), "Relation in lower snake_case"),
        col("attributes", STRINGS, "KEY: VALUE, in the order of the reply"),
    ),
    spec(
        "outcomes",
        1,
        "What became of each piece that a task other than notes asked about.",
        CASE,
        col("key", ID, "Interaction id, or number of the group of facts within the case"),
        col("status", NAME, "One of NOTE_STATUSES"),
        col("error", pa.string(), "Why it is repaired, empty or failed", null=True),
        col("prompt_tokens", pa.int32(), "Tokens of the first prompt"),
        col("completion_tokens", pa.int32(), "Tokens of the reply that counts"),
    ),
    spec(
        "repairs",
        1,
        "Facts that were added to a memory because a question could not be answered from it (GRAFT), in order of case, "
        "question and number.",
        CASE,
        col("repair_id", ID, "Repair, unique within the case; the id of its fact"),
        col("question_id", ID, "Question that it was made for"),
        col("round", pa.int32(), "Round of repair, from 1"),
        col("mode", NAME, "batch: the gold told what was missing; online: a judge did"),
        col("text", pa.string(), "The fact"),
        col("concepts", STRINGS, "Its concepts"),
        col("interaction_ids", STRINGS, "Interactions that it rests on"),
        col("sought", STRINGS, "What was looked for"),
        col("model", pa.string(), "Name of the model's journal; null where it is a sentence of the log", null=True),
        col("prompt", pa.string(), "Hash of the prompt that it was written by", null=True),
    ),
    spec(
        "nodes",
        1,
        "Graph nodes, in order of case and node_id.",
        CASE,
        GRAPH,
        col("node_id", pa.int32(), "Dense number from 0, per case and graph"),
        col("kind", NAME, "Node kind, such as tag, topic, file, ontology"),
        col("key", ID, "What identifies the node within its kind (tag path, topic key, interaction id)"),
        col("text", pa.string(), "Text to show, where the key does not serve", null=True),
        col("interaction_id", ID, "The interaction of a file node", null=True),
    ),
    spec(
        "edges",
        1,
        "Directed graph edges, in order of case, source, target and kind.",
        CASE,
        GRAPH,
        col("source", pa.int32(), "node_id that the edge leaves"),
        col("target", pa.int32(), "node_id that the edge enters"),
        col("kind", NAME, "Edge kind"),
        col("weight", pa.float32(), "Weight, above 0"),
        col("interaction_id", ID, "Interaction that gave rise to the edge", null=True),
    ),
    spec(
        "merges",
        1,
        "Near-duplicate names that a graph builder made one, in order of case, kind and key.",
        CASE,
        GRAPH,
        col("kind", NAME, "Node kind"),
        col("key", ID, "Key that was dropped: the node that it would have had"),
        col("into", ID, "Key of the node that stands for it"),
        col("rule", NAME, "One of transforms.merging.RULES"),
        col("similarity", pa.float32(), "Similarity of the two, in [0, 1]"),
    ),
    spec(
        "forgotten",
        1,
        "Nodes that forgetting dropped, in order of case and of the node's number in the whole graph, then of round.",
        CASE,
        GRAPH,
        col("kind", NAME, "Node kind"),
        col("key", ID, "What identified the node within its kind"),
        col("round", pa.int32(), "Round in which it went, from 1; round n is after n * every interactions"),
        col("importance", pa.float64(), "Its importance then, below the threshold"),
        col("returned", pa.bool_(), "True where a later interaction told of it again, so that it came back"),
    ),
    spec(
        "matrices",
        1,
        "One row a case and graph: its adjacency in CSR form, edge kinds kept so that an ablation is a mask.",
        CASE,
        GRAPH,
        col("node_kinds", CODES, "Per node: index into node_kind_names"),
        col("node_kind_names", STRINGS, "Node kinds of this graph"),
        col("file_nodes", INTS, "node_id of the file node of the interaction at each position"),
        col("indptr", INTS, "CSR row starts, nodes + 1 values"),
        col("indices", INTS, "CSR columns (targets), ascending within a row"),
        col("edge_kinds", CODES, "Per edge: index into edge_kind_names"),
        col("edge_kind_names", STRINGS, "Edge kinds of this graph"),
        col("weights", FLOATS, "Per edge: weight"),
    ),
    spec(
        "vocabulary",
        1,
        "Terms of one shard; postings refer to them by number.",
        col("term_id", pa.int32(), "Dense number from 0 within the shard"),
        col("term", pa.string(), "The term"),
    ),
    spec(
        "postings",
        1,
        "One row a case and field: (term) x document counts in CSR form, and document lengths. Documents are "
        "numbered by position (fields raw, note) or by tag node in node_id order (field tag).",
        CASE,
        col("field", NAME, "raw (interaction), note (tags, summary and interaction) or tag (tag paths)"),
        col("terms", INTS, "term_id of each row, ascending"),
        col("indptr", INTS, "CSR row starts, terms + 1 values"),
        col("documents", INTS, "CSR columns, ascending within a row"),
        col("counts", INTS, "Occurrences of the term in the document"),
        col("lengths", INTS, "Tokens of each document"),
    ),
    spec(
        "cues",
        1,
        "What messages give away without regard to their subject; one row an interaction, in the same order.",
        CASE,
        col("values", FLOATS, "transforms.cues.MESSAGE_CUES"),
    ),
    spec(
        "candidates",
        1,
        "What a router learns from; one row a question with gold.",
        CASE,
        col("question_id", ID, "Question"),
        col("gates", FLOATS, "What weights depend on (indexers.methods.learned.GATES)"),
        col("features", FLOATS, "Features of each candidate, candidate by candidate"),
        col("relevant", CODES, "Per candidate: 1 where it is gold"),
        col("corrections", FLOATS, "Per candidate: ln of how many documents it stands for"),
    ),
    spec(
        "router",
        1,
        "What a router learned; one row a fold. Weights of a fold were learned on the cases of all others.",
        col("fold", pa.int32(), "Number from 0; -1 for the weights learned on all cases"),
        col("cases", STRINGS, "Cases that are ranked by these weights"),
        col("features", STRINGS, "Names of the features"),
        col("gates", STRINGS, "Names of the gates"),
        col("weights", pa.list_(pa.field("element", pa.float64(), nullable=False)), "features x (1 + gates)"),
        col("middle", pa.list_(pa.field("element", pa.float64(), nullable=False)), "Of each gate"),
        col("spread", pa.list_(pa.field("element", pa.float64(), nullable=False)), "Of each gate"),
        col("questions", pa.int32(), "Questions learned from"),
    ),
    spec(
        "vectors",
        2,
        "Dense vectors of unit length (all zeros for a text without words), in the order of what they stand for.",
        CASE,
        col("kind", NAME, "What the vector stands for: interaction, chunk, question, or a node kind"),
        col("key", ID, "Id within that kind"),
        col("content_hash", ID, "xxh3-128 of the text that was embedded; equal texts have equal vectors"),
        col("vector", FLOATS, "The vector; with embed.dtype float16 its values are those of float16"),
    ),
)

TABLES: Mapping[str, TableSpec] = {spec.name: spec for spec in (*_SPECS, *MEASURED)}


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
