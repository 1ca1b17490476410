"""Options of Beam's runners: profiles that come with Tagloom, what is refused before anything runs, what Beam gets."""

import socket
import subprocess
from pathlib import Path

import pytest

from pipelines import beam_boot, beam_options
from schemas.config import load_config
from schemas.errors import ConfigError, MissingDependencyError, StoreError, TagloomError
from tests.pipelines.corpora import run, session, write_lines

INFRA = Path(__file__).resolve().parents[2] / "infra" / "beam"
PROFILES = sorted(INFRA.glob("*.yaml"))
PORTABLE = {"runner": "PortableRunner", "job_endpoint": "embed"}


@pytest.fixture
def server():
    """An address at which somebody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_profiles_pass_our_checks_and_beam_takes_them(path, server):
    from apache_beam.options.pipeline_options import PipelineOptions

    beam = dict(load_config([str(path)], [], {"corpus": "s3://bucket/corpus"}).beam)
    if "job_endpoint" in beam:
        beam["job_endpoint"] = server
    if beam["runner"] == "DataflowRunner":
        with pytest.raises(MissingDependencyError, match=r"pip install 'tagloom\[gcp\]'"):
            beam_options.check(beam)  # all that it needs is set; Google's libraries are not here
    else:
        beam_options.check(beam)
    given = PipelineOptions(beam_options.flags(beam, 2)).get_all_options(
        drop_default=True, retain_unknown_options=False
    )
    own = {"runner", "experiments"}
    assert set(beam) - own <= set(given), "Beam knows every option"
    assert path.name in (INFRA.parents[1] / "docs" / "runners.md").read_text()


def test_every_runner_has_a_profile():
    named = {load_config([str(path)], [], {"corpus": "c"}).beam["runner"] for path in PROFILES}
    assert named == set(beam_options.RUNNERS)


@pytest.mark.parametrize(
    ("beam", "told"),
    [
        ({"runner": "FlinkRuner"}, r"beam\.runner: .*'FlinkRuner'(.|\n)*Did you mean 'FlinkRunner'"),
        ({"runner": "xyz"}, r"Runners: FnApiRunner"),
        ({"direct_num_wrokers": 2}, r"no option 'direct_num_wrokers'(.|\n)*'direct_num_workers'"),
        ({"runner": "FlinkRunner", "flink_mastr": "h:1"}, r"no option 'flink_mastr'(.|\n)*'flink_master'"),
        ({"runner": "PortableRunner"}, r"beam\.job_endpoint: PortableRunner needs"),
        ({"runner": "PortableRunner", "job_endpoint": "somewhere"}, r"somewhere: is not HOST:PORT"),
        ({"runner": "PortableRunner", "job_endpoint": "h:99999"}, r"h:99999: is not HOST:PORT"),
        ({"runner": "PortableRunner", "job_endpoint": "127.0.0.1:1"}, r"no job server answers(.|\n)*Start it"),
        ({**PORTABLE, "environment_type": "DOKCER"}, r"no environment is called 'DOKCER'"),
        ({**PORTABLE, "environment_type": "EXTERNAL"}, r"EXTERNAL needs the address"),
        ({**PORTABLE, "environment_type": "PROCESS"}, r"PROCESS needs the command"),
        ({**PORTABLE, "environment_type": "PROCESS", "environment_config": "boot"}, r"PROCESS needs the command"),
        ({**PORTABLE, "environment_type": "PROCESS", "environment_config": {"command": 7}}, r"PROCESS needs"),
        ({**PORTABLE, "extra_packages": ["dist/none.whl"]}, r"beam\.extra_packages: dist/none\.whl: no such file"),
        ({**PORTABLE, "setup_file": "none/setup.py"}, r"beam\.setup_file: none/setup\.py: no such file"),
        ({"runner": "SparkRunner", "spark_submit_uber_jar": True}, r"beam\.spark_rest_url"),
        ({"runner": "DataflowRunner", "project": "p"}, r"beam\.region: DataflowRunner needs it"),
        (
            {"runner": "DataflowRunner", "project": "p", "region": "r", "temp_location": "/tmp/x"},
            r"temp_location: /tmp/x: is no gs:// URI",
        ),
    ],
)
def test_what_cannot_work_is_refused(beam, told):
    with pytest.raises(ConfigError, match=told):
        beam_options.check(beam)


@pytest.mark.parametrize(
    "beam",
    [
        {},
        {"runner": "DirectRunner", "direct_running_mode": "multi_processing"},
        {**PORTABLE, "environment_type": "beam:env:harness_subprocess_python:v1", "environment_config": "python x"},
        {**PORTABLE, "environment_type": "process", "environment_config": '{"command": "/boot"}'},
        {"runner": "FlinkRunner", "checkpointing_interval": 1000, "object_reuse": True},
        {"runner": "SparkRunner", "spark_master": "local[2]"},
        {"runner": "FlinkRunner", "job_endpoint": None},
    ],
)
def test_what_the_other_end_may_know_passes(beam):
    beam_options.check(beam)


def test_workers_elsewhere_cannot_see_a_corpus_in_memory():
    beam_options.check({}, "memory://c")
    with pytest.raises(StoreError, match="memory://c: workers of FlinkRunner would not see"):
        beam_options.check({"runner": "FlinkRunner"}, "memory://c")


def test_settings_as_beams_command_line():
    assert beam_options.flags({}, 64) == [
        "--default_sdk_harness_log_level=ERROR",
        "--direct_running_mode=multi_threading",
        "--direct_num_workers=4",
    ]
    beam = {
        "runner": "FlinkRunner",
        "environment_config": {"command": "/opt/boot", "env": {"A": "b c"}},
        "experiments": ["one", "two"],
        "flink_submit_uber_jar": True,
        "streaming": False,
        "job_endpoint": None,
        "parallelism": 8,
    }
    assert beam_options.flags(beam, 2) == [
        # Beam takes this for the time that a whole job may take, and its own default is a minute.
        "--job_server_timeout=2592000",
        '--environment_config={"command": "/opt/boot", "env": {"A": "b c"}}',
        "--experiments=one",
        "--experiments=two",
        "--flink_submit_uber_jar",
        "--parallelism=8",
    ]
    assert beam_options.flags({**beam, "job_server_timeout": 5}, 2)[0] == "--job_server_timeout=5"


@pytest.mark.parametrize("name", ["FlinkRunner", "SparkRunner"])
def test_pipelines_are_built_and_stop_where_a_download_would_begin(name, tmp_path, monkeypatch):
    """As far as it goes without Java: Beam makes the job and asks for its server, which is a file that is not there."""
    from pipelines import beam_engine
    from pipelines.progress import Silent
    from tests.pipelines.test_beam_engine import Item, about, fail

    jar = {"FlinkRunner": "flink_job_server_jar", "SparkRunner": "spark_job_server_jar"}[name]
    with pytest.raises(TagloomError, match=r"Unable to parse jar URL \"none\.jar\""):
        beam_engine.run_map(
            [Item(str(tmp_path), 1)], fail, {"runner": name, jar: "none.jar"}, "s", Silent(), about=about
        )
    assert not (tmp_path / "calls").exists()


def test_scripts_are_shell():
    for script in INFRA.glob("*.sh"):
        subprocess.run(["sh", "-n", str(script)], check=True)
        assert script.stat().st_mode & 0o111


def test_only_pure_wheels_are_unpacked(tmp_path):
    import zipfile

    pure, other = tmp_path / "a-1-py3-none-any.whl", tmp_path / "b-1-cp311-cp311-linux_x86_64.whl"
    for path in (pure, other):
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("a/__init__.py", "")
            packed.writestr("../outside.py", "")
    (place,) = beam_boot.unpacked([pure], tmp_path / "code")
    assert (place / "a" / "__init__.py").is_file()
    assert not (tmp_path / "code" / "outside.py").exists() and not (tmp_path / "outside.py").exists()
    with pytest.raises(ValueError, match=r"b-1-cp311-cp311-linux_x86_64\.whl is no pure wheel"):
        beam_boot.unpacked([other], tmp_path / "code")


def test_a_setting_that_is_wrong_leaves_no_corpus_behind(tmp_path):
    line = session("a", 1, "Hello.", "Hi.")
    with pytest.raises(ConfigError, match="PortableRunner needs the address"):
        run(tmp_path / "c", write_lines(tmp_path / "talk.jsonl", line), beam={"runner": "PortableRunner"})
    assert not (tmp_path / "c" / "corpus.json").exists()
