"""The cluster launcher's files, by the launcher's own checks."""

import pytest
import yaml

from tests.infra.texts import INFRA


@pytest.fixture(params=["aws", "gcp"])
def config(request) -> dict:
    return yaml.safe_load((INFRA / "vms" / f"{request.param}.yaml").read_text())


def test_rays_launcher_takes_it(config):
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(config)
    validate_config(prepared)
    kinds = prepared["available_node_types"]
    assert set(kinds) == {"head", "cpu", "gpu"}
    assert prepared["max_workers"] == sum(kind["max_workers"] for kind in kinds.values())
    assert prepared["setup_commands"] == prepared["head_setup_commands"] == prepared["worker_setup_commands"] == []


def test_rays_launcher_starts_our_images(config):
    from ray.autoscaler._private.docker import docker_start_cmds

    docker, gpu = config["docker"], config["available_node_types"]["gpu"]["docker"]
    options = [*docker["run_options"], *gpu["worker_run_options"]]
    command = docker_start_cmds(
        "u", gpu["worker_image"], {}, docker["container_name"], options, "c", "/home/u", "docker"
    )
    # An empty entry point, or the shell that the launcher gives would be an argument of ours.
    assert command.startswith("docker run --rm --name tagloom -d -it")
    assert command.endswith("--gpus=all --net=host REGISTRY/tagloom-gpu:0.1.0 bash")
    assert "--entrypoint= " in command


def test_only_who_has_the_token_gets_in(config):
    assert "--env=RAY_AUTH_MODE=token" in config["docker"]["run_options"]
    assert config["file_mounts"] == {"/home/tagloom/.ray/auth_token": "~/.ray/auth_token"}
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]


def test_no_worker_runs_on_the_head(config):
    assert config["available_node_types"][config["head_node_type"]]["resources"] == {"CPU": 0}


def test_ray_start_knows_the_options(config):
    import re

    from ray.scripts.scripts import start

    known = {option for parameter in start.params for option in parameter.opts}
    for command in (*config["head_start_ray_commands"], *config["worker_start_ray_commands"]):
        assert set(re.findall(r"(?<= )--[a-z-]+", command)) <= known
