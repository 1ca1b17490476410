"""Beam on S3: what its notes ask for, and that nothing of what was made is fetched."""

from pipelines.beam_notes import STOP, Board, Note, Watch
from pipelines.meter import Cost
from pipelines.storage import Storage
from pipelines.work import Done
from tests.integration import s3
from tests.pipelines.corpora import run


def methods(server, part=""):
    """Return the requests since the last time whose path has a part, by method."""
    found = sorted(method for method, path in server.seen if part in path)
    server.seen.clear()
    return found


def test_notes_take_one_listing_a_look_and_one_request_an_item(server):
    board = Board(s3.bucket(server), "graph-1")
    done = Note(end="done", done=Done((), Cost(seconds=1.5)))
    for number in range(40):
        board.put(str(number), done)
    board.put("40", Note(begun=True))
    assert board.get("39") == done and board.get("41") is None
    board.open()
    watch = Watch(board, elsewhere=True)
    server.seen.clear()
    assert watch.news() == {**dict.fromkeys(range(40), done), 40: Note(begun=True)}
    assert len(methods(server)) == 42
    for _ in range(3):
        assert watch.news() == {}
    assert len(methods(server)) == 3
    board.hand_on("40", done)
    methods(server)
    assert watch.last(range(41)) == {40: done}
    assert len(methods(server)) == 2
    board.stop(elsewhere=True)
    watch.close(over=False)
    assert [path for path, _ in Storage(board.uri).walk()] == [f"runs/aside/graph-1-{STOP}.json"]
    watch.close(over=True)
    assert not list(Storage(board.uri).walk())


def test_what_beam_made_is_not_fetched(server, logs):
    corpus = s3.bucket(server)
    made = run(f"{corpus}/c", logs, stages=["extract", "graph"]).made
    assert made["questions"] > 0 and made["graph/taggraph"] > 0
    put, fetched = set(), set()
    for method, path in server.seen:
        (put if method == "PUT" else fetched if path in put else set()).add(path)
    assert any("/tables/nodes/" in path for path in put)
    assert any("/tables/notes/" in path for path in fetched), "workers read what others made"
    assert not [path for path in fetched if "/tables/questions/" in path or "/tables/nodes/" in path]
