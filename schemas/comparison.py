"""The tables of a comparison of two generations, A and B; `tagloom compare --to` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from schemas.errors import SchemaError

_NAME = pa.dictionary(pa.int32(), pa.string())
_NUMBER = pa.float64()
_COUNT = pa.int64()
_STRINGS = pa.list_(pa.field("element", pa.string(), nullable=False))


def _field(name: str, kind: pa.DataType, doc: str, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"doc": doc})


_TEST = (
    _field("low", _NUMBER, "Lower end of the paired 95 % interval; null with fewer than two cases", null=True),
    _field("high", _NUMBER, "Upper end of the paired 95 % interval; null with fewer than two cases", null=True),
)
_P = (
    _field("p_value", _NUMBER, "Two-sided sign-flip p-value by case", null=True),
    _field("p_holm", _NUMBER, "The same, Holm-corrected over the presets of one metric", null=True),
)

SCHEMAS: Mapping[str, pa.Schema] = {
    "summary": pa.schema(
        [
            _field("section", _NAME, "interactions, notes, tags, agreement, graph, metrics, questions or cost"),
            _field("name", _NAME, "What the figure is"),
            _field("scope", _NAME, "Field, status, graph or preset that it is about; empty where it is about all"),
            _field("a", _NUMBER, "Value in A; null where A has none", null=True),
            _field("b", _NUMBER, "Value in B; null where B has none", null=True),
            _field("both", _NUMBER, "Value of figures about A and B together, such as agreement", null=True),
            _field("difference", _NUMBER, "b - a", null=True),
            *_TEST,
            *_P,
        ]
    ),
    "tags": pa.schema(
        [
            _field("field", _NAME, "Field of the note"),
            _field("tag", pa.string(), "The tag"),
            _field("uses_a", _COUNT, "Notes of A with this tag in this field"),
            _field("uses_b", _COUNT, "Notes of B with this tag in this field"),
            _field("difference", _COUNT, "uses_b - uses_a"),
            _field("cases_a", _COUNT, "Cases of A with such a note"),
            _field("cases_b", _COUNT, "Cases of B with such a note"),
        ]
    ),
    "metrics": pa.schema(
        [
            _field("retriever", _NAME, "Preset"),
            _field("level", _NAME, "interaction or session"),
            _field("metric", _NAME, "mrr, recall@5, recall@10, ndcg@10"),
            _field("mean_a", _NUMBER, "Mean over the questions that both have, in A"),
            _field("mean_b", _NUMBER, "The same, in B"),
            _field("difference", _NUMBER, "mean_b - mean_a"),
            *_TEST,
            _field("effect", _NUMBER, "Mean case difference over its standard deviation", null=True),
            *_P,
            _field("questions", _COUNT, "Questions compared"),
            _field("cases", _COUNT, "Cases compared"),
        ]
    ),
    "questions": pa.schema(
        [
            _field("retriever", _NAME, "Preset"),
            _field("level", _NAME, "interaction or session"),
            _field("case_id", _NAME, "Case of the question"),
            _field("question_id", _NAME, "Question, unique within the case"),
            _field("question_type", _NAME, "Type of the question"),
            _field("question", _NAME, "The question's text"),
            _field("mrr_a", _NUMBER, "1 / rank_a; 0 where no gold was found"),
            _field("mrr_b", _NUMBER, "1 / rank_b; 0 where no gold was found"),
            _field("difference", _NUMBER, "mrr_b - mrr_a"),
            _field("rank_a", pa.int32(), "Best rank of the gold in A, null where none was found", null=True),
            _field("rank_b", pa.int32(), "Best rank of the gold in B, null where none was found", null=True),
            _field("gold_ids", _STRINGS, "Gold interactions (level interaction) or sessions (level session)"),
            _field("gold_text", _NAME, "Text of the first gold interaction, cut; empty at level session"),
            _field("first_a", _NAME, "Interaction that A ranked first; null where it found nothing", null=True),
            _field("first_a_text", _NAME, "Its text, cut", null=True),
            _field("first_b", _NAME, "Interaction that B ranked first; null where it found nothing", null=True),
            _field("first_b_text", _NAME, "Its text, cut", null=True),
        ]
    ),
}
"""Table -> its fields, each with what it holds."""


def build(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Make a table of a comparison from columns (Arrow arrays or lists), cast to the schema's types.

    Raises:
        SchemaError: A column does not cast, or has nulls where none may be.
    """
    arrays = []
    for field in SCHEMAS[name]:
        try:
            arrays.append(_cast(columns[field.name], field.type))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise SchemaError(f"column does not fit {field.type}: {error}", where=f"{name}.{field.name}") from error
        if arrays[-1].null_count and not field.nullable:
            raise SchemaError(f"{arrays[-1].null_count} null values", where=f"{name}.{field.name}")
    return pa.Table.from_arrays(arrays, schema=SCHEMAS[name])


def _cast(values: Any, kind: pa.DataType) -> Any:
    coded = pa.types.is_dictionary(kind)
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(values, kind.value_type if coded else kind)
    if values.type == kind:
        return values
    if not coded:
        return values.cast(kind)
    return values.cast(pa.string()).dictionary_encode()
