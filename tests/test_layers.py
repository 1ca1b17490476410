"""No import runs upward, and the front door is the only module outside the five packages."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ORDER = ("schemas", "transforms", "indexers", "pipelines", "jobs", "tagloom")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("package", ORDER[:-1])
def test_no_import_runs_upward(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    above = set(ORDER[ORDER.index(package) + 1 :]) | {"tests"}
    for path in files:
        assert not imported(path) & above, path


def test_a_forbidden_import_would_be_seen(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("def f():\n    from pipelines.store import Store\n    import jobs.cli\n")
    assert imported(path) == {"pipelines", "jobs"}


def test_modules_stay_short():
    long = [
        p for package in ORDER[:-1] for p in (ROOT / package).rglob("*.py") if len(p.read_text().splitlines()) > 400
    ]
    assert not long, "split these in two"
