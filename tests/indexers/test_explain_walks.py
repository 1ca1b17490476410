"""Explanations of PageRank: paths against hand-worked values, direct solutions, and a walk over all paths at once."""

import numpy as np
import pytest
import scipy

from indexers import ppr
from indexers.csr import Graphs
from indexers.explain import Edge, walks
from indexers.explain.diffusion import explain_walk
from indexers.explain.walks import decompose
from tests.indexers.test_ppr import direct, make, seeds


def steps(nodes, edges, alpha):
    """The matrix alpha P of (source, target, weight) edges; edges of the same ends stay apart."""
    out = np.zeros(nodes)
    for source, _, weight in edges:
        out[source] += weight
    data = [alpha * weight / out[source] for source, _, weight in edges]
    ends = ([e[0] for e in edges], [e[1] for e in edges])
    return scipy.sparse.csr_array((data, ends), shape=(nodes, nodes))


def vector(nodes, start):
    weights = np.zeros(nodes)
    weights[list(start)] = list(start.values())
    return weights / weights.sum()


A, B, C, F = range(4)
WORKED = [(A, B, 1), (B, C, 1), (B, F, 1), (C, B, 1), (C, F, 1)]


def test_the_worked_example_of_the_documentation():
    # y = (1, 8/15, 2/15, 1/6) sums to 11/6, so the score of f is 1/11. Of the walks from a to f, those with the path
    # a b f have 1/2 * 16/15 * 1/4 = 2/15, where 16/15 = 1 / (1 - 1/16) is b c b any number of times; a b c f has
    # 1/2 * 16/15 * 1/4 * 1/4 = 1/30.
    found = decompose(steps(4, WORKED, 0.5), vector(4, {A: 1}), F, 10)
    assert found.score == pytest.approx(1 / 11)
    assert [branch.nodes for branch in found.paths] == [(A, B, F), (A, B, C, F)]
    assert [branch.value for branch in found.paths] == pytest.approx([4 / 55, 1 / 55])
    assert found.paths[0].along == pytest.approx((1 / 11, 1 / 11, 4 / 55))
    assert found.paths[1].along == pytest.approx((1 / 11, 1 / 11, 1 / 55, 1 / 55))
    assert (found.beginnings, found.sources) == ((), 4)


def test_what_is_not_followed_is_told_by_its_beginnings():
    found = decompose(steps(4, WORKED, 0.5), vector(4, {A: 1}), F, 1)
    assert [(branch.nodes, branch.value) for branch in found.beginnings] == [((A, B, C), pytest.approx(1 / 55))]
    none = decompose(steps(4, WORKED, 0.5), vector(4, {A: 1}), F, 0)
    assert [(branch.nodes, branch.value) for branch in none.beginnings] == [((A,), pytest.approx(1 / 11))]
    coarse = decompose(steps(4, WORKED, 0.5), vector(4, {A: 1}), F, 10, floor=0.5)
    assert [branch.nodes for branch in coarse.paths] == [(A, B, F)]
    assert coarse.rest == pytest.approx(1 / 55)


def random_graphs(number, most_nodes, rng):
    """Small graphs with everything awkward: dangling and isolated nodes, self loops, parallel edges, no seeds."""
    for _ in range(number):
        nodes = int(rng.integers(1, most_nodes + 1))
        ends = rng.integers(0, nodes, (int(rng.integers(0, 3 * nodes + 1)), 2)).tolist()
        edges = [(s, t, float(w)) for (s, t), w in zip(ends, rng.choice([0.5, 1, 3], len(ends)), strict=True)]
        chosen = rng.permutation(nodes)[: int(rng.integers(0, 5))].tolist()
        start = {n: float(w) for n, w in zip(chosen, rng.choice([0.0, 1.0, 2.5], len(chosen)), strict=True)}
        yield nodes, edges, start, float(rng.choice([0.2, 0.5, 0.85])), int(rng.integers(0, nodes))


def test_paths_sum_to_the_direct_solution_on_a_thousand_graphs():
    scored = 0
    for nodes, edges, start, alpha, target in random_graphs(1000, 12, np.random.default_rng(11)):
        graphs = make((nodes, edges))
        walk, begin = ppr.walk(graphs), seeds(graphs, (0, start))
        expected = direct(nodes, edges, start, alpha)[target] if sum(start.values()) else 0.0
        told = explain_walk(walk, "g", begin, {}, 0, target, expected, alpha, paths=10**6)
        assert abs(sum(part.value for part in told.parts) - expected) < 1e-6
        assert abs(told.remainder) < 1e-12
        # All paths have been found: but for the thinnest, nothing is left over.
        assert sum(part.value for part in told.parts if part.kind == "path") == pytest.approx(expected, rel=1e-3)
        assert bool(told.remarks) == (expected == 0)
        scored += expected > 0
    assert scored > 400


def loop_erased(step, start, target):
    """Weight of all walks to a target by path: a walk over the paths themselves, cut back at every detour."""
    weights = {(int(node),): float(w) for node, w in enumerate(start) if w}
    found = {}
    while weights:
        following = {}
        for path, weight in weights.items():
            if path[-1] == target:
                found[path] = found.get(path, 0.0) + weight
            for node in np.flatnonzero(step[path[-1]]).tolist():
                on = path[: path.index(node) + 1] if node in path else (*path, node)
                following[on] = following.get(on, 0.0) + weight * float(step[path[-1], node])
        weights = {path: weight for path, weight in following.items() if weight > 1e-14}
    return found


def test_every_path_has_the_weight_of_its_walks():
    compared = 0
    for nodes, edges, start, _, target in random_graphs(300, 6, np.random.default_rng(2)):
        if not sum(start.values()):
            continue
        step = steps(nodes, edges, 0.5)
        weights = vector(nodes, start)
        scale = np.linalg.solve(np.eye(nodes) - step.toarray().T, weights).sum()
        expected = loop_erased(step.toarray(), weights, target)
        found = decompose(step, weights, target, 10**6, floor=0)
        assert {branch.nodes for branch in found.paths} >= set(expected)
        for branch in found.paths:
            assert branch.value * scale == pytest.approx(expected.get(branch.nodes, 0.0), abs=1e-11)
            begun = sum(w for path, w in expected.items() if path[:2] == branch.nodes[:2])
            assert branch.along[min(1, len(branch.along) - 1)] * scale == pytest.approx(begun, abs=1e-11)
            compared += 1
        values = [branch.value for branch in found.paths]
        assert values == pytest.approx(sorted(values, reverse=True), rel=1e-8)
    assert compared > 200


def test_a_hub_of_ten_thousand_neighbours():
    # From leaf 1 over the hub to leaf 2: circles hub - leaf - hub have weight alpha**2 together, those at leaf 1 come
    # back over the hub alone. One path; with every leaf a seed, as many paths as leaves, all alike but one.
    spokes = 10_000
    edges = [e for leaf in range(1, spokes + 1) for e in ((0, leaf, 1.0), (leaf, 0, 1.0))]
    step = steps(spokes + 1, edges, 0.85)
    one = decompose(step, vector(spokes + 1, {1: 1}), 2, 5)
    assert [branch.nodes for branch in one.paths] == [(1, 0, 2)]
    assert one.paths[0].value == pytest.approx((1 - 0.85) * 0.85**2 / spokes / (1 - 0.85**2), rel=1e-9)
    assert one.paths[0].value == pytest.approx(one.score, rel=1e-9)
    every = decompose(step, np.append(0.0, np.full(spokes, 1 / spokes)), 2, 5)
    assert every.paths[0].nodes == (2,)
    assert len(every.paths) == 5
    known = [branch.value for branch in (*every.paths, *every.beginnings)]
    assert len(known) == spokes
    assert sum(known) + every.rest == pytest.approx(every.score, rel=1e-12)


def test_work_is_bounded_and_nothing_is_lost(monkeypatch):
    edges = [(s, t, 1.0) for s in range(12) for t in range(12)]
    whole = decompose(steps(12, edges, 0.85), vector(12, {0: 1}), 11, 10**6, floor=1e-3)
    monkeypatch.setattr(walks, "_WORK", 0)
    part = decompose(steps(12, edges, 0.85), vector(12, {0: 1}), 11, 10**6, floor=1e-3)
    assert 0 < len(part.paths) < len(whole.paths)
    assert [b.nodes for b in part.paths] == [b.nodes for b in whole.paths[: len(part.paths)]]
    known = [branch.value for branch in (*part.paths, *part.beginnings)]
    assert sum(known) + part.rest == pytest.approx(part.score)


def test_a_seed_explains_itself():
    found = decompose(steps(2, [(0, 1, 1), (1, 0, 1)], 0.5), vector(2, {0: 1}), 0, 3)
    # Circles over node 1 belong to the path that begins, and ends, in node 0: 1 / (1 - 1/4) of y, which sums to 2.
    assert [(b.nodes, b.value) for b in found.paths] == [((0,), pytest.approx(2 / 3))]


def test_steps_that_do_not_end_are_refused():
    with pytest.raises(ValueError, match="not below 1"):
        decompose(steps(2, [(0, 1, 1), (1, 0, 1)], 1.0), vector(2, {0: 1}), 0, 3)


EDGES = [(0, 1, 1.0), (0, 1, 2.0), (0, 2, 1.0), (1, 2, 1.0)]


def explained(start, target, alpha=0.5, **options):
    graphs = make((4, EDGES), kinds=[0, 1, 0, 1])
    chosen = {"without": options.get("without", ()), "undirected": options.get("undirected", False)}
    factors = dict.fromkeys(chosen["without"], 0.0)
    walk, begin = ppr.walk(graphs, factors, undirected=chosen["undirected"]), seeds(graphs, (0, start))
    scores, _ = ppr.personalized_pagerank(walk, begin, alpha)
    score = float(scores.values[target])
    return explain_walk(walk, "g", begin, {0: ("word",)}, 0, target, score, alpha, paths=9, **chosen)


def test_steps_name_their_edges():
    told = explained({0: 1}, 2)
    longer = told.parts[0]
    assert (longer.words, longer.facts) == (("word",), (("share of the seeds", 1.0),))
    assert [(s.node, s.edges) for s in longer.steps] == [
        (0, ()),
        (1, (Edge("edge"), Edge("other"))),
        (2, (Edge("other"),)),
    ]
    # Out of node 0 three quarters go to 1: 3/4 * 1/2 * 1/2, against 1/4 * 1/2 straight.
    assert longer.value / told.parts[1].value == pytest.approx(1.5)
    assert abs(told.remainder) < 1e-8
    assert explained({0: 1}, 2, without=("edge",)).parts[0].steps[1].edges == (Edge("other"),)
    back = explained({2: 1}, 0, undirected=True).parts[0]
    assert back.steps[-1].edges == (Edge("edge", against=True),)


@pytest.mark.parametrize(
    ("start", "target", "alpha", "says"),
    [
        ({}, 1, 0.5, "nothing in the case is a seed"),
        ({0: 0.0}, 1, 0.5, "nothing in the case is a seed"),
        ({2: 1.0}, 1, 0.5, "no path leads there from the 1 seeds"),
        ({0: 1.0}, 3, 0.5, "from 0 other nodes"),
        ({0: 1.0}, 1, 0.0, "does not go on"),
    ],
)
def test_why_a_score_is_zero(start, target, alpha, says):
    told = explained(start, target, alpha)
    assert (told.score, told.parts, told.remainder) == (0, (), 0)
    assert says in told.remarks[0]


def test_nodes_of_a_part_are_told_by_the_numbers_of_the_whole():
    graphs = make((3, [(0, 1, 1.0), (1, 2, 1.0)]))
    told = explain_walk(
        ppr.walk(graphs),
        "g",
        seeds(graphs, (0, {1: 1})),
        {},
        0,
        2,
        0.25,
        0.5,
        numbers=np.array([7, 5, 9]),
        leads={1: (0, "names")},
    )
    # Node 0, told as 7, made node 1 a seed and is not on the walk itself.
    assert [(s.node, s.edges) for s in told.parts[0].steps] == [(7, ()), (5, (Edge("names"),)), (9, (Edge("edge"),))]
    assert [s.value is None for s in told.parts[0].steps] == [True, False, False]


def test_what_hubs_withhold_goes_back_to_the_seeds():
    # Node 0 has four neighbours and passes on half: 1/8 of alpha to each. y = (1, 1/16 * 4), which sums to 5/4.
    graphs = make((5, [(0, leaf, 1.0) for leaf in range(1, 5)]))
    walk, begin = ppr.walk(graphs, hub_above=2), seeds(graphs, (0, {0: 1}))
    scores, _ = ppr.personalized_pagerank(walk, begin, 0.5)
    told = explain_walk(walk, "g", begin, {}, 0, 3, float(scores.values[3]), 0.5)
    assert [part.value for part in told.parts] == [pytest.approx(1 / 16 / (5 / 4))]
    assert abs(told.remainder) < 1e-8


def test_another_case_of_the_shard_is_not_looked_at():
    graphs = make((3, [(0, 1, 1.0), (1, 2, 1.0)]), (4, EDGES))
    assert isinstance(graphs, Graphs)
    walk, begin = ppr.walk(graphs), seeds(graphs, (0, {0: 1}), (1, {0: 1}))
    scores, _ = ppr.personalized_pagerank(walk, begin, 0.5)
    second = explain_walk(walk, "g", begin, {}, 1, 3 + 2, float(scores.values[3 + 2]), 0.5, paths=9)
    assert [part.steps[-1].node for part in second.parts] == [2, 2]
    assert abs(second.remainder) < 1e-8
