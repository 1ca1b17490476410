"""The text of a Slack message: the marks of its own writing resolved, blocks and attachments written out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# <@U1>, <@U1|ann>, <#C1|general>, <!here>, <!date^1^{date}|today>, <http://x|label>, <mailto:a@b|a@b>
_MARK = re.compile(r"<([@#!][^<>|\n]*|[a-z][a-z0-9+.-]*:[^<>|\n]*)(?:\|([^<>]*))?>", re.IGNORECASE)
_ESCAPES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
_BARE = re.compile(r"^(?:https?://|mailto:|tel:)|/$")
# Fields of a block in which text or more blocks lie, in the order in which they are shown.
_INSIDE = ("text", "fields", "elements", "title", "alt_text")
_SHORT = {
    "emoji": ("name", ":{}:"),
    "channel": ("channel_id", "#{}"),
    "broadcast": ("range", "@{}"),
    "usergroup": ("usergroup_id", "@{}"),
}
_TITLED = ("pretext", "title", "text")


def message_text(record: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Give the text of a message, its files named at the end.

    Blocks repeat the text, and are read where there is none. Attachments are read but for previews of links, which
    count only where there is nothing else.

    Args:
        record: The message as parsed from JSON.
        names: Names of users and channels by id; others stay under their ids.
    """
    text = record.get("text")
    said = resolved(text, names) if isinstance(text, str) else ""
    if not said.strip():
        said = _blocks(record.get("blocks"), names)
    attached = [one for one in _list(record, "attachments") if isinstance(one, dict)]
    own = [one for one in attached if not (one.get("from_url") or one.get("original_url"))]
    chosen = own if said.strip() else attached
    files = [one for one in _list(record, "files") if isinstance(one, dict)]
    named = [next((n for key in ("name", "title") if isinstance(n := one.get(key), str) and n), "") for one in files]
    parts = [said, *(_attachment(one, names) for one in chosen), *(f"[file: {name or 'unnamed'}]" for name in named)]
    return "\n".join(filter(None, parts))


def resolved(text: str, names: Mapping[str, str]) -> str:
    """Replace marks by what they show and undo the three escapes; other text stays."""
    if "<" in text:
        text = _MARK.sub(lambda found: _shown(found[1], found[2] or "", names), text)
    if "&" in text:
        for escape, char in _ESCAPES:
            text = text.replace(escape, char)
    return text


def _shown(target: str, label: str, names: Mapping[str, str]) -> str:
    kind, key = target[0], target[1:]
    if kind == "@":
        return f"@{label or names.get(key, key)}"
    if kind == "#":
        return f"#{label or names.get(key, key)}"
    if kind == "!":
        return label or f"@{key.partition('^')[0]}"
    if not label or _BARE.sub("", label) == _BARE.sub("", target):
        return target.removeprefix("mailto:").removeprefix("tel:")
    return f"{label} ({target})"


def _blocks(blocks: Any, names: Mapping[str, str]) -> str:
    """Write out blocks, each on a line of its own. Without recursion, as they may be nested to any depth."""
    lines: list[list[str]] = [[]]
    stack: list[Any] = [blocks]
    while stack:
        node = stack.pop()
        if node is None:  # a block begins or ends here
            if lines[-1]:
                lines.append([])
        elif isinstance(node, str):
            lines[-1].append(node)
        elif isinstance(node, list):
            stack.extend(reversed(node))
        elif isinstance(node, dict):
            said = _leaf(node, names)
            stack += reversed(_inside(node)) if said is None else [said]
    return "\n".join("".join(line) for line in lines if line)


def _leaf(node: dict[str, Any], names: Mapping[str, str]) -> str | None:
    """Give the text of a block that holds no other; None for the others."""
    kind, text, key = node.get("type"), node.get("text"), node.get("user_id")
    if kind in ("text", "plain_text", "raw_text") and isinstance(text, str):
        return text
    if kind == "mrkdwn" and isinstance(text, str):
        return resolved(text, names)
    if kind == "link" and isinstance(url := node.get("url"), str):
        return f"{text} ({url})" if isinstance(text, str) and text else url
    if kind == "user" and isinstance(key, str):
        return f"@{names.get(key, key)}"
    field, mark = _SHORT.get(str(kind), ("", ""))
    value = node.get(field)
    if kind == "channel" and isinstance(value, str):
        value = names.get(value, value)
    return mark.format(value) if isinstance(value, str) else None


def _inside(node: dict[str, Any]) -> list[Any]:
    """Return what lies in a block, with None where a line ends: within rich text only around the block."""
    inline = str(node.get("type")).startswith("rich_text_")
    held: list[Any] = [None]
    for field in _INSIDE:
        value = node.get(field)
        for child in value if isinstance(value, list) else [value]:
            held += [child] if inline else [child, None]
    return [*held, None]


def _attachment(one: dict[str, Any], names: Mapping[str, str]) -> str:
    texts = [value for key in _TITLED if isinstance(value := one.get(key), str)]
    for entry in _list(one, "fields"):
        if isinstance(entry, dict):
            texts.append(": ".join(v for key in ("title", "value") if isinstance(v := entry.get(key), str) and v))
    said = [*(resolved(text, names) for text in texts), _blocks(one.get("blocks"), names)]
    fallback = one.get("fallback")
    if not any(said) and isinstance(fallback, str):
        said = [resolved(fallback, names)]
    return "\n".join(filter(None, said))


def _list(record: Mapping[str, Any], key: str) -> list[Any]:
    value = record.get(key)
    return value if isinstance(value, list) else []
