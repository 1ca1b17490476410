"""What the README says works: its Python, its run file, its links."""

import re
from pathlib import Path

import pytest
import yaml

from schemas.config import RunConfig
from tests.pipelines.corpora import run, session, write_lines

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = session("alice", 1, "I planned a week in Lisbon with my sister.", "Enjoy the trams!")
    run(tmp_path / "corpus", write_lines(tmp_path / "a.jsonl", line))
    (code,) = blocks(ROOT / "README.md", "python")
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["hits"][0].text.startswith("I planned a week in Lisbon")
    assert names["notes"].height == 1
    assert names["memory"].query("What is my cat called?")[0].text.startswith("I adopted a cat called Miso.")


def test_the_run_file_of_the_readme_is_valid():
    (text,) = blocks(ROOT / "README.md", "yaml")
    config = RunConfig.model_validate(yaml.safe_load(text))
    assert config.rank.presets[-1] == "ablations"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_document_is_named_in_the_readme():
    text = (ROOT / "README.md").read_text()
    for path in DOCUMENTS[1:]:
        assert f"docs/{path.name}" in text
