"""What docs/presets.md says of presets: all are named, the examples work, and what is said to be read is."""

import re
import shlex
from pathlib import Path

import yaml

from indexers import methods, presets
from jobs.options import parse_sweep
from schemas.config import RunConfig
from transforms import graphs

TEXT = (Path(__file__).parents[2] / "docs" / "presets.md").read_text()
ROWS = [row.strip("| \n").split(" | ") for row in re.findall(r"^\| `[a-z0-9-]+`.*$", TEXT, re.MULTILINE)]


def test_every_preset_has_a_row_and_every_row_its_method():
    told = {name: row[1] for row in ROWS if len(row) == 4 for name in re.findall(r"`([a-z0-9-]+)`", row[0])}
    assert told == {name: presets.get(name).method for name in presets.shipped()}


def test_every_group_and_method_is_named():
    for name in presets.groups():
        assert f"`{name}`" in TEXT
    headings = re.findall(r"[a-z0-9]+", " ".join(re.findall(r"^## ([a-z0-9, ]+)$", TEXT, re.MULTILINE)))
    assert sorted(headings) == list(methods.names())


def test_what_is_said_to_be_read_is_read():
    for row in (row for row in ROWS if len(row) == 4):
        for name in re.findall(r"`([a-z0-9-]+)`", row[0]):
            units = presets.get(name).units
            for kind in graphs.names():
                assert (f"index/{kind}" in units) == (kind in row[3].split(", ")), (name, kind)
            assert any(unit.startswith("embed/") for unit in units) == ("vectors" in row[3]) or name == "words-coverage"


def test_the_run_file_is_valid_and_its_presets_can_be_made():
    config = RunConfig.model_validate(yaml.safe_load(re.search(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[1]))
    found = presets.expand(config.rank.presets, config.rank.define)
    assert found["flat"].options.b == 0
    assert {name: arm.weight for name, arm in found["mine"].options.arms.items()} == {
        "words": 1,
        "vectors": 1,
        "walk": 2,
    }
    assert found["walked"].options.edges.hub_above == 50


def test_the_sweeps_can_be_made():
    made = set()
    for line in re.findall(r"^tagloom run .*--sweep.*$", TEXT, re.MULTILINE):
        words = shlex.split(line)
        names = [words[n + 1] for n, word in enumerate(words) if word == "--preset"]
        made |= set(
            presets.expand(names, sweep=parse_sweep([words[n + 1] for n, w in enumerate(words) if w == "--sweep"]))
        )
    assert len(made) == 12
    (asked,) = re.findall(r"^tagloom query .*-r '(.*?)'", TEXT, re.MULTILINE)
    assert asked in made
