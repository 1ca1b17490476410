from itertools import product

import pytest

from indexers import presets
from schemas.config import RankConfig
from schemas.errors import UsageError


def test_names_and_groups():
    for name, preset in presets.PRESETS.items():
        assert preset.name == name
        assert preset.doc
    assert set(RankConfig().presets) <= set(presets.PRESETS)
    assert presets.expand(["bm25", "all", "bm25"]) == ("bm25", *(n for n in presets.PRESETS if n != "bm25"))


def test_every_combination_of_ablations_is_there_once():
    seen = set()
    for name in presets.expand(["ablations"]):
        preset = presets.get(name)
        off = (preset.alpha == 0, preset.without_edges == ("chronological",), preset.file_seeds == 0)
        assert off == tuple(word in name for word in ("no-diffusion", "no-chronology", "no-file-seeds"))
        seen.add(off)
    assert seen == set(product((False, True), repeat=3))


def test_unknown_names_are_told_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'adaptivegraph-no-diffusion'"):
        presets.get("adaptivegraph-no-difusion")
    with pytest.raises(UsageError, match="Did you mean 'ablations'"):
        presets.expand(["ablation"])
