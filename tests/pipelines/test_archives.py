"""Zip archives as inputs: what is read of them, under which names, and what hostile and damaged ones give."""

import gzip
import io
import json
import logging
import random
import stat
import struct
import tracemalloc
import zipfile
from datetime import UTC

import fsspec
import pytest
import xxhash

from pipelines import archives
from pipelines.sources import Hashing, Source, find_sources, names_beside, opened
from pipelines.store import Store
from schemas.errors import InputError
from tests.pipelines.corpora import run
from tests.transforms.exports import ANDROID, SLACK, conversation, node
from transforms.formats import read_source
from transforms.records import Reject, Session

LINE = '{"case_id":"c","session_id":"s","messages":[{"role":"user","content":"I moved to Bern."}]}\n'
CHATGPT = json.dumps([conversation(node("r", None), node("u", "r", "hi"))])


def packed(*members, method=zipfile.ZIP_DEFLATED):
    """A zip archive of pairs of a name, or a `ZipInfo`, and content."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return made.getvalue()


def texts(source: Source) -> list[str]:
    """What the messages of a source say, read as ingest does."""
    with opened(source) as stream:
        counted = Hashing(stream, source.bytes)
        records = list(read_source(counted, source.name, "auto", "auto", UTC, names=names_beside(source)).records)
        while counted.read(1 << 20):
            pass
    assert counted.hexdigest() == source.digest
    assert not any(isinstance(one, Reject) for one in records)
    return [m.content for one in records if isinstance(one, Session) for m in one.messages]


@pytest.fixture
def zipped(tmp_path):
    """Write an archive and find what it holds."""

    def write(data, name="export.zip"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
        return find_sources([str(tmp_path / name)])

    return write


def patched(data: bytes, name: str, at: int, value: bytes) -> bytes:
    """Overwrite a field of a member's entry in the directory of an archive; `at` counts from the entry's beginning."""
    start = data.rindex(b"PK\x01\x02", 0, data.rindex(name.encode()))
    return data[: start + at] + value + data[start + at + len(value) :]


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=str
)
def test_members_that_hold_conversations_are_sources(zipped, tmp_path, method, caplog):
    caplog.set_level(logging.INFO)
    found = zipped(
        packed(
            ("b/_chat.txt", ANDROID),
            ("conversations.json", CHATGPT),
            ("logs/a.jsonl.gz", gzip.compress(LINE.encode())),
            ("b/IMG-0001.JPG", b"\xff\xd8\xff"),
            ("b/PTT-0001.opus", b"OggS"),
            ("chat.html", "<html>"),
            ("user.json", '{"id": "u", "email": "a@example.org"}'),
            ("__MACOSX/._conversations.json", CHATGPT),
            (".hidden/conversations.json", CHATGPT),
            ("b/", b""),
            method=method,
        )
    )
    assert [(one.name, one.uri.partition("::")[0]) for one in found] == [
        ("export.zip/b/_chat.txt", "zip://b/_chat.txt"),
        ("export.zip/conversations.json", "zip://conversations.json"),
        ("export.zip/logs/a.jsonl.gz", "zip://logs/a.jsonl.gz"),
    ]
    assert [texts(one)[-1] for one in found] == ["happy new year", "hi", "I moved to Bern."]
    assert found[1].bytes == len(CHATGPT)
    with fsspec.open(found[1].uri) as stream:  # the URIs are fsspec's own
        assert stream.read() == CHATGPT.encode()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == f"{tmp_path}/export.zip: 1 members fit no format and are passed over: user.json"


def test_archives_in_folders_globs_and_on_other_storage(tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "Export.ZIP").write_bytes(packed(("a.jsonl", LINE)))
    (tmp_path / "in" / "b.jsonl").write_text(LINE)
    for name in ("x.jpg", "y.opus", "__MACOSX/b.jsonl", ".z/b.jsonl"):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text("no conversation")
    names = ["b.jsonl", "sub/Export.ZIP/a.jsonl"]
    assert [one.name for one in find_sources([str(tmp_path / "in")])] == names
    assert [one.name for one in find_sources([f"{tmp_path}/in/**"])] == names
    assert [one.name for one in find_sources([str(tmp_path / "in" / "sub")])] == ["Export.ZIP/a.jsonl"]
    fs = fsspec.filesystem("memory")
    fs.pipe("/archives/e.zip", packed(("a.jsonl", LINE)))
    try:
        (one,) = find_sources(["memory://archives/e.zip"])
        assert (one.name, one.uri) == ("e.zip/a.jsonl", "zip://a.jsonl::memory:///archives/e.zip")
        assert texts(one) == ["I moved to Bern."]
    finally:
        fs.rm("/archives", recursive=True)


@pytest.fixture
def bucket(monkeypatch):
    """A server that speaks S3, as fsspec reaches it."""
    server_of = pytest.importorskip("moto.server").ThreadedMotoServer
    pytest.importorskip("s3fs")
    server = server_of("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
    monkeypatch.setitem(fsspec.config.conf, "s3", given)
    fs = fsspec.filesystem("s3")
    fs.mkdir("logs")
    yield fs
    server.stop()


@pytest.mark.slow
def test_archives_on_an_object_store_go_by_its_tag(bucket):
    members = [("users.json", USERS), ("general/2024-01-01.json", DAY), ("a.jsonl", LINE), ("b.jsonl", LINE)]
    bucket.pipe("logs/x/e.zip", packed(*members, method=zipfile.ZIP_STORED))
    found = find_sources(["s3://logs/x/e.zip"])
    tag = bucket.info("logs/x/e.zip")["ETag"]
    assert [(one.name, one.uri, one.digest) for one in found] == [
        (f"e.zip/{name}", f"zip://{name}::s3://logs/x/e.zip", f"tag:{tag}") for name in sorted(dict(members))
    ]
    assert find_sources(["s3://logs/x"], hashed=True)[0].digest == xxhash.xxh3_128_hexdigest(LINE.encode())
    assert spoken(found[0]) == [(None, "I moved to Bern.")]
    assert spoken(found[2])[0] == ("Bobby", "@Ann Lee, see #C1")
    # Damage inside a member shows when it is read, a change before that.
    bucket.pipe("logs/x/e.zip", packed(("b.jsonl", LINE + " " * (3 << 20)), method=zipfile.ZIP_STORED))
    with pytest.raises(InputError, match="has changed since"), opened(found[0]):
        pass
    damaged = packed(("b.jsonl", LINE + " " * (3 << 20) + "x"), method=zipfile.ZIP_STORED).replace(b" x", b" y")
    bucket.pipe("logs/x/e.zip", damaged)
    (one,) = find_sources(["s3://logs/x/e.zip"])
    with pytest.raises(InputError, match="CRC"):
        spoken(one)
    bucket.pipe("logs/x/e.zip", damaged[:-30])
    with pytest.raises(InputError, match="not a zip file"):
        find_sources(["s3://logs/x/e.zip"])


def test_a_digest_is_that_of_the_content_alone(zipped, tmp_path):
    other = LINE.replace("Bern", "Rome")
    first = zipped(packed(("a.jsonl", LINE), ("b.jsonl", other)))
    again = zipped(packed(("b.jsonl", other), ("x.png", b"x"), ("a.jsonl", LINE), method=zipfile.ZIP_STORED))
    assert again == first
    (tmp_path / "a.jsonl").write_text(LINE)
    assert find_sources([str(tmp_path / "a.jsonl")])[0].digest == first[0].digest
    changed = zipped(packed(("a.jsonl", other), ("b.jsonl", other)))
    assert changed[0].digest != first[0].digest and changed[1] == first[1]
    # What was found before is not what is there now.
    with opened(first[0]) as stream:
        counted = Hashing(stream, first[0].bytes)
        while counted.read():
            pass
    assert counted.hexdigest() != first[0].digest
    zipped(packed(("c.jsonl", other)))
    with pytest.raises(InputError, match="has changed since"), opened(first[0]):
        pass


@pytest.mark.parametrize(
    "name",
    [
        "a*[x]?{b}.jsonl",
        "a b#c%20d.jsonl",
        "file:/x.jsonl",
        "ünï/日本.jsonl",
        "a\\b.jsonl",
        "./a.jsonl",
        "a//b.jsonl",
        "a\nb",
    ],
)
def test_names_that_mean_something_elsewhere(zipped, tmp_path, name):
    (one,) = zipped(packed((name, LINE)), "e[1]*.zip")
    shown = {"a\\b.jsonl": "a/b.jsonl", "./a.jsonl": "a.jsonl", "a//b.jsonl": "a/b.jsonl"}.get(name, name)
    assert one.name == f"e[1]*.zip/{shown}"
    assert texts(one) == ["I moved to Bern."]
    assert [path.name for path in tmp_path.rglob("*")] == ["e[1]*.zip"]  # nothing was unpacked


@pytest.mark.parametrize(
    ("raw", "shown"), [("h\u00e9.jsonl".encode(), "h\u00e9.jsonl"), (b"h\x82.jsonl", "h\u00e9.jsonl")]
)
def test_names_without_an_encoding_are_utf_8_or_else_cp437(zipped, raw, shown):
    plain = "h" + "x" * (len(raw) - 7) + ".jsonl"
    (one,) = zipped(packed((plain, LINE)).replace(plain.encode(), raw))
    assert one.name == f"export.zip/{shown}" and texts(one) == ["I moved to Bern."]


def link(name):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


GOOD = packed(("a.jsonl", LINE), ("b.jsonl", LINE))
STORED = packed(("a.jsonl", LINE), method=zipfile.ZIP_STORED)
HOSTILE = {
    "up": (packed(("a.jsonl", LINE), ("../../etc/b.jsonl", LINE)), "leads out"),
    "up by backslashes": (packed(("..\\..\\b.jsonl", LINE)), "leads out"),
    "absolute": (packed(("/etc/b.jsonl", LINE)), "leads out"),
    "drive": (packed(("C:\\b.jsonl", LINE)), "leads out"),
    "no name": (packed(("x", LINE)).replace(b"\x01\x00\x00\x00x", b"\x01\x00\x00\x00\x00"), "leads out|damaged"),
    "link": (packed((link("a.jsonl"), "/etc/passwd")), "is a link"),
    "steps of a URI": (packed(("a::file:///etc/passwd", LINE)), "'::' in its name"),
    "encrypted": (patched(GOOD, "b.jsonl", 8, b"\x01\x00"), "'b.jsonl' is encrypted"),
    "unknown method": (patched(GOOD, "b.jsonl", 10, b"\x09\x00"), "compression"),
    "bomb": (patched(GOOD, "b.jsonl", 24, struct.pack("<I", 3 << 30)), "would unpack"),
    "more than there is": (patched(GOOD, "b.jsonl", 20, struct.pack("<I", 1 << 20)), "more room than the archive has"),
    "other checksum": (patched(GOOD, "b.jsonl", 16, b"\x00\x00\x00\x00"), "CRC"),
    "lies about its size": (patched(GOOD, "b.jsonl", 24, struct.pack("<I", 5)), "CRC"),
    "elsewhere": (patched(GOOD, "b.jsonl", 42, struct.pack("<I", 7)), "no member begins"),
    "twice the same place": (patched(GOOD, "b.jsonl", 42, struct.pack("<I", 0)), "differ in its name"),
    "flipped bit": (STORED.replace(b"Bern", b"Bers"), "CRC"),
    "damaged bzip2": (packed(("a.jsonl", LINE * 9), method=zipfile.ZIP_BZIP2).replace(b"1AY", b"1AX"), "Invalid data"),
    "damaged LZMA": (
        packed(("a.jsonl", LINE), method=zipfile.ZIP_LZMA).replace(b"]\0\0\x80", b"\xff\0\0\x80"),
        "damaged",
    ),
    "name is no UTF-8": (packed(("h\u00e9.jsonl", LINE)).replace("h\u00e9".encode(), b"h\xe9\xe9"), "damaged"),
    "nothing": (packed(), "holds no conversation"),
    "nothing of ours": (packed(("a.txt", "shopping"), ("b.jpg", "x")), "holds no conversation"),
    "nested": (packed(("inner.zip", GOOD)), "archives inside an archive are not opened: inner.zip"),
    "no archive": (LINE.encode() * 50, "not a zip file"),
    "empty": (b"", "not a zip file"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_and_damaged_archives(zipped, tmp_path, kind):
    data, message = HOSTILE[kind]
    with pytest.raises(InputError, match=message) as caught:
        zipped(data)
    assert caught.value.where.startswith(str(tmp_path / "export.zip")) and caught.value.remedy
    assert [path.name for path in tmp_path.rglob("*")] == ["export.zip"]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=str)
@pytest.mark.parametrize("declared", [4, 24 << 20])
def test_a_member_is_unpacked_no_further_than_it_is_read(method, declared):
    info = zipfile.ZipInfo("a.jsonl")
    made = packed(("a.jsonl", b"\0" * (24 << 20)), method=method)
    made = patched(made, "a.jsonl", 24, struct.pack("<I", declared))
    handle = io.BytesIO(made)
    info = archives.directory(handle, "e.zip")["a.jsonl"]
    tracemalloc.start()
    try:
        member = archives.Member(handle, info, "e.zip/a.jsonl", lambda act: act())
        if declared > 4:
            assert member.read(1000) == b"\0" * 1000
        else:
            with pytest.raises(InputError, match="CRC"):
                member.read(1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The decoder of bzip2 works on blocks of 900 kB, that of LZMA keeps what may be referred back to.
    assert peak < (declared if method == zipfile.ZIP_LZMA else 0) + (6 << 20)


def test_a_member_that_asks_for_much_memory(zipped):
    """An LZMA member says how much memory its unpacking takes; it gets no more than it is large."""
    made = packed(("a.jsonl", LINE), method=zipfile.ZIP_LZMA)
    at = made.index(b"]\0\0\x80\0") + 1
    huge = made[:at] + struct.pack("<I", 0xFFFFFFFF) + made[at + 4 :]
    tracemalloc.start()
    try:
        (one,) = zipped(huge)
        assert texts(one) == ["I moved to Bern."]
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    size = (300 << 20).to_bytes(4, "little")
    with pytest.raises(InputError, match="bytes of memory to be unpacked"):
        zipped(patched(huge, "a.jsonl", 24, size))
    with pytest.raises(InputError, match="settings are not as they must be"):
        zipped(made[: at - 3] + b"\x04\0" + made[at - 1 :])


def test_two_members_of_one_name(zipped):
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = packed(("a.jsonl", LINE), ("a.jsonl", LINE))
    for data in (twice, packed(("a/b.jsonl", LINE), ("a\\b.jsonl", LINE))):
        with pytest.raises(InputError, match="two members are called"):
            zipped(data)


def test_many_members_that_are_a_bomb_together(zipped, monkeypatch):
    data = packed(*((f"{n}.jsonl", LINE + " " * 3000) for n in range(8)))
    monkeypatch.setattr(archives, "BOMB_BYTES", 10_000)
    assert len(zipped(data)) == 8  # it is large, but shrank by less than BOMB_RATIO
    monkeypatch.setattr(archives, "BOMB_RATIO", 10)
    with pytest.raises(InputError, match="would unpack"):
        zipped(data)


@pytest.mark.parametrize("left", [0, 3, 40, 100, len(GOOD) // 2, len(GOOD) - 23, len(GOOD) - 1])
def test_an_archive_that_is_cut(zipped, left):
    with pytest.raises(InputError, match="damaged"):
        zipped(GOOD[:left])


def test_a_nested_archive_beside_conversations_is_named(zipped, caplog):
    (one,) = zipped(packed(("a.jsonl", LINE), ("files/inner.zip", GOOD), ("notes.txt", "x")))
    assert one.name == "export.zip/a.jsonl"
    (said,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert said.getMessage().endswith("2 members fit no format and are passed over: files/inner.zip, notes.txt")


@pytest.mark.parametrize("text", ["zip://a.jsonl::x.zip", "zip::x.zip", "tar://a::x.tar"])
def test_a_member_is_no_input(text):
    with pytest.raises(InputError, match="inside an archive"):
        find_sources([text])


def test_an_archive_below_a_folder_that_parts_uris(tmp_path):
    folder = tmp_path / "a::b"
    folder.mkdir()
    (folder / "e.zip").write_bytes(GOOD)
    with pytest.raises(InputError, match="'::' in it"):
        find_sources([str(tmp_path)])


def test_mutated_archives(tmp_path):
    """Whatever bytes change: sources that can be read, or an error of ours."""
    rng = random.Random(5)
    slack = [("users.json", USERS), ("g/2024-01-01.json", json.dumps(SLACK)), ("a/b.jsonl", LINE), ("x.jpg", "x")]
    methods = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
    made = [packed(*slack, method=method) for method in methods]
    path = tmp_path / "e.zip"
    told = {"read": 0, "refused": 0}
    for number in range(300):
        data = bytearray(made[number % len(made)])
        directory = data.index(b"PK\x01\x02")
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(directory if rng.random() < 0.6 else 0, len(data))
            action = rng.randrange(5)
            if action == 0:
                del data[at : at + rng.choice((1, 4, 30))]
            elif action == 1:
                data[at:at] = data[rng.randrange(len(data)) :][: rng.choice((1, 4, 60))]
            else:
                data[at : at + 1] = bytes([rng.choice((0, 1, 255, rng.randrange(256)))])
        path.write_bytes(data)
        try:
            for one in find_sources([str(path)]):
                with opened(one) as stream:
                    names = names_beside(one)
                    list(read_source(Hashing(stream, one.bytes), one.name, "auto", "auto", UTC, names=names).records)
            told["read"] += 1
        except InputError as error:
            assert error.where and error.remedy
            told["refused"] += 1
    assert min(told.values()) > 40, told
    assert [left.name for left in tmp_path.iterdir()] == ["e.zip"]


# -- names that lie beside ---------------------------------------------------------------------------------------------

USERS = json.dumps(
    [
        {"id": "U1", "name": "annl", "profile": {"real_name": "Ann Lee", "display_name": "ann"}},
        {"id": "U2", "name": "bob", "profile": {"real_name": "", "display_name": "Bobby"}},
    ]
)
CHANNELS = json.dumps([{"id": "C1", "name": "general", "members": ["U1"]}])
DAY = json.dumps(
    [
        {"type": "message", "user": "U2", "text": "<@U1>, see <#C1>", "ts": "1704103200.000100"},
        {"type": "message", "user": "U9", "text": "x", "ts": "1704103201.000100"},
    ]
)


def workspace(folder, *more):
    (folder / "general").mkdir(parents=True, exist_ok=True)
    (folder / "general" / "2024-01-01.json").write_text(DAY)
    for name, content in more:
        (folder / name).write_text(content)


def spoken(source):
    with opened(source) as stream:
        reading = read_source(stream, source.name, "auto", "auto", UTC, names=names_beside(source))
        return [(m.name, m.content) for one in reading.records if isinstance(one, Session) for m in one.messages]


KNOWN = [("Bobby", "@Ann Lee, see #general"), ("U9", "x")]


def test_names_beside_a_folder_are_the_same_however_the_day_is_named(tmp_path):
    workspace(tmp_path / "acme", ("users.json", USERS), ("channels.json", CHANNELS))
    marks = set()
    for named in (".", "acme", "acme/general", "acme/general/2024-01-01.json", "acme/*/*.json"):
        (day,) = [one for one in find_sources([str(tmp_path / named)]) if one.name.endswith("2024-01-01.json")]
        assert spoken(day) == KNOWN
        marks.add(day.beside)
    assert len(marks) == 1
    (tmp_path / "acme.zip").write_bytes(
        packed(("users.json", USERS), ("general/2024-01-01.json", DAY), ("channels.json", CHANNELS))
    )
    day = find_sources([str(tmp_path / "acme.zip")])[1]
    assert (day.name, spoken(day)) == ("acme.zip/general/2024-01-01.json", KNOWN)
    assert {day.beside} == marks


def test_without_files_beside_nothing_changes(tmp_path):
    workspace(tmp_path)
    (day,) = find_sources([str(tmp_path)])
    assert day.beside == "" and spoken(day) == [("U2", "@U1, see #C1"), ("U9", "x")]
    # Files of these names beside others than days tell nothing.
    (tmp_path / "users.json").write_text(USERS)
    (tmp_path / "general" / "a.jsonl").write_text(LINE)
    assert [one.name for one in find_sources([str(tmp_path)]) if one.beside] == ["general/2024-01-01.json"]


def test_names_that_changed_since_they_were_looked_at(tmp_path):
    workspace(tmp_path, ("users.json", USERS))
    (day,) = find_sources([str(tmp_path / "general")])
    (tmp_path / "users.json").write_text(USERS.replace("Bobby", "Robert"))
    from pipelines import sources

    sources._told_beside.cache_clear()  # as in another process
    with pytest.raises(InputError, match="has changed since"):
        names_beside(day)
    (again,) = find_sources([str(tmp_path / "general")])
    assert again.digest == day.digest and again.beside != day.beside
    assert spoken(again)[0][0] == "Robert"


@pytest.mark.parametrize("broken", ["", "[", "{}", "7", '[{"id": 3}, {"id": "U2", "profile": 4}, null]', "\x00\xff"])
def test_broken_files_beside_tell_nothing(tmp_path, broken):
    workspace(tmp_path, ("users.json", broken))
    (day,) = find_sources([str(tmp_path / "general")])
    assert day.beside and spoken(day)[0] == ("U2", "@U1, see #C1")


def test_a_run_reads_archives_and_notices_changed_names(tmp_path):
    def made(users, line=LINE):
        data = packed(("users.json", users), ("general/2024-01-01.json", DAY), ("a.jsonl", line))
        (tmp_path / "acme.zip").write_bytes(data)
        run(tmp_path / "corpus", tmp_path / "acme.zip", stages=())
        table = Store.open(str(tmp_path / "corpus")).generation("main").table("interactions").to_pylist()
        return sorted((row["case_id"], row["source"], row["user_text"]) for row in table)

    day = "acme.zip/general/2024-01-01.json"
    first = made(USERS)
    assert first == [
        ("acme.zip/general", day, "Bobby: @Ann Lee, see #C1"),
        ("acme.zip/general", day, "U9: x"),
        ("c", "acme.zip/a.jsonl", "I moved to Bern."),
    ]
    again = made(USERS.replace("Bobby", "Robert"), LINE.replace("Bern", "Rome"))
    assert [text for _, _, text in again] == ["Robert: @Ann Lee, see #C1", "U9: x", "I moved to Rome."]
