"""Mutated exports through their readers: nothing may escape as an exception, no message may get lost."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from datetime import UTC
from typing import Any

from tests.transforms.exports import claude_conversation, claude_message, conversation, node
from tests.transforms.fuzz_readers import _replace, _scratch
from transforms.formats import read_source
from transforms.fragments import fragments
from transforms.jsonstream import load
from transforms.merge import merge
from transforms.records import REJECT_REASONS, Reject, Session

_WORDS = [
    "tea",
    "\u00e9t\u00e9",
    'say "hi"',
    "a\\b",
    "{x}",
    "line\nfeed",
    "\U0001f600",
    "[x]",
    "<@U1|b>",
    "&lt;",
    "a: b",
    "",
]
_COUNTS = ("hidden_message", "empty_message", "passed_over")
FORMATS = ("chatgpt", "claude", "slack", "whatsapp")


def _text(rng: random.Random) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(rng.randint(0, 6)))


def _chatgpt(key: str, rng: random.Random) -> dict[str, Any]:
    contents: list[Any] = [
        {"content_type": "code", "text": "x"},
        {"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}, "x"]},
        {"content_type": "thoughts", "thoughts": []},
    ]
    nodes = [node(f"{key}-0", None)]
    for n in range(1, rng.randint(2, 9)):
        parent = f"{key}-{rng.randrange(n)}"
        content = rng.choice([*contents, *[_text(rng)] * 4])
        role = rng.choice(["user", "assistant", "tool", "system"])
        nodes.append(node(f"{key}-{n}", parent, content, role, 1.7e9 + rng.randrange(99), weight=rng.choice([0, 1, 1])))
    return conversation(*nodes, id=key, conversation_id=key)


def _claude(key: str, rng: random.Random) -> dict[str, Any]:
    made = []
    for n in range(rng.randint(1, 6)):
        more = {"parent_message_uuid": f"{key}-{rng.randrange(n + 1)}"} if rng.random() < 0.5 else {}
        made.append(claude_message(f"{key}-{n}", _text(rng), rng.choice(["human", "assistant"]), **more))
        made[-1]["content"].append(rng.choice([{"type": "thinking"}, {"type": "tool_use", "input": {"a": "b"}}]))
    return claude_conversation(*made, uuid=key)


def _slack(key: str, rng: random.Random) -> dict[str, Any]:
    blocks = [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [{"type": "text"}]}]}]
    made = {
        "type": "message",
        "user": "U1",
        "text": _text(rng),
        "ts": f"17{rng.randrange(10**8):08}.000100",
        "blocks": blocks,
    }
    extra = [{"thread_ts": "1700000000.1"}, {"subtype": "channel_join"}, {"files": [{"name": "f"}]}, {"bot_id": "B"}]
    return {**made, **rng.choice(extra), "user_profile": {"real_name": "Ann"}, "attachments": [{"title": _text(rng)}]}


def _whatsapp(rng: random.Random) -> list[str]:
    shape = rng.choice(
        ["{d:02}/{m:02}/2024, {h:02}:00 - ", "[{m}/{d}/24, {g}:00:00\u202fPM] ", "\u200e[{d}.{m}.24 {h}:00:00] "]
    )
    text = []
    for n in range(rng.randint(1, 8)):
        head = shape.format(d=rng.randint(1, 28), m=rng.randint(1, 12), h=rng.randrange(24), g=rng.randint(1, 12))
        said = _text(rng).replace("\n", "\n\n")
        text.append(f"{head}{rng.choice(['Ann: ', 'Dr: Bob: ', '+1 2: ', ''])}w{n}w {said}")
    return text


_MAKERS = {"chatgpt": _chatgpt, "claude": _claude, "slack": _slack}


def _wanted(name: str, element: Any) -> int:
    """Count the messages of an element that must come out, in whatever way."""
    element = load(json.dumps(element).encode(), Counter())  # numbers may be parsed in two ways
    if name == "slack" or not isinstance(element, dict):
        return 1
    held = element.get("mapping" if name == "chatgpt" else "chat_messages")
    key = element.get("id" if name == "chatgpt" else "uuid")
    if name == "chatgpt" and isinstance(named := element.get("conversation_id"), str) and named:
        key = named
    fits = key != "" and isinstance(key, str | int) and not isinstance(key, bool)
    if not fits or not isinstance(held, dict if name == "chatgpt" else list):
        return 1
    if name == "claude":
        return len(held)
    return sum(not isinstance(one, dict) or one.get("message") is not None for one in held.values())


def fuzz(count: int, seed: int) -> Counter[str]:
    """Run `count` mutated exports and check each.

    Returns:
        Counts: inputs, taken messages, rejects, and inputs by kind of mutation and by reader.

    Raises:
        AssertionError: A message got lost, or a reject has no known reason. Any other exception is a reader's fault.
    """
    rng = random.Random(seed)
    told: Counter[str] = Counter()
    for number in range(count):
        name = FORMATS[number % len(FORMATS)]
        kind = rng.choice(["whole", "odd_value", "odd_value", "scratched", "scratched", "cut"])
        if name == "whatsapp":
            lines = _whatsapp(rng)
            data, wanted = "\n".join(lines).encode(), len(lines)
        else:
            elements: list[Any] = [_MAKERS[name](f"c{k}", rng) for k in range(rng.randint(1, 4))]
            if kind == "odd_value":
                elements = json.loads(json.dumps(elements))
                at = rng.randrange(len(elements))
                for _ in range(rng.randint(1, 3)):
                    elements[at] = json.loads(json.dumps(_replace(elements[at], rng)))
            data, wanted = json.dumps(elements).encode(), sum(_wanted(name, one) for one in elements)
        if kind == "scratched":
            data = _scratch(data, rng)
        elif kind == "cut":
            data = data[: rng.randrange(len(data))]
        told.update({"inputs": 1, kind: 1, name: 1, **_check(name, data, wanted, kind, number)})
    return told


def _check(name: str, data: bytes, wanted: int, kind: str, number: int) -> dict[str, int]:
    where = f"input {number} ({name}, {kind}): {data!r}"
    reading = read_source(io.BytesIO(data), "x/2024-01-01.json", name, "auto", UTC)
    records = list(reading.records)
    rejects = [one for one in records if isinstance(one, Reject)]
    messages = [m for one in records if isinstance(one, Session) for m in one.messages]
    assert records or not data.strip(b" []\r\n"), f"nothing came of {where}"
    assert all(one.reason in REJECT_REASONS and one.detail for one in rejects), where
    if name == "whatsapp":
        marks = {
            word
            for word in data.decode("utf-8", "replace").split()
            if word.isascii() and word.isalnum() and word[0] == "w" == word[-1]
        }
        found = {word for m in messages for word in f"{m.name} {m.content}".split()}
        assert rejects or marks <= found, f"lost {marks - found} in {where}"
    elif kind in ("whole", "odd_value"):
        out = len(messages) + len(rejects) + sum(reading.context.repairs[count] for count in _COUNTS)
        assert out == wanted, f"{out} of {wanted} messages came of {where}"
    for group in fragments(records, "x", reading.unit, 1, 1 << 20):
        if number % 16 < len(FORMATS):
            merge(list(group.values()))
    return {"taken": len(messages), "rejected": len(rejects)}
