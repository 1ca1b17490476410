"""Interactions for the extractor tests."""

from __future__ import annotations

from datetime import UTC, datetime

from schemas import tables

DAY = datetime(2023, 5, 8, 13, tzinfo=UTC)


def interactions(*rows):
    """Make interactions; each row gives any of case, user, assistant, at, speakers, messages."""
    counts = {}
    columns = {name: [] for name in tables.schema("interactions").names}
    for row in rows:
        case = row.get("case", "a")
        position = counts.setdefault(case, 0)
        counts[case] += 1
        values = {
            "case_id": case,
            "session_id": "s",
            "interaction_id": f"i{position}",
            "content_hash": "",
            "position": position,
            "started_at": row.get("at", DAY),
            "started_at_text": None,
            "user_text": row.get("user", ""),
            "assistant_text": row.get("assistant", ""),
            "speakers": row.get("speakers", ["user"]),
            "message_ids": row.get("messages", [f"m{position}"]),
            "source": "x",
            "source_offset": 0,
        }
        for name, value in values.items():
            columns[name].append(value)
    return tables.build("interactions", columns)
