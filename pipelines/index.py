"""Stage index: postings of interactions and notes, matrices and tag postings of each graph, on Ray.

Three kinds of unit, so that a change makes only what it touches: ``index/raw`` reads interactions alone, ``index/note``
adds what an extractor said to the counts of ``index/raw`` (the texts are not read again), ``index/GRAPH`` reads one
graph. A vocabulary begins with that of the unit before it, so that term ids agree between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexers import postings as lists
from indexers.csr import matrices
from indexers.queries import numbered
from indexers.traversal import tag_texts
from pipelines.stage import Inputs, Output, Stage, Unit
from schemas.config import RunConfig
from schemas.tables import NOTE_FIELDS
from transforms.interactions import full_text
from transforms.tokens import VERSION as TOKENS_VERSION
from transforms.tokens import tokenize

Ints = npt.NDArray[np.int64]


def units(config: RunConfig) -> list[Unit]:
    """Units raw, note, and one a graph kind."""
    settings = {**config.index.model_dump(mode="json"), "tokens": TOKENS_VERSION}
    text = ("vocabulary", "postings")
    return [
        Unit("index/raw", settings, ("ingest",), text),
        Unit("index/note", settings, ("index/raw", "extract"), text),
        *(
            Unit(f"index/{kind}", settings, ("index/note", f"graph/{kind}"), ("matrices", *text))
            for kind in config.graph.kinds
        ),
    ]


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Index one shard for one unit."""
    (unit,) = wanted
    field = unit.name.partition("/")[2]
    if field == "raw":
        return [_raw(inputs)]
    if field == "note":
        return [_note(inputs)]
    return [_graph(inputs, field)]


def _raw(inputs: Inputs) -> Output:
    interactions = inputs.table("ingest", "interactions", ["case_id", "user_text", "assistant_text"])
    cases, offsets = case_offsets(interactions)
    tokens = tokenize(full_text(interactions))
    counted = lists.build_postings(tokens, offsets)
    return _output(lists.to_table(counted, cases, "raw"), tokens.terms)


def _note(inputs: Inputs) -> Output:
    raw = inputs.table("index/raw", "postings")
    known = inputs.table("index/raw", "vocabulary")
    notes = inputs.table("extract", "notes", ["case_id", *NOTE_FIELDS, "summary"])
    cases, offsets = case_offsets(notes)
    tokens = numbered(known, tokenize(note_text(notes)))
    both = lists.add_postings(lists.from_table(raw, "raw"), lists.build_postings(tokens, offsets))
    return _output(lists.to_table(both, cases, "note"), tokens.terms)


def _graph(inputs: Inputs, kind: str) -> Output:
    nodes = inputs.table(f"graph/{kind}", "nodes")
    made = matrices(nodes, inputs.table(f"graph/{kind}", "edges"))
    cases = made["case_id"].cast(pa.string()).combine_chunks()
    texts, owners = tag_texts(nodes, kind)
    offsets = np.searchsorted(pc.index_in(owners, value_set=cases).to_numpy(), np.arange(len(cases) + 1))
    tokens = numbered(inputs.table("index/note", "vocabulary"), tokenize(texts))
    counted = lists.build_postings(tokens, offsets)
    out = _output(lists.to_table(counted, cases.to_pylist(), "tag"), tokens.terms)
    return Output({"matrices": made, **out.tables})


def _output(postings: pa.Table, terms: pa.Array) -> Output:
    return Output({"vocabulary": lists.vocabulary_table(terms), "postings": postings})


def case_offsets(table: pa.Table) -> tuple[list[str], Ints]:
    """Return the cases of a table whose rows stand case by case, and (cases + 1,) where each begins."""
    coded = table["case_id"].combine_chunks()
    codes = coded.indices.to_numpy()
    starts = np.flatnonzero(np.diff(codes, prepend=-1)) if len(codes) else np.zeros(0, dtype=np.int64)
    names = coded.dictionary.take(pa.array(codes[starts])).to_pylist()
    return names, np.append(starts, len(codes)).astype(np.int64)


def note_text(notes: pa.Table) -> pa.ChunkedArray:
    """Return what each note adds to its interaction's text: its tags, as words, and its summary."""
    tags = (pc.binary_join(notes[name].cast(pa.list_(pa.string())), " ") for name in NOTE_FIELDS)
    # To a word tokenizer "_" is a letter: "software_engineering" would be one word.
    words = [pc.replace_substring(column, "_", " ") for column in tags]
    return pc.binary_join_element_wise(*words, notes["summary"], " ")


STAGE = Stage("index", 1, "ray", units, process)
