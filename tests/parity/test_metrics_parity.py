"""Every metric at every level against ir-measures (trec_eval)."""

import ir_measures
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, R, Success, nDCG

from schemas.tables import build
from transforms.metrics import GOLD_LEVELS, SESSION_DEPTH, question_metrics

KS = (1, 3, 5, 10, 20)
MEASURES = {"mrr": RR, "ndcg@10": nDCG @ 10, "map": AP}
MEASURES |= {f"recall@{k}": R @ k for k in KS} | {f"hit@{k}": Success @ k for k in KS}
UNITS = 60
DEPTH = 25


def corpus():
    rows = [(case, n) for case in ("a", "b c") for n in range(UNITS)]
    return pa.table(
        {
            "case_id": [case for case, _ in rows],
            "session_id": [f"s{n // 3 % 17}" for _, n in rows],
            "interaction_id": [f"i{n}" for _, n in rows],
            "message_ids": [[f"m{n * 2 % 90}", f"m{n * 2 + 1}"] for _, n in rows],
        }
    )


CORPUS = corpus()
UNIT = {(r["case_id"], r["interaction_id"]): r for r in CORPUS.to_pylist()}
gold_units = st.sets(st.integers(0, UNITS - 1), max_size=14)
rankings = st.permutations(range(UNITS)).flatmap(lambda p: st.integers(0, UNITS).map(lambda n: p[:n]))
asked = st.lists(st.tuples(st.sampled_from(["a", "b c"]), gold_units, rankings), min_size=1, max_size=5)


def documents(case, ranking, level):
    units = [UNIT[case, f"i{n}"] for n in ranking]
    found = {
        "interaction": lambda: [u["interaction_id"] for u in units[:DEPTH]],
        "message": lambda: [m for u in units[:DEPTH] for m in u["message_ids"]],
        "session": lambda: [u["session_id"] for u in units],
    }[level]()
    return list(dict.fromkeys(found))[: SESSION_DEPTH if level == "session" else None]


@given(asked)
@settings(deadline=None, max_examples=40)
def test_equal_to_ir_measures(cases):
    rows = [(case, f"q{n}", sorted(gold), ranking) for n, (case, gold, ranking) in enumerate(cases)]
    gold = {
        "interaction": [[f"i{g}" for g in r[2]] for r in rows],
        "message": [[f"m{g}" for g in r[2]] for r in rows],
        "session": [[f"s{g % 17}" for g in r[2]] for r in rows],
    }
    questions = build(
        "questions",
        {
            "case_id": [r[0] for r in rows],
            "question_id": [r[1] for r in rows],
            "question": [""] * len(rows),
            "question_type": [""] * len(rows),
            "asked_at": [None] * len(rows),
            "answer": [None] * len(rows),
            **{f"gold_{level}_ids": gold[level] for level in GOLD_LEVELS},
            "expected_contains": [[]] * len(rows),
            "answerable": [True] * len(rows),
        },
    )
    ranked = [(r[0], r[1], n + 1, f"i{unit}") for r in rows for n, unit in enumerate(r[3])]
    run = build(
        "runs",
        {
            "case_id": [r[0] for r in ranked],
            "question_id": [r[1] for r in ranked],
            "retriever": ["p"] * len(ranked),
            "rank": [r[2] for r in ranked],
            "interaction_id": [r[3] for r in ranked],
            "score": [0.0] * len(ranked),
        },
    )
    own = {
        (r["level"], r["question_id"], r["metric"]): r["value"]
        for r in question_metrics({"p": run}, questions, CORPUS, ks=KS, depth=DEPTH).to_pylist()
    }
    expected = {}
    for level in GOLD_LEVELS:
        qrels = {r[1]: dict.fromkeys(gold[level][n], 1) for n, r in enumerate(rows) if gold[level][n]}
        # trec_eval breaks ties by itself, so each rank gets a score of its own.
        run_of = {r[1]: {d: -float(n) for n, d in enumerate(documents(r[0], r[3], level))} for r in rows}
        for found in ir_measures.iter_calc(list(MEASURES.values()), qrels, run_of) if qrels else ():
            name = next(name for name, measure in MEASURES.items() if measure == found.measure)
            expected[level, found.query_id, name] = found.value
        for question in qrels:
            for name in MEASURES:
                expected.setdefault((level, question, name), 0.0)
    assert own == pytest.approx(expected, abs=1e-9)
