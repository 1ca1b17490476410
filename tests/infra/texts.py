"""Reads what lies in `infra/`: Dockerfiles, the builder's context, pinned versions, commands in comments."""

from __future__ import annotations

import fnmatch
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
INFRA = ROOT / "infra"
IMAGES = {"tagloom-cpu": "cpu", "tagloom-gpu": "gpu", "tagloom-dataflow": "dataflow"}
"""Our images: name -> Dockerfile."""


@dataclass(frozen=True)
class Step:
    """One instruction of a Dockerfile, with the stage that it is in, from 0."""

    stage: int
    name: str
    value: str


def dockerfile(name: str) -> list[Step]:
    text = (INFRA / "images" / f"{name}.Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    steps, stage = [], -1
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, value = line.partition(" ")
        assert re.fullmatch(r"[A-Z]+", word), line
        stage += word == "FROM"
        steps.append(Step(stage, word, value.strip()))
    return steps


def in_context(path: str) -> bool:
    """Tell whether the builder is sent a file, by the rules of .dockerignore: the last that matches decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!")
        parts = path.split("/")
        heads = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        if pattern.startswith("**/"):
            hit = any(fnmatch.fnmatch(part, pattern[3:]) for part in parts)
        else:
            hit = any(head.count("/") == pattern.count("/") and fnmatch.fnmatch(head, pattern) for head in heads)
        if hit:
            sent = rule.startswith("!")
    return sent


def pins(path: Path) -> dict[str, str]:
    """Name -> version of a list that pins each."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    found = dict(line.split("==") for line in lines)
    assert len(found) == len(lines)
    return found


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one is not None]


def walk(value: Any) -> list[Any]:
    """Return a value and all values in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(one for child in inner for one in walk(child))]


def commands(text: str) -> list[list[str]]:
    """Return the `tagloom` command lines in comments, in indented or fenced blocks, and in backticks of a text."""
    joined = re.sub(r" \\\n[# ]*", " ", text)
    found = re.findall(r"`(tagloom [a-z][^`\n]*)`", joined)
    for line in joined.splitlines():
        bare = re.sub(r"\s{2,}#.*$", "", line.lstrip("# "))  # without what is said of it
        bare = re.sub(r"^docker .* run --rm (?=tagloom [a-z])", "", bare)
        if re.match(r"(?:[A-Z_]+=\S+ )*tagloom [a-z]", bare) and not line.lstrip().startswith(("- ", "|")):
            found.append(bare)
    return [[word for word in shlex.split(one) if not re.match(r"[A-Z_]+=", word)] for one in found]


def parsed(words: list[str]) -> dict[str, Any]:
    """Return what the real command understands by a command line.

    Raises:
        Exception: It does not know the command, an option or a value.
    """
    from typer.main import get_command

    from jobs.cli import app
    from jobs.options import take_beam_options

    assert words[0] == "tagloom"
    group = get_command(app)
    command = group.commands[words[1]]  # type: ignore[attr-defined]
    return dict(command.make_context(words[1], take_beam_options(words[2:])).params)
