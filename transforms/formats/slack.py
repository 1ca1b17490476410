"""Slack's export of a workspace: a folder for each channel with a file of messages for each day."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

from transforms.formats._cases import case_name, parted
from transforms.formats._fields import FieldError, identifier, kind_of, load_object, reject
from transforms.formats._head import first_keys
from transforms.formats._slack_text import message_text
from transforms.jsonstream import array_elements
from transforms.records import Message, ReadContext, Record, Session, Unit
from transforms.timestamps import parse_time

NAME = "slack"
VERSION = 1
UNIT: Unit = "message"
PLACE = r"[^/]+/\d{4}-\d{2}-\d{2}\.json(?:\.gz|\.zst)?"
BESIDE = ("users.json", "org_users.json", "channels.json", "groups.json", "mpims.json")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(rb'"ts"\s*:\s*"\d{9,12}(?:\.\d{1,9})?"')
_BESIDE = frozenset(
    (
        *("users", "org_users", "channels", "groups", "dms", "mpims", "integration_logs", "content_flags"),
        *("canvases", "lists", "file_conversations", "huddle_transcripts"),
    )
)
"""Files of the export that hold no messages."""
_BESIDE_IDS = frozenset(("id", "user_id"))
_BESIDE_KEYS = frozenset(
    (
        *("profile", "team_id", "deleted", "members", "created", "creator", "is_archived"),
        *("service_id", "service_type", "app_id", "app_type", "change_type", "filetype"),
    )
)
_SERVICE = ("channel_", "group_", "bot_add", "bot_remove", "pinned_item", "unpinned_item", "huddle_", "sh_room_")
_NAMES = ("real_name", "display_name", "name", "first_name")


@dataclass(frozen=True, slots=True)
class _Post:
    record: dict[str, Any]
    key: str
    at: datetime
    session_id: str
    offset: int


def sniff(head: bytes, name: str) -> bool:
    """True when the first object has a ``ts`` as messages have, and for the files that lie beside the channels."""
    keys = first_keys(head)
    file = parted(name)[1]
    if not keys and b"".join(head.split()) in (b"[]", b"{}"):
        return file in _BESIDE or _DAY.fullmatch(file) is not None
    if file in _BESIDE and keys & _BESIDE_IDS and keys & _BESIDE_KEYS:
        return True
    return "ts" in keys and _TIME.search(head) is not None


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield the sessions of a file: of each day, and of each thread on it; offsets are bytes.

    The file is held whole, since a name may be told by a later message; it is one day of one channel. Names that files
    beside the channels tell go before those in the messages, so that people are called the same on all days.
    """
    beside = parted(context.source)[1] in _BESIDE
    posts: list[_Post] = []
    here: dict[str, str] = {}
    for piece in array_elements(stream):
        try:
            record = load_object(piece, context)
            if beside and "ts" not in record:
                context.repairs["passed_over"] += 1
                continue
            posts.append(_post(record, context, piece.offset))
        except FieldError as fault:
            yield reject(fault, piece.data, piece.offset)
            continue
        user = record.get("user")
        if isinstance(user, str) and (name := _first(record.get("user_profile"), _NAMES)):
            here.setdefault(user, name)
    known = ChainMap(context.names, here)
    grouped: dict[str, list[_Post]] = {}
    for post in sorted(posts, key=lambda post: post.at):
        grouped.setdefault(post.session_id, []).append(post)
    case_id = case_name(context.source, _DAY.pattern)
    for session_id, members in grouped.items():
        messages = [made for post in members if (made := _message(post, known, context))]
        yield Session(case_id, session_id, messages, members[0].at, None, members[0].offset)


def names(stream: BinaryIO) -> dict[str, str]:
    """Read the names of users, of the bots among them and of channels by id, from a file that lies beside the channels.

    A user is called by the real name, or else the display name, or else the handle. Broken entries tell nothing.
    """
    told: dict[str, str] = {}
    scratch = ReadContext("", UTC)
    for piece in array_elements(stream):
        try:
            record = load_object(piece, scratch)
            key = identifier(record, "id")
        except FieldError:
            continue
        profile = record.get("profile")
        name = _first(profile, _NAMES) or _first(record, _NAMES)
        if name:
            told[key] = name
            bot = profile.get("bot_id") if isinstance(profile, dict) else None
            if isinstance(bot, str) and bot:
                told.setdefault(bot, name)
    return told


def _post(record: dict[str, Any], context: ReadContext, offset: int) -> _Post:
    key = identifier(record, "ts")
    at = parse_time(key, context.timezone)
    if at is None:
        raise FieldError("wrong_type", f"'ts' is '{key[:40]}', not seconds since 1970")
    text = record.get("text")
    if text is not None and not isinstance(text, str):
        raise FieldError("wrong_type", f"'text' of message {key} is a {kind_of(text)}, not text")
    day = parted(context.source)[1]
    if not _DAY.fullmatch(day):
        day = at.astimezone(context.timezone).date().isoformat()
    thread = record.get("thread_ts")
    session_id = f"{day}~thread-{thread}" if isinstance(thread, str) and thread else day
    return _Post(record, key, at, session_id, offset)


def _first(told: Any, keys: tuple[str, ...]) -> str:
    found = [told.get(key) for key in keys] if isinstance(told, dict) else []
    return next((name.strip() for name in found if isinstance(name, str) and name.strip()), "")


def _message(post: _Post, known: Mapping[str, str], context: ReadContext) -> Message | None:
    record = post.record
    subtype = record.get("subtype")
    subtype = subtype if isinstance(subtype, str) else ""
    text = message_text(record, known)
    if subtype == "tombstone":
        context.repairs["deleted_message"] += 1
        text = "[deleted]"
    if not text or text.isspace():
        if not subtype:
            context.repairs["empty_message"] += 1
            return None
        text = f"[{subtype}]"
    if subtype.startswith(_SERVICE):
        context.repairs["system_line"] += 1
        return Message("system", text, None, post.at, post.key)
    user, bot = record.get("user"), record.get("bot_profile")
    user = user if isinstance(user, str) else ""
    automatic = subtype == "bot_message" or isinstance(record.get("bot_id"), str)
    told = (
        *(context.names.get(user), _first(record.get("user_profile"), _NAMES), known.get(user)),
        *(record.get("username"), bot.get("name") if isinstance(bot, dict) else None),
        *(context.names.get(record["bot_id"]) if isinstance(record.get("bot_id"), str) else None, user),
        record.get("bot_id"),
    )
    name = next((one for one in told if isinstance(one, str) and one), None)
    return Message("assistant" if automatic else "user", text, name, post.at, post.key)
