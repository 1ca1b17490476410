"""Which nodes of a Ray cluster workers may use, how many fit there, and what its autoscaler is told.

Work that needs no GPU keeps away from nodes that have one, as long as there are others or the cluster's autoscaler
could start some. `compute.cpu_nodes` and `compute.gpu_nodes` say it by labels instead.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pipelines.stage import Needs
from schemas.config import ComputeConfig
from schemas.errors import ConfigError

MOST_WORKERS = 4096
NODE_ID = "ray.io/node-id"
"""Label that Ray gives to every node."""
_CONDITION = re.compile(r"(!?)(?:in\(([\w.\-]+(?:\s*,\s*[\w.\-]+)*)\)|([\w.\-]+))")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Room:
    """Where workers of one kind may be.

    Attributes:
        selector: Ray's label selector of the nodes.
        places: Workers that fit on the nodes there are, busy or not.
    """

    selector: Mapping[str, str]
    places: int


def check(compute: ComputeConfig) -> None:
    """Check the label selectors.

    Raises:
        ConfigError: One is not in Ray's form.
    """
    for name in ("cpu_nodes", "gpu_nodes"):
        for key, condition in getattr(compute, name).items():
            if _CONDITION.fullmatch(condition) is None:
                raise ConfigError(
                    f"'{condition}' is no condition on a label",
                    where=f"compute.{name}.{key}",
                    remedy="Write VALUE, !VALUE, in(A, B) or !in(A, B).",
                )


def admits(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether a label selector, as `check` knows it, admits a node with some labels."""
    for key, condition in selector.items():
        found = _CONDITION.fullmatch(condition)
        if found is None:
            return False
        negated, several, one = found.groups()
        values = [value.strip() for value in several.split(",")] if several else [one]
        if (labels.get(key) in values) == bool(negated):
            return False
    return True


def room(needs: Needs, compute: ComputeConfig) -> Room:
    """Return where workers of the connected cluster may be; a local Ray is a cluster of one node."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    return room_on(nodes, needs, compute, _groups() if not needs.gpus and not compute.cpu_nodes else ())


def room_on(
    nodes: Sequence[Mapping[str, Any]],
    needs: Needs,
    compute: ComputeConfig,
    groups: Sequence[Mapping[str, float]] = (),
) -> Room:
    """Return where workers may be.

    Args:
        nodes: The nodes that are alive, each with ``Resources`` and ``Labels``, as `ray.nodes` gives them.
        needs: What a worker needs.
        compute: The labels that the run goes by.
        groups: Resources of a node of each kind that the autoscaler could start.
    """
    selector = dict(compute.gpu_nodes if needs.gpus else compute.cpu_nodes)
    if not needs.gpus and not selector:
        with_gpu = sorted(node["Labels"].get(NODE_ID, "") for node in nodes if node["Resources"].get("GPU"))
        others = [*(node["Resources"] for node in nodes), *groups]
        if with_gpu and any(not one.get("GPU") and one.get("CPU", 0) >= needs.cpus for one in others):
            selector = {NODE_ID: f"!in({','.join(with_gpu)})"}
    return Room(selector, sum(_fitting(node, needs) for node in nodes if admits(selector, node["Labels"])))


def _fitting(node: Mapping[str, Any], needs: Needs) -> int:
    wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory}
    # Ray counts resources in ten-thousandths; a half that is written as 0.5 fits twice.
    shares = [node["Resources"].get(name, 0.0) / need + 1e-6 for name, need in wanted.items() if need]
    return int(min(shares, default=MOST_WORKERS))


def _groups() -> list[dict[str, float]]:
    """Return the resources of each kind of node that the cluster's autoscaler could start; none where there is none."""
    from ray._private.state import state

    with suppress(Exception):  # no public function tells it; without it the nodes that there are decide
        config = state.get_cluster_config()
        if config is not None:
            return [dict(group.resources) for group in config.node_group_configs if group.max_count]
    return []


def resources(needs: Needs) -> dict[str, float]:
    """Return what one worker takes, by Ray's names."""
    wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory}
    return {name: float(need) for name, need in wanted.items() if need}


@contextmanager
def asked_for(needs: Needs, count: int, selector: Mapping[str, str]) -> Iterator[None]:
    """Ask the cluster's autoscaler to make room for some workers while a block runs; only a hint.

    A cluster keeps one such request: that of another run in the same cluster replaces it.
    """
    from ray.autoscaler.sdk import request_resources

    def ask(bundles: list[dict[str, float]]) -> None:
        try:
            request_resources(bundles=bundles, bundle_label_selectors=[dict(selector)] * len(bundles))
        except Exception as error:  # of Ray or of its transport; the run works without
            log.debug("the autoscaler cannot be asked: %s", error)

    ask([resources(needs)] * count)
    try:
        yield
    finally:
        ask([])
