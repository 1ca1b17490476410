"""WhatsApp's export of a chat: a text file, a line or more for each message, in the style of the phone's language."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import BinaryIO, cast

from transforms.formats._cases import case_name
from transforms.formats._fields import FieldError, reject
from transforms.formats._whatsapp_lines import Evidence, Shape, date_of, head_of, plain
from transforms.jsonstream import LIMIT, Piece, lines
from transforms.records import Message, ReadContext, Record, Reject, Session, Unit
from transforms.text import clean, decode
from transforms.timestamps import parse_time

NAME = "whatsapp"
VERSION = 1
UNIT: Unit = "message"
GAP = timedelta(hours=6)
"""Silence after which a new session begins."""

PLACE = r"[^/]+/_chat\.txt(?:\.gz|\.zst)?"
_OWN = "_chat"
_SNIFFED = 20
_IN_MEMORY = 32 << 20
_KINDS = r"(image|video note|video|audio|sticker|GIF|document|Contact card)"
_OMITTED = re.compile(rf"(?:^|\u200e){_KINDS} omitted$", re.MULTILINE)
_MEDIA = re.compile(r"\A\u200e?<Media omitted>$", re.MULTILINE)
_ATTACHED = re.compile(r"\u200e?<attached: ([^<>\n]+)>")
_FILE = re.compile(r"\A\u200e?([^\n]+) \(file attached\)$", re.MULTILINE)
_EDITED = "<This message was edited>"
_DELETED = re.compile(r"(?:This message was deleted(?: by admin [^\n]*)?|You deleted this message)\.?")
# On iPhones such lines have a sender, but begin with a mark that no keyboard gives.
_SERVICE = re.compile(
    r"\u200e.*(?:end-to-end encrypted|created (?:this |the )?group|\badded\b|\bremoved\b|\bleft\b|\bjoined\b|"
    r"changed th(?:e|is)|changed their phone number|security code|now an admin|pinned a message|disappearing messages)"
)


@dataclass(slots=True)
class _Open:
    """A message whose lines are being gathered."""

    when: datetime
    name: str | None
    line: int
    parts: list[str] = field(default_factory=list)
    size: int = 0


def sniff(head: bytes, name: str) -> bool:
    """True when one of the first lines begins as a message does: with a date, a time and a hyphen or a bracket."""
    first = head.split(b"\n", _SNIFFED)[:_SNIFFED]
    return any(head_of(line[:200].decode("utf-8", "replace")) for line in first)


def read(stream: BinaryIO, context: ReadContext) -> Iterator[Record]:
    """Yield a session for each stretch without a silence of `GAP`; offsets are the line of its first message, from 1.

    What order a date is in, only the whole file can tell. So it is read twice, the second time from a copy, which
    lies on disk where it is large.
    """
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
        copy.seek(0)
        shape, evidence = _survey(cast(BinaryIO, copy))
        copy.seek(0)
        case_id = case_name(context.source, _OWN)
        held: list[Message] = []
        began: datetime | None = None
        last, offset = datetime.min, 0
        for item in _messages(cast(BinaryIO, copy), shape, evidence, context):
            if isinstance(item, Reject):
                yield item
                continue
            if began is None or abs(item.when - last) >= GAP:
                if began is not None:
                    yield _session(case_id, held, began, offset)
                held, began, offset = [], item.when, item.line
            last = item.when
            held.append(_message(item, context))
        if began is not None:
            yield _session(case_id, held, began, offset)


def _survey(stream: BinaryIO) -> tuple[Shape, Evidence]:
    """Find the shape that most lines have, and what those lines tell."""
    found: dict[Shape, Evidence] = {}
    uncounted: Counter[str] = Counter()
    for piece in lines(stream):
        if not piece.fault and (head := head_of(_text(piece, uncounted))):
            found.setdefault(head.shape, Evidence()).add(head)
    return max(found.items(), key=lambda one: one[1].lines, default=((False, "/"), Evidence()))


def _messages(stream: BinaryIO, shape: Shape, evidence: Evidence, context: ReadContext) -> Iterator[_Open | Reject]:
    month_first = evidence.month_first(shape[1])
    held: _Open | None = None
    lost = False
    due = 1
    for piece in lines(stream):
        blank, due = piece.offset - due, piece.offset + 1
        if piece.fault:
            yield reject(FieldError("unreadable", "the line is larger than the reader holds"), piece.data, piece.offset)
            continue
        line = _text(piece, context.repairs)
        head = head_of(line)
        when, swapped = None, False
        if head is not None and head.shape == shape:
            when, swapped = date_of(head, month_first=month_first)
        if head is not None and when is not None:
            if held is not None:
                yield held
            if swapped:
                context.repairs["swapped_date"] += 1
            name, text = evidence.split(head.rest)
            held = _Open(when, name, piece.offset, [text])
        elif held is not None:
            held.parts.append("\n" * blank + line)
            held.size += blank + len(piece.data)
            if held.size > LIMIT:
                big = FieldError("unreadable", f"the message of line {held.line} is larger than the reader holds")
                yield reject(big, held.parts[0].encode(), held.line)
                held, lost = None, True
        elif not lost:
            why = "text before the first message" if evidence.lines else "no line begins with a date and a time"
            yield reject(FieldError("missing_field", why), piece.data, piece.offset)
            lost = True
    if held is not None:
        yield held


def _text(piece: Piece, repairs: Counter[str]) -> str:
    return clean(decode(piece.data, repairs), repairs).rstrip("\r")


def _session(case_id: str, messages: list[Message], began: datetime, offset: int) -> Session:
    key = began.isoformat(timespec="minutes").replace(":", "")
    return Session(case_id, key, messages, messages[0].at, None, offset)


def _message(item: _Open, context: ReadContext) -> Message:
    at = parse_time(item.when, context.timezone, context.repairs)
    text, media = _media("\n".join(item.parts))
    if item.name is None or (not media and _SERVICE.match(text)):
        context.repairs["system_line"] += 1
        return Message("system", plain(text), None, at)
    text = plain(text)
    edited = text.rstrip().endswith(_EDITED)
    if edited:
        text = text.rstrip()[: -len(_EDITED)].rstrip()
    if _DELETED.fullmatch(text.strip()):
        context.repairs["deleted_message"] += 1
        text = "[deleted]"
    for count, happened in (("media_omitted", media), ("edited_message", edited)):
        if happened:
            context.repairs[count] += 1
    return Message("user", text, item.name, at)


def _media(text: str) -> tuple[str, int]:
    """Put pictures, sounds and files in brackets; also count them."""
    if "omitted" not in text and "attached" not in text:
        return text, 0
    text, count = _OMITTED.subn(r"[\1]", text)
    for mark, shown in ((_MEDIA, "[media]"), (_ATTACHED, r"[file: \1]"), (_FILE, r"[file: \1]")):
        text, more = mark.subn(shown, text)
        count += more
    return text, count
