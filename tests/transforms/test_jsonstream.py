import io
import json
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transforms.jsonstream import Piece, array_elements, lines, load

TEXT = st.text(alphabet='ab"\\{}[],: \n\u00e9\U0001f600', max_size=12)
VALUE = st.recursive(
    TEXT | st.integers() | st.booleans() | st.none(),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXT, v, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(TEXT, VALUE, max_size=3), max_size=5)


def split(data: bytes, **options: object) -> list[Piece]:
    return list(array_elements(io.BytesIO(data), **options))  # type: ignore[arg-type]


@settings(deadline=None, max_examples=150)
@given(OBJECTS, st.integers(1, 40), st.booleans(), st.sampled_from([None, 1]))
@example([{"a": '\\"'}, {"b": "\\\\"}], 1, True, None)
def test_elements_equal_json_at_every_block_size(objects, block, ascii_only, indent):
    data = b" \n" + json.dumps(objects, ensure_ascii=ascii_only, indent=indent).encode()
    pieces = split(data, block=block)
    assert [json.loads(piece.data) for piece in pieces] == objects
    assert all(data[p.offset : p.offset + len(p.data)] == p.data and not p.fault for p in pieces)


@pytest.mark.parametrize("run", [0, 1, 2, 3, 15, 16, 17, 18, 19, 40, 41])
@pytest.mark.parametrize("block", [1, 3, 16, 17, 1000])
def test_runs_of_backslashes(run, block):
    objects = [{"a": "\\" * run + '"' + "}"}, {"b": "\\" * run}, {"c": 1}]
    pieces = split(json.dumps(objects).encode(), block=block)
    assert [json.loads(piece.data) for piece in pieces] == objects


@pytest.mark.parametrize("data", [b"", b" \n\t", b"[]", b" [ ] \n"])
def test_nothing_gives_no_piece(data):
    assert split(data) == []


def test_offsets_and_what_stands_between():
    data = b'[{"a":1}, 5, {"b":2} {"c":3},\n"x",{"d":4}]'
    found = [(p.offset, p.data) for p in split(data, block=4)]
    assert found == [(1, b'{"a":1}'), (10, b"5"), (13, b'{"b":2}'), (21, b'{"c":3}'), (30, b'"x"'), (34, b'{"d":4}')]


def test_objects_without_an_array():
    data = b'{"a":1}\n{"b":{"c":[2]}}\n'
    assert [p.data for p in split(data, block=5)] == [b'{"a":1}', b'{"b":{"c":[2]}}']


def test_what_follows_the_array_is_not_lost():
    found = [(p.data, p.fault) for p in split(b'[{"a":1}] {"b":2} ]] tail', block=6)]
    assert found == [(b'{"a":1}', ""), (b'{"b":2}', ""), (b"]] tail", "")]


@pytest.mark.parametrize("block", [3, 7, 1000])
def test_truncated(block):
    whole = b'[{"a":1},{"b":[2,"x"]}]'
    inside = split(whole[:-3], block=block)
    assert [(p.data, p.fault) for p in inside] == [(b'{"a":1}', ""), (b'{"b":[2,"x"', "truncated")]
    between = split(whole[:9], block=block)
    assert [(p.data, p.fault) for p in between] == [(b'{"a":1}', ""), (b"", "truncated")]


@pytest.mark.parametrize("block", [8, 50, 4096])
def test_a_large_element_is_a_fault_and_the_next_is_whole(block):
    data = b'[{"a":"' + b"x" * 5000 + b'"},{"b":1}]'
    first, second = split(data, limit=1000, block=block)
    assert (first.offset, first.fault, second.data) == (1, "too_large", b'{"b":1}')
    assert len(first.data) <= 800


@pytest.mark.parametrize(
    "broken", ['{"id":1,"a":{"b":2', '{"id":1,"a":"no end', '{"id":1,"a":[[[', '{"id":1}}]', '{"id":1,"a":"\\']
)
@pytest.mark.parametrize("block", [5, 20, 1000])
def test_a_broken_element_costs_itself_only(broken, block):
    data = b'[{"id":0,"a":"{\\"id\\":"},' + broken.encode() + b',{"id":2},{"id":3}]'
    parsed = []
    for piece in split(data, keys=("id",), block=block):
        if piece.fault:
            continue
        try:
            parsed.append(json.loads(piece.data))
        except ValueError:
            continue
    wanted = [one for one in parsed if isinstance(one, dict) and one.get("id") in (0, 2, 3)]
    assert [one["id"] for one in wanted] == [0, 2, 3]


def test_without_a_marker_the_rest_is_one_truncated_piece():
    pieces = split(b'[{"id":0},{"id":1,"a":{,{"id":2}]')
    assert [p.fault for p in pieces] == ["", "truncated"]


def test_short_reads_change_nothing():
    class Drip(io.RawIOBase):
        def __init__(self, data):
            self.data = data

        def read(self, size=-1):
            part, self.data = self.data[:3], self.data[3:]
            return part

    data = json.dumps([{"a": "x" * 50}, {"b": '"' * 9}]).encode()
    assert list(array_elements(Drip(data), block=16)) == split(data, block=16)


@pytest.mark.parametrize("block", [1, 4, 100])
def test_lines(block):
    data = b'{"a":1}\r\n\n  \n' + b"y" * 30 + b"\nlast"
    found = [(p.offset, p.data.strip(), p.fault) for p in lines(io.BytesIO(data), limit=20, block=block)]
    assert [(n, f) for n, _, f in found] == [(1, ""), (4, "too_large"), (5, "")]
    assert found[0][1] == b'{"a":1}' and found[2][1] == b"last"


@pytest.mark.parametrize(
    ("data", "value", "counts"),
    [
        (b'{"a":"\\ud83d"}', {"a": "\ufffd"}, {"lone_surrogate": 1}),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "\U0001f600"}, {}),
        (b'{"a":"x\\u0000y"}', {"a": "x\ufffdy"}, {"nul_character": 1}),
        (b'{"a":"x\x00y"}', {"a": "x\ufffdy"}, {"nul_character": 1}),
        (b'{"a":"x\ty"}', {"a": "x\ty"}, {"lenient_json": 1}),
        (b'{"a":NaN}', {"a": None}, {"lenient_json": 1}),
        (b'{"a":"caf\xe9"}', {"a": "caf\u00e9"}, {"cp1252": 1}),
        (b'{"a":"\xc3\xa9 \xe9"}', {"a": "\u00e9 \ufffd"}, {"bad_utf8": 1}),
        (b'{"a":"\xed\xa0\xbd"}', {"a": "\ufffd"}, {"lone_surrogate": 1}),
    ],
)
def test_load_repairs(data, value, counts):
    repairs: Counter[str] = Counter()
    assert load(data, repairs) == value
    assert repairs == counts


@pytest.mark.parametrize("data", [b"{", b'{"a" 1}', b"[" * 5000 + b"]" * 5000, b'{"a":1} 2', b""])
def test_load_says_what_is_no_json(data):
    with pytest.raises(ValueError, match=r"."):
        load(data, Counter())


FRAGMENTS = st.lists(
    st.sampled_from(
        ['{"id":', '{"id":1}', "[", "]", "{", "}", '"', "\\", ",", " ", "x", '{"a":{"id":2}}', "\\\\", '\\"']
    ),
    max_size=14,
)


@settings(deadline=None, max_examples=400)
@given(FRAGMENTS, st.integers(1, 12), st.booleans())
def test_pieces_of_garbage_do_not_depend_on_blocks(parts, block, marked):
    data = "".join(parts).encode()
    keys = ("id",) if marked else ()
    pieces = split(data, keys=keys, block=block)
    assert pieces == split(data, keys=keys)
    assert all(data[p.offset : p.offset + len(p.data)] == p.data for p in pieces)
    covered = set()
    for piece in pieces:
        covered |= set(range(piece.offset, piece.offset + len(piece.data)))
    left = bytes(byte for place, byte in enumerate(data) if place not in covered)
    assert not left.strip(b"[]}, ")  # a closer that ends the array level is dropped
