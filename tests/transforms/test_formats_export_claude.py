"""Claude exports: one small sample for every quirk that they are known for."""

from datetime import UTC, datetime

import pytest

from tests.transforms.exports import claude_conversation, claude_message, read, said


def test_a_conversation():
    data = [claude_conversation(claude_message("m1", "tea?"), claude_message("m2", "yes", "assistant"))]
    (session,), rejects, reading = read(data, "x/conversations.json")
    assert reading.reader.NAME == "claude" and reading.unit == "exchange" and not rejects
    assert (session.case_id, session.session_id, session.offset) == ("ann", "c1", 1)
    assert session.started_at == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert session.started_at_text == "2024-05-01T10:00:00.000000Z"
    assert said(session) == [("user", "tea?"), ("assistant", "yes")]
    assert [m.id for m in session.messages] == ["m1", "m2"]
    assert session.messages[0].at == datetime(2024, 5, 1, 10, 0, 1, 500000, UTC)
    assert reading.context.repairs == {}


@pytest.mark.parametrize(("account", "case"), [({"uuid": "bob"}, "bob"), (None, "x"), ({"uuid": 7}, "x"), ("bob", "x")])
def test_the_case_is_the_account_else_the_file(account, case):
    data = [claude_conversation(claude_message("m", "hi"), account=account)]
    assert read(data, "x/conversations.json")[0][0].case_id == case


CONTENTS = [
    ([], "old text", "old text"),
    (None, "old text", "old text"),
    ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a b", "a\nb"),
    ([{"type": "text", "text": "new"}], "", "new"),
    ([{"type": "text", "text": ""}], "only here", "only here"),
    ([{"type": "image"}, {"type": "text", "text": "a"}, "b"], "x", "[image]\na\nb"),
    (
        [
            {"type": "tool_use", "name": "artifacts", "input": {"command": "create", "content": "# Plan", "n": 1}},
            {"type": "tool_use", "name": None, "input": None},
            {"type": "tool_result", "content": [{"type": "text", "text": "OK"}, {"type": "knowledge"}]},
            {"type": "tool_result", "content": "plain"},
            {"type": "tool_result", "content": None},
        ],
        "This block is not supported",
        "[tool_call: artifacts]\ncreate\n# Plan\n[tool_call: unknown]\nOK\n[knowledge]\nplain",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("content", "text", "shown"), CONTENTS)
def test_every_shape_of_content(content, text, shown):
    message = {**claude_message("m", text, "assistant"), "content": content}
    (session,), rejects, _ = read([claude_conversation(message)])
    assert session.messages[0].content == shown and not rejects


def test_thinking_is_left_out_and_counted():
    parts = [{"type": "thinking", "thinking": "hm", "text": "hm"}, {"type": "text", "text": "yes"}]
    alone = {**claude_message("m2", "", "assistant"), "content": parts[:1]}
    data = [claude_conversation({**claude_message("m1", "yes"), "content": parts}, alone)]
    (session,), _, reading = read(data)
    assert said(session) == [("user", "yes")]
    assert reading.context.repairs == {"hidden_part": 2, "empty_message": 1}


def test_files_are_named_and_their_text_is_kept():
    pasted = [{"file_name": "", "extracted_content": "first"}, {"file_name": "", "extracted_content": "second"}]
    message = claude_message(
        "m",
        "see",
        attachments=[*pasted, {"file_name": "a.txt", "extracted_content": "inside"}, 7],
        files=[{"file_name": "a.txt"}, {"file_name": "b.png"}, {"file_uuid": "u"}, None],
    )
    (session,), _, _ = read([claude_conversation(message)])
    assert session.messages[0].content == (
        "see\n[file: unnamed]\nfirst\n[file: unnamed]\nsecond\n[file: a.txt]\ninside\n[file: b.png]"
    )


ROOT = "00000000-0000-4000-8000-000000000000"


def branched(**more):
    def follows(key, parent, text, sender="human"):
        return claude_message(key, text, sender, parent_message_uuid=parent)

    return claude_conversation(
        follows("u1", ROOT, "q"),
        follows("a1", "u1", "first", "assistant"),
        follows("a2", "u1", "second", "assistant"),
        follows("u2", "a2", "more"),
        follows("u3", "a1", "on the first"),
        **more,
    )


@pytest.mark.parametrize(
    ("current", "main", "branches"),
    [
        (None, ["q", "first", "on the first"], [["second", "more"]]),
        ("u2", ["q", "second", "more"], [["first", "on the first"]]),
        ("gone", ["q", "first", "on the first"], [["second", "more"]]),
    ],
)
def test_branches(current, main, branches):
    sessions, _, reading = read([branched(current_leaf_message_uuid=current)])
    assert [[m.content for m in one.messages] for one in sessions] == [main, *branches]
    assert [one.session_id for one in sessions] == ["c1", "c1~branch-1"] and not reading.context.repairs


@pytest.mark.parametrize("parent", [None, ROOT, 7, ["m1"]])
def test_messages_without_known_parents_follow_each_other(parent):
    messages = [claude_message(f"m{n}", str(n), parent_message_uuid=parent) for n in range(3)]
    (session,), _, _ = read([claude_conversation(*messages)])
    assert [m.content for m in session.messages] == ["0", "1", "2"]


def test_a_message_without_the_field_follows_the_one_before():
    data = branched()
    data["chat_messages"].append(claude_message("x", "last"))
    sessions, _, _ = read([data])
    assert [m.content for m in sessions[0].messages] == ["q", "first", "on the first", "last"]


def test_the_same_message_id_twice_loses_nothing():
    (session,), _, _ = read([claude_conversation(claude_message("m", "1"), claude_message("m", "2"))])
    assert [(m.id, m.content) for m in session.messages] == [("m", "1"), ("m", "2")]


def test_messages_that_follow_each_other_in_a_ring():
    ring = [claude_message(f"m{n}", str(n), parent_message_uuid=f"m{(n + 1) % 3}") for n in range(3)]
    sessions, _, reading = read([claude_conversation(*ring)])
    assert sorted(m.content for one in sessions for m in one.messages) == ["0", "1", "2"]
    assert reading.context.repairs["cyclic_tree"] == 1


def test_faults_cost_their_part_only():
    odd = claude_conversation(7, claude_message("m", "kept", sender=None), None)
    data = [odd, {"uuid": "x"}, {"uuid": "x", "chat_messages": 3}, {"chat_messages": []}, "text", claude_conversation()]
    sessions, rejects, reading = read(data, format="claude")
    assert [said(one) for one in sessions] == [[("user", "kept")], []]
    reasons = ["wrong_type", "wrong_type", "missing_field", "wrong_type", "missing_field", "not_an_object"]
    assert [one.reason for one in rejects] == reasons
    assert "message 0 is a number" in rejects[0].detail and reading.context.repairs["missing_role"] == 1


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("users.json", {"uuid": "u", "full_name": "Ann", "email_address": "a@x"}),
        ("x/projects.json", {"uuid": "p", "name": "Plans", "docs": []}),
        ("memories.json", {"conversations_memory": "text", "account_uuid": "u"}),
    ],
)
def test_the_other_files_of_the_export_hold_nothing(name, record):
    sessions, rejects, reading = read([record, record], name)
    assert reading.reader.NAME == "claude" and not sessions and not rejects
    assert reading.context.repairs == {"passed_over": 2}
