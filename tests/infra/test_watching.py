"""Dashboard and alerts ask for metrics that runs serve."""

import json
import re

import pytest
import yaml

from pipelines.prometheus import METRICS
from tests.infra.texts import INFRA, walk

DASHBOARD = json.loads((INFRA / "grafana" / "tagloom.json").read_text())
RULES = yaml.safe_load((INFRA / "prometheus" / "tagloom-alerts.yml").read_text())


@pytest.mark.parametrize("document", [DASHBOARD, RULES], ids=["dashboard", "alerts"])
def test_every_metric_that_is_asked_for_is_served(document):
    asked = [
        value[key]
        for value in walk(document)
        if isinstance(value, dict)
        for key in ("expr", "query")
        if isinstance(value.get(key), str)
    ]
    found = {name for text in asked for name in re.findall(r"\btagloom_\w+", text)}
    assert len(found) >= 5
    assert found - set(METRICS) == set()


def test_panels_have_ids_and_places_of_their_own():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) >= 5
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def test_prometheus_knows_the_rules():
    config = yaml.safe_load((INFRA / "prometheus" / "prometheus.yml").read_text())
    assert config["rule_files"] == ["tagloom-alerts.yml"]
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert {"alert", "expr", "labels", "annotations"} <= set(rule)
