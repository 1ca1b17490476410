import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexers.csr import Graphs
from indexers.ppr import Seeds, personalized_pagerank, walk


def make(*cases, kinds=None):
    """Make graphs of (nodes, [(source, target, weight)]); all nodes are files."""
    sizes = [n for n, _ in cases]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    edges = sorted((s + starts[c], t + starts[c], w) for c, (_, edges) in enumerate(cases) for s, t, w in edges)
    source = np.array([e[0] for e in edges], np.int64)
    return Graphs(
        case_ids=tuple(map(str, range(len(cases)))),
        node_offsets=starts,
        node_kinds=np.zeros(starts[-1], np.int8),
        node_kind_names=("file",),
        file_offsets=starts,
        file_nodes=np.arange(starts[-1]),
        indptr=np.searchsorted(source, np.arange(starts[-1] + 1)),
        indices=np.array([e[1] for e in edges], np.int64),
        edge_kinds=np.array(kinds or [0] * len(edges), np.int8),
        edge_kind_names=("edge", "other"),
        weights=np.array([e[2] for e in edges], np.float64),
    )


def seeds(graphs, *questions):
    """Make seeds of (case, {node: weight})."""
    return Seeds(
        np.array([case for case, _ in questions], np.int64),
        np.concatenate([[0], np.cumsum([len(s) for _, s in questions])]).astype(np.int64),
        np.array([graphs.node_offsets[case] + node for case, s in questions for node in s], np.int64),
        np.array([w for _, s in questions for w in s.values()], np.float64),
    )


def direct(nodes, edges, start, alpha):
    """Solve the equation as a dense linear system, dangling mass going to the seeds."""
    m = np.zeros((nodes, nodes))
    for s, t, w in edges:
        m[s, t] += w
    s = np.zeros(nodes)
    for node, w in start.items():
        s[node] += w
    s /= s.sum()
    out = m.sum(axis=1)
    m[out > 0] /= out[out > 0, None]
    m[out == 0] = s
    return np.linalg.solve(np.eye(nodes) - alpha * m.T, (1 - alpha) * s)


def test_two_nodes_by_hand():
    # x0 = .5 x1 + .5 (x1 dangles, its mass goes back to node 0), x1 = .5 x0: x = (2/3, 1/3).
    graphs = make((2, [(0, 1, 7)]))
    scores, unseeded = personalized_pagerank(walk(graphs), seeds(graphs, (0, {0: 3})), alpha=0.5)
    assert scores.values == pytest.approx([2 / 3, 1 / 3], abs=1e-8)
    assert unseeded.tolist() == [False]


def test_without_going_on_the_seeds_stay():
    graphs = make((3, [(0, 1, 1), (1, 2, 1)]))
    scores, _ = personalized_pagerank(walk(graphs), seeds(graphs, (0, {0: 1, 1: 3})), alpha=0)
    assert scores.values.tolist() == [0.25, 0.75, 0]


def test_no_seeds_give_zeros_and_a_flag():
    graphs = make((2, [(0, 1, 1)]), (0, []), (1, []))
    start = seeds(graphs, (0, {}), (1, {}), (0, {0: 0.0}), (2, {0: 1}), (0, {1: 1}))
    scores, unseeded = personalized_pagerank(walk(graphs), start)
    assert unseeded.tolist() == [True, True, True, False, False]
    assert scores.offsets.tolist() == [0, 2, 2, 4, 5, 7]
    assert scores.values.tolist() == [0, 0, 0, 0, 1, 0, 1]


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_bad_weights_are_refused(weight):
    graphs = make((2, [(0, 1, 1)]))
    with pytest.raises(ValueError, match="negative or not a finite"):
        personalized_pagerank(walk(graphs), seeds(graphs, (0, {0: 1, 1: weight})))


def test_bad_arguments_are_refused():
    graphs = make((2, [(0, 1, 1)]), (1, []))
    with pytest.raises(ValueError, match="outside"):
        personalized_pagerank(walk(graphs), seeds(graphs, (0, {2: 1})))
    for alpha in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="alpha"):
            personalized_pagerank(walk(graphs), seeds(graphs, (0, {0: 1})), alpha=alpha)
    with pytest.raises(ValueError, match="tolerance"):
        personalized_pagerank(walk(graphs), seeds(graphs, (0, {0: 1})), tolerance=0)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_the_scale_of_seeds_does_not_matter(scale):
    graphs = make((3, [(0, 1, 1), (1, 2, 1), (2, 0, 1)]))
    scores, _ = personalized_pagerank(walk(graphs), seeds(graphs, (0, {0: scale, 1: scale}), (0, {0: 1, 1: 1})))
    assert scores.values[:3].tolist() == scores.values[3:].tolist()


def test_edge_kinds_left_out_and_both_directions():
    edges = [(0, 1, 1), (0, 2, 1)]
    graphs = make((3, edges), kinds=[0, 1])
    start = seeds(graphs, (0, {0: 1}))
    scores, _ = personalized_pagerank(walk(graphs, {"other": 0}), start)
    assert scores.values == pytest.approx(direct(3, edges[:1], {0: 1}, 0.85), abs=1e-8)
    both = [*edges, (1, 0, 1), (2, 0, 1)]
    scores, _ = personalized_pagerank(walk(graphs, undirected=True), seeds(graphs, (0, {1: 1})))
    assert scores.values == pytest.approx(direct(3, both, {1: 1}, 0.85), abs=1e-8)


def test_weights_of_edge_kinds():
    graphs = make((3, [(0, 1, 1), (0, 2, 1)]), kinds=[0, 1])
    start = seeds(graphs, (0, {0: 1}))
    scores, _ = personalized_pagerank(walk(graphs, {"other": 3}), start)
    assert scores.values == pytest.approx(direct(3, [(0, 1, 1), (0, 2, 3)], {0: 1}, 0.85), abs=1e-8)
    with pytest.raises(ValueError, match="negative"):
        walk(graphs, {"other": -1})


def test_a_dampened_hub_gives_its_leaves_what_is_worked_out_by_hand():
    # A hub (node 0) with 500 leaves, both directions, alpha 0.6, seed in leaf 1. With c the share that the hub passes
    # on, y_hub = a + a^2 c y_hub and every other leaf has a c y_hub / 500; scaled to sum 1, a leaf has
    # a^2 c / (500 (a + 1)), as the c of the sum cancels: 0.36 / 800 for c = 1, and a tenth of it for c = 50 / 500.
    graphs = make((501, [(0, leaf, 1) for leaf in range(1, 501)]))
    start = seeds(graphs, (0, {1: 1}))
    plain, _ = personalized_pagerank(walk(graphs, undirected=True), start, 0.6, 1e-12)
    damp, _ = personalized_pagerank(walk(graphs, undirected=True, hub_above=50), start, 0.6, 1e-12)
    assert plain.values[2:] == pytest.approx([0.00045] * 499, abs=1e-12)
    assert damp.values[2:] == pytest.approx([0.000045] * 499, abs=1e-12)
    assert (plain.values - damp.values)[2:] == pytest.approx([0.000405] * 499, abs=1e-12)
    # The hub itself: a / (a + 1) either way; the seed gets what the other leaves lose.
    assert [plain.values[0], damp.values[0]] == pytest.approx([0.375, 0.375], abs=1e-12)
    assert damp.values[1] - plain.values[1] == pytest.approx(499 * 0.000405, abs=1e-12)
    assert damp.values.sum() == pytest.approx(1)


def test_a_node_at_the_limit_is_no_hub():
    graphs = make((4, [(0, 1, 1), (0, 2, 1), (0, 3, 1), (1, 0, 1)]))
    start = seeds(graphs, (0, {0: 1}))
    plain, _ = personalized_pagerank(walk(graphs), start)
    same, _ = personalized_pagerank(walk(graphs, hub_above=3), start)
    less, _ = personalized_pagerank(walk(graphs, hub_above=2), start)
    assert same.values.tolist() == plain.values.tolist()
    assert less.values[1] < plain.values[1]


def test_only_files_by_position():
    graphs = make((3, [(0, 1, 1), (1, 2, 1)]))
    chosen = Graphs(**{**vars(graphs), "file_offsets": np.array([0, 2]), "file_nodes": np.array([2, 0])})
    start = seeds(graphs, (0, {0: 1}))
    whole, _ = personalized_pagerank(walk(chosen), start)
    files, _ = personalized_pagerank(walk(chosen), start, files_only=True)
    assert files.values.tolist() == whole.values[[2, 0]].tolist()


graph = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.sampled_from([0.5, 1.0, 3.0])),
            max_size=16,
            unique_by=lambda e: e[:2],
        ),
    )
)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(graph, st.integers(0, 70)), min_size=1, max_size=4),
    st.sampled_from([0.3, 0.85, 0.97]),
    st.data(),
)
def test_solves_the_equation_whatever_else_is_computed(cases, alpha, data):
    graphs = make(*(g for g, _ in cases))
    questions = []
    for number, ((nodes, _), count) in enumerate(cases):
        start = st.dictionaries(st.integers(0, nodes - 1), st.sampled_from([0.0, 1.0, 2.5]), max_size=3)
        some = data.draw(st.lists(start, min_size=1, max_size=3))
        questions += [(number, some[q % len(some)]) for q in range(count)]
    order = np.argsort([(7 * i) % 11 for i in range(len(questions))], kind="stable")
    questions = [questions[i] for i in order]
    scores, unseeded = personalized_pagerank(walk(graphs), seeds(graphs, *questions), alpha)
    for number in {tuple(sorted(s.items())): i for i, (_, s) in enumerate(questions)}.values():
        case, start = questions[number]
        mine = scores.values[scores.offsets[number] : scores.offsets[number + 1]]
        nodes, edges = cases[case][0]
        if sum(start.values()) == 0:
            assert unseeded[number]
            assert not mine.any()
        else:
            assert np.abs(mine - direct(nodes, edges, start, alpha)).sum() <= 1.01e-8
        alone = make((nodes, edges))
        single, _ = personalized_pagerank(walk(alone), seeds(alone, (0, start)), alpha)
        assert single.values.tobytes() == mine.tobytes()


@pytest.mark.parametrize("edges", ["chain", "ring", "two rings", "bipartite"])
def test_slow_graphs_reach_the_tolerance(edges):
    n = 400
    ring = [(i, (i + 1) % n, 1.0) for i in range(n)]
    chosen = {
        "chain": ring[:-1],
        "ring": ring,
        "two rings": [(i, (i + 2) % n, 1.0) for i in range(n)],
        "bipartite": [e for i in range(0, n, 2) for e in ((i, (i * 7 + 1) % n, 1.0), ((i * 7 + 1) % n, i, 2.0))],
    }[edges]
    chosen = list({e[:2]: e for e in chosen}.values())
    graphs = make((n, chosen))
    start = {0: 1.0, 3: 2.0}
    scores, _ = personalized_pagerank(walk(graphs), seeds(graphs, (0, start)))
    assert np.abs(scores.values - direct(n, chosen, start, 0.85)).sum() <= 1e-8


def test_a_large_case_takes_its_questions_in_parts():
    n = 70_000
    chain = [(i, i + 1, 1.0) for i in range(n - 1)]
    graphs = make((n, chain))
    start = [(0, {q * 100: 1.0}) for q in range(60)]
    scores, _ = personalized_pagerank(walk(graphs), seeds(graphs, *start), tolerance=1e-3)
    rows = scores.values.reshape(60, n)
    assert rows.sum(axis=1) == pytest.approx(np.ones(60))
    assert rows.argmax(axis=1).tolist() == [q * 100 for q in range(60)]


def test_no_questions():
    graphs = make((2, [(0, 1, 1)]))
    scores, unseeded = personalized_pagerank(walk(graphs), seeds(graphs))
    assert scores.offsets.tolist() == [0]
    assert len(scores.values) == len(unseeded) == 0


def test_larger_graphs_give_the_same_bytes_alone_and_together():
    rng = np.random.default_rng(3)
    cases = []
    for nodes in (300, 250, 7):
        pairs = {(int(s), int(t)) for s, t in rng.integers(0, nodes, (nodes * 4, 2))}
        cases.append((nodes, [(s, t, float(1 + (s + t) % 3)) for s, t in sorted(pairs)]))
    graphs = make(*cases)
    questions = [(q % 3 if q < 100 else 0, {int(n): 1.0 for n in rng.integers(0, 7, 3)}) for q in range(150)]
    scores, _ = personalized_pagerank(walk(graphs), seeds(graphs, *questions))
    for number in (0, 1, 2, 99, 149):
        case, start = questions[number]
        alone = make(cases[case])
        single, _ = personalized_pagerank(walk(alone), seeds(alone, (0, start)))
        mine = scores.values[scores.offsets[number] : scores.offsets[number + 1]]
        assert single.values.tobytes() == mine.tobytes()
