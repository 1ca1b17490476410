"""Methods over graphs and vectors: hops, expansion, hipporag; against dense solutions and drawn graphs."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers import presets
from indexers.subgraphs import around
from schemas.errors import SchemaError
from tests.indexers.drawn import Case, batch, preset, scored, unit

NOTHING = Case([[1, 0]])


def at(degrees):
    """Return the direction at an angle: its cosine with (1, 0) is that of the angle."""
    return [np.cos(np.radians(degrees)), np.sin(np.radians(degrees))]


def cos(degrees):
    return np.cos(np.radians(degrees))


def pagerank(size, edges, start, alpha, *, hub_above=None):
    """Solve personalised PageRank on undirected edges as a dense system; what nodes withhold goes to the seeds."""
    m = np.zeros((size, size))
    for a, b, weight in edges:
        m[a, b] += weight
        m[b, a] += weight
    degree = (m > 0).sum(axis=1)
    total = m.sum(axis=1)
    if hub_above is not None:
        total = total * np.maximum(degree / hub_above, 1)
    m = m / np.where(total > 0, total, 1)[:, None]
    s = np.asarray(start, float) / np.sum(start)
    back = np.outer(1 - m.sum(axis=1), s)
    return np.linalg.solve(np.eye(size) - alpha * (m + back).T, (1 - alpha) * s)


# --- hops -------------------------------------------------------------------------------------------------------------


def entities(roots, edges, files=4):
    """A case of some files and entities at angles; edges by (entity, entity) and (entity, 'file n')."""
    number = {name: files + n for n, name in enumerate(roots)}
    drawn = [
        (number[a], int(b[4:]), "mentions", 1)
        if isinstance(b, str) and b.startswith("file")
        else (number[a], number[b], "relation:knows", 1)
        for a, b in edges
    ]
    return Case([[0, 1]] * files, nodes=[("entity", at(angle)) for angle in roots.values()], edges=drawn)


def hops(**spec):
    return preset(**{"method": "hops", "graph": "concept", **spec})


CHAIN = entities(
    {"a": 0, "b": 90, "c": 90, "d": 90, "e": 30},
    [
        ("a", "b"),
        ("c", "b"),
        ("c", "d"),
        ("a", "file0"),
        ("b", "file1"),
        ("c", "file2"),
        ("d", "file3"),
        ("e", "file2"),
    ],
)


def test_two_hops_in_either_direction_from_the_roots():
    # a is a root (cosine 1), e too (.866); b is one hop from a, c two, and d three.
    parts, stats = scored(hops(), batch({"a": CHAIN}, [("a", at(0))]))
    assert parts[0] == pytest.approx([1, 0.5, 0.25 + cos(30), 0], abs=1e-6)
    assert stats.no_seeds == 0
    assert scored(hops(hops=0), batch({"a": CHAIN}, [("a", at(0))]))[0][0] == pytest.approx(
        [1, 0, cos(30), 0], abs=1e-6
    )
    assert scored(hops(hops=3, decay=0.1), batch({"a": CHAIN}, [("a", at(0))]))[0][0] == pytest.approx(
        [1, 0.1, 0.01 + cos(30), 0.001], abs=1e-6
    )


def test_roots_have_a_floor_and_a_number():
    one = entities({"a": 0, "b": 20, "c": 40, "d": 41.5}, [(x, f"file{n}") for n, x in enumerate("abcd")])
    asked = batch({"a": one}, [("a", at(0)), ("a", at(200))])
    # cos 40 = .766, cos 41.5 = .749
    parts, stats = scored(hops(), asked)
    assert np.flatnonzero(parts[0]).tolist() == [0, 1, 2]
    assert not parts[1].any()
    assert stats.no_seeds == 1
    assert np.flatnonzero(scored(hops(roots=1), asked)[0][0]).tolist() == [0]
    assert np.flatnonzero(scored(hops(floor=0), asked)[0][0]).tolist() == [0, 1, 2, 3]
    own = presets.get("entity-2hop").options
    assert (own.graph, own.roots, own.floor, own.hops, own.nodes) == ("entity", 5, 0.75, 2, 15)


def test_a_node_has_the_best_score_that_leads_to_it_at_its_least_hops():
    # b is one hop from both roots; c is a root itself and not what a makes of it.
    one = entities({"a": 0, "c": 30, "b": 90}, [("c", "b"), ("a", "b"), ("a", "c"), ("b", "file0"), ("c", "file1")])
    assert scored(hops(), batch({"a": one}, [("a", at(0))]))[0][0] == pytest.approx([0.5, cos(30), 0, 0], abs=1e-6)


def test_at_most_fifteen_nodes_nearest_hops_first():
    # A root with 20 neighbours, each of which is in a file of its own.
    leaves = {f"n{n}": 90 for n in range(20)}
    one = entities(
        {"a": 0, **leaves}, [*(("a", leaf) for leaf in leaves), *((f"n{n}", f"file{n}") for n in range(20))], 20
    )
    parts, _ = scored(hops(), batch({"a": one}, [("a", at(0))]))
    assert parts[0].tolist() == [0.5] * 14 + [0] * 6
    assert np.count_nonzero(scored(hops(nodes=3), batch({"a": one}, [("a", at(0))]))[0][0]) == 2
    assert np.count_nonzero(scored(hops(nodes=1), batch({"a": one}, [("a", at(0))]))[0][0]) == 0


def test_hops_of_one_question_do_not_touch_another():
    other = entities({"x": 90, "y": 0}, [("x", "y"), ("y", "file0"), ("x", "file3")])
    asked = [("a", at(0)), ("b", at(90)), ("a", at(90)), ("b", at(0)), ("none", at(0))]
    cases = {"none": NOTHING, "b": other, "a": CHAIN}
    together, _ = scored(hops(), batch(cases, asked))
    for number, question in enumerate(asked):
        alone, _ = scored(hops(), batch({question[0]: cases[question[0]]}, [question]))
        assert alone[0].tolist() == together[number].tolist()
    assert together[4].tolist() == [0]


# --- expansion --------------------------------------------------------------------------------------------------------

GAAMA = {"next": 0.8, "derived_from": 0.8, "has_concept": 0.8, "about_concept": 0.8, "derived_from_fact": 0.5}


def random_concepts(seed, files=8, facts=6, concepts=5, reflections=2):
    """A random graph of GAAMA's kinds, sparse enough that two hops do not reach everything."""
    rng = np.random.default_rng(seed)
    fact, concept = files, files + facts
    reflection = concept + concepts
    edges = {(n, n + 1, "next") for n in range(files - 1) if n != files // 2}
    edges |= {(fact + n, int(rng.integers(files)), "derived_from") for n in range(facts)}
    edges |= {(n, concept + int(rng.integers(concepts)), "has_concept") for n in range(0, files, 2)}
    edges |= {(fact + n, concept + int(rng.integers(concepts)), "about_concept") for n in range(0, facts, 2)}
    edges |= {(reflection + n, fact + int(rng.integers(facts)), "derived_from_fact") for n in range(reflections)}
    nodes = [("fact", rng.normal(size=3)) for _ in range(facts)]
    nodes += [("concept", rng.normal(size=3)) for _ in range(concepts)]
    nodes += [("reflection", rng.normal(size=3)) for _ in range(reflections)]
    return Case([rng.normal(size=3) for _ in range(files)], nodes=nodes, edges=[(*edge, 1) for edge in edges])


def direct_gaama(case, question, *, top, hops, ppr, cosine, alpha, hub_above, weights=GAAMA):
    """GAAMA's score of every node, by dense matrices on the induced subgraph."""
    vectors = [unit(v).astype(float) for v in case.files] + [unit(v).astype(float) for _, v in case.nodes]
    near = np.maximum([vector @ unit(question).astype(float) for vector in vectors], 0)
    seeds = [n for n in sorted(range(len(near)), key=lambda n: -near[n])[:top] if near[n] > 0]
    edges = [(a, b, weight * weights[kind]) for a, b, kind, weight in case.edges if weights[kind]]
    whole = nx.Graph([(a, b) for a, b, _ in edges])
    whole.add_nodes_from(range(len(near)))
    inside = sorted(set().union(*(nx.ego_graph(whole, seed, hops).nodes for seed in seeds)))
    place = {node: n for n, node in enumerate(inside)}
    start = [near[node] if node in seeds else 0 for node in inside]
    kept = [(place[a], place[b], weight) for a, b, weight in edges if a in place and b in place]
    walked = pagerank(len(inside), kept, start, alpha, hub_above=hub_above)
    total = np.zeros(len(near))
    total[inside] = ppr * walked / walked.max() + cosine * near[inside] / near[inside].max()
    return total


def files_by_links(case, total):
    """A file has the best score of itself, of its facts, and of the reflections over these."""
    passed = total.copy()
    for kind in ("derived_from_fact", "derived_from"):
        for a, b, edge, _ in case.edges:
            if edge == kind:
                passed[b] = max(passed[b], passed[a])
    return passed[: len(case.files)]


@pytest.mark.parametrize(
    "numbers",
    [
        {"top": 3, "hops": 2, "ppr": 0.1, "cosine": 1.0, "alpha": 0.6, "hub_above": 50},
        {"top": 2, "hops": 1, "ppr": 1.0, "cosine": 0.5, "alpha": 0.85, "hub_above": None},
        {"top": 40, "hops": 2, "ppr": 1.0, "cosine": 0.0, "alpha": 0.6, "hub_above": 2},
        {"top": 1, "hops": 0, "ppr": 1.0, "cosine": 1.0, "alpha": 0.6, "hub_above": 1},
    ],
)
def test_gaama_equals_a_dense_solution_on_the_induced_subgraph(numbers):
    cases = {name: random_concepts(seed) for seed, name in enumerate("abc")}
    rng = np.random.default_rng(9)
    asked = [(name, rng.normal(size=3)) for name in "cabacb"]
    one = preset(
        base="gaama",
        graph="concept",
        seeds={"top": numbers["top"], "hops": numbers["hops"]},
        fusion={"ppr": numbers["ppr"], "cosine": numbers["cosine"]},
        diffusion={"alpha": numbers["alpha"], "tolerance": 1e-12},
        edges={"hub_above": numbers["hub_above"]},
    )
    parts, stats = scored(one, batch(cases, asked))
    assert stats.no_seeds == 0
    for (name, question), part in zip(asked, parts, strict=True):
        wanted = files_by_links(cases[name], direct_gaama(cases[name], question, **numbers))
        assert part == pytest.approx(wanted, abs=2e-6)


def gaama(name="gaama", **spec):
    return preset(base=name, graph="concept", **spec)


def test_a_fact_passes_its_score_on_and_a_reflection_through_it():
    # Of the three files none is like the question; a fact over file 1 is, and a reflection over the fact of file 2.
    case = Case(
        [at(90), at(90), at(90)],
        nodes=[("fact", at(30)), ("fact", at(90)), ("reflection", at(0)), ("concept", at(10))],
        edges=[(3, 1, "derived_from", 1), (4, 2, "derived_from", 1), (5, 4, "derived_from_fact", 1),
               (0, 6, "has_concept", 1)],
    )  # fmt: skip
    parts, _ = scored(gaama("gaama-semantic"), batch({"a": case}, [("a", at(0))]))
    assert parts[0] == pytest.approx([0, cos(30), 1], abs=1e-6)  # concepts pass nothing on
    silent, _ = scored(gaama("gaama-semantic", links=[]), batch({"a": case}, [("a", at(0))]))
    assert silent[0] == pytest.approx([0, 0, 0], abs=1e-6)


def test_without_pagerank_the_cosine_alone_decides():
    cases = {"a": random_concepts(4)}
    made = batch(cases, [("a", [1, 1, 0])])
    found = scored(gaama("gaama-semantic", links=[], seeds={"top": 1000}), made)[0][0]
    near = scored(presets.get("dense"), made)[0][0]
    # Divided by the best of all nodes, which is no file here.
    assert found / found.max() == pytest.approx(near / near.max(), abs=1e-12)


def hub(leaves):
    """Half of the files hang on one concept alone, one of them is like the question; two more stand for themselves."""
    edges = [(n, leaves + 2, "has_concept", 1) for n in range(leaves)] + [(leaves, leaves + 1, "next", 1)]
    return Case([at(0)] + [at(90)] * (leaves - 1) + [at(0), at(90)], nodes=[("concept", at(90))], edges=edges)


def test_dampening_takes_from_the_leaves_of_a_hub_what_is_worked_out():
    # A hub of degree 100 passes on 50/100 with a limit of 50. Seeds are file 0 (a leaf) and file 100, half each.
    # With h, x0, x (a leaf), p the solution up to scale: h = .6(x0 + 99x), x = .6 f h/100, x0 = .5 + x.
    case, leaves = hub(100), 100
    made = batch({"a": case}, [("a", at(0))])
    ratio = {}
    for name, f in (("gaama-ppr-1", 0.5), ("gaama-ppr-1-undampened", 1.0)):
        found = scored(gaama(name, fusion={"cosine": 0}, diffusion={"tolerance": 1e-12}), made)[0][0]
        h = 0.6 * 0.5 / (1 - 0.6 * 0.6 * f)
        x = 0.6 * f * h / leaves
        p = 0.5 / (1 - 0.6 * 0.6)  # the other seed, which has one neighbour that has none but it
        best = max(0.5 + x, h, p)
        assert found[1:100] == pytest.approx(np.full(99, x / best), rel=1e-7)
        assert found[0] == pytest.approx((0.5 + x) / best, rel=1e-7)
        assert found[100] == pytest.approx(p / best, rel=1e-7)
        ratio[name] = found[1] / found[100]
    assert ratio["gaama-ppr-1"] < 0.75 * ratio["gaama-ppr-1-undampened"]
    # At the limit nothing changes.
    same = [scored(gaama(name), batch({"a": hub(50)}, [("a", at(0))]))[0][0] for name in ("gaama", "gaama-undampened")]
    assert same[0].tolist() == same[1].tolist()


def test_a_kind_of_weight_zero_is_neither_walked_nor_expanded_over():
    case = Case([at(0), at(90), at(90)], edges=[(0, 1, "next", 1), (1, 2, "other", 1)])
    walked = gaama("gaama-ppr-1", edges={"weights": {"next": 0}})
    assert np.flatnonzero(scored(walked, batch({"a": case}, [("a", at(0))]))[0][0]).tolist() == [0]
    assert np.flatnonzero(scored(gaama("gaama-ppr-1"), batch({"a": case}, [("a", at(0))]))[0][0]).tolist() == [0, 1, 2]


# --- hipporag ---------------------------------------------------------------------------------------------------------


def triples(seed, passages=5, phrases=8, count=7):
    """Random passages, phrases and triples, some phrases nearly alike."""
    rng = np.random.default_rng(seed)
    said = [tuple(rng.choice(phrases, 2, replace=False).tolist()) for _ in range(count)]
    homes = [sorted(set(rng.integers(passages, size=2).tolist())) for _ in range(count)]
    first, third = passages, passages + phrases
    base = rng.normal(size=(phrases, 3))
    base[1::3] = base[0 : len(base[1::3])] + 0.1 * rng.normal(size=(len(base[1::3]), 3))
    edges = {}
    for n, ((s, o), home) in enumerate(zip(said, homes, strict=True)):
        edges[third + n, first + s, "subject"] = edges[third + n, first + o, "object"] = 1
        edges[first + s, first + o, "relation"] = edges.get((first + s, first + o, "relation"), 0) + len(home)
        for passage in home:
            edges[third + n, passage, "source"] = 1
            edges[passage, first + s, "contains"] = edges[passage, first + o, "contains"] = 1
    nodes = [("phrase", v) for v in base] + [("triple", rng.normal(size=3)) for _ in said]
    drawn = Case([rng.normal(size=3) for _ in range(passages)], nodes=nodes, edges=[(*k, w) for k, w in edges.items()])
    return drawn, said, homes, base


def direct_hipporag(drawn, question, *, top, passage, synonyms, alpha):
    """The formulas of HippoRAG 2 on dense matrices, from the statements themselves."""
    case, said, homes, base = drawn
    files, phrases = len(case.files), len(base)
    asked = unit(question).astype(float)
    edges = []
    for (s, o), home in zip(said, homes, strict=True):
        edges += [(files + s, files + o, 1.0)] * len(home)
    holds = {(p, x) for pair, home in zip(said, homes, strict=True) for p in home for x in pair}
    edges += [(p, files + x, 1.0) for p, x in holds]
    rows = [unit(row).astype(float) for row in base]
    edges += [
        (files + a, files + b, rows[a] @ rows[b])
        for a, b in combinations(range(phrases), 2)
        if rows[a] @ rows[b] >= synonyms
    ]
    near = [max(unit(v).astype(float) @ asked, 0) for kind, v in case.nodes if kind == "triple"]
    best = [n for n in sorted(range(len(near)), key=lambda n: -near[n])[:top] if near[n] > 0]
    given = {}
    for n in best:
        for x in said[n]:
            given.setdefault(x, []).append(near[n] / sum(1 for _, y in holds if y == x))
    start = np.zeros(files + phrases)
    for x, scores in given.items():
        start[files + x] = np.mean(scores)
    own = np.array([max(unit(v).astype(float) @ asked, 0) for v in case.files])
    start[:files] = passage * ((own - own.min()) / (own.max() - own.min()) if own.max() > own.min() else own > 0)
    return pagerank(files + phrases, edges, start, alpha)[:files] if start.any() else np.zeros(files)


@pytest.mark.parametrize(
    "numbers",
    [
        {"top": 5, "passage": 0.05, "synonyms": 0.8, "alpha": 0.5},
        {"top": 2, "passage": 1.0, "synonyms": 0.95, "alpha": 0.85},
        {"top": 0, "passage": 0.05, "synonyms": 1.0, "alpha": 0.5},
        {"top": 3, "passage": 0.0, "synonyms": 0.5, "alpha": 0.5},
    ],
)
def test_hipporag_equals_its_formulas_on_dense_matrices(numbers):
    drawn = {name: triples(seed) for seed, name in enumerate("abc")}
    rng = np.random.default_rng(5)
    asked = [(name, rng.normal(size=3)) for name in "cabbac"]
    one = preset(
        base="hipporag",
        graph="concept",
        seeds={"triples": numbers["top"], "passages": numbers["passage"]},
        synonyms=numbers["synonyms"],
        diffusion={"alpha": numbers["alpha"], "tolerance": 1e-12},
    )
    parts, _ = scored(one, batch({name: case for name, (case, *_) in drawn.items()}, asked))
    for (name, question), part in zip(asked, parts, strict=True):
        wanted = direct_hipporag(drawn[name], question, **numbers)
        # PageRank here is over all nodes; those of triples have nothing.
        assert part == pytest.approx(wanted, abs=1e-6)


def test_the_drawn_triples_have_synonyms():
    drawn = triples(0)
    rows = [unit(row) for row in drawn[3]]
    assert any(float(a @ b) >= 0.8 for a, b in combinations(rows, 2))


def test_a_synonym_carries_the_walk_to_a_passage_of_other_words():
    # The triple names phrase 2, which passage 0 holds; its synonym, phrase 3, stands in passage 1 alone.
    case = Case(
        [at(90), at(90), at(90)],
        nodes=[("phrase", at(0)), ("phrase", at(20)), ("phrase", at(90)), ("triple", at(0))],
        edges=[(0, 3, "contains", 1), (1, 4, "contains", 1), (2, 5, "contains", 1), (6, 3, "subject", 1),
               (6, 5, "object", 1), (6, 0, "source", 1)],
    )  # fmt: skip
    made = batch({"a": case}, [("a", at(0))])
    with_, without = (
        scored(preset(base="hipporag", graph="concept", seeds={"passages": 0}, synonyms=t), made)[0][0]
        for t in (0.9, 1)
    )
    assert with_[1] > 0
    assert without[1] == 0
    assert without[0] == pytest.approx(without[2])


# --- degenerate -------------------------------------------------------------------------------------------------------

KINDS = {
    "hops": {"method": "hops", "graph": "concept", "floor": 0},
    "expansion": {"base": "gaama", "graph": "concept"},
    "hipporag": {"base": "hipporag", "graph": "concept"},
}


@pytest.mark.parametrize("name", KINDS)
def test_cases_with_next_to_nothing(name):
    cases = {
        "no files": Case([]),
        "files alone": Case([[1, 0], [0, 1]]),
        "zeros": Case([[0, 0]], nodes=[("entity", [0, 0]), ("phrase", [0, 0]), ("triple", [0, 0])]),
        "all alike": Case([[1, 0]] * 3, nodes=[("fact", [1, 0])], edges=[(3, n, "derived_from", 1) for n in range(3)]),
    }
    asked = [(case, vector) for case in cases for vector in ([1, 0], [0, 0], [-1, 0]) if cases[case].files]
    parts, _ = scored(preset(**KINDS[name]), batch(cases, asked))
    for part in parts:
        assert (part >= 0).all()
    for number, question in enumerate(asked):
        alone, _ = scored(preset(**KINDS[name]), batch({question[0]: cases[question[0]]}, [question]))
        assert alone[0].tolist() == parts[number].tolist()
        # Nothing in common with the question, nothing retrieved.
        if not any(question[1]):
            assert not alone[0].any()
    alike = parts[-3].tolist()
    assert len(set(alike)) == 1
    assert alike[0] > 0


@pytest.mark.parametrize("name", KINDS)
def test_nodes_without_their_vectors_are_told(name):
    case = Case([[1, 0]], nodes=[("fact", [1, 0])])
    made = batch({"a": case}, [("a", [1, 0])])
    other = batch({"a": Case([[1, 0]])}, [("a", [1, 0])]).shard.table_of
    own = made.shard.table_of
    made.shard.table_of = lambda unit, table: other(unit, table) if unit == "embed/concept" else own(unit, table)
    with pytest.raises(SchemaError, match="vectors and nodes differ in number"):
        scored(preset(**KINDS[name]), made)


@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(1, 4))
@settings(max_examples=8, deadline=None)
def test_expansion_scores_are_the_same_alone_and_together(seed, hops, top):
    cases = {"x": random_concepts(seed), "y": random_concepts(seed + 1, files=3, facts=1, concepts=1, reflections=0)}
    one = preset(base="gaama", graph="concept", seeds={"top": top, "hops": hops})
    rng = np.random.default_rng(seed)
    asked = [(name, rng.normal(size=3)) for name in "xyx"]
    together, _ = scored(one, batch(cases, asked))
    for number, question in enumerate(asked):
        alone, _ = scored(one, batch({question[0]: cases[question[0]]}, [question]))
        assert alone[0].tolist() == together[number].tolist()


def test_the_graph_may_have_no_edge_that_is_kept():
    made = batch({"a": random_concepts(1)}, [("a", [1, 0, 0])])
    graphs = made.shard.graphs("concept")
    part = around(graphs, np.array([0]), np.array([2]), 1, 2, np.zeros(len(graphs.indices), bool))
    assert part.nodes.tolist() == [2]
