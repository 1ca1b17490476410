"""ChatGPT exports: one small sample for every quirk that they are known for."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transforms.exports import conversation, node, read, said
from transforms.formats._tree import paths
from transforms.fragments import fragments
from transforms.merge import merge


def test_the_branch_that_ends_at_the_current_node_is_the_conversation():
    data = [
        conversation(
            node("root", None),
            node("u1", "root", "tea or coffee?", at=1700000001.5),
            node("a1", "u1", "tea", "assistant", 1700000002),
            node("u2", "a1", "green?", at=1700000003),
            node("a2", "u2", "yes", "assistant", 1700000004),
        )
    ]
    (session,), rejects, reading = read(data, "ann/conversations.json")
    assert reading.reader.NAME == "chatgpt" and reading.unit == "exchange" and not rejects
    assert (session.case_id, session.session_id, session.offset) == ("ann", "c1", 1)
    assert session.started_at == datetime(2023, 11, 14, 22, 13, 20, 500000, UTC)
    assert said(session) == [("user", "tea or coffee?"), ("assistant", "tea"), ("user", "green?"), ("assistant", "yes")]
    assert [m.id for m in session.messages] == ["u1", "a1", "u2", "a2"]
    assert session.messages[0].at == datetime(2023, 11, 14, 22, 13, 21, 500000, UTC)
    assert reading.context.repairs == {}


def forked(current):
    return conversation(
        node("root", None),
        node("u1", "root", "q", at=1),
        node("a1", "u1", "first answer", "assistant", 1700000010),
        node("a2", "u1", "second answer", "assistant", 1700000020),
        node("u2", "a2", "edited away", at=1700000030),
        node("b2", "u2", "reply to it", "assistant", 1700000040),
        node("u3", "a2", "kept", at=1700000050),
        node("a3", "u3", "end", "assistant", 1700000060),
        current=current,
    )


@pytest.mark.parametrize(
    ("current", "main", "branches"),
    [
        ("a3", ["q", "second answer", "kept", "end"], [["first answer"], ["edited away", "reply to it"]]),
        ("b2", ["q", "second answer", "edited away", "reply to it"], [["first answer"], ["kept", "end"]]),
        ("a1", ["q", "first answer"], [["second answer", "kept", "end"], ["edited away", "reply to it"]]),
        ("u1", ["q"], [["first answer"], ["second answer", "kept", "end"], ["edited away", "reply to it"]]),
    ],
)
def test_other_branches_are_kept_as_what_follows_the_fork(current, main, branches):
    sessions, rejects, _ = read([forked(current)])
    assert [[m.content for m in one.messages] for one in sessions] == [main, *branches] and not rejects
    assert [one.session_id for one in sessions] == ["c1", *(f"c1~branch-{n}" for n in range(1, len(branches) + 1))]
    assert sessions[1].started_at == sessions[1].messages[0].at
    texts = [m.id for one in sessions for m in one.messages]
    assert sorted(texts) == sorted(["u1", "a1", "a2", "u2", "b2", "u3", "a3"])


def test_branches_become_sessions_of_their_own_in_the_tables():
    reading = read([forked("a3")], "ann.json")[2]
    sessions = read([forked("a3")], "ann.json")[0]
    merged = merge([group[0] for group in fragments(sessions, "ann.json", reading.unit, 1, 1 << 20)])
    rows = merged.interactions.to_pylist()
    assert [(r["interaction_id"], r["user_text"], r["assistant_text"]) for r in rows] == [
        ("c1/0", "q", "second answer"),
        ("c1/1", "kept", "end"),
        ("c1~branch-1/0", "", "first answer"),
        ("c1~branch-2/0", "edited away", "reply to it"),
    ]
    assert not merged.repairs and {r["case_id"] for r in rows} == {"ann"}


@pytest.mark.parametrize("current", [None, "gone", 7, ["u1"]])
def test_without_a_current_node_the_newest_message_ends_the_conversation(current):
    sessions, _, reading = read([{**forked("a3"), "current_node": current}])
    assert [m.content for m in sessions[0].messages][-1] == "end" and len(sessions) == 3
    assert reading.context.repairs["no_current_node"] == 1


CONTENTS = [
    ({"content_type": "text", "parts": ["a", "", "b"]}, "a\nb"),
    ({"content_type": "code", "language": "python", "text": "print(1)"}, "print(1)"),
    ({"content_type": "execution_output", "text": "1\n"}, "1\n"),
    ({"content_type": "tether_quote", "url": "http://x", "title": "T", "text": "quoted"}, "T\nquoted"),
    ({"content_type": "tether_browsing_display", "result": "R", "summary": None, "assets": None}, "R"),
    ({"content_type": "system_error", "name": "tool_error", "text": "denied"}, "tool_error\ndenied"),
    ({"content_type": "sonic_webpage", "url": "u", "title": "T", "text": "page", "snippet": "p"}, "T\npage\np"),
    ({"content_type": "user_editable_context", "user_profile": "P", "user_instructions": "I"}, "P\nI"),
    ({"content_type": "model_editable_context", "model_set_context": "likes tea"}, "likes tea"),
    ({"content_type": "super_widget", "widget": {}}, "[super_widget]"),
    (
        {
            "content_type": "multimodal_text",
            "parts": [
                {"content_type": "image_asset_pointer", "asset_pointer": "sediment://f", "metadata": {}},
                {"content_type": "image_asset_pointer", "metadata": {"dalle": {"prompt": "a cat"}}},
                {"content_type": "audio_transcription", "text": "spoken", "direction": "in"},
                {"content_type": "audio_asset_pointer"},
                "what is this?",
            ],
        },
        "[image_asset_pointer]\n[image_asset_pointer: a cat]\nspoken\n[audio_asset_pointer]\nwhat is this?",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("content", "text"), CONTENTS, ids=[c["content_type"] for c, _ in CONTENTS])
def test_every_type_of_content(content, text):
    (session,), rejects, _ = read([conversation(node("m", None, content, "tool"))])
    assert session.messages[0].content == text and not rejects
    context = content["content_type"].endswith("_editable_context")
    assert session.messages[0].role == ("system" if context else "tool")


@pytest.mark.parametrize(
    "more",
    [{"weight": 0}, {"weight": 0.0}, {"metadata": {"is_visually_hidden_from_conversation": True}}],
)
def test_hidden_messages_are_left_out_and_counted(more):
    data = [conversation(node("h", None, "hidden", "system", **more), node("u", "h", "shown", weight=1.0))]
    (session,), _, reading = read(data)
    assert said(session) == [("user", "shown")] and reading.context.repairs == {"hidden_message": 1}


def test_reasoning_and_blank_messages_are_left_out_and_counted():
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "c"}]}
    recap = {"content_type": "reasoning_recap", "content": "Thought for 3 seconds"}
    data = conversation(
        node("s", None, "", "system"),
        node("u", "s", "q"),
        node("t", "u", thoughts, "assistant"),
        node("r", "t", recap, "assistant"),
        node("n", "r", {"content_type": "text", "parts": None}, "assistant"),
        node("a", "n", "answer", "assistant"),
    )
    data["mapping"]["n"]["message"]["content"] = None
    (session,), _, reading = read([data])
    assert said(session) == [("user", "q"), ("assistant", "answer")]
    assert reading.context.repairs == {"hidden_message": 2, "empty_message": 2, "null_content": 1}


def test_tools_have_names_and_files_are_named():
    python = node("t", "u", {"content_type": "execution_output", "text": "4"}, "tool")
    python["message"]["author"]["name"] = "python"
    user = node("u", None, "sum it", metadata={"attachments": [{"name": "a.csv"}, {"id": "x"}, 7]})
    (session,), _, _ = read([conversation(user, python)])
    assert [(m.name, m.content) for m in session.messages] == [(None, "sum it\n[file: a.csv]"), ("python", "4")]


def test_times_that_are_null_stay_null():
    (session,), _, reading = read([conversation(node("u", None, "q", at=None), create_time=None)])
    assert session.started_at is None and session.messages[0].at is None and not reading.context.repairs


def test_cycles_and_dangling_parents_lose_nothing():
    data = conversation(
        node("a", "c", "1", at=1700000001),
        node("b", "a", "2", at=1700000002),
        node("c", "b", "3", at=1700000003),
        node("d", "nowhere", "4", at=1700000004),
        node("e", "e", "5", at=1700000005),
        current="c",
    )
    sessions, rejects, reading = read([data])
    assert [[m.content for m in one.messages] for one in sessions] == [["1", "2", "3"], ["4"], ["5"]]
    assert reading.context.repairs["cyclic_tree"] == 2 and not rejects


def test_a_parent_may_be_told_by_its_children_only():
    data = conversation(node("a", None, "1"), node("b", "a", "2"))
    del data["mapping"]["b"]["parent"]
    (session,), _, _ = read([data])
    assert [m.content for m in session.messages] == ["1", "2"]


def test_a_tree_of_any_depth_needs_no_recursion():
    chain = [node(str(n), str(n - 1) if n else None, "x", at=1700000000 + n) for n in range(5_000)]
    twigs = [node(f"t{n}", str(n), "y", at=1800000000 + n) for n in range(0, 5_000, 100)]
    sessions, _, _ = read([conversation(*chain, *twigs, current="4999")])
    assert len(sessions[0].messages) == 5_000 and len(sessions) == 51


def test_faults_cost_their_part_only():
    odd = conversation(node("a", None, "1"), node("b", "a", "2"), node("c", "b", "3"), node("d", "c", "4"))
    odd["mapping"]["b"] = 7
    odd["mapping"]["c"]["message"] = "text"
    odd["mapping"]["d"]["message"]["author"] = None
    data = [odd, {"id": "c2"}, {"mapping": {}}, {"id": "c3", "mapping": []}, 7, conversation(node("z", None, "z"))]
    sessions, rejects, reading = read(data, format="chatgpt")
    assert [(r.reason) for r in rejects] == [
        *("wrong_type", "wrong_type", "missing_field", "missing_field", "wrong_type", "not_an_object")
    ]
    assert "node 'b' is a number" in rejects[0].detail
    assert [[m.content for m in one.messages] for one in sessions] == [["1", "4"], ["z"]]
    assert reading.context.repairs["missing_role"] == 1


def test_a_conversation_without_messages_is_one_reject():
    reading = read([conversation(node("root", None))])
    groups = list(fragments(reading[0], "x", "exchange", 1, 1000))
    assert groups[0][0].rejects["reason"].to_pylist() == ["no_messages"]


def test_the_name_of_the_case():
    data = [conversation(node("u", None, "q"))]
    for source, case in [
        ("conversations.json", "conversations"),
        ("ann/conversations.json", "ann"),
        ("ann/conversations-003.json", "ann"),
        ("ann/conversations.json.gz", "ann"),
        ("ann/conversations.json~2", "ann~2"),
        ("ann/work.json", "ann/work"),
        ("../x/.json", "../x/.json"),
    ]:
        assert read(data, source)[0][0].case_id == case


trees = st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=12).map(
    lambda made: {str(n): None if root else str(parent) for n, (parent, root) in enumerate(made)}
)


@given(trees, st.integers(0, 12))
def test_every_message_is_in_exactly_one_path(parents, current):
    main, branches = paths(parents, str(current), Counter())
    assert sorted(key for path in (main, *branches) for key in path) == sorted(parents)
    if str(current) in parents:
        assert main[-1] == str(current)
    where = {key: (number, at) for number, path in enumerate([main, *branches]) for at, key in enumerate(path)}
    for key, (number, at) in where.items():
        if at:
            assert [main, *branches][number][at - 1] == parents[key]
