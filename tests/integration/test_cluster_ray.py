"""Workers on a cluster of several nodes: where they are, how they become more, what its autoscaler hears."""

import json
import os
import subprocess
import sys

import pytest

from tests.integration.cluster import cluster

pytestmark = pytest.mark.slow

PROBE = """
import json, sys, time
from pipelines import crew
from pipelines.ray_session import RaySession, connected, joins, worker_count
from pipelines.stage import Needs
from schemas.config import ComputeConfig

compute = ComputeConfig()
assert joins(compute) and worker_count(compute, False) is None
session = RaySession(compute, private=False)
workers = session.workers()
import ray
from ray._private.state import actors
from ray.autoscaler.v2.sdk import get_cluster_resource_state


def where(one):
    names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
    known = actors()
    return [names.get(known[h._actor_id.hex()]["Address"]["NodeID"]) for h in one._handles]


def all_up(one, count):
    end = time.monotonic() + 90
    while len(one.up(1.0)) < count:
        assert time.monotonic() < end, where(one)
        time.sleep(0.2)


def asked():
    gcs = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
    found = get_cluster_resource_state(gcs).cluster_resource_constraints
    return [[dict(r.request.resources_bundle), r.count] for c in found for r in c.resource_requests]


def tell(what):
    print("TOLD " + json.dumps(what), flush=True)


all_up(workers, 1)
replicas = session.replicas(Needs(None, 1, 1, None, 4))
all_up(replicas, 1)
with workers.wanted(1):
    quiet = asked()
with workers.wanted(50):
    loud = asked()
tell({"workers": where(workers), "replicas": where(replicas), "quiet": quiet, "loud": loud, "after": asked()})
replicas.end()
sys.stdin.readline()
all_up(workers, 3)
tell({"workers": where(workers)})
session.close()
"""


def told(process):
    for line in process.stdout:
        if line.startswith("TOLD "):
            return json.loads(line.removeprefix("TOLD "))
    raise AssertionError(process.stderr.read())


def test_work_without_gpus_leaves_their_nodes_alone_and_uses_nodes_that_come():
    with cluster(1, environment={"RAY_enable_autoscaler_v2": "1"}) as made:
        made.add_node(2, gpus=1)
        environment = {**os.environ, **made.environment, "RAY_ADDRESS": made.address, "TAGLOOM_SUBMISSION_ID": "x"}
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [sys.executable, "-c", PROBE], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment
        ) as process:
            first = told(process)
            assert first["workers"] == ["head"] and first["replicas"] == ["node-1"]
            # One core is there for one worker; for fifty the autoscaler is asked until the stage ends.
            assert first["quiet"] == first["after"] == []
            assert first["loud"] == [[{"CPU": 1.0}, 50]]
            made.add_node(2)
            process.stdin.write("\n")
            process.stdin.flush()
            assert sorted(told(process)["workers"]) == ["head", "node-2", "node-2"]
            _, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
