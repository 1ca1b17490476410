import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.chunks import OVERLAP, SIZE, chunks, cut


def test_whole_lines_up_to_a_size_with_whole_lines_of_overlap():
    # Lines of 4 characters count 5 with their ends. Three fit in 16, and one of them in the overlap of 6.
    text = "aaaa\nbbbb\ncccc\ndddd\neeee\nffff"
    assert cut(text, 16, 6) == ["aaaa\nbbbb\ncccc", "cccc\ndddd\neeee", "eeee\nffff"]
    assert cut(text, 16, 4) == ["aaaa\nbbbb\ncccc", "dddd\neeee\nffff"]
    assert cut(text, 16, 10) == ["aaaa\nbbbb\ncccc", "bbbb\ncccc\ndddd", "cccc\ndddd\neeee", "dddd\neeee\nffff"]


def test_a_longer_line_is_split():
    assert cut("abcdefghij\nxy", 4, 2) == ["abcd", "efgh", "ij", "xy"]
    assert cut("abcd\nefgh", 4, 4) == ["abcd", "efgh"]


def test_overlap_gives_way_to_a_line_that_needs_the_room():
    # "cc" could be carried over, and then the line of nine characters would not fit ten.
    assert cut("aaaa\ncc\nddddddddd", 10, 5) == ["aaaa\ncc", "ddddddddd"]


def test_the_sizes_are_openclaws():
    assert (SIZE, OVERLAP) == (1600, 320)
    line = "x" * 99
    pieces = cut("\n".join([line] * 40))
    assert [len(piece) for piece in pieces] == [1599, 1599, 1399]  # 16 lines of 100, 3 of them again


@pytest.mark.parametrize("text", ["", "\n", "\n" * 20, "x"])
def test_texts_of_next_to_nothing(text):
    found = cut(text, 4, 2)
    assert found
    assert all(len(piece) <= 4 for piece in found)


@given(
    st.text(st.sampled_from("ab\n北😀"), max_size=60),
    st.integers(1, 12),
    st.integers(0, 12),
)
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_and_nothing_too_long(text, size, overlap):
    pieces = cut(text, size, overlap)
    assert all(len(piece) <= size for piece in pieces)
    assert len(pieces) <= len(text) + 1
    # Each piece is a run of the lines, split where they are too long; it begins in or right behind the one before it,
    # with no more in common than the overlap.
    lines = [line[i : i + size] for line in text.split("\n") for i in range(0, max(len(line), 1), size)]
    ends = {0}
    for piece in pieces:
        own = piece.split("\n")
        ends = {
            begin + len(own)
            for end in ends
            for begin in range(end + 1)
            if begin + len(own) > end
            and lines[begin : begin + len(own)] == own
            and sum(len(line) + 1 for line in lines[begin:end]) <= overlap
        }
    assert len(lines) in ends


def test_rows():
    columns = {
        "case_id": pa.array(["a", "a", "b"]).dictionary_encode(),
        "interaction_id": pa.array(["i0", "i1", "i0"]),
        "user_text": pa.array(["short", "y" * 1000, ""], pa.large_string()),
        "assistant_text": pa.array(["", "z" * 2000, ""], pa.large_string()),
    }
    made = chunks(pa.table(columns))
    rows = [(row["case_id"], row["interaction_id"], row["number"]) for row in made.to_pylist()]
    assert rows == [("a", "i0", 0), ("a", "i1", 0), ("a", "i1", 1), ("a", "i1", 2), ("b", "i0", 0)]
    # The user's line, the first 1600 of the answer, and the rest of it.
    assert [len(text) for text in made["text"].to_pylist()] == [5, 1000, 1600, 400, 0]
    assert chunks(pa.table(columns).slice(0, 0)).num_rows == 0
