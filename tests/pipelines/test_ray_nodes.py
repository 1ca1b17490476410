"""Where workers may be, and how many fit there."""

import pytest

from pipelines.ray_nodes import Room, admits, check, resources, room_on
from pipelines.stage import Needs
from schemas.config import ComputeConfig
from schemas.errors import ConfigError

PLAIN = Needs(None, 1, 0, None, 0)
GPU = Needs(None, 2, 1, None, 64)


def node(name, cpus, gpus=0.0, memory=8e9, **labels):
    found = {"CPU": float(cpus), "memory": memory, **({"GPU": float(gpus)} if gpus else {})}
    return {"Resources": found, "Labels": {"ray.io/node-id": name, **labels}}


MIXED = [node("a", 4), node("b", 8, gpus=2), node("c", 16), node("d", 8, gpus=4)]


def test_plain_work_keeps_away_from_nodes_with_gpus():
    assert room_on(MIXED, PLAIN, ComputeConfig()) == Room({"ray.io/node-id": "!in(b,d)"}, 20)
    assert room_on(MIXED, GPU, ComputeConfig()) == Room({}, 6)


def test_where_all_nodes_have_gpus_they_are_used_unless_others_could_come():
    nodes = [node("b", 8, gpus=2)]
    assert room_on(nodes, PLAIN, ComputeConfig()) == Room({}, 8)
    kinds = [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 4.0}]
    assert room_on(nodes, PLAIN, ComputeConfig(), kinds) == Room({"ray.io/node-id": "!in(b)"}, 0)
    # A head that declares no cores is no place to work at.
    assert room_on([*nodes, node("head", 0)], PLAIN, ComputeConfig()) == Room({}, 8)
    assert room_on([node("a", 4)], PLAIN, ComputeConfig()) == Room({}, 4)


def test_labels_decide_where_they_are_given():
    nodes = [node("a", 4, zone="x"), node("b", 8, gpus=2, zone="y"), node("c", 16, zone="y"), node("d", 1)]
    assert room_on(nodes, PLAIN, ComputeConfig(cpu_nodes={"zone": "y"})) == Room({"zone": "y"}, 24)
    assert room_on(nodes, PLAIN, ComputeConfig(cpu_nodes={"zone": "!in(x, y)"})).places == 1
    assert room_on(nodes, GPU, ComputeConfig(gpu_nodes={"zone": "x"})).places == 0


def test_memory_and_fractions():
    keeps = Needs(None, 1, 0, None, 0, memory=3_000_000_000)
    assert room_on([node("a", 4), node("c", 1)], keeps, ComputeConfig()).places == 2 + 1
    assert room_on([node("b", 8, gpus=1)], Needs(None, 0.5, 0.1, None, 1), ComputeConfig()).places == 10
    assert resources(keeps) == {"CPU": 1.0, "memory": 3e9}
    assert resources(GPU) == {"CPU": 2.0, "GPU": 1.0}


@pytest.mark.parametrize(
    ("condition", "yes", "no"),
    [("x", "x", "y"), ("!x", "y", "x"), ("in(x, z)", "z", "y"), ("!in(x,z)", "y", "z"), ("!x", None, "x")],
)
def test_conditions(condition, yes, no):
    assert admits({"k": condition}, {"k": yes} if yes else {})
    assert not admits({"k": condition}, {"k": no})


@pytest.mark.parametrize("condition", ["", "in()", "!!x", "in(x", "a b", "in(x)y", "x\n"])
def test_conditions_that_are_none(condition):
    with pytest.raises(ConfigError, match=r"compute\.cpu_nodes\.k"):
        check(ComputeConfig(cpu_nodes={"k": condition}))
    check(ComputeConfig(gpu_nodes={"k": "!in(a, b-c.d)"}))


def test_ray_takes_every_condition_that_is_let_through():
    from ray._private.label_utils import validate_label_selector

    for condition in ("x", "!x", "in(x, z)", "!in(x,z)", "a-b.c_d"):
        check(ComputeConfig(cpu_nodes={"k": condition}))
        assert validate_label_selector({"k": condition}) is None
