"""URIs of sources: hosts stay in them, secrets never get into them, and a corpus is none of its own inputs."""

import logging
from urllib.parse import urlsplit

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipelines.driver import given_sources, memory_sources
from pipelines.sources import find_sources, opened
from pipelines.storage import Storage
from pipelines.storage_faults import Patience, explained, patiently
from pipelines.store import Store
from pipelines.uris import naming
from schemas.config import load_config
from schemas.errors import InputError

LINE = b'{"case_id":"c","session_id":"s","messages":[{"role":"user","content":"hi"}]}\n'
FILES: dict[str, dict] = {}


class Hosted(MemoryFileSystem):
    """A file system that is another one on every host, and keeps the host out of its paths, like sftp."""

    protocol = ("hosted",)

    def __init__(self, host, **more):
        super().__init__(**more)
        self.store = FILES.setdefault(host, {})
        self.pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path):
        path = (path.partition("://")[2].partition("/")[2] if "://" in path else path).strip("/")
        return f"/{path}" if path else ""

    @staticmethod
    def _get_kwargs_from_urls(path):
        host = urlsplit(path).netloc
        return {"host": host} if host else {}


class Blobs(Hosted):
    """The same with what stands before the host in its paths, like Azure's."""

    protocol = ("blobs",)

    @classmethod
    def _strip_protocol(cls, path):
        if "://" not in path:
            return path.strip("/")
        authority, _, rest = path.partition("://")[2].partition("/")
        return f"{authority.partition('@')[0]}/{rest}".rstrip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        host = urlsplit(path).netloc.partition("@")[2]
        return {"host": host} if host else {}


@pytest.fixture(autouse=True)
def known():
    for kind in (Hosted, Blobs):
        fsspec.register_implementation(kind.protocol[0], kind, clobber=True)
    yield
    FILES.clear()
    for kind in (Hosted, Blobs):
        kind.clear_instance_cache()
    memory = fsspec.filesystem("memory")
    if memory.exists("/uris"):
        memory.rm("/uris", recursive=True)


def put(uri, data=LINE):
    fs, path = fsspec.core.url_to_fs(uri)
    fs.pipe_file(path, data)


@pytest.mark.parametrize("place", ["hosted://{}", "hosted://me@{}:22", "blobs://box@{}"])
def test_the_host_stays(place):
    one, two = place.format("one"), place.format("two")
    for uri in (f"{one}/in/a.jsonl", f"{two}/in/a.jsonl", f"{two}/in/sub/b.jsonl"):
        put(uri, LINE.replace(b"hi", uri.encode()))
    found = find_sources([f"{one}/in", f"{two}/in/*.jsonl", f"{two}/in/sub/b.jsonl"])
    uris = [f"{one}/in/a.jsonl", f"{two}/in/a.jsonl", f"{two}/in/sub/b.jsonl"]
    assert [source.uri for source in found] == uris
    for source in found:
        with opened(source) as stream:
            assert source.uri.encode() in stream.read()
    store = Store.create(f"{one}/corpus", 8)
    store.storage.write("memory/a?b.jsonl", LINE)
    assert [(told.name, told.uri) for told in memory_sources(store)] == [
        ("memory/a?b.jsonl", f"{one}/corpus/memory/a?b.jsonl")
    ]
    # A corpus of that path on another host is another one.
    assert len(find_sources([f"{one}/in"], without=f"{two}/in")) == 1


def test_where_no_host_is_lost_fsspec_names_the_files(tmp_path):
    for text in ("memory://uris/in", "/x/y", "file:///x/y", str(tmp_path)):
        fs, path = fsspec.core.url_to_fs(text)
        assert naming(fs, text) == fs.unstrip_protocol
        assert naming(fs, text)(f"{path}/a") == fs.unstrip_protocol(f"{path}/a")


@pytest.mark.parametrize("root", ["memory://uris", "hosted://one/y", "blobs://box@one/x"])
def test_a_corpus_is_none_of_its_own_inputs(root):
    put(f"{root}/a.jsonl")
    put(f"{root}/corpus2/b.jsonl")
    Store.create(f"{root}/corpus", 8)
    for folder in (root, f"{root}/", f"{root}/**"):
        config = load_config(None, [], {"corpus": f"{root}/corpus", "inputs": [folder], "questions": [folder]})
        found = given_sources(config, Storage(config.corpus))
        assert [source.name for source in found] == ["a.jsonl", "corpus2/b.jsonl"]


@pytest.mark.parametrize(
    "uri", ["https://u:hunter2@127.0.0.1:1/a.jsonl", "http://127.0.0.1:1/a.jsonl?sig=hunter2", "sftp://u:hunter2@h/a"]
)
def test_secrets_in_inputs_are_refused_and_not_shown(uri):
    with pytest.raises(InputError, match="an address holds no") as caught:
        find_sources([uri])
    assert "hunter2" not in str(caught.value) and "own protocol" in caught.value.remedy


def test_what_a_store_says_hides_what_its_urls_hold(caplog):
    uri = "https://u:hunter2@h/a.jsonl?x=hunter2"
    told = explained(OSError(f"403 at '{uri}'"), "cannot be read", uri, remote=True)
    assert "hunter2" not in str(told) and told.where == "https://...@h/a.jsonl?..."
    tries = iter([TimeoutError(f"no answer from {uri}"), None])

    def act():
        if error := next(tries):
            raise error

    with caplog.at_level(logging.WARNING):
        patiently(act, uri, Patience(first=0.001))
    assert "attempt 2" in caplog.text and "hunter2" not in caplog.text
