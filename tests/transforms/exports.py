"""Reading small exports in tests, and the samples that several tests use."""

import io
import json
from datetime import UTC

from transforms.formats import read_source
from transforms.records import Reject, Session


def read(data, name="file", format="auto", timezone=UTC):
    """Return the sessions and rejects of a file, and the reading."""
    raw = data.encode() if isinstance(data, str) else data if isinstance(data, bytes) else json.dumps(data).encode()
    reading = read_source(io.BytesIO(raw), name, format, "auto", timezone)
    records = list(reading.records)
    return [r for r in records if isinstance(r, Session)], [r for r in records if isinstance(r, Reject)], reading


def said(session):
    return [(m.role, m.content) for m in session.messages]


def node(key, parent, text=None, role="user", at=None, **more):
    """A node of a ChatGPT conversation."""
    message = None
    if text is not None:
        content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
        message = {"id": key, "author": {"role": role, "name": None}, "create_time": at, "content": content, **more}
    return {"id": key, "parent": parent, "children": [], "message": message}


def conversation(*nodes, current=None, **more):
    """A ChatGPT conversation of nodes, the last of them shown."""
    mapping = {one["id"]: one for one in nodes}
    for one in nodes:
        if one["parent"] in mapping:
            mapping[one["parent"]]["children"].append(one["id"])
    told = {"title": "Tea", "create_time": 1700000000.5, "update_time": 1700000900.0, "mapping": mapping}
    return {**told, "current_node": current or nodes[-1]["id"], "conversation_id": "c1", "id": "c1", **more}


def claude_conversation(*messages, **more):
    told = {"uuid": "c1", "name": "Tea", "created_at": "2024-05-01T10:00:00.000000Z", "account": {"uuid": "ann"}}
    return {**told, "chat_messages": list(messages), **more}


def claude_message(key, text, sender="human", **more):
    made = {"uuid": key, "text": text, "sender": sender, "created_at": "2024-05-01T10:00:01.5Z"}
    return {**made, "content": [{"type": "text", "text": text}], "attachments": [], "files": [], **more}


ANDROID = """\
31/12/2023, 21:05 - Messages and calls are end-to-end encrypted. Tap to learn more.
31/12/2023, 21:05 - Ann: hello
01/01/2024, 00:01 - Bob: happy new year
"""

SLACK = [
    {
        "client_msg_id": "x", "type": "message", "text": "tea &amp; cake?", "user": "U1", "ts": "1704103200.000100",
        "user_profile": {"real_name": "Ann Lee", "display_name": "ann"},
    },
    {"type": "message", "text": "yes <@U1>", "user": "U2", "ts": "1704103260.000200"},
]  # fmt: skip
