"""Mutated inputs through every reader: nothing may escape as an exception, no record may get lost."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC

import yaml
import zstandard

from transforms.formats import read_source
from transforms.fragments import fragments
from transforms.merge import merge
from transforms.records import REJECT_REASONS, Question, Reject

_TOKENS = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\x00", b"\xff", b"\xc3", b"\xed\xa0\xbd", b"\\ud83d", b"\\u0000",
    b"null", b"1e999", b"NaN", b"\n", b"}{", b"]]]]", b"[[[[", b'{"question_id":', b'{"qa":', b'\\"', b"\\\\", b"\t",
    b"\xef\xbb\xbf", b'{"case_id":', "\U0001f600".encode(), b"-", b"\\u", b"//", b"<html>",
]  # fmt: skip
_VALUES = [
    None, True, False, 0, -1, 10**30, 1.5, "", " ", "None", "\ud83d", "a\x00b", [], {}, [None], [[]], {"type": "text"},
    [{"type": "text", "text": "x"}, {"type": "image"}], "yesterday", "9999-99-99", 1e308, ["D1:1"], {"a": {"b": []}},
]  # fmt: skip


WORDS = [
    *("tea", "\u00e9t\u00e9", 'say "hi"', "a\\b", "{brace}", "line\nfeed"),
    *("\U0001f600", "[x]", "\u6771\u4eac", ""),
]


def _text(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 6))) + " ok"


def _turns(rng: random.Random, roles: tuple[str, ...] = ("user", "assistant", "tool")) -> list[dict[str, str]]:
    return [{"role": rng.choice(roles), "content": _text(rng)} for _ in range(rng.randint(1, 4))]


def _tagloom(key: str, rng: random.Random) -> object:
    if rng.random() < 0.5:
        return {"case_id": key, "question_id": "q", "question": _text(rng), "gold_session_ids": ["s"]}
    return {"case_id": key, "session_id": "s", "started_at": "2024-01-02T03:04", "messages": _turns(rng)}


def _longmemeval(key: str, rng: random.Random) -> object:
    return {
        "question_id": key,
        "question_type": "t",
        "question": _text(rng),
        "question_date": "2023/05/30 (Tue) 23:40",
        "answer": rng.choice(["a", 3, ["a", "b"]]),
        "answer_session_ids": ["s0"],
        "haystack_dates": ["2023/05/30 (Tue) 23:40", "2023/05/31 (Wed) 23:40"],
        "haystack_session_ids": ["s0", "s1"],
        "haystack_sessions": [_turns(rng), [{"role": "user", "content": _text(rng), "has_answer": True}]],
    }


def _locomo(key: str, rng: random.Random) -> object:
    dialogue = [{"speaker": "Ann", "dia_id": f"D1:{n}", "text": _text(rng)} for n in range(3)]
    return {
        "qa": [{"question": _text(rng), "answer": 7, "evidence": ["D1:1"], "category": rng.randint(1, 5)}],
        "conversation": {"speaker_a": "Ann", "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": dialogue},
        "sample_id": key,
    }


def _atant(key: str, rng: random.Random) -> object:
    batches = [{"batch": n, "time": "Monday 9:00 AM", "user_input": _text(rng)} for n in range(3)]
    asked = [{"question_id": "q1", "question": _text(rng), "expected_contains": ["tea", 7]}]
    return {"story_id": key, "category": "t", "batches": batches, "questions": asked}


def _beam(key: str, rng: random.Random) -> object:
    turns = [[{**turn, "id": n} for n, turn in enumerate(_turns(rng))] for _ in range(2)]
    turns[0][0]["time_anchor"] = "March-15-2024"
    return {"batch_number": key, "time_anchor": None, "turns": turns}


def _multihop(key: str, rng: random.Random) -> object:
    context = [[f"title {n}", [_text(rng), _text(rng)]] for n in range(3)]
    facts = [["title 0", 0], ["title 2", 1]]
    return {"_id": key, "question": _text(rng), "answer": "a", "supporting_facts": facts, "context": context}


def _sharegpt(key: str, rng: random.Random) -> object:
    said = [{"from": rng.choice(["human", "gpt", "system"]), "value": _text(rng)} for _ in range(3)]
    return {"id": key, "conversations": said}


def _openai_messages(key: str, rng: random.Random) -> object:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    parts = {"role": "user", "content": [{"type": "text", "text": _text(rng)}, {"type": "image_url"}]}
    return {"messages": [*_turns(rng, ("developer", "user")), parts, called], "user": key}


def _wildchat(key: str, rng: random.Random) -> object:
    said = [{**turn, "turn_identifier": 1, "toxic": False, "timestamp": None} for turn in _turns(rng)]
    return {"conversation_hash": key, "timestamp": "2023-04-09T00:02:53Z", "conversation": said, "hashed_ip": "ip"}


def _lmsys(key: str, rng: random.Random) -> object:
    return {"conversation_id": key, "model": "m", "conversation": _turns(rng), "turn": 1, "redacted": False}


MAKERS: dict[str, Callable[[str, random.Random], object]] = {
    "tagloom": _tagloom,
    "longmemeval": _longmemeval,
    "locomo": _locomo,
    "atant": _atant,
    "beam": _beam,
    "multihop": _multihop,
    "sharegpt": _sharegpt,
    "openai_messages": _openai_messages,
    "wildchat": _wildchat,
    "lmsys": _lmsys,
}
"""Make one element of a format, in whose records its key is the case, session or question."""

LINES = ("tagloom", "openai_messages", "wildchat", "lmsys")
"""Formats that are fuzzed as one element a line; the others, YAML apart, as an array."""


def _packed(name: str, element: object, *, ascii: bool) -> bytes:
    if name == "atant":
        return yaml.safe_dump(element, allow_unicode=not ascii, sort_keys=False).encode()
    return json.dumps(element, ensure_ascii=ascii).encode()


def _frame(name: str) -> tuple[bytes, bytes, bytes]:
    """What stands before, between and after the elements of a file."""
    if name == "atant":
        return b"", b"\n---\n", b"\n"
    return (b"", b"\n", b"\n") if name in LINES else (b"[", b", ", b"]\n")


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
        name = sorted(MAKERS)[number % len(MAKERS)]
        kind = ("scratch_one", "scratch_one", "odd_value", "odd_value", "cut", "scratch_all", "packed", "encoding")[
            rng.randrange(8)
        ]
        elements = [MAKERS[name](f"case{k}", rng) for k in range(rng.randint(2, 4))]
        parts = [_packed(name, one, ascii=rng.random() < 0.5) for one in elements]
        before, between, after = _frame(name)
        cases = {f"case{k}" for k in range(len(parts))}
        expected = set(cases)
        hurt = rng.randrange(len(parts))
        if kind == "scratch_one":
            parts[hurt] = _scratch(parts[hurt], rng)
            expected = cases - {f"case{hurt}"}
        elif kind == "odd_value":
            odd = _replace(json.loads(json.dumps(elements[hurt])), rng)
            parts[hurt] = _packed(name, odd, ascii=True)
            expected = cases - {f"case{hurt}"}
        data = before + between.join(parts) + after
        if kind == "cut":
            at = rng.randrange(len(data))
            ends, place = [], len(before)
            for part in parts:
                place += len(part)
                ends.append(place)
                place += len(between)
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
    kept = [one for one in records if not isinstance(one, Reject)]
    found = {one.case_id for one in kept}
    found |= {one.question_id if isinstance(one, Question) else one.session_id for one in kept}
    where = f"input {number} ({name}, {kind}): {data!r}"
    assert expected <= found, f"lost {expected - found} in {where}"
    assert records or not data.strip(b" \t\r\n\x00\xef\xbb\xbf,[]"), f"nothing came of {where}"
    assert all(one.reason in REJECT_REASONS for one in rejects), where
    groups = list(fragments(records, "fuzz", reading.unit, 2, 500))
    assert not places or len({one.offset for one in records}) == places, f"an element left no trace in {where}"
    for shard in (0, 1) if number % 16 < 3 else ():
        merged = merge([group[shard] for group in groups if shard in group])
        rows = merged.interactions.num_rows + merged.questions.num_rows + merged.rejects.num_rows
        assert rows or not any(shard in group for group in groups), where
    return len(records) - len(rejects), len(rejects)
