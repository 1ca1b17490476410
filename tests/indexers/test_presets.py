from itertools import product

import pytest

from indexers import presets
from schemas.config import RankConfig
from schemas.errors import ConfigError, UsageError


def test_names_and_groups():
    assert all(presets.get(name).doc for name in presets.shipped())
    assert set(RankConfig().presets) <= set(presets.shipped())
    assert tuple(presets.expand(["bm25", "all", "bm25"])) == ("bm25", *(n for n in presets.shipped() if n != "bm25"))
    for members in presets.groups().values():
        assert presets.expand(members)


def test_every_combination_of_ablations_is_there_once():
    seen = set()
    for name, preset in presets.expand(["ablations"]).items():
        own = preset.options
        off = (own.diffusion.alpha == 0, own.edges.weights == {"chronological": 0}, own.seeds.files == 0)
        assert off == tuple(word in name for word in ("no-diffusion", "no-chronology", "no-file-seeds"))
        seen.add(off)
    assert seen == set(product((False, True), repeat=3))


def test_unknown_names_are_told_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'adaptivegraph-no-diffusion'"):
        presets.get("adaptivegraph-no-difusion")
    with pytest.raises(UsageError, match="Did you mean 'ablations'"):
        presets.expand(["ablation"])


@pytest.mark.parametrize("name", presets.shipped())
def test_a_preset_is_the_same_after_a_round_trip(name):
    preset = presets.get(name)
    again = presets.rebuilt(name, preset.described, preset.doc)
    assert again.described == preset.described
    assert again.mark == preset.mark
    assert again.units == preset.units


def test_own_presets_take_over_from_a_base():
    define = {
        "mine": {"base": "adaptivegraph", "doc": "Slow walk", "diffusion": {"alpha": 0.5}},
        "twice": {"base": "mine", "seeds": {"files": 0.9}},
        "mixed": {"method": "fusion", "arms": {"a": {"preset": "mine", "weight": 2}, "b": {"preset": "bm25"}}},
    }
    found = presets.expand(["mine", "twice", "mixed"], define)
    assert found["mine"].options.diffusion.alpha == 0.5
    assert found["mine"].options.seeds == presets.get("adaptivegraph").options.seeds
    assert (found["twice"].options.diffusion.alpha, found["twice"].options.seeds.files) == (0.5, 0.9)
    assert found["mixed"].arms["a"].mark == found["mine"].mark
    assert set(found["mixed"].units) == {*found["mine"].units, "index/note"}


def test_an_arm_that_is_replaced_keeps_nothing_of_the_old_one():
    define = {"mine": {"base": "blend-session", "arms": {"session": {"preset": {"method": "bm25"}}}}}
    arm = presets.get("mine", define).arms["session"]
    assert (arm.options.unit, arm.options.idf) == ("interaction", "okapi")
    assert presets.get("mine", define).options.arms["session"].weight == 0.3


def test_sweeps_name_each_combination():
    sweep = {"diffusion.alpha": [0.1, 0.5], "seeds.power": [1, 2]}
    found = presets.expand(["bm25", "adaptivegraph"], sweep=sweep)
    assert list(found) == [
        "bm25",
        "adaptivegraph@diffusion.alpha=0.1,seeds.power=1",
        "adaptivegraph@diffusion.alpha=0.1,seeds.power=2",
        "adaptivegraph@diffusion.alpha=0.5,seeds.power=1",
        "adaptivegraph@diffusion.alpha=0.5,seeds.power=2",
    ]
    options = found["adaptivegraph@diffusion.alpha=0.5,seeds.power=1"].options
    assert (options.diffusion.alpha, options.seeds.power, options.seeds.files) == (0.5, 1, 0.5)


def test_sweeps_reach_into_arms():
    found = presets.expand(["blend-context"], sweep={"arms.own.preset.arms.dense.weight": [0.7]})
    (preset,) = found.values()
    assert preset.arms["own"].options.arms["dense"].weight == 0.7
    assert preset.arms["own"].options.arms["session"].weight == 0.3
    (preset,) = presets.expand(["rrf"], sweep={"arms.bm25.preset.k1": [0.9]}).values()
    assert (preset.arms["bm25"].options.k1, preset.arms["bm25"].options.b) == (0.9, 0.75)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        ({"x": {"method": "bm52"}}, "(?s)no method is called 'bm52'.*Did you mean 'bm25'"),
        ({"x": {"doc": "nothing"}}, "names no method"),
        ({"x": {"base": "bm52"}}, "no preset is called 'bm52'"),
        ({"x": {"base": "x"}}, "its own base"),
        ({"x": {"method": "fusion", "arms": {"a": {"preset": "x"}}}}, "an arm of itself"),
        ({"x": {"method": "fusion", "arms": {}}}, "at least 1"),
        ({"x": {"base": "bm25", "kl": 1}}, "has no option 'kl'"),
        ({"x": {"base": "bm25", "b": 2}}, r"rank.define.x.b: .*less than or equal to 1"),
        ({"x": {"base": "bm25", "method": "dense"}}, "has method 'dense', and its base 'bm25' 'bm25'"),
        ({"x": ["bm25"]}, "is a list, not settings"),
    ],
)
def test_faults_in_own_presets_are_named(define, message):
    with pytest.raises((ConfigError, UsageError), match=message):
        presets.expand(["x"], define)


def test_names_of_ours_cannot_be_taken():
    with pytest.raises(ConfigError, match="'bm25' is the name of a preset of ours"):
        presets.expand(["bm25-raw"], {"bm25": {"method": "bm25"}})


def test_numbers_that_no_preset_has_are_refused():
    with pytest.raises(UsageError, match=r"(?s)has a number 'difusion\.alpha'.*Did you mean 'diffusion\.alpha'"):
        presets.expand(["adaptivegraph"], sweep={"difusion.alpha": [0.1]})
