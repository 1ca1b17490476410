"""What the commands about submitted runs show."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import yaml

from jobs import console
from jobs.cluster import DetachedError, EndedError, Job, Package, SubmitTo
from jobs.cluster_request import Submission


def show_dry_run(submission: Submission, code: Package | None, address: str, *, as_json: bool) -> None:
    """Show exactly what would be sent."""
    plain = {"address": address, "package": _package(code), **submission.as_dict()}
    if as_json:
        console.emit_json(plain)
        return
    _tell_notes(submission)
    console.emit(f"to           {address}")
    console.emit(f"id           {submission.id}")
    if code is None:
        console.emit(f"code         that of the image {submission.image}")
    else:
        console.emit(f"code         {code.name}, {console.size(code.bytes)}, sha256 {code.sha256}")
    for name, size in plain["files"].items():
        console.emit(f"file         {name}, {console.size(size)}")
    console.emit("command      " + submission.entrypoint.rstrip("\n").replace("\n", "\n             "))
    console.emit(f"driver       {_resources(submission)}")
    for name, value in plain["environment"].items():
        console.emit(f"environment  {name}={value}")
    for name, value in submission.metadata.items():
        console.emit(f"metadata     {name}={value}")
    configuration = yaml.safe_dump(plain["configuration"], allow_unicode=True, sort_keys=False, width=120)
    console.emit(f"\nconfiguration\n{configuration}\nnothing was sent")


def show_submitted(
    submission: Submission, code: Package | None, to: SubmitTo, *, quiet: bool, as_json: bool, aside: bool
) -> None:
    """Tell the id, and how to go on; on standard error (`aside`) where another result follows."""
    say = console.tell if aside else console.emit
    if as_json:
        console.emit_json({"address": to.address, "package": _package(code), **submission.as_dict()})
        return
    if quiet:
        say(submission.id)
        return
    _tell_notes(submission)
    sent = f"the image {submission.image}" if code is None else f"{code.name} ({code.sha256[:12]})"
    say(f"submitted {submission.id} to {to.address}, with {sent}")
    say(f"state:  tagloom jobs{to.option}")
    say(f"log:    tagloom logs{to.option} {submission.id} -f")
    say(f"wait:   tagloom wait{to.option} {submission.id}")
    say(f"stop:   tagloom stop{to.option} {submission.id}")
    say(f"corpus: tagloom status -C {submission.metadata['corpus']}")


def show_jobs(jobs: Sequence[Job], *, as_json: bool) -> None:
    """Show a table of runs, and why those failed that did not end by themselves."""
    if as_json:
        console.emit_json([as_dict(job) for job in jobs])
        return
    if not jobs:
        console.emit("no runs")
        return
    rows = [
        [
            _line(job.id),
            job.state.lower(),
            _line(job.metadata.get("corpus", "-")),
            _line(job.metadata.get("generation", "-")),
            _time(job.started),
            console.duration(took(job)),
            str(job.exit_code) if job.over else "-",
        ]
        for job in jobs
    ]
    headers = ["id", "state", "corpus", "generation", "started (UTC)", "took", "exit code"]
    console.emit(console.table(headers, rows, "lllllrr"))
    for job in jobs:
        if job.reason:
            console.emit(f"{_line(job.id)}: {job.reason}")


def show_end(job: Job, *, as_json: bool) -> None:
    """Tell how a run ended."""
    if as_json:
        console.emit_json(as_dict(job))
        return
    told = {"SUCCEEDED": "succeeded", "STOPPED": "was stopped"}.get(job.state, f"failed with exit code {job.exit_code}")
    stay = "; finished parts stay" if job.state == "STOPPED" else ""
    console.tell(f"{job.id} {told} after {console.duration(took(job))}{stay}")
    if job.reason:
        console.tell(job.reason)
    if job.state == "FAILED":
        console.tell("finished parts stay; the same submission goes on from there")


def as_dict(job: Job) -> dict[str, Any]:
    """Return a run as plain data; times in seconds since 1970."""
    return {
        "id": job.id,
        "state": job.state,
        "metadata": dict(job.metadata),
        "started": job.started,
        "ended": job.ended,
        "exit_code": job.exit_code if job.over else None,
        "reason": job.reason,
    }


def took(job: Job) -> float:
    """Return the seconds that a run has taken so far."""
    if job.started is None:
        return 0.0
    return max(0.0, (job.ended or time.time()) - job.started)


class Printer:
    """Prints a log that comes in pieces, a whole line at a time."""

    def __init__(self, *, aside: bool) -> None:
        """Print to standard output, or to standard error where that is kept for a result."""
        self._say = console.tell if aside else console.emit
        self._kept = ""

    def write(self, text: str) -> None:
        """Take a piece."""
        *lines, self._kept = (self._kept + text).split("\n")
        if lines:
            self._say("\n".join(lines))

    def end(self) -> None:
        """Print what no newline ended."""
        if self._kept:
            self._say(self._kept)
        self._kept = ""


def detached(name: str, to: SubmitTo, *, told_to_end: bool) -> DetachedError:
    """Return the error that tells a user who stopped watching, by Ctrl-C or SIGTERM, that the run goes on."""
    kind = EndedError if told_to_end else DetachedError
    return kind(f"no longer watching {name}; the run goes on", remedy=f"To end it: tagloom stop{to.option} {name}")


def _package(code: Package | None) -> dict[str, Any] | None:
    if code is None:
        return None
    return {"name": code.name, "version": code.version, "sha256": code.sha256, "bytes": code.bytes}


def _tell_notes(submission: Submission) -> None:
    for note in submission.notes:
        console.tell(note)


def _resources(submission: Submission) -> str:
    told = [f"{submission.cpus:g} CPU"] if submission.cpus else []
    told += [console.size(submission.memory)] if submission.memory else []
    return ", ".join(told) or "no resources reserved; on the head node"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def _line(text: str) -> str:
    """Keep a cell of a table in its line."""
    return text.replace("\n", " ").replace("\t", " ")
