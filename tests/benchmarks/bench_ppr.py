"""Personalised PageRank against igraph and networkx, in one process and on one thread.

Run as ``python tests/benchmarks/bench_ppr.py``.
"""

import json
import os
import time

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from indexers.csr import Graphs
from indexers.ppr import Seeds, personalized_pagerank, walk

ALPHA = 0.85


def tag_graph(files, topics, tags, tags_a_file, rng):
    """Make the edges of a tag graph, each in both directions: tag - topic - file, and file - next file."""
    file, topic = np.arange(files), files + rng.integers(0, topics, files)
    popular = 1 / np.arange(1, tags + 1) ** 0.9
    tag = files + topics + rng.choice(tags, files * tags_a_file, p=popular / popular.sum())
    source = np.concatenate([topic, file[:-1], tag])
    target = np.concatenate([file, file[1:], np.repeat(topic, tags_a_file)])
    nodes = files + topics + tags
    pairs = np.unique(np.concatenate([source * nodes + target, target * nodes + source]))
    return nodes, pairs // nodes, pairs % nodes


def graphs_of(cases):
    """Join cases of (nodes, sources, targets)."""
    sizes = np.array([nodes for nodes, _, _ in cases])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    source = np.concatenate([s + starts[c] for c, (_, s, _) in enumerate(cases)])
    target = np.concatenate([t + starts[c] for c, (_, _, t) in enumerate(cases)])
    return Graphs(
        case_ids=tuple(map(str, range(len(cases)))),
        node_offsets=starts,
        node_kinds=np.zeros(starts[-1], np.int8),
        node_kind_names=("file",),
        file_offsets=starts,
        file_nodes=np.arange(starts[-1]),
        indptr=np.searchsorted(source, np.arange(starts[-1] + 1)),
        indices=target,
        edge_kinds=np.zeros(len(source), np.int8),
        edge_kind_names=("edge",),
        weights=np.ones(len(source)),
    )


def timed(function, repeats):
    """Return the best time in seconds, and the result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return best, result


def compare(cases, questions, networkx_questions):
    """Time `questions` questions a case, each with 5 seeds; networkx answers only some, its time is scaled up."""
    # Read when these libraries load.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    import igraph
    import networkx

    rng = np.random.default_rng(1)
    graphs = graphs_of(cases)
    case = np.repeat(np.arange(len(cases)), questions)
    sizes = np.diff(graphs.node_offsets)
    local = [rng.choice(sizes[c], 5, replace=False) for c in case]
    nodes = np.concatenate(local) + np.repeat(graphs.node_offsets[case], 5)
    seeds = Seeds(case, np.arange(len(case) + 1) * 5, nodes, np.ones(len(nodes)))
    ours, (scores, _) = timed(lambda: personalized_pagerank(walk(graphs), seeds, ALPHA), 7)

    built = [
        igraph.Graph(n=n, edges=list(zip(s.tolist(), t.tolist(), strict=True)), directed=True) for n, s, t in cases
    ]
    peer, found = timed(
        lambda: [
            built[c].personalized_pagerank(damping=ALPHA, reset_vertices=seed.tolist(), implementation="prpack")
            for c, seed in zip(case, local, strict=True)
        ],
        3,
    )
    others = [networkx.DiGraph() for _ in range(int(case[networkx_questions - 1]) + 1)]
    for other, (n, s, t) in zip(others, cases, strict=False):
        other.add_nodes_from(range(n))
        other.add_edges_from(zip(s.tolist(), t.tolist(), strict=True))
    slow, _ = timed(
        lambda: [
            networkx.pagerank(
                others[c], ALPHA, personalization=dict.fromkeys(seed.tolist(), 1), tol=1e-8 / sizes[c], max_iter=500
            )
            for c, seed in zip(case[:networkx_questions], local, strict=False)
        ],
        1,
    )
    slow *= len(case) / networkx_questions

    forward = graphs.adjacency()
    out = np.maximum(np.diff(forward.indptr), 1)
    system = (sparse.eye_array(len(out)) - ALPHA * (sparse.diags_array(1 / out) @ forward).T).tocsc()
    solver = splu(system, permc_spec="MMD_AT_PLUS_A")
    difference = 0.0
    for question in range(0, len(case), max(1, len(case) // 50)):
        right = np.zeros(len(out))
        right[nodes[question * 5 : question * 5 + 5]] = 1
        direct = solver.solve(right)
        direct = direct[graphs.node_offsets[case[question]] : graphs.node_offsets[case[question] + 1]]
        mine = scores.values[scores.offsets[question] : scores.offsets[question + 1]]
        difference = max(difference, float(np.abs(mine - direct / direct.sum()).max()))
    return {
        "nodes": int(sizes.sum()),
        "edges": len(forward.indices),
        "max_degree": int(np.diff(forward.indptr).max()),
        "questions": len(case),
        "tagloom_ms": round(ours * 1e3, 2),
        "igraph_ms": round(peer * 1e3, 2),
        "networkx_ms": round(slow * 1e3, 1),
        "times_igraph": round(peer / ours, 2),
        "times_networkx": round(slow / ours, 1),
        "igraph_difference": float(np.abs(np.concatenate(found) - scores.values).max()),
        "direct_solve_difference": difference,
    }


def run():
    """Return the figures of one large graph with 50 questions, and of 200 small ones with 5 each."""
    rng = np.random.default_rng(0)
    large = [tag_graph(1300, 500, 1200, 5, rng)]
    small = [tag_graph(130, 50, 120, 5, rng) for _ in range(200)]
    return {"one_graph": compare(large, 50, 5), "many_graphs": compare(small, 5, 50)}


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
