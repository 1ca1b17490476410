"""The wheel of a submission: valid, the same bytes for the same code, from a checkout as from an installation."""

import base64
import csv
import hashlib
import importlib.metadata
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jobs.cluster_package import RUN_FOLDER, build_wheel, pack, wheel_version
from schemas.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel, unpacked as an installer does it."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python(folder, code, cwd):
    """Run code with a folder first on Python's path, as on a node of a cluster."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_its_record_lists_every_file_with_its_hash(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = "tagloom-0.1.0.dist-info"
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode()))}
        assert len(names) == len(set(names)) and set(rows) == set(names)
        assert rows.pop(f"{info}/RECORD") == ["", ""]
        for name, (digest, size) in rows.items():
            data = archive.read(name)
            wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={wanted}", str(len(data)))
    assert wheel.name == "tagloom-0.1.0-py3-none-any.whl"


def test_it_holds_the_code_and_its_data_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"tagloom.py", "jobs/cli.py", "indexers/presets.yaml", "transforms/prompts/notes.md"} <= names
    assert {"jobs/report/templates/report.css", "schemas/py.typed"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {
        *("schemas", "transforms", "indexers", "pipelines", "jobs", "tagloom.py", "tagloom-0.1.0.dist-info"),
    }
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_packages_of_the_project_file_are_all_in_it(wheel):
    """Whatever setuptools would install is there: each Python file, and each file of the kinds that are data."""
    names = set(zipfile.ZipFile(wheel).namelist())
    kinds = {".py", ".json", ".txt", ".yaml", ".md", ".html", ".css", ".js"}
    for package in ("schemas", "transforms", "indexers", "pipelines", "jobs"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix in kinds and path.is_file() and "__pycache__" not in path.parts:
                assert path.relative_to(ROOT).as_posix() in names


def test_the_same_code_gives_the_same_bytes(wheel, installed, tmp_path):
    assert build_wheel(tmp_path).read_bytes() == wheel.read_bytes()
    (tmp_path / "again").mkdir()
    (installed / "jobs" / "stray.py").write_text("# no part of the installation\n")
    again = str(tmp_path / "again")
    code = f"from pathlib import Path; from jobs.cluster_package import build_wheel; build_wheel(Path({again!r}))"
    python(installed, code, tmp_path)
    assert (tmp_path / "again" / wheel.name).read_bytes() == wheel.read_bytes()


def test_it_works_from_a_path_and_before_what_is_installed(installed, tmp_path):
    for package in ("schemas", "jobs"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('the wrong package was imported')\n")
    code = (
        "import importlib.metadata as m, jobs.cli, indexers, tagloom;"
        "print(m.version('tagloom'), jobs.__file__, tagloom.__file__, m.distribution('tagloom').locate_file('jobs'))"
    )
    told = python(installed, code, tmp_path).split()
    assert told == ["0.1.0", *(str(installed / name) for name in ("jobs/__init__.py", "tagloom.py", "jobs"))]


def test_its_metadata_say_what_it_needs(installed):
    (found,) = importlib.metadata.distributions(name="tagloom", path=[str(installed)])
    assert found.metadata["Name"] == "tagloom" and found.metadata["Requires-Python"] == ">=3.11"
    requires = found.requires or []
    assert "ray[default]>=2.50" in requires and 's3fs>=2025.3; extra == "s3"' in requires
    assert "s3" in (found.metadata.get_all("Provides-Extra") or [])
    (command,) = found.entry_points
    assert (command.group, command.name, command.value) == ("console_scripts", "tagloom", "jobs.cli:main")


def test_a_run_travels_beside_the_code(wheel, tmp_path):
    target = pack(wheel, {"run.yaml": b"corpus: s3://b/c\n", "prompts/0/x y.md": b"hello"}, tmp_path / "job.zip")
    with zipfile.ZipFile(target) as archive:
        assert archive.read(f"{RUN_FOLDER}/run.yaml") == b"corpus: s3://b/c\n"
        assert archive.read(f"{RUN_FOLDER}/prompts/0/x y.md") == b"hello"
        assert set(zipfile.ZipFile(wheel).namelist()) < set(archive.namelist())


def test_a_wheel_of_the_user_is_looked_at(wheel, tmp_path):
    assert wheel_version(wheel) == "0.1.0"
    with pytest.raises(UsageError, match="is not a wheel"):
        wheel_version(tmp_path / "none.whl")
    (tmp_path / "text.whl").write_text("no zip")
    with pytest.raises(UsageError, match="is not a wheel"):
        wheel_version(tmp_path / "text.whl")
    for name, word in (("other-1.0.dist-info/METADATA", "not a wheel of Tagloom"), ("../evil.py", "outside of itself")):
        with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
            archive.writestr(name, "")
        with pytest.raises(UsageError, match=word):
            wheel_version(tmp_path / "x.whl")
