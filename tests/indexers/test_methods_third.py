"""A method of another distribution: found by its entry point, used as ours are."""

import pytest

from indexers import methods, presets
from schemas import registry
from schemas.errors import ConfigError, UsageError
from tests.indexers.drawn import Case, batch, preset, scored

CODE = """
from indexers.scores import Scores, spread_over
from schemas.options import Section

NAME = "latest"
VERSION = 3


class Options(Section):
    share: float = 1.0


def units(options):
    return ("embed/interactions",)


def scores(preset, batch, stats):
    offsets, place = spread_over(batch.case, batch.shard.offsets)
    return Scores(offsets, preset.options.share * (place - batch.shard.offsets[batch.case].repeat(2) + 1.0))
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    (tmp_path / "their_method.py").write_text(CODE)
    facts = tmp_path / "their_method-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: their-method\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[tagloom.methods]\nlatest = their_method\nbm25 = their_method\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry.theirs.cache_clear()
    yield
    registry.theirs.cache_clear()


def test_a_method_by_entry_point(installed):
    assert "latest" in methods.names()
    one = preset(method="latest", share=0.5)
    assert one.units == ("embed/interactions",)
    assert one.described == {"method": "latest", "version": 3, "share": 0.5}
    made = batch({"a": Case([[1, 0]] * 2), "b": Case([[1, 0]] * 2)}, [("b", [1, 0]), ("a", [1, 0])])
    assert [part.tolist() for part in scored(one, made)[0]] == [[0.5, 1], [0.5, 1]]
    # It can be an arm, and its numbers can be swept.
    define = {"x": {"method": "fusion", "arms": {"l": {"preset": {"method": "latest"}}, "d": {"preset": "dense"}}}}
    (swept,) = presets.expand(["x"], define, {"arms.l.preset.share": [7]}).values()
    assert swept.arms["l"].options.share == 7
    assert scored(swept, made)[0][0] == pytest.approx([1.5, 2])
    with pytest.raises(ConfigError, match=r"has no option 'shape'"):
        preset(method="latest", shape=1)


def test_ours_win_over_one_of_the_same_name(installed):
    assert methods.load("bm25").__name__ == "indexers.methods.bm25"


def test_one_that_is_not_installed():
    with pytest.raises(UsageError, match=r"(?s)no method is called 'latest'.*Methods: bm25, "):
        preset(method="latest")
