"""Submissions: what is checked here, what is sent, what is hidden, and what a cluster that refuses gives."""

import json
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from jobs.cluster import Job
from jobs.cluster_places import placed
from jobs.cluster_request import RUN_VARIABLE, Wishes, address_of, is_loopback, prepare
from schemas.config import RunConfig, load_config
from schemas.errors import UsageError
from tests.jobs.calls import call

HERE, THERE = "http://127.0.0.1:8265", "http://ray.example:8265"
NASTY = 'it\'s "a" $(touch pwned) `id` ;|&\n${HOME} $HOME é #: - x'


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS", "RAY_JOB_HEADERS", "TAGLOOM_CORPUS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"case_id": "a", "session_id": "s", "messages": [{"role": "user", "content": "hello"}]}\n')
    return path


def dry(capsys, *arguments):
    code, out, err = call(capsys, "submit", *arguments, "--dry-run", "--json")
    assert code == 0, err
    return json.loads(out)


def refused(capsys, *arguments, code=2):
    found, out, err = call(capsys, "submit", *arguments)
    assert (found, out) == (code, "")
    return err


def config(corpus="s3://bucket/corpus", inputs=("s3://bucket/logs",), **more):
    return load_config(None, [], {"corpus": corpus, "inputs": list(inputs), **more})


def test_a_dry_run_tells_all_that_would_be_sent(capsys, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    given = ["-C", "corpus", "a.jsonl", "--preset", "bm25", "--set", "rank.depth=7", "--append", "--wait", "5"]
    sent = dry(capsys, *given, "--address", HERE, "--env", "MY_KEY", "--driver-cpus", "0.5", "--driver-memory", "2.5GB")
    assert sent["configuration"] == {
        "corpus": str(tmp_path / "corpus"),
        "inputs": [str(text)],
        "rank": {"presets": ["bm25"], "depth": 7},
    }
    assert sent["entrypoint"].endswith("-m jobs.cli run --config tagloom-run/run.yaml --append --wait 5")
    assert sent["environment"]["MY_KEY"] == "(hidden)" and "sk-very-secret" not in json.dumps(sent)
    assert sent["environment"]["TAGLOOM_SUBMISSION_ID"] == sent["id"]
    assert sent["environment"]["OMP_NUM_THREADS"] == "1" and sent["environment"]["PYTHONSAFEPATH"] == "1"
    assert sent["driver"] == {"cpus": 0.5, "memory": 2_500_000_000}
    assert sent["metadata"]["corpus"] == str(tmp_path / "corpus") and sent["metadata"]["generation"] == "main"
    assert sent["package"]["name"].startswith("tagloom-") and len(sent["package"]["sha256"]) == 64
    assert not (tmp_path / "corpus").exists()
    code, out, err = call(capsys, "submit", *given, "--address", HERE, "--env", "MY_KEY", "--dry-run")
    assert code == 0 and "MY_KEY=(hidden)" in out and "sk-very-secret" not in out + err


def test_ids_name_the_generation_and_differ():
    first, second = (prepare(config(name="My.try_2"), Wishes(THERE), "1") for _ in range(2))
    assert first.id.startswith("tagloom-My.try_2-20") and first.id != second.id
    assert first.entrypoint.startswith("exec python -m jobs.cli run ")


@pytest.mark.parametrize(
    "name", ["a b.jsonl", "q'uote\".jsonl", "$(touch pwned).jsonl", "new\nline.jsonl", "é😀.jsonl"]
)
def test_hostile_names_travel_as_data(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("{}\n")
    sent = prepare(config(str(tmp_path / "c"), [name], **{"ingest.format": NASTY}), Wishes(HERE), "1")
    (tmp_path / "run.yaml").write_bytes(sent.files["run.yaml"])
    read = load_config(str(tmp_path / "run.yaml"))
    assert read.inputs == (str(tmp_path / name),) and read.ingest.format == NASTY
    assert name not in sent.entrypoint and "touch" not in sent.entrypoint


def test_beside_an_image_the_configuration_passes_ray_and_the_shell_unread(tmp_path, monkeypatch):
    """The command is run by a real shell, in the environment that Ray's own function makes."""
    from ray._private.utils import update_envs

    script = tmp_path / "it's python"
    script.write_text('#!/bin/sh\nwhile [ "$1" != --config ]; do shift; done\nexec cat "$2"\n')
    script.chmod(0o755)
    wishes = Wishes(THERE, image="registry/tagloom:1", python=str(script))
    given = config(**{"ingest.format": NASTY, "questions": ["gs://b/" + NASTY]})
    sent = prepare(given, wishes, "1")
    assert sent.files == {} and "touch" not in sent.entrypoint
    monkeypatch.setenv(RUN_VARIABLE, "")
    update_envs({RUN_VARIABLE: sent.environment[RUN_VARIABLE]})
    done = subprocess.run(sent.entrypoint, shell=True, cwd=tmp_path, capture_output=True, check=True)
    assert RunConfig.model_validate(yaml.safe_load(done.stdout)) == given
    assert list(tmp_path.iterdir()) == [script]


def test_a_large_configuration_beside_an_image_is_refused():
    many = [f"s3://bucket/{n:060}" for n in range(1000)]
    with pytest.raises(UsageError, match="may have 64,000"):
        prepare(config(inputs=many), Wishes(THERE, image="i"), "1")
    assert len(prepare(config(inputs=many), Wishes(THERE), "1").files["run.yaml"]) > 64_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-C", "memory://c", "s3://b/x"], "no other process sees what lies in memory"),
        (["-C", "s3://b/c", "memory://x"], "no other process sees what lies in memory"),
        (["-C", "./corpus", "s3://b/x"], "does not see this machine's disk"),
        (["-C", "file:///corpus", "s3://b/x"], "does not see this machine's disk"),
        (["-C", "s3://b/c", "logs/*.jsonl"], "--shared-disk"),
        (["-C", "s3://b/c", "s3://b/x", "--questions", "q.jsonl"], "--shared-disk"),
        (["-C", "s3://b/c", "s3://b/x", "--preset", "bn25"], "bm25"),
        (["-C", "s3://b/c", "s3://b/x", "--set", "rank.dept=5"], "Did you mean 'rank.depth'?"),
        (["-C", "s3://b/c", "s3://b/x", "--set", "extract.extractor=none"], "none"),
        (["-C", "s3://b/c", "s3://b/x", "--set", "beam.s3_secret_access_key=hunter2"], "beam.s3_secret_access_key"),
        (["-C", "s3://b/c", "s3://key:hunter2@b/x"], "an address holds no user"),
        (["-C", "s3://b/c", "https://hunter2@h/x.jsonl"], "an address holds no user"),
        (["-C", "s3://b/c", "https://h/x.jsonl?X-Amz-Signature=hunter2"], "the parameter 'X-Amz-Signature'"),
        (["-C", "s3://b/c", "s3://b/x", "--questions", "https://h/x?sig=hunter2"], "the parameter 'sig'"),
        (["-C", "s3://b/c", "s3://b/x", "--env", "NOT_SET_ANYWHERE"], "'NOT_SET_ANYWHERE' is not set here"),
        (["-C", "s3://b/c", "s3://b/x", "--env", "A=hunter2"], "the name alone"),
        (["-C", "s3://b/c", "s3://b/x", "--env", "PYTHONPATH"], "one that Ray, Python or Tagloom sets"),
        (["-C", "s3://b/c", "s3://b/x", "--env", "DOLLAR"], "dollar sign"),
        (["-C", "s3://b/c", "s3://b/x", "--driver-memory", "much"], "is no size"),
        (["-C", "s3://b/c", "s3://b/x", "--package", "none.whl"], "is not a wheel"),
        (["-C", "s3://b/c", "s3://b/x", "--package", "w", "--image", "i"], "exclude each other"),
        (["-C", "s3://b/c", "s3://b/x", "--image", "i", "--set", "extract.extractor=openai", "--set",
          "extract.model=m", "--set", "extract.prompt=own.md"], "cannot travel beside an image"),
        (["-C", "s3://b/c", "s3://b/x", "--set", "extract.extractor=replay", "--set", "extract.options.notes=a.jsonl"],
         "does not see this machine's disk"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_the_cluster_is_asked(capsys, text, tmp_path, monkeypatch, arguments, words):
    """No cluster answers at this address: whoever asked it would get another error, and wait for it."""
    from pathlib import Path

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOLLAR", "hunter2$HOME")
    Path("own.md").write_text((Path(__file__).parents[2] / "transforms/prompts/notes.md").read_text())
    err = refused(capsys, *arguments, "--address", THERE)
    assert words in err and "hunter2" not in err.replace("s3://key:hunter2@b/x", "")


def test_inputs_and_shards_are_looked_at_where_they_are_here(capsys, text, tmp_path):
    from pipelines.store import Store

    assert "no such file" in refused(capsys, "-C", str(tmp_path / "c"), "none.jsonl", "--address", HERE, code=1)
    assert "no corpus here" in refused(capsys, "-C", str(tmp_path / "c"), "--address", HERE, code=1)
    Store.create(str(tmp_path / "c"), 8)
    given = ["-C", str(tmp_path / "c"), str(text), "--address", HERE]
    assert "8 shards, not 16" in refused(capsys, *given, "--set", "shards=16")


def test_prompts_travel_and_files_of_this_machine_do_not(text, tmp_path, monkeypatch):
    from pathlib import Path

    own = (Path(__file__).parents[2] / "transforms/prompts/notes.md").read_bytes()
    monkeypatch.chdir(tmp_path)
    Path("it's mine.md").write_bytes(own)
    asked = {"extract.extractor": "openai", "extract.model": "m", "extract.prompt": "it's mine.md"}
    sent = prepare(config(**asked), Wishes(THERE), "1")
    (named,) = [yaml.safe_load(sent.run)["extract"]["prompt"]]
    assert named == "tagloom-run/prompts/0/it's mine.md"
    assert sent.files["prompts/0/it's mine.md"] == own
    # On one machine, and on a disk that all share, other files keep their place.
    replay = {"extract.extractor": "replay", "extract.options.notes": "a.jsonl"}
    for wishes in (Wishes(HERE), Wishes(THERE, shared_disk=True)):
        sent = prepare(config("c", ["a.jsonl"], **replay), wishes, "1")
        read = yaml.safe_load(sent.run)
        assert read["extract"]["options"]["notes"] == read["inputs"][0] == str(text)
        assert read["corpus"] == str(tmp_path / "c")


def test_only_options_that_are_files_are_taken_for_files(tmp_path, monkeypatch):
    """Other options are texts, whatever lies here under such a name; no option is a pattern."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "no/te.jsonl", "own.jar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    body = {"stop": [".", "./", "a.jsonl", "n" * 360, "**", "x\0y"], "user": "/"}
    engine = {"extract.extractor": "openai", "extract.model": "m", "extract.options.extra_body": body}
    embed = {"embed.embedder": "openai", "embed.model": "m/" + "n" * 360, "embed.options.query_prefix": "./"}
    for wishes in (Wishes(THERE), Wishes(THERE, shared_disk=True)):
        read = yaml.safe_load(prepare(config(**engine, **embed, **{"beam.labels": ["."]}), wishes, "1").run)
        assert read["extract"]["options"] == {"extra_body": body} and read["embed"]["options"] == {"query_prefix": "./"}
        assert read["embed"]["model"] == embed["embed.model"] and read["beam"] == {"labels": ["."]}
    replay = {"extract.extractor": "replay", "extract.options.notes": "no/te.jsonl"}
    beam = {"beam.flink_job_server_jar": "own.jar", "beam.flink_version": "1.19"}
    with pytest.raises(UsageError, match="does not see this machine's disk"):
        placed(config(**beam), visible=False, files_travel=True, folder="f")
    (kept,) = [placed(config(**beam, **replay), visible=True, files_travel=True, folder="f").settings]
    assert kept["beam"] == {"flink_job_server_jar": str(tmp_path / "own.jar"), "flink_version": "1.19"}
    assert kept["extract"]["options"]["notes"] == str(tmp_path / "no/te.jsonl")
    # A run that goes on need not name its extractor again.
    on = placed(
        config(**{"extract.options.notes": "no/te.jsonl"}), visible=True, files_travel=True, folder="f"
    ).settings
    assert on["extract"]["options"]["notes"] == str(tmp_path / "no/te.jsonl")


def test_an_input_that_is_no_name_of_a_file_is_not_there(capsys, tmp_path):
    for name in ("n" * 360, "n" * 5000 + "*"):
        assert "no such file" in refused(capsys, "-C", str(tmp_path / "c"), name, "--address", HERE, code=1)


def test_an_address_of_another_cluster_is_left_out():
    sent = prepare(config(**{"compute.address": "ray://elsewhere:10001"}), Wishes(THERE), "1")
    assert "elsewhere" not in sent.run and "compute.address is left out" in sent.notes[0]


@pytest.mark.parametrize(
    ("given", "environment", "wanted"),
    [
        ("http://h:8265/", {}, "http://h:8265"),
        ("h:8265", {"RAY_API_SERVER_ADDRESS": "http://other"}, "http://h:8265"),
        (None, {"RAY_API_SERVER_ADDRESS": "https://a/ray", "RAY_ADDRESS": "http://b"}, "https://a/ray"),
        (None, {"RAY_ADDRESS": "http://b:1"}, "http://b:1"),
    ],
)
def test_the_address_that_is_given_wins(monkeypatch, given, environment, wanted):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert address_of(given) == wanted


@pytest.mark.parametrize(
    "given",
    [None, "auto", "ray://h:10001", "http://", "http://user:hunter2@h:8265", "http://h:99999", "h?x=1", "os://x"],
)
def test_what_is_no_address_of_a_dashboard_is_refused(given):
    with pytest.raises(UsageError) as error:
        address_of(given)
    assert "hunter2" not in str(error.value)


def test_loopback():
    assert all(map(is_loopback, ("http://127.0.0.1:1", "http://localhost", "https://[::1]:8", "http://127.9.9.9")))
    assert not any(map(is_loopback, ("http://10.0.0.1", "http://localhost.example", "http://0.0.0.0:1", "http://[")))


@pytest.mark.parametrize(
    ("state", "code", "wanted"),
    [
        ("SUCCEEDED", 0, 0), ("FAILED", 1, 1), ("FAILED", 2, 2), ("FAILED", 3, 3), ("FAILED", None, 1),
        ("FAILED", -9, 137), ("FAILED", 143, 143), ("STOPPED", None, 143), ("STOPPED", 0, 143),
    ],
)  # fmt: skip
def test_the_exit_code_is_that_of_the_run(state, code, wanted):
    assert Job("x", state, {}, 1.0, 2.0, code, "").exit_code == wanted


class Answers(BaseHTTPRequestHandler):
    """Answers as the table of its server says, and keeps what it was asked."""

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        self.server.bodies.append((self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0))))
        state, body, headers = self.server.table.get(self.path, self.server.table.get("*", (404, "", {})))
        self.send_response(state)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_PUT = do_GET

    def log_message(self, *_):
        pass


@contextmanager
def answering(table, tls=None):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.table, server.asked, server.bodies = table, [], []
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}", server
    finally:
        server.shutdown()
        server.server_close()


RECENT = (200, json.dumps({"version": "4", "ray_version": "2.60.0", "ray_commit": "x", "session_name": "s"}), {})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "is not the dashboard of a Ray cluster (answer 404)"),
        ({"/api/version": (200, "<html>", {})}, "is not the dashboard of a Ray cluster"),
        ({"/api/version": (200, "[1]", {})}, "is not the dashboard of a Ray cluster"),
        ({"/api/version": (200, '{"ray_version": "2.9.3"}', {})}, "runs Ray 2.9.3; Tagloom needs 2.50 or newer"),
        ({"/api/version": (401, "Unauthorized", {})}, "asks for a token, and none was given"),
        ({"/api/version": (403, "Forbidden", {})}, "the token is not that of the cluster"),
        ({"/api/version": (302, "", {"Location": "http://login/"})}, "sends on to 'http://login/'"),
        ({"/api/version": RECENT, "/api/jobs/": (500, "Traceback:\n  x\nKeyError: 'a'", {})}, "KeyError: 'a'"),
    ],
)
def test_servers_that_are_no_cluster_or_refuse(capsys, table, words):
    with answering(table) as (address, _):
        code, out, err = call(capsys, "jobs", "--address", address)
    assert (code, out) == (1, "") and words in err


def test_nobody_answers(capsys):
    code, _, err = call(capsys, "jobs", "--address", "http://127.0.0.1:1")
    assert code == 1 and "does not answer: Connection refused" in err


def test_a_tunnel_to_another_machine_is_noticed(capsys, text, tmp_path):
    """The address is loopback, and the cluster behind it says that its head has another name."""
    nodes = {"data": {"summary": [{"hostname": "gpu-head-0", "raylet": {"isHeadNode": True}}]}}
    table = {"/api/version": RECENT, "/nodes?view=summary": (200, json.dumps(nodes), {})}
    with answering(table) as (address, server):
        err = refused(capsys, "-C", str(tmp_path / "c"), str(text), "--address", address)
        assert "a cluster elsewhere does not see this machine's disk" in err
        assert not [path for path, _ in server.asked if path.startswith(("/api/jobs", "/api/packages"))]
        # What lies on object storage can run there, by the Python of the other machine.
        server.table = {**server.table, "/api/jobs/": (200, '{"submission_id": "x", "job_id": "x"}', {})}
        server.table["*"] = (200, "", {})
        code, out, err = call(capsys, "submit", "-C", "s3://b/c", "s3://b/x", "--address", address, "--json")
    assert code == 0 and "the address leads to gpu-head-0" in json.loads(out)["notes"]
    (sent,) = [json.loads(body) for path, body in server.bodies if path == "/api/jobs/"]
    assert sent["entrypoint"] == "exec python -m jobs.cli run --config tagloom-run/run.yaml"
    assert sent["runtime_env"]["working_dir"].startswith("gcs://_ray_pkg_")


@pytest.mark.parametrize("name", ["../x", "a/b", "a b", "x?y", "-x", "\x1b[0m"])
def test_an_id_is_never_part_of_another_address(capsys, name):
    with answering({"/api/version": RECENT}) as (address, server):
        code, _, err = call(capsys, "wait", "--address", address, "--", name)
    assert code == 2 and "\x1b" not in err
    assert {path for path, _ in server.asked} == {"/api/version"}


def test_names_that_a_cluster_sends_cannot_drive_the_terminal(capsys):
    job = {
        "type": "SUBMISSION", "submission_id": "tagloom-x", "status": "FAILED", "entrypoint": "x", "start_time": 1000,
        "end_time": 3000, "metadata": {"tagloom": "1", "corpus": "s3://b\x1b[2J\nx"}, "message": "died\x07\nmore",
    }  # fmt: skip
    other = {"type": "SUBMISSION", "submission_id": "theirs", "status": "RUNNING", "entrypoint": "x"}
    table = {"/api/version": RECENT, "/api/jobs/": (200, json.dumps([other, job]), {})}
    with answering(table) as (address, _):
        code, out, _ = call(capsys, "jobs", "--address", address)
        assert code == 0 and "\x1b" not in out and "\x07" not in out
        assert "theirs" not in out and "1970-01-01 00:00:01  2.0 s          1" in out
        assert out.endswith("tagloom-x: died\\x07\n")
        assert "theirs" in call(capsys, "jobs", "--address", address, "--all")[1]
        code, _, err = call(capsys, "logs", "--address", address)
        assert code == 1 and "no run of" in err


def test_without_a_user_name_no_run_is_ones_own(capsys, monkeypatch):
    from jobs import cluster

    monkeypatch.setattr(cluster, "user", lambda: "")
    job = {"type": "SUBMISSION", "submission_id": "tagloom-x", "status": "RUNNING", "entrypoint": "x"}
    table = {"/api/version": RECENT, "/api/jobs/": (200, json.dumps([job]), {})}
    with answering(table) as (address, server):
        for command in ("stop", "wait", "logs"):
            for more in ([], ["-"]):
                code, _, err = call(capsys, command, "--address", address, *more)
                assert code == 2 and "name one by its id" in err
    assert {path for path, _ in server.asked} == {"/api/version"}


RUNNING = {"type": "SUBMISSION", "submission_id": "x", "status": "RUNNING", "entrypoint": "x", "start_time": 1000}


def test_following_a_log_is_not_sent_on(capsys, monkeypatch):
    """Neither the token nor a header of the user's reaches another address."""
    monkeypatch.setenv("RAY_JOB_HEADERS", '{"X-Own": "hunter2"}')
    with answering({}) as (other, elsewhere):
        table = {
            "/api/version": RECENT,
            "/api/jobs/x": (200, json.dumps(RUNNING), {}),
            "/api/jobs/x/logs/tail": (302, "", {"Location": f"{other}/tail"}),
        }
        with answering(table) as (address, server):
            code, out, err = call(capsys, "logs", "x", "-f", "--address", address)
    assert (code, out) == (1, "") and f"sends on to '{other}/tail'" in err
    assert elsewhere.asked == []
    (asked,) = [headers for path, headers in server.asked if path.endswith("/tail")]
    assert asked["X-Own"] == "hunter2" and asked["Upgrade"] == "websocket"


class Finished(dict):
    """Answers about a run that is sent, whatever its id: it has ended."""

    def get(self, path, default=None):
        if path.startswith("/api/jobs/tagloom-"):
            done = {**RUNNING, "status": "SUCCEEDED", "end_time": 3000, "driver_exit_code": 0}
            return 200, json.dumps({"logs": "a line\n"} if path.endswith("/logs") else done), {}
        known = {"/api/version": RECENT, "/api/jobs/": (200, '{"submission_id": "x", "job_id": "x"}', {})}
        return known.get(path, (200, "", {}))


@pytest.mark.parametrize("more", [[], ["--quiet"]])
def test_what_follows_is_the_only_result(capsys, more):
    """With --follow and --json standard output is the end of the run, as JSON, and nothing else."""
    given = ["submit", "-C", "s3://b/c", "s3://b/x", "--follow", *more]
    with answering(Finished()) as (address, _):
        code, out, err = call(capsys, *given, "--json", "--address", address)
        assert code == 0 and json.loads(out)["state"] == "SUCCEEDED"
        assert "tagloom-main-" in err and "a line\n" in err
        code, out, err = call(capsys, *given, "--address", address)
        assert code == 0 and "tagloom-main-" in out and out.endswith("a line\n")


def test_sigterm_ends_following_with_its_own_code():
    """A real process that follows a run; the run goes on."""
    import sys

    table = {"/api/version": RECENT, "/api/jobs/x": (200, json.dumps(RUNNING), {})}
    with answering(table) as (address, server):
        command = [sys.executable, "-m", "jobs.cli", "wait", "x", "--address", address]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            while not any(path == "/api/jobs/x" for path, _ in server.asked):
                assert process.poll() is None
                time.sleep(0.01)
            process.terminate()
            _, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "no longer watching x; the run goes on" in err
    assert not [path for path, _ in server.asked if path.endswith("/stop")]


def test_a_certificate_of_ones_own_authority(capsys, tmp_path):
    """A real HTTPS server: refused by default, taken with `--ca`, and a file that is not there is named."""
    import datetime
    import ipaddress
    import ssl

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ray")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    own = tmp_path / "ca.pem"
    own.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, tmp_path / "key.pem")
    with answering({"/api/version": RECENT, "/api/jobs/": (200, "[]", {})}, context) as (address, _):
        code, _, err = call(capsys, "jobs", "--address", address)
        assert code == 1 and "its certificate is not trusted" in err and "--ca" in err
        assert call(capsys, "jobs", "--address", address, "--ca", str(own))[:2] == (0, "no runs\n")
        code, _, err = call(capsys, "jobs", "--address", address, "--ca", str(tmp_path / "none.pem"))
        assert code == 2 and "no such file" in err


def test_waiting_bears_a_cluster_that_is_away_for_a_while_and_no_longer(monkeypatch):
    from jobs import cluster
    from jobs.cluster_client import LostError

    job = {"type": "SUBMISSION", "submission_id": "x", "status": "FAILED", "entrypoint": "x", "driver_exit_code": 3}
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.05)
    with answering({"/api/version": RECENT, "/api/jobs/x": (503, "no agent", {})}) as (address, server):
        there = cluster.Cluster(address)

        def back():
            while len(server.asked) < 6:
                time.sleep(0.01)
            server.table["/api/jobs/x"] = (200, json.dumps(job), {})

        thread = threading.Thread(target=back)
        thread.start()
        ended = there.wait("x")
        thread.join()
        assert ended is not None and ended.exit_code == 3
        assert there.wait("x", 0) == ended
    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    with pytest.raises(LostError, match="does not answer"):
        there.wait("x")


def test_a_reader_that_goes_away_is_no_fault():
    import sys

    command = [sys.executable, "-m", "jobs.cli", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")
