"""docs/deploy.md and the comments in `infra/` name what there is."""

import json
import re
import subprocess
import sys
from contextlib import closing

import pytest
import yaml

from schemas.config import RunConfig
from tests.infra.texts import INFRA, ROOT, commands, in_context, parsed
from tests.pipelines.corpora import session, tables, write_lines

TEXT = (ROOT / "docs" / "deploy.md").read_text()
OWN = ("images", "kuberay", "vms", "compose", "flink", "dataflow")
FILES = sorted(
    path for folder in OWN for path in (INFRA / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
)


@pytest.mark.parametrize("path", [ROOT / "docs" / "deploy.md", *FILES], ids=lambda path: path.name)
def test_commands_are_ones_that_tagloom_knows(path):
    found = commands(path.read_text())
    for words in found:
        parsed(words)
    if path.name == "deploy.md":
        assert {words[1] for words in found} >= {"submit", "run", "synth", "status", "report"}


@pytest.mark.parametrize(
    "words",
    [["tagloom", "submit", "--adress", "x"], ["tagloom", "sbmit"], ["tagloom", "run", "--wait", "soon"]],
    ids=["option", "command", "value"],
)
def test_a_command_that_tagloom_does_not_know_is_found(words):
    with pytest.raises(Exception, match=r"."):
        parsed(words)


def test_settings_that_are_shown_are_valid():
    blocks = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        RunConfig.model_validate({"corpus": "s3://b/c", **yaml.safe_load(block)})


def test_files_that_are_named_exist_and_all_are_named():
    for path in (ROOT / "docs" / "deploy.md", *(path for path in FILES if path.suffix != ".txt")):
        for name in re.findall(r"(?<![\w/])infra/[\w./-]*\w", path.read_text()):
            if name != "infra/compose/secrets.env":  # the user's own
                assert (ROOT / name).exists(), (path.name, name)
    for folder in OWN:
        assert f"infra/{folder}/" in TEXT


def test_every_variable_of_compose_is_explained():
    from tests.infra.test_compose import SERVICES

    assert set(SERVICES) == {"storage", "head", "worker", "tagloom", "prometheus", "grafana"}
    for port in re.findall(r"127\.0\.0\.1:(\d+):", (INFRA / "compose" / "compose.yaml").read_text()):
        assert port in TEXT, port


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(str(INFRA / "dataflow"))
    import main

    return main


@pytest.mark.parametrize(("settings", "says"), [
    ("{rank: {preset: [bm25]}}", "rank.preset"),
    ("[1]", "settings: a list"),
    ("{a: [", "expected"),
])  # fmt: skip
def test_the_template_does_not_start_with_a_wrong_setting(program, capsys, settings, says):
    with pytest.raises(SystemExit) as ended:
        program.main(["--corpus", "gs://b/c", "--settings", settings])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_the_template_tries_again_only_what_may_end_otherwise(program, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PYTHONPATH", str(INFRA.parent))
    monkeypatch.chdir(tmp_path)
    settings = "{ingest: {max_reject_share: 0.1}, rank: {presets: [bm25-raw]}, compute: {workers: 0}}"
    log = write_lines(tmp_path / "a.jsonl", session("x", 1, "My cat is called Miso.", "Good."), "no session")
    program.run(program.run_file("c", str(log), settings))
    assert "ended with code 3: all results are written" in caplog.text
    assert tables(tmp_path / "c")
    caplog.clear()
    program.run(program.run_file("c", "", "{rank: {presets: [bm26]}}"))
    assert "ended with code 2: a setting is wrong" in caplog.text
    with pytest.raises(RuntimeError, match=r"(?s)ended with code 1.*nowhere"):
        program.run(program.run_file("d", "nowhere", "{}"))


def test_parameters_of_the_template_are_those_of_its_program(program):
    metadata = json.loads((INFRA / "dataflow" / "metadata.json").read_text())
    parameters = {one["name"]: one for one in metadata["parameters"]}
    source = (INFRA / "dataflow" / "main.py").read_text()
    taken = set(re.findall(r'add_argument\("--(\w+)"', source))
    assert set(parameters) == taken
    required = set(re.findall(r'add_argument\("--(\w+)", required=True', source))
    assert {name for name, one in parameters.items() if not one.get("isOptional")} == required
    for one in parameters.values():
        assert set(one) <= {"name", "label", "helpText", "isOptional", "regexes"}
        for pattern in one.get("regexes", ()):
            assert re.match(pattern, one["helpText"].partition("Example: ")[2])
    example = parameters["settings"]["helpText"].partition("Example: ")[2]
    assert program.run_file("gs://b/c", " gs://b/x  gs://b/y ", example) == (
        "corpus: gs://b/c\ninputs:\n- gs://b/x\n- gs://b/y\nrank:\n  presets:\n  - bm25\n  - adaptivegraph\n"
    )
    assert program.run_file("gs://b/c", "", "{}") == "corpus: gs://b/c\n"
    with pytest.raises(ValueError, match="settings: a list"):
        program.run_file("gs://b/c", "", "[1]")
    given = {name for name, _ in re.findall(r"--parameters [\"'^|]*(\w+)(=)", TEXT)}
    assert given == taken | {"sdk_container_image"}


def test_the_image_of_beams_workers_gets_what_it_copies():
    text = (INFRA / "beam" / "Dockerfile").read_text()
    for source in re.findall(r"^COPY (\S+) ", text, re.MULTILINE):
        assert in_context(source.replace("*", "0.1.0")), source


@pytest.mark.slow
def test_the_upload_puts_logs_where_the_run_looks(tmp_path, monkeypatch):
    import boto3
    from moto.server import ThreadedMotoServer

    (line,) = re.findall(r'^python -c "(.+)"$', TEXT, re.MULTILINE)
    folder = tmp_path / "build" / "logs"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text("{}\n")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
        for name, value in {**settings, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}.items():
            monkeypatch.setenv(name, value)
        with closing(boto3.client("s3")) as client:
            client.create_bucket(Bucket="tagloom")
            subprocess.run([sys.executable, "-c", line], cwd=tmp_path, check=True)
            assert [one["Key"] for one in client.list_objects_v2(Bucket="tagloom")["Contents"]] == ["logs/a.jsonl"]
    finally:
        server.stop()
