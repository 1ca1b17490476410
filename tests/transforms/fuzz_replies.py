"""Mutated replies through the parser and every task: nothing but a `BadReplyError` may escape, nothing is invented."""

from __future__ import annotations

import json
import random
from collections import Counter

from transforms import replies, tags, tasks
from transforms.replies import BadReplyError

GOOD = {
    "notes": {
        "who": ["family/sister", "ana"],
        "what": ["sport/running", "event/marathon"],
        "when": ["2023/05/09"],
        "where": ["portugal/porto"],
        "why": ["goal/marathon"],
        "extra": ["mile/5"],
        "summary": 'Ana said "hello, {world}" and ran 5 miles; it\'s [fine].',
    },
    "facts": {
        "facts": [
            {"text": "Ana signed up for the Porto marathon on 9 May 2023.", "concepts": ["marathon_training"]},
            {"text": "Ana's knee, hurt in 2022, is fine.", "concepts": ["knee_injury", "sports_health"]},
        ],
        "concepts": ["marathon_training"],
    },
    "reflections": {
        "reflections": [{"text": "Ana trains a lot.", "facts": [1, 3]}, {"text": "Bo rests.", "facts": [2]}]
    },
    "entities": {
        "nodes": [
            {"title": "Ana", "kind": "entity", "role": "user", "attributes": ["type: person"]},
            {"title": "Ana ran 5 miles", "kind": "event", "role": "user", "attributes": []},
        ],
        "edges": [{"source": "Ana", "kind": "took_part_in", "target": "Ana ran 5 miles", "attributes": ["how: fast"]}],
    },
    "triples": {
        "triples": [
            {"subject": "Ana", "predicate": "moved to", "object": "Porto"},
            {"subject": "Miso", "predicate": "is dog of", "object": "Ana"},
        ]
    },
}
"""A reply of each task as it is wanted: it needs no repair."""

_TOKENS = (
    '"', "\\", "{", "}", "[", "]", ",", ":", "'", "\x00", "\ud83d", "\\ud83d", "\\u0000", "null", "NaN", "1e999",
    "\n", "}{", "]]]]", "[[[[", '{"who":', '{"facts": [', '\\"', "```", "```json\n", "<think>", "</think>",
    "<|im_end|>", "[/INST]", "{{", "}}", "{{text}}", "\u200b", "\ufeff", "“", "”", "//", "/*", "…", "...", "True",
    "None", "I'm sorry, but I can't", " " * 300, "\n" * 300,
)  # fmt: skip
_VALUES = (
    None, True, 0, -1, 1.5, 10**30, float("inf"), "", " ", "a", [], {}, [None], [[]], [{}], {"a": 1}, ["a"] * 50,
    "x" * 5000, "I am a sentence that goes on, and on, and on.",
)  # fmt: skip
_KINDS = ("prose", "fence", "thought", "space", "cut", "scratch", "odd_value", "python", "keys", "noise")


def _wrap(kind: str, good: str, rng: random.Random) -> str:
    before = rng.choice(["Sure! Here it is:\n", "Here is the JSON object (as asked):\n\n", "", "**Answer**: "])
    after = rng.choice(["\n\nLet me know if you need more!", "", "\nI left out what was not said."])
    if kind == "prose":
        return before + good + after
    if kind == "fence":
        return f"{before}```{rng.choice(['json', '', 'JSON'])}\n{good}\n```{after}"
    if kind == "thought":
        return f"<think>\nThe user says {rng.choice(['nothing', 'a {thing}', 'so much'])}.\n</think>\n{good}"
    return rng.choice(["\ufeff", " " * 400, "\n"]) + good + rng.choice(["\n" * 2000, " " * 2000, "\x00", "\t"])


def _scratch(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(text) + 1), rng.randint(1, 8)
        how = rng.randrange(4)
        if how == 0:
            text = text[:at] + text[at + size :]
        elif how == 1:
            text = text[:at] + rng.choice(_TOKENS) + text[at:]
        elif how == 2:
            text = text[:at] + text[at : at + size] * 2 + text[at + size :]
        else:
            text = text[:at] + text[at:].replace(rng.choice('",:[]{}'), rng.choice(["", "'", " "]), 1)
    return text


def _odd(value: object, rng: random.Random) -> object:
    """Put an odd value in place of one node."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(sorted(value))
        return {**value, key: _odd(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.6:
        at = rng.randrange(len(value))
        return [*value[:at], _odd(value[at], rng), *value[at + 1 :]]
    return rng.choice(_VALUES)


def _keys(value: dict, rng: random.Random) -> dict:
    """Rename, drop, add or wrap fields."""
    key = rng.choice(sorted(value))
    how = rng.randrange(4)
    if how == 0:
        return {(k.upper() if k == key else k): v for k, v in value.items()}
    if how == 1:
        return {k: v for k, v in value.items() if k != key}
    if how == 2:
        return {**value, "confidence": 0.9, "\ud800": []}
    return {"result": value}


def fuzz(count: int, seed: int) -> dict[str, int]:
    """Read `count` mutated replies and check each.

    Returns:
        Counts: replies, taken as they were, mended, refused; and replies by kind of mutation.

    Raises:
        AssertionError: Something was lost, invented or left in a form that it must not have. Any other exception is a
            fault of the parser or of a task.
    """
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    for number in range(count):
        name = tasks.names()[number % len(GOOD)]
        kind = _KINDS[rng.randrange(len(_KINDS))]
        value = GOOD[name]
        good = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2]))
        finish = rng.choice(["stop", "length"])
        if kind in ("prose", "fence", "thought", "space"):
            text = _wrap(kind, good, rng)
        elif kind == "cut":
            text, finish = good[: rng.randrange(len(good))] + rng.choice(["", " " * 500]), "length"
        elif kind == "scratch":
            text = _scratch(good, rng)
        elif kind == "odd_value":
            text = json.dumps(_odd(value, rng))
        elif kind == "python":
            text = _wrap("fence", str(value), rng)
        elif kind == "keys":
            text = json.dumps(_keys(value, rng))
        else:
            text = "".join(rng.choice(_TOKENS) for _ in range(rng.randint(1, 60)))
        where = f"reply {number} ({name}, {kind}, {finish}): {text!r}"
        counts.update(("replies", kind))
        try:
            counts[_read(name, kind, text, finish, where)] += 1
        except BadReplyError as error:
            assert kind not in ("prose", "fence", "thought", "space"), f"lost ({error}): {where}"
            assert 0 < len(str(error)) <= 300, where
            assert "\n" not in str(error), where
            counts["refused"] += 1
    return dict(counts)


def _read(name: str, kind: str, text: str, finish: str, where: str) -> str:
    task = tasks.load(name)
    value, mended = replies.parse(text, finish)
    assert isinstance(value, dict), where
    if kind in ("prose", "fence", "thought", "space"):
        assert value == GOOD[name], where
        assert kind == "prose" or bool(mended) == (kind == "fence"), where
    if kind == "cut":
        assert _starts(value, GOOD[name]), where
    record, more = task.read(value)
    task.vocabulary(record)
    assert task.merge([record]) == record, where
    assert task.merge([record, record]) == record, where
    told = replies.told([*mended, *more])
    assert (told is None) == (not mended and not more), where
    if name == "notes":
        found = [tag for field in record.tags.values() for tag in field]
        assert all(tags.normalise(tag) == tag for tag in found), where
        assert len(record.summary) <= 400, where
    return "mended" if mended or more else "taken"


def _starts(part: object, whole: object) -> bool:
    """Tell whether a value is another one with its end missing."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return list(part) == list(whole)[: len(part)] and all(_starts(part[key], whole[key]) for key in part)
    if isinstance(part, list) and isinstance(whole, list):
        return part == whole[: len(part)]
    return part == whole
