"""The compose file: against a small schema, and what it names is there."""

import re

import jsonschema
import yaml

from schemas.config import load_config
from tests.infra.schemas import COMPOSE
from tests.infra.texts import INFRA, ROOT

FOLDER = INFRA / "compose"
FILE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = FILE["services"]


def test_it_is_a_compose_file():
    jsonschema.validate(FILE, COMPOSE)


def test_what_it_names_is_there():
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= set(SERVICES)
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in FILE["volumes"], source
        if "build" in service:
            assert (FOLDER / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).is_file()
    for name in set(SERVICES) - {"tagloom"}:  # that one is a command
        assert "healthcheck" in SERVICES[name], name


def test_secrets_come_from_the_file_alone_and_where_they_are_needed():
    example = (FOLDER / "secrets.env.example").read_text()
    offered = set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE))
    needed = {
        name: set(re.findall(r"\$\{([A-Z_]+)", yaml.safe_dump(service, default_flow_style=False)))
        for name, service in SERVICES.items()
    }
    assert set().union(*needed.values()) == offered
    assert needed["prometheus"] == set()
    assert needed["grafana"] == {"GRAFANA_PASSWORD"}
    assert needed["storage"] == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    # Those without which it must not start have no default.
    text = (FOLDER / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{([A-Z_]+):\?", text)) == offered - {"RAY_CPUS"}


def test_ray_start_knows_the_options():
    from ray.scripts.scripts import start

    known = {option for parameter in start.params for option in parameter.opts}
    for name in ("head", "worker"):
        assert SERVICES[name]["entrypoint"] == ["ray"] and SERVICES[name]["command"][0] == "start"
        options = {word.split("=")[0] for word in SERVICES[name]["command"][1:]}
        assert options <= known
    port = next(word for word in SERVICES["head"]["command"] if word.startswith("--port="))
    assert f"--address=head:{port.removeprefix('--port=')}" in SERVICES["worker"]["command"]


def test_health_is_asked_where_ray_answers_without_a_token():
    from ray.dashboard.http_server_agent import PUBLIC_EXACT_PATHS

    asked = SERVICES["worker"]["healthcheck"]["test"][-1]
    assert asked == "http://127.0.0.1:52365/api/local_raylet_healthz"
    assert asked.removeprefix("http://127.0.0.1:52365") in PUBLIC_EXACT_PATHS


def test_the_run_there():
    config = load_config(str(FOLDER / "run.yaml"))
    bucket = SERVICES["storage"]["environment"]["S3_BUCKET"]
    assert config.corpus == f"s3://{bucket}/corpus"
    assert config.inputs == (f"s3://{bucket}/logs/",)


def test_prometheus_scrapes_the_run_and_grafana_asks_prometheus():
    scraped = yaml.safe_load((INFRA / "prometheus" / "prometheus.yml").read_text())
    targets = [
        target
        for job in scraped["scrape_configs"]
        for group in job.get("static_configs", ())
        for target in group["targets"]
    ]
    port = load_config(str(FOLDER / "run.yaml")).compute.metrics.rpartition(":")[2]
    assert f"{SERVICES['head']['hostname']}:{port}" in targets
    for rules in scraped.get("rule_files", ()):
        assert (INFRA / "prometheus" / rules.removeprefix("/etc/prometheus/")).is_file()
    (source,) = yaml.safe_load((FOLDER / "grafana" / "datasources.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((FOLDER / "grafana" / "dashboards.yaml").read_text())["providers"]
    assert f"../grafana:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
