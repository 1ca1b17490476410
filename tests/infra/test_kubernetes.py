"""The objects for Kubernetes: against small schemas, against each other, and as Ray's own autoscaler reads them."""

import copy
import shlex

import jsonschema
import pytest
import yaml

from jobs import cluster_request
from pipelines import beam_options
from pipelines.ray_session import SINGLE_THREADED, SUBMISSION
from pipelines.stage import Needs
from schemas.config import ComputeConfig, RunConfig, load_config
from tests.infra.schemas import KINDS
from tests.infra.texts import INFRA, documents, parsed, walk

FILES = {
    name: documents(INFRA / name) for name in ("kuberay/cluster.yaml", "kuberay/job.yaml", "flink/deployment.yaml")
}
OBJECTS = [pytest.param(one, id=f"{name}-{one['kind']}") for name, own in FILES.items() for one in own]
MADE_BY_HAND = {"tagloom-ray", "tagloom-env"}
"""Secrets that the comments tell how to make."""


def find(name: str, kind: str) -> dict:
    (found,) = [one for one in FILES[name] if one["kind"] == kind]
    return found


def pods(value: dict) -> list[dict]:
    return [one for one in walk(value) if isinstance(one, dict) and isinstance(one.get("containers"), list)]


@pytest.mark.parametrize("thing", OBJECTS)
def test_an_object_has_what_its_kind_has(thing):
    jsonschema.validate(thing, KINDS[thing["kind"]])
    assert thing["metadata"]["namespace"] == "tagloom"


def test_the_schemas_find_slips_of_the_pen():
    for path, wrong in (
        (("spec", "workerGroupSpecs", 0, "maxReplica"), 3),
        (("spec", "headGroupSpec", "template", "spec", "containers", 0, "resources", "limits", "memory"), "16G"),
        (("spec", "headGroupSpec", "template", "spec", "containers", 0, "securityContext", "runAsUser"), 0),
        (("spec", "authOptions", "mode"), "disabled"),
    ):
        thing = copy.deepcopy(find("kuberay/cluster.yaml", "RayCluster"))
        inner = thing
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = wrong
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(thing, KINDS["RayCluster"])


@pytest.mark.parametrize("thing", OBJECTS)
def test_names_in_pods_agree(thing):
    for pod in pods(thing):
        names = [container["name"] for container in pod["containers"]]
        assert len(set(names)) == len(names)
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        mounted = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts", ())}
        assert mounted == volumes
        for container in pod["containers"]:
            ports = [port["name"] for port in container.get("ports", ())]
            assert len(set(ports)) == len(ports)
            if "readinessProbe" in container:
                assert container["readinessProbe"]["tcpSocket"]["port"] in ports


@pytest.mark.parametrize("name", FILES)
def test_what_is_named_exists(name):
    maps = {one["metadata"]["name"] for one in FILES[name] if one["kind"] == "ConfigMap"}
    accounts = {one["metadata"]["name"] for own in FILES.values() for one in own if one["kind"] == "ServiceAccount"}
    for value in (value for one in FILES[name] for value in walk(one) if isinstance(value, dict)):
        if "configMap" in value:
            assert value["configMap"]["name"] in maps
        if "secretRef" in value:
            assert value["secretRef"]["name"] in MADE_BY_HAND
        if "serviceAccountName" in value:
            assert value["serviceAccountName"] in accounts
        if "authOptions" in value:
            assert value["authOptions"]["secretName"] in MADE_BY_HAND
    told = (INFRA / "kuberay" / "cluster.yaml").read_text()
    assert all(f"create secret generic {secret} " in told for secret in MADE_BY_HAND)


def test_services_find_their_pods():
    deployment, service = (find("flink/deployment.yaml", kind) for kind in ("Deployment", "Service"))
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    (server,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
    told = dict(argument.removeprefix("--").split("=") for argument in server["args"])
    assert {told["job-port"], told["artifact-port"]} == {str(port) for port in ports.values()}
    # The operator calls the service of a deployment's REST server so.
    assert told["flink-master"] == f"{find('flink/deployment.yaml', 'FlinkDeployment')['metadata']['name']}-rest:8081"
    assert "flink1.20_" in server["image"]
    assert find("flink/deployment.yaml", "FlinkDeployment")["spec"]["flinkVersion"] == "v1_20"


def test_the_job_has_the_cluster_of_the_other_file():
    spec = copy.deepcopy(find("kuberay/job.yaml", "RayJob")["spec"]["rayClusterSpec"])
    head = spec["headGroupSpec"]["template"]["spec"]
    head["volumes"].remove({"name": "run", "configMap": {"name": "tagloom-run"}})
    head["containers"][0]["volumeMounts"].remove({"name": "run", "mountPath": "/etc/tagloom", "readOnly": True})
    assert spec == find("kuberay/cluster.yaml", "RayCluster")["spec"]


def test_ray_reads_the_groups_and_tagloom_places_by_them():
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    from pipelines.ray_nodes import room_on

    config = _derive_autoscaling_config_from_ray_cr(find("kuberay/cluster.yaml", "RayCluster"))
    kinds = config["available_node_types"]
    assert {name: kind["max_workers"] for name, kind in kinds.items()} == {"headgroup": 0, "cpu": 16, "gpu": 4}
    assert kinds["headgroup"]["resources"]["CPU"] == 0
    assert "GPU" not in kinds["cpu"]["resources"]
    assert kinds["gpu"]["resources"]["GPU"] == 1
    # A GPU pod alone is there: work without GPU keeps off it, as a CPU pod could be started.
    there = [
        {"Resources": kinds[kind]["resources"], "Labels": {"ray.io/node-id": kind}} for kind in ("headgroup", "gpu")
    ]
    groups = [kinds["cpu"]["resources"], kinds["gpu"]["resources"]]
    ordinary, engine = Needs(None, 1, 0, None, 0, 0), Needs(None, 1, 1, None, 1, 0)
    assert room_on(there, ordinary, ComputeConfig(), groups).places == 0
    assert room_on(there, engine, ComputeConfig(), groups).places == 1
    more = [*there, {"Resources": kinds["cpu"]["resources"], "Labels": {"ray.io/node-id": "cpu"}}]
    assert room_on(more, ordinary, ComputeConfig(), groups).places == 8


def test_the_autoscaler_finds_the_folder_of_rays_logs():
    """The operator mounts the volume of this name into its container, and makes another where there is none."""
    head = find("kuberay/cluster.yaml", "RayCluster")["spec"]["headGroupSpec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in head["containers"][0]["volumeMounts"]}
    assert mounts["/tmp/ray"] == "ray-logs"


def test_the_operator_tries_no_run_again():
    """It would for any code but 0: for a wrong setting, and for results that have rejects."""
    assert find("kuberay/job.yaml", "RayJob")["spec"]["backoffLimit"] == 0


def test_gpu_pods_are_let_onto_their_machines():
    groups = find("kuberay/cluster.yaml", "RayCluster")["spec"]["workerGroupSpecs"]
    tolerated = {group["groupName"]: "tolerations" in group["template"]["spec"] for group in groups}
    assert tolerated == {"cpu": False, "gpu": True}
    images = {group["groupName"]: group["template"]["spec"]["containers"][0]["image"] for group in groups}
    assert images == {"cpu": "REGISTRY/tagloom-cpu:0.1.0", "gpu": "REGISTRY/tagloom-gpu:0.1.0"}


def test_the_job_starts_tagloom_as_submit_does():
    job, settings = find("kuberay/job.yaml", "RayJob"), find("kuberay/job.yaml", "ConfigMap")["data"]["run.yaml"]
    config = RunConfig.model_validate(yaml.safe_load(settings))
    sent = cluster_request.prepare(config, cluster_request.Wishes("http://ray.example:8265"), "0.1.0")
    own = yaml.safe_load(job["spec"]["runtimeEnvYAML"])
    assert own == {"env_vars": {**sent.environment, SUBMISSION: job["spec"]["jobId"]}}
    assert SINGLE_THREADED.items() <= own["env_vars"].items()
    assert set(job["spec"]["metadata"]) <= set(sent.metadata)
    assert {name: sent.metadata[name] for name in ("tagloom", "corpus", "generation")} == job["spec"]["metadata"]
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:5] == shlex.split(sent.entrypoint)[:5] == ["exec", "python", "-m", "jobs.cli", "run"]
    given = parsed(["tagloom", *words[4:]])
    assert given["config"] == ["/etc/tagloom/run.yaml"]
    assert given["wait"] == 300


def test_flinks_sidecar_is_asked_where_it_listens():
    task = find("flink/deployment.yaml", "FlinkDeployment")["spec"]["taskManager"]["podTemplate"]["spec"]
    (sidecar,) = [container for container in task["containers"] if container["name"] == "beam-worker"]
    port = sidecar["ports"][0]["containerPort"]
    assert sidecar["command"] == ["/opt/tagloom/pool.sh", str(port)]
    config = load_config(str(INFRA / "flink" / "profile.yaml"), base={"corpus": "s3://b/c"})
    profile = dict(config.beam)
    assert profile["environment_type"] == "EXTERNAL"
    assert profile["environment_config"] == f"localhost:{port}"
    service = find("flink/deployment.yaml", "Service")
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert profile["artifact_endpoint"] == f"{service['metadata']['name']}:{ports['artifacts']}"
    # The rest is what Tagloom checks before a run, but for whether anybody answers.
    assert profile.pop("job_endpoint") == f"{service['metadata']['name']}:{ports['jobs']}"
    beam_options.check(profile)
