"""Mutated inputs through every reader: nothing may escape as an exception, no record may get lost."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections import Counter
from datetime import UTC

import zstandard

from transforms.formats import READERS, read_source
from transforms.fragments import fragments
from transforms.merge import merge
from transforms.records import REJECT_REASONS, Reject

_TOKENS = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\xbd", b"\\ud83d", b"\\u0000",
    b"null", b"1e999", b"NaN", b"\n", b"}{", b"]]]]", b"[[[[", b'{"question_id":', b'{"qa":', b'\\"', b"\\\\", b"\t",
    b"\xef\xbb\xbf", b'{"case_id":', "\U0001f600".encode(), b"-", b"\\u", b"//", b"<html>",
]  # fmt: skip
_VALUES = [
    None, True, False, 0, -1, 10**30, 1.5, "", " ", "None", "\ud83d", "a\x00b", [], {}, [None], [[]], {"type": "text"},
    [{"type": "text", "text": "x"}, {"type": "image"}], "yesterday", "9999-99-99", 1e308, ["D1:1"], {"a": {"b": []}},
]  # fmt: skip


def _elements(name: str, rng: random.Random) -> list[object]:
    words = [
        "tea",
        "\u00e9t\u00e9",
        'say "hi"',
        "a\\b",
        "{brace}",
        "line\nfeed",
        "\U0001f600",
        "[x]",
        "\u6771\u4eac",
        "",
    ]

    def text() -> str:
        return " ".join(rng.choice(words) for _ in range(rng.randint(1, 6))) + " ok"

    made: list[object] = []
    for k in range(rng.randint(2, 4)):
        turns = [
            {"role": rng.choice(["user", "assistant", "tool"]), "content": text()} for _ in range(rng.randint(1, 4))
        ]
        if name == "tagloom":
            made.append({"case_id": f"case{k}", "session_id": "s", "started_at": "2024-01-02T03:04", "messages": turns})
            if rng.random() < 0.5:
                made[-1] = {"case_id": f"case{k}", "question_id": "q", "question": text(), "gold_session_ids": ["s"]}
        elif name == "longmemeval":
            made.append(
                {
                    "question_id": f"case{k}",
                    "question_type": "t",
                    "question": text(),
                    "question_date": "2023/05/30 (Tue) 23:40",
                    "answer": rng.choice(["a", 3, ["a", "b"]]),
                    "answer_session_ids": ["s0"],
                    "haystack_dates": ["2023/05/30 (Tue) 23:40", "2023/05/31 (Wed) 23:40"],
                    "haystack_session_ids": ["s0", "s1"],
                    "haystack_sessions": [turns, [{"role": "user", "content": text(), "has_answer": True}]],
                }
            )
        else:
            dialogue = [{"speaker": "Ann", "dia_id": f"D1:{n}", "text": text()} for n in range(3)]
            made.append(
                {
                    "qa": [{"question": text(), "answer": 7, "evidence": ["D1:1"], "category": rng.randint(1, 5)}],
                    "conversation": {
                        "speaker_a": "Ann",
                        "session_1_date_time": "1:56 pm on 8 May, 2023",
                        "session_1": dialogue,
                    },
                    "sample_id": f"case{k}",
                }
            )
    return made


def _join(name: str, parts: list[bytes]) -> bytes:
    return b"\n".join(parts) + b"\n" if name == "tagloom" else b"[" + b", ".join(parts) + b"]\n"


def _scratch(data: bytes, rng: random.Random) -> bytes:
    """Change a few bytes somewhere."""
    for _ in range(rng.randint(1, 3)):
        at, size = rng.randint(0, len(data)), rng.randint(1, 12)
        how = rng.randrange(4)
        if how == 0:
            data = data[:at] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 4))) + data[at + size :]
        elif how == 1:
            data = data[:at] + data[at + size :]
        elif how == 2:
            data = data[:at] + rng.choice(_TOKENS) + data[at:]
        else:
            data = data[:at] + data[at : at + size] * 2 + data[at + size :]
    return data


def _replace(value: object, rng: random.Random) -> object:
    """Put an odd value in place of one node of a parsed document."""
    node = value
    while isinstance(node, dict | list) and node:
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        child = node[key]  # type: ignore[index]
        if not isinstance(child, dict | list) or not child or rng.random() < 0.3:
            if isinstance(node, dict) and rng.random() < 0.2:
                del node[key]  # type: ignore[arg-type]
            else:
                node[key] = rng.choice(_VALUES)  # type: ignore[index]
            break
        node = child
    return value


def fuzz(count: int, seed: int) -> dict[str, int]:
    """Run `count` mutated inputs and check each.

    Returns:
        Counts: inputs, taken, rejected, and inputs by kind of mutation and by reader.

    Raises:
        AssertionError: A record got lost, or a reject has no known reason. Any other exception is a reader's fault.
    """
    rng = random.Random(seed)
    told: Counter[str] = Counter()
    for number in range(count):
        name = sorted(READERS)[number % len(READERS)]
        kind = ("scratch_one", "scratch_one", "odd_value", "odd_value", "cut", "scratch_all", "packed", "encoding")[
            rng.randrange(8)
        ]
        elements = _elements(name, rng)
        parts = [json.dumps(one, ensure_ascii=rng.random() < 0.5).encode() for one in elements]
        cases = {f"case{k}" for k in range(len(parts))}
        expected = set(cases)
        hurt = rng.randrange(len(parts))
        if kind == "scratch_one":
            parts[hurt] = _scratch(parts[hurt], rng)
            expected = cases - {f"case{hurt}"}
        elif kind == "odd_value":
            odd = _replace(json.loads(parts[hurt]), rng)
            parts[hurt] = json.dumps(odd).encode()
            expected = cases - {f"case{hurt}"}
        data = _join(name, parts)
        if kind == "cut":
            at = rng.randrange(len(data))
            ends, place = [], 0 if name == "tagloom" else 1
            for part in parts:
                place += len(part)
                ends.append(place)
                place += 1 if name == "tagloom" else 2
            data = data[:at]
            expected = {f"case{k}" for k, end in enumerate(ends) if end <= at}
        elif kind == "scratch_all":
            data, expected = _scratch(data, rng), set()
        elif kind == "packed":
            data = gzip.compress(data, mtime=0) if rng.random() < 0.5 else zstandard.compress(data)
            if rng.random() < 0.7:
                data, expected = data[: rng.randrange(4, len(data))], set()
        elif kind == "encoding":
            codec = rng.choice(["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
            data = data.decode().encode(codec)
        places = len(parts) if kind in ("odd_value", "encoding") else 0
        taken, rejected = _check(name, data, expected, places, number, kind)
        told.update({"inputs": 1, "taken": taken, "rejected": rejected, kind: 1, name: 1})
    return dict(told)


def _check(name: str, data: bytes, expected: set[str], places: int, number: int, kind: str) -> tuple[int, int]:
    reading = read_source(io.BytesIO(data), "fuzz", name, "auto", UTC)
    records = list(reading.records)
    rejects = [one for one in records if isinstance(one, Reject)]
    found = {one.case_id for one in records if not isinstance(one, Reject)}
    where = f"input {number} ({name}, {kind}): {data!r}"
    assert expected <= found, f"lost {expected - found} in {where}"
    assert records or not data.strip(b" \t\r\n\x00\xef\xbb\xbf,[]"), f"nothing came of {where}"
    assert all(one.reason in REJECT_REASONS for one in rejects), where
    groups = list(fragments(records, "fuzz", reading.unit, 2, 500))
    assert not places or len({one.offset for one in records}) == places, f"an element left no trace in {where}"
    for shard in (0, 1) if number % 16 < len(READERS) else ():
        merged = merge([group[shard] for group in groups if shard in group])
        kept = merged.interactions.num_rows + merged.questions.num_rows + merged.rejects.num_rows
        assert kept or not any(shard in group for group in groups), where
    return len(records) - len(rejects), len(rejects)
