"""Stage index: postings of interactions and notes, matrices and tag postings of each graph, on Ray.

Several kinds of unit, so that a change makes only what it touches: ``index/raw`` reads interactions alone,
``index/note`` adds what an extractor said to the counts of ``index/raw``, ``index/stem`` counts stems in place of its
words (the texts are not read again), ``index/chunk`` reads pieces of interactions, ``index/GRAPH`` reads one graph.
Stems and chunks are made where a preset reads them. The vocabularies of raw, note and a graph begin each with that of
the unit before, so that term ids agree between them.
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
from indexers.regroup import with_terms
from indexers.traversal import searched_texts
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.wanted import graph_kinds, needed
from schemas.config import RunConfig
from schemas.tables import NOTE_FIELDS, build
from transforms import graphs
from transforms.chunks import VERSION as CHUNKS
from transforms.chunks import chunks
from transforms.cues import VERSION as CUES
from transforms.cues import message_cues
from transforms.interactions import full_text
from transforms.stems import VERSION as STEMS_VERSION
from transforms.stems import check_language, stem_terms, stemmed
from transforms.tokens import VERSION as TOKENS_VERSION
from transforms.tokens import tokenize

Ints = npt.NDArray[np.int64]


def units(config: RunConfig) -> list[Unit]:
    """Units raw, note, stem and chunk where they are read, and one a graph kind."""
    check_language(config.index.language)
    settings = {"tokenizer": config.index.tokenizer, "tokens": TOKENS_VERSION}
    stems = {"language": config.index.language, "stems": STEMS_VERSION}
    text = ("vocabulary", "postings")
    read = needed(config)
    return [
        Unit("index/raw", settings, ("ingest",), text),
        Unit("index/note", settings, ("index/raw", "extract"), text),
        *([Unit("index/stem", stems, ("index/raw",), text)] if "index/stem" in read else []),
        *([Unit("index/user", settings | stems, ("ingest",), text)] if "index/user" in read else []),
        *([Unit("index/cues", {"cues": CUES}, ("ingest",), ("cues",))] if "index/cues" in read else []),
        *([Unit("index/chunk", {**settings, "chunks": CHUNKS}, ("ingest",), text)] if "index/chunk" in read else []),
        *(
            Unit(f"index/{kind}", settings, ("index/note", f"graph/{kind}"), ("matrices", *text))
            for kind in graph_kinds(config)
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
    if field == "stem":
        return [_stem(inputs, unit.config["language"])]
    if field == "user":
        return [_user(inputs, unit.config["language"])]
    if field == "cues":
        return [_cues(inputs)]
    if field == "chunk":
        return [_chunk(inputs)]
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


def _stem(inputs: Inputs, language: str) -> Output:
    terms = inputs.table("index/raw", "vocabulary")["term"].combine_chunks()
    coded = stem_terms(terms, language).dictionary_encode()
    renamed = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    raw = inputs.table("index/raw", "postings")
    counted = with_terms(lists.from_table(raw, "raw"), renamed)
    cases = raw["case_id"].cast(pa.string()).combine_chunks()
    return _output(lists.to_table(counted, cases, "stem"), coded.dictionary)


def _user(inputs: Inputs, language: str) -> Output:
    interactions = inputs.table("ingest", "interactions", ["case_id", "user_text"])
    cases, offsets = case_offsets(interactions)
    tokens = stemmed(tokenize(interactions["user_text"]), language)
    return _output(lists.to_table(lists.build_postings(tokens, offsets), cases, "user"), tokens.terms)


def _cues(inputs: Inputs) -> Output:
    interactions = inputs.table("ingest", "interactions", ["case_id", "user_text", "assistant_text"])
    values = message_cues(interactions)
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * values.shape[1])
    rows = pa.ListArray.from_arrays(offsets, pa.array(values.ravel()))
    return Output({"cues": build("cues", {"case_id": interactions["case_id"], "values": rows})})


def _chunk(inputs: Inputs) -> Output:
    rows = chunks(inputs.table("ingest", "interactions", ["case_id", "interaction_id", "user_text", "assistant_text"]))
    cases, offsets = case_offsets(rows)
    tokens = tokenize(rows["text"])
    return _output(lists.to_table(lists.build_postings(tokens, offsets), cases, "chunk"), tokens.terms)


def _graph(inputs: Inputs, kind: str) -> Output:
    nodes = inputs.table(f"graph/{kind}", "nodes")
    made = matrices(nodes, inputs.table(f"graph/{kind}", "edges"))
    cases = made["case_id"].cast(pa.string()).combine_chunks()
    texts, owners = searched_texts(nodes, graphs.load(kind).SEARCHED)
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
