"""The run configuration: YAML, overrides, and errors that help."""

from pathlib import Path

import pytest

from schemas.config import RunConfig, load_config
from schemas.errors import ConfigError


def test_file_then_command_line_then_overrides(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("corpus: one\nrank: {depth: 10, presets: [bm25]}\nbeam: {runner: DirectRunner}\n")
    config = load_config(str(path), ["rank.depth=30", "evaluate.ks=[1, 2]"], {"corpus": "two", "rank.depth": 20})
    assert config.corpus == "two"
    assert config.rank.depth == 30
    assert config.rank.presets == ("bm25",)
    assert config.evaluate.ks == (1, 2)
    assert config.beam == {"runner": "DirectRunner"}


@pytest.mark.parametrize(
    ("override", "says", "remedy"),
    [
        ("rank.dept=3", "unknown key 'rank.dept'", "Did you mean 'rank.depth'?"),
        ("exract.extractor=x", "unknown key 'exract'", "Did you mean 'extract'?"),
        ("graph.zzz=1", "unknown key 'graph.zzz'", "Known keys there: kinds, options, forget"),
        ("rank.depth=0", "'rank.depth' = 0", ""),
        ("rank.depth=many", "'rank.depth' = 'many'", ""),
        ("name=../x", "'name' = '../x'", ""),
        ("shards=0", "'shards'", ""),
        ("compute.workers=-1", "'compute.workers'", ""),
        ("evaluate.ks=[0, -3]", "'evaluate.ks.0'", ""),
        ("rank.presets=[]", "'rank.presets'", ""),
        ("rank", "not KEY=VALUE", "Example"),
        ("rank.depth.more=1", "is a value, not a section", ""),
        ("rank.depth=[", "not valid YAML", ""),
    ],
)
def test_errors_name_the_key_the_value_and_the_remedy(override, says, remedy):
    with pytest.raises(ConfigError) as caught:
        load_config(None, ["rank.depth=5", override], {"corpus": "x"})
    assert says in str(caught.value)
    assert remedy in str(caught.value)
    assert caught.value.exit_code == 2


def test_unsafe_yaml_is_refused(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("corpus: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_config(str(path))


@pytest.mark.parametrize("content", ["- a\n- b\n", "just text"])
def test_a_file_that_holds_no_settings(tmp_path, content):
    path = tmp_path / "run.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match="not settings"):
        load_config(str(path))


def test_missing_file_and_missing_corpus(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigError, match="'corpus' is not set"):
        load_config(None)


def settings_of(model, prefix=""):
    for name, field in model.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            yield from settings_of(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def test_every_setting_is_described_here_and_in_the_documentation():
    told = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text()
    found = dict(settings_of(RunConfig))
    assert "rank.depth" in found
    for name, field in found.items():
        assert field.description, name
        assert f"| `{name}` |" in told
        assert field.description in told


def test_later_files_win_section_by_section(tmp_path):
    run, profile = tmp_path / "run.yaml", tmp_path / "flink.yaml"
    run.write_text(
        "corpus: one\nrank: {depth: 10, presets: [bm25]}\nbeam: {runner: DirectRunner, direct_num_workers: 2}\n"
        "extract: {extractor: openai, model: m}\n"
    )
    profile.write_text(
        "corpus: two\nrank: {depth: 20}\nbeam: {runner: FlinkRunner, parallelism: 8}\nextract:\n  model: n\n"
    )
    config = load_config([str(run), str(profile)], ["beam.parallelism=4"])
    assert config.corpus == "two"
    assert (config.rank.depth, config.rank.presets) == (20, ("bm25",))
    assert config.beam == {"runner": "FlinkRunner", "parallelism": 4}, "another runner's options do not stay"
    assert (config.extract.extractor, config.extract.model) == ("openai", "n")
    profile.write_text("beam: {direct_num_workers: 4}\nextract: {extractor: lexical}\n")
    config = load_config([str(run), str(profile), str(tmp_path / "flink.yaml")])
    assert config.beam == {"runner": "DirectRunner", "direct_num_workers": 4}
    assert config.extract.model is None


def test_a_fault_names_the_file_that_it_lies_in(tmp_path):
    run, profile = tmp_path / "run.yaml", tmp_path / "broken.yaml"
    run.write_text("corpus: one\n")
    profile.write_text("beam: [\n")
    with pytest.raises(ConfigError, match=r"broken\.yaml: is not valid YAML"):
        load_config([str(run), str(profile)])
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_config([str(run), str(tmp_path / "none.yaml")])
