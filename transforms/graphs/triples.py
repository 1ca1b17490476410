"""HippoRAG 2 style graph: passages, the phrases of their open triples, and the triples themselves.

Nodes of a case, numbered in this order:

- ``file``: one an interaction (a passage), by position; the key is the interaction id.
- ``phrase``: subjects and objects, by first mention; near-duplicates are merged (`transforms.merging`).
- ``triple``: one a distinct triple of phrases and predicate (compared in small letters), by first mention. The key is
  ``SUBJECT | PREDICATE | OBJECT`` as first stated, the text the three in a row.

Edges, directed:

- ``contains``: file to the phrases of its triples; weight 1.
- ``relation``: subject to object; weight = statements of triples between the two, the first of which it names.
- ``subject``, ``object``: triple to its phrases; weight 1.
- ``source``: triple to the files that state it; weight 1.

HippoRAG's walk goes over ``contains`` and ``relation`` in both directions; triples serve to find seeds. Its synonym
edges come from vectors and are no part of the table.

Without `triples`, the tags of the notes stand in as phrases, with ``contains`` alone; the key is the tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.graphs._assembly import Assembly, Embed, Merging, Named, distinct, named, numbered
from transforms.graphs._built import Built, Ints, codes, plain, shard, visible
from transforms.graphs._notes import mentions, titles
from transforms.merging import RULES, Level, Merged, folded, preference, survivors

NAME = "triples"
VERSION = 1
INPUTS = ("interactions", "notes", "triples")
SEARCHED = ("phrase",)

FIELDS = {"who": "person", "what": "topic", "when": "time", "where": "place", "why": "reason", "extra": "thing"}
"""Fields of notes that stand in for phrases; their names do not show."""


class Options(Merging):
    """Options of the graph kind `triples`."""


def build(tables: Mapping[str, pa.Table], options: Options, embed: Embed | None = None) -> Built:
    """Build the graphs of all cases of a shard.

    Triples of interactions that the shard does not have, or without one of their parts, are left out.

    Raises:
        SchemaError: The rows of a case do not stand together.
    """
    rows = shard(tables["interactions"], tables["notes"])
    graph = Assembly(NAME, rows)
    triples = tables["triples"]
    if not triples.num_rows:
        tags = mentions(tables["notes"], FIELDS)
        found = named(rows.case[tags.row], tags.title, options, embed, tags.people)
        graph.edges("contains", tags.row, graph.named("phrase", found, titles(found.titles)), tags.row)
        return graph.built()

    row = rows.rows_of(rows.cases_of(triples["case_id"]), plain(triples["interaction_id"]))
    parts = [plain(triples[name]) for name in ("subject", "predicate", "object")]
    kept = pa.array((row >= 0) & visible(parts[0]) & visible(parts[1]) & visible(parts[2]))
    row = row[kept.to_numpy(zero_copy_only=False)]
    subject, predicate, end = (part.filter(kept) for part in parts)
    both = np.repeat(row, 2)
    turns = pa.array(np.arange(2 * len(row)).reshape(2, -1).T.ravel())  # each subject before its object
    found = named(rows.case[both], pa.concat_arrays([subject, end]).take(turns), options, embed)
    phrase = graph.named("phrase", found)
    source, target = phrase[::2], phrase[1::2]
    statements, texts = _statements(found, rows.case[row], (subject, predicate, end), options.merge)
    triple = graph.named("triple", statements, texts)

    graph.edges("contains", both, phrase, both)
    graph.edges("relation", source, target, row, counted=True)
    graph.edges("subject", triple, source, row)
    graph.edges("object", triple, target, row)
    graph.edges("source", triple, row, row)
    return graph.built()


def _statements(found: Named, case: Ints, parts: Sequence[pa.Array], level: Level) -> tuple[Named, pa.Array]:
    """Make one node of the statements whose phrases are the same nodes and whose predicates are alike.

    Args:
        found: Phrases: subject and object of each statement.
        case: Case of each statement.
        parts: Its subject, predicate and object.
        level: How far to merge. Predicates are merged by `exact` and `case` at most.

    Returns:
        The triples, and the text of each.
    """
    escaped = [pc.replace_substring(pc.replace_substring(part, "\\", "\\\\"), "|", "\\|") for part in parts]
    keys = pc.binary_join_element_wise(*escaped, " | ")
    form, first, count = distinct(case, codes(keys))
    forms, predicate = keys.take(pa.array(first)), parts[1].take(pa.array(first))
    exact, small = folded(predicate)
    alike = codes({"none": predicate, "exact": exact}.get(level, small))
    ends = found.form.reshape(-1, 2)[first].T
    label = np.unique(np.stack([*found.node[ends], alike]), axis=1, return_inverse=True)[1].reshape(-1)
    into = survivors(label, preference(forms, count))

    # Two triples are one by the laxest rule that any of their parts needs.
    rules = [found.rule[ends], found.rule[ends[:, into]], _predicate_rules(predicate, exact, into)[None]]
    rule = np.where(into == np.arange(len(into)), -1, np.concatenate(rules).max(axis=0))
    similarity = np.minimum(found.similarity[ends], found.similarity[ends[:, into]]).min(axis=0)
    texts = pc.binary_join_element_wise(*(part.take(pa.array(first)) for part in parts), " ")
    statements = numbered(form, case[first], forms, first, Merged(into, rule, similarity))
    return statements, texts.take(pa.array(statements.keys))


def _predicate_rules(predicate: pa.Array, exact: pa.Array, into: Ints) -> Ints:
    same, near = (
        pc.equal(part, part.take(pa.array(into))).to_numpy(zero_copy_only=False) for part in (predicate, exact)
    )
    rules: Ints = np.where(same, -1, np.where(near, RULES.index("exact"), RULES.index("case")))
    return rules
