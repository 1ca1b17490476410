"""Slack exports: one small sample for every quirk that they are known for."""

import gzip
import io
import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.transforms.exports import SLACK, read, said
from transforms.formats import beside, names, place, read_source
from transforms.formats._slack_text import message_text, resolved


def post(ts, text="hi", user="U1", **more):
    return {"type": "message", "user": user, "text": text, "ts": f"17041032{ts:02}.000100", **more}


def test_a_day_of_a_channel():
    (session,), rejects, reading = read(SLACK, "acme/general/2024-01-01.json")
    assert reading.reader.NAME == "slack" and reading.unit == "message" and not rejects
    assert (session.case_id, session.session_id, session.offset) == ("acme/general", "2024-01-01", 1)
    assert session.started_at == session.messages[0].at == datetime(2024, 1, 1, 10, 0, 0, 100, UTC)
    assert [(m.role, m.name, m.content, m.id) for m in session.messages] == [
        ("user", "Ann Lee", "tea & cake?", "1704103200.000100"),
        ("user", "U2", "yes @Ann Lee", "1704103260.000200"),
    ]
    assert reading.context.repairs == {}


@pytest.mark.parametrize(
    ("source", "case", "session_id"),
    [
        ("general/2024-01-02.json", "general", "2024-01-02"),
        ("general/2024-01-02.json.gz", "general", "2024-01-02"),
        ("general/2024-01-02.json~2", "general~2", "2024-01-02"),
        ("general/all.json", "general/all", "2024-01-01"),
        ("2024-01-02.json", "2024-01-02", "2024-01-02"),
    ],
)
def test_case_and_session_come_from_the_path(source, case, session_id):
    (session,), _, _ = read(SLACK, source)
    assert (session.case_id, session.session_id) == (case, session_id)


def test_days_of_other_files_are_those_of_the_runs_zone():
    sessions, _, _ = read([post(0), {**post(1), "ts": "1704142800.0"}], "x.json", timezone=ZoneInfo("Asia/Tokyo"))
    assert [one.session_id for one in sessions] == ["2024-01-01", "2024-01-02"]


def test_a_file_that_is_named_alone_keeps_its_channel():
    assert place("/home/ann/acme/general/2024-01-01.json") == "general/2024-01-01.json"


def test_threads_are_sessions_of_their_own():
    parent = post(1, "who comes?", thread_ts="1704103201.000100", reply_count=2)
    reply = post(5, "me", "U2", thread_ts="1704103201.000100", parent_user_id="U1")
    shown = post(6, "me too", "U3", thread_ts="1704103201.000100", subtype="thread_broadcast", root=parent)
    older = post(7, "late", thread_ts="1690000000.000100")
    sessions, _, _ = read([reply, post(0, "a"), parent, post(9, "b"), shown, older], "c/2024-01-01.json")
    assert [(one.session_id, [m.content for m in one.messages]) for one in sessions] == [
        ("2024-01-01", ["a", "b"]),
        ("2024-01-01~thread-1704103201.000100", ["who comes?", "me", "me too"]),
        ("2024-01-01~thread-1690000000.000100", ["late"]),
    ]


def test_names():
    data = [
        post(0, user="U1"),
        post(1, user="U1", user_profile={"real_name": "", "display_name": "ann"}),
        post(2, user="U2", user_profile={"real_name": " Bob Ray ", "display_name": "bob"}),
        post(3, user="U3", user_profile=None),
        post(4, user=None, subtype="bot_message", username="Deploys", bot_id="B1"),
        post(5, user="U9", bot_id="B2", bot_profile={"name": "GitHub"}),
        post(6, user=None, subtype="bot_message", bot_id="B3"),
        post(7, user=None),
    ]
    (session,), _, _ = read(data, "c/2024-01-01.json")
    assert [(m.role, m.name) for m in session.messages] == [
        *[("user", "ann"), ("user", "ann"), ("user", "Bob Ray"), ("user", "U3")],
        *[("assistant", "Deploys"), ("assistant", "GitHub"), ("assistant", "B3"), ("user", None)],
    ]


BESIDE = [
    {"id": "U1", "name": "annl", "real_name": "A. Lee", "profile": {"real_name": " Ann Lee ", "display_name": "ann"}},
    {"id": "U2", "name": "bob", "real_name": "B. Ray", "profile": {"real_name": "", "display_name": "Bobby"}},
    {"id": "U3", "name": "cy", "real_name": "Cy Dee", "profile": {"real_name": "", "display_name": ""}},
    {"id": "U4", "name": "dot", "profile": None},
    {"id": "U5", "name": "deploys", "is_bot": True, "profile": {"real_name": "Deploys", "bot_id": "B5"}},
    {"id": "U6", "name": "", "profile": {"real_name": None}},
    {"id": "", "name": "x"},
    {"name": "y"},
    ["U7"],
    {"id": "U8", "name": "eve"},
]


def test_names_that_the_files_beside_the_channels_tell():
    told = {"U1": "Ann Lee", "U2": "Bobby", "U3": "Cy Dee", "U4": "dot", "U5": "Deploys", "B5": "Deploys", "U8": "eve"}
    raw = json.dumps(BESIDE).encode()
    for data in (raw, b"\xef\xbb\xbf" + raw, gzip.compress(raw)):
        assert names(io.BytesIO(data), "/data/acme/users.json") == told
    # What is cut loses its end.
    cut = raw[: raw.index(b'"U4"')]
    assert names(io.BytesIO(cut), "users.json") == {key: told[key] for key in ("U1", "U2", "U3")}
    channels = b'[{"id": "C1", "name": "general", "members": ["U1"]}]'
    assert names(io.BytesIO(channels), "zip://acme/channels.json::file:///acme.zip") == {"C1": "general"}
    assert names(io.BytesIO(raw), "people.json") == {}


def test_files_beside_are_looked_for_in_the_folder_above_a_day():
    five = ["users.json", "org_users.json", "channels.json", "groups.json", "mpims.json"]
    assert list(beside("general/2024-01-01.json")) == five
    assert list(beside("s3://b/acme/general/2024-01-01.json.gz")) == [f"s3://b/acme/{name}" for name in five]
    assert beside("acme/users.json") == beside("2024-01-01.json") == beside("ann/conversations.json") == ()


def test_names_from_beside_go_first_and_fill_what_a_day_does_not_tell():
    data = [
        post(0, "<@U1> <@U2|b> <@U9> <#C1> <#C2> <#C1|old>", user="U1", user_profile={"real_name": "Ann L"}),
        post(1, "", user="U2", blocks=[{"type": "channel", "channel_id": "C1"}, {"type": "user", "user_id": "U2"}]),
        post(2, user="U3", user_profile={"real_name": "Cy"}),
        post(3, user=None, subtype="bot_message", bot_id="B5"),
        post(4, user=None, subtype="bot_message", bot_id="B5", username="Nightly"),
        post(5, user="U7"),
    ]
    told = {"U1": "Ann Lee", "U2": "Bobby", "B5": "Deploys", "C1": "general"}
    stream = io.BytesIO(json.dumps(data).encode())
    (session,) = read_source(stream, "c/2024-01-01.json", "auto", "auto", UTC, names=told).records
    assert [(m.name, m.content) for m in session.messages] == [
        ("Ann Lee", "@Ann Lee @b @U9 #general #C2 #old"),
        ("Bobby", "#general@Bobby"),
        *[("Cy", "hi"), ("Deploys", "hi"), ("Nightly", "hi"), ("U7", "hi")],
    ]
    assert told == {"U1": "Ann Lee", "U2": "Bobby", "B5": "Deploys", "C1": "general"}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("<@U1> <@U2> <@U3|cy>", "@Ann @U2 @cy"),
        ("<#C1|general> <#C2|> <#C3>", "#general #C2 #C3"),
        ("<!here> <!channel> <!subteam^S1|@team> <!subteam^S2>", "@here @channel @team @subteam"),
        ("<!date^1392734382^{date}|18 Feb 2014>", "18 Feb 2014"),
        ("<http://x.org/a|the page>", "the page (http://x.org/a)"),
        ("<http://x.org|x.org> <https://x.org/>", "http://x.org https://x.org/"),
        ("<mailto:a@x.org|a@x.org> <tel:+44|+44>", "a@x.org +44"),
        ("1 &lt; 2 &amp;&amp; a &gt; b &amp;lt;", "1 < 2 && a > b &lt;"),
        ("<b>bold</b> <> <x y> a < b", "<b>bold</b> <> <x y> a < b"),
        ("<http://x.org/?a=1&amp;b=2>", "http://x.org/?a=1&b=2"),
        ("`<script>` &#x27; <@>", "`<script>` &#x27; @"),
    ],
)
def test_marks_in_texts(written, shown):
    assert resolved(written, {"U1": "Ann"}) == shown


RICH = [
    {
        "type": "rich_text",
        "elements": [
            {
                "type": "rich_text_section",
                "elements": [
                    {"type": "text", "text": "see ", "style": {"bold": True}},
                    {"type": "user", "user_id": "U1"},
                    {"type": "emoji", "name": "tea"},
                    {"type": "link", "url": "http://x", "text": "page"},
                    {"type": "link", "url": "http://y"},
                ],
            },
            {
                "type": "rich_text_list",
                "elements": [
                    {"type": "rich_text_section", "elements": [{"type": "text", "text": "one"}]},
                    {"type": "rich_text_section", "elements": [{"type": "channel", "channel_id": "C1"}]},
                ],
            },
            {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": "a\n\nb"}]},
            {"type": "rich_text_quote", "elements": [{"type": "broadcast", "range": "here"}]},
        ],
    }
]
OTHER = [
    {"type": "header", "text": {"type": "plain_text", "text": "Build &amp; <@U1>"}},
    {"type": "divider"},
    {
        "type": "section",
        "text": {"type": "mrkdwn", "text": "by <@U1>"},
        "fields": [{"type": "mrkdwn", "text": "a"}, {"type": "mrkdwn", "text": "b"}],
    },
    {"type": "image", "title": {"type": "plain_text", "text": "T"}, "alt_text": "a cat", "image_url": "http://i"},
    {
        "type": "context",
        "elements": [{"type": "usergroup", "usergroup_id": "S1"}, 7, None, {"type": "text", "text": 3}],
    },
]


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        (RICH, "see @Ann:tea:page (http://x)http://y\none\n#C1\na\n\nb\n@here"),
        (OTHER, "Build &amp; <@U1>\nby @Ann\na\nb\nT\na cat\n@S1"),
        (None, ""),
        ({"type": "text", "text": "x"}, "x"),
        ("x", "x"),
    ],
)
def test_blocks_are_read_where_there_is_no_text(blocks, text):
    assert message_text({"text": "", "blocks": blocks}, {"U1": "Ann"}) == text
    assert message_text({"text": "own", "blocks": blocks}, {}) == "own"


def test_blocks_nested_to_any_depth():
    block = {"type": "text", "text": "deep"}
    for _ in range(50_000):
        block = {"type": "x", "elements": [block]}
    assert message_text({"blocks": [block]}, {}) == "deep"


def test_attachments():
    bot = {"pretext": "New", "title": "Bug &lt;1&gt;", "text": "by <@U1>", "fields": [{"title": "P", "value": "2"}, 7]}
    link = {"from_url": "http://x", "title": "A page", "text": "About"}
    names = {"U1": "Ann"}
    assert message_text({"text": "", "attachments": [bot, link]}, names) == "New\nBug <1>\nby @Ann\nP: 2\nA page\nAbout"
    assert message_text({"text": "see", "attachments": [bot, link]}, names) == "see\nNew\nBug <1>\nby @Ann\nP: 2"
    assert message_text({"text": None, "attachments": [{"fallback": "fb"}, 3]}, {}) == "fb"
    assert message_text({"attachments": [{"blocks": OTHER[:1], "fallback": "fb"}]}, {}) == "Build &amp; <@U1>"


def test_files_are_named():
    files = [{"name": "a.png"}, {"name": None, "title": "Plan"}, {"mode": "tombstone"}, None]
    assert message_text({"text": "see", "files": files}, {}) == "see\n[file: a.png]\n[file: Plan]\n[file: unnamed]"


def test_what_the_service_says_has_no_sender():
    data = [
        post(0, "<@U1> has joined the channel", subtype="channel_join", user_profile={"real_name": "Ann"}),
        post(1, "set the topic", subtype="channel_topic"),
        post(2, "added an integration", subtype="bot_add"),
        post(3, "", subtype="huddle_thread"),
        post(4, "waves", subtype="me_message"),
        post(5, "This message was deleted.", subtype="tombstone", user="USLACKBOT"),
        post(6, "", subtype="reply_broadcast"),
        post(7, ""),
        post(8, "fixed", edited={"user": "U1", "ts": "1"}),
    ]
    (session,), _, reading = read(data, "c/2024-01-01.json")
    assert said(session) == [
        *[("system", "@Ann has joined the channel"), ("system", "set the topic"), ("system", "added an integration")],
        *[("system", "[huddle_thread]"), ("user", "waves"), ("user", "[deleted]"), ("user", "[reply_broadcast]")],
        ("user", "fixed"),
    ]
    assert [m.name for m in session.messages][:4] == [None] * 4
    assert reading.context.repairs == {"system_line": 4, "deleted_message": 1, "empty_message": 1}


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("users.json", {"id": "U1", "team_id": "T", "name": "ann", "deleted": False, "profile": {"real_name": "Ann"}}),
        ("acme/channels.json", {"id": "C1", "name": "general", "created": 1, "members": ["U1"], "topic": {}}),
        ("dms.json", {"id": "D1", "created": 1, "members": ["U1", "U2"]}),
        ("integration_logs.json", {"user_id": "U1", "service_type": "GitHub", "change_type": "added"}),
        ("canvases.json", {"id": "F1", "created": 1, "filetype": "quip"}),
    ],
)
def test_the_other_files_of_the_export_hold_nothing(name, record):
    sessions, rejects, reading = read([record] * 3, name)
    assert reading.reader.NAME == "slack" and not sessions and not rejects
    assert reading.context.repairs == {"passed_over": 3}


@pytest.mark.parametrize("name", ["groups.json", "mpims.json", "general/2024-01-01.json", "integration_logs.json"])
@pytest.mark.parametrize("data", ["[]", "{}", " [\n]\n"])
def test_empty_files_hold_nothing(name, data):
    sessions, rejects, _ = read(data, name)
    assert not sessions and not any(one.reason != "missing_field" for one in rejects)


def test_faults_cost_their_part_only():
    data = [
        post(0),
        7,
        {"text": "no ts"},
        {**post(1), "ts": None},
        post(2, text=["x"]),
        {**post(3), "ts": "soon"},
        post(4),
    ]
    (session,), rejects, _ = read(data, "c/2024-01-01.json", "slack")
    assert [m.id[8:10] for m in session.messages] == ["00", "04"]
    assert [one.reason for one in rejects] == [
        *("not_an_object", "missing_field", "missing_field", "wrong_type", "wrong_type")
    ]
    assert "'soon'" in rejects[-1].detail
