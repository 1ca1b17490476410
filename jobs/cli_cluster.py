"""Commands about runs on a Ray cluster: submit, jobs, logs, wait, stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from jobs import console
from jobs.app import app
from jobs.options import (
    Append,
    Config,
    Format,
    Inputs,
    Json,
    MaybeCorpus,
    MaybeName,
    Presets,
    Questions,
    Quiet,
    Set,
    Sweep,
    UnitOption,
    Verbose,
    Wait,
    Workers,
    configure,
    parse_sweep,
)
from schemas.errors import UsageError

if TYPE_CHECKING:
    from jobs.cluster import Cluster, Job, SubmitTo

EXIT_TIMEOUT = 124
Address = Annotated[
    str | None,
    typer.Option("--address", metavar="URL", help="The cluster's dashboard [RAY_API_SERVER_ADDRESS, RAY_ADDRESS]."),
]
Authority = Annotated[
    str | None, typer.Option("--ca", metavar="FILE", help="Certificates to trust, where the address is https.")
]
JobId = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="Submission id; - or none is your latest run there.", show_default=False),
]


@app.command(epilog="Example: tagloom submit run.yaml --address http://HOST:8265 --follow")
def submit(
    corpus: MaybeCorpus = None,
    inputs: Inputs = None,
    config: Config = None,
    sets: Set = None,
    name: MaybeName = None,
    fmt: Format = None,
    unit: UnitOption = None,
    questions: Questions = None,
    presets: Presets = None,
    sweep: Sweep = None,
    workers: Workers = None,
    append: Append = False,
    wait: Wait = 0.0,
    address: Address = None,
    ca: Authority = None,
    shared_disk: Annotated[
        bool, typer.Option("--shared-disk", help="Every node of the cluster sees the paths of this machine.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME", help="Variable to pass on, such as an API key; repeatable."),
    ] = None,
    python: Annotated[
        str | None, typer.Option("--python", metavar="PATH", help="The cluster's Python [python].")
    ] = None,
    package: Annotated[
        str | None, typer.Option("--package", metavar="WHEEL", help="Wheel to send instead of this Tagloom.")
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", metavar="IMAGE", help="Image that has Tagloom; sends no code.")
    ] = None,
    driver_cpus: Annotated[
        float | None, typer.Option("--driver-cpus", metavar="N", min=0, help="Cores that the run itself reserves.")
    ] = None,
    driver_memory: Annotated[
        str | None, typer.Option("--driver-memory", metavar="SIZE", help="Memory that it reserves, such as 4GB.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show its log, and end as it ends.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be sent.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run on a Ray cluster: the same run, with the same options, and this machine may go away."""
    from jobs import cluster, cluster_request, cluster_view

    console.set_up_logging(verbose)
    settings = configure(
        inputs,
        config,
        sets,
        corpus=corpus,
        name=name,
        ingest__format=fmt,
        ingest__unit=unit,
        questions=questions,
        rank__presets=presets,
        rank__sweep=parse_sweep(sweep),
        compute__workers=workers,
    )
    if package is not None and image is not None:
        raise UsageError("--package and --image exclude each other", remedy="An image has its own Tagloom.")
    to = _to(address)
    wishes = cluster_request.Wishes(
        to.address,
        append=append,
        wait=wait,
        quiet=quiet,
        verbose=verbose,
        shared_disk=shared_disk,
        python=python,
        image=image,
        variables=tuple(env or ()),
        cpus=driver_cpus,
        memory=driver_memory,
    )
    with cluster.package(package, needed=image is None) as code:
        version = cluster.running_version() if code is None else code.version
        submission = cluster_request.prepare(settings, wishes, version)
        if dry_run:
            cluster_view.show_dry_run(submission, code, to.address, as_json=as_json)
            return
        there = cluster.Cluster(to.address, _trusted(ca))
        if submission.here and (elsewhere := there.elsewhere()):
            submission = cluster_request.prepare(settings, replace(wishes, tunnel=elsewhere), version)
        there.submit(submission, code)
        aside = as_json and follow  # the result is how it ends
        cluster_view.show_submitted(submission, code, to, quiet=quiet, as_json=as_json and not follow, aside=aside)
    if follow:
        _end(_followed(there, submission.id, to, aside=as_json), as_json=as_json)


@app.command(epilog="Example: tagloom jobs --address http://HOST:8265")
def jobs(
    address: Address = None,
    ca: Authority = None,
    every: Annotated[bool, typer.Option("--all", help="Also jobs that are not Tagloom's.")] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """List the runs that a cluster knows."""
    from jobs import cluster, cluster_view

    console.set_up_logging(verbose)
    there = cluster.Cluster(_to(address).address, _trusted(ca))
    cluster_view.show_jobs(there.jobs(every=every), as_json=as_json)


@app.command(epilog="Example: tagloom logs --address http://HOST:8265 -f")
def logs(
    job: JobId = None,
    address: Address = None,
    ca: Authority = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    verbose: Verbose = False,
) -> None:
    """Show what a submitted run prints."""
    from jobs import cluster, cluster_view

    console.set_up_logging(verbose)
    to = _to(address)
    there = cluster.Cluster(to.address, _trusted(ca))
    name = there.chosen(job)
    if follow:
        _followed(there, name, to, aside=False)
        return
    printer = cluster_view.Printer(aside=False)
    printer.write(there.log(name))
    printer.end()


@app.command(epilog="Example: tagloom wait --address http://HOST:8265 --timeout 3600; echo $?")
def wait(
    job: JobId = None,
    address: Address = None,
    ca: Authority = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="Then end with code 124.")
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Wait until a submitted run has ended, and end with its exit code (143 where it was stopped)."""
    from jobs import cluster

    console.set_up_logging(verbose)
    to = _to(address)
    there = cluster.Cluster(to.address, _trusted(ca))
    name = there.chosen(job)
    with _watching(name, to):
        ended = there.wait(name, timeout)
    if ended is None:
        console.tell(f"{name} has not ended after {console.duration(timeout or 0.0)}; it goes on")
        raise typer.Exit(EXIT_TIMEOUT)
    _end(ended, as_json=as_json)


@app.command(epilog="Example: tagloom stop --address http://HOST:8265 tagloom-main-20260102-030405-a1b2 --wait")
def stop(
    job: JobId = None,
    address: Address = None,
    ca: Authority = None,
    wait_for: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    verbose: Verbose = False,
) -> None:
    """End a submitted run in order; finished parts stay, and the same submission goes on from there."""
    from jobs import cluster, cluster_view

    console.set_up_logging(verbose)
    to = _to(address)
    there = cluster.Cluster(to.address, _trusted(ca))
    name = there.chosen(job)
    found = there.job(name)
    if found.over or not there.stop(name):
        console.tell(f"{name} had ended already ({there.job(name).state.lower()})")
        return
    if not wait_for:
        console.tell(f"{name} was told to end; to wait until it has: tagloom wait{to.option} {name}")
        return
    with _watching(name, to):
        ended = there.wait(name)
    assert ended is not None
    cluster_view.show_end(ended, as_json=False)


def _to(address: str | None) -> SubmitTo:
    from jobs.cluster import SubmitTo
    from jobs.cluster_request import address_of

    found = address_of(address)
    return SubmitTo(found, f" --address {found}" if address else "")


def _trusted(ca: str | None) -> str | None:
    from jobs.cluster_request import readable

    return None if ca is None else str(readable(ca))


def _followed(there: Cluster, name: str, to: SubmitTo, *, aside: bool) -> Job:
    from jobs.cluster_view import Printer

    printer = Printer(aside=aside)
    with _watching(name, to):
        try:
            return there.follow(name, printer.write)
        finally:
            printer.end()


@contextmanager
def _watching(name: str, to: SubmitTo) -> Iterator[None]:
    """Say that the run goes on, where the user ends this command and not the run."""
    from jobs.cluster_view import detached

    try:
        yield
    except (KeyboardInterrupt, SystemExit) as ended:
        raise detached(name, to, told_to_end=isinstance(ended, SystemExit)) from None


def _end(job: Job, *, as_json: bool) -> None:
    from jobs.cluster_view import show_end

    show_end(job, as_json=as_json)
    if job.exit_code:
        raise typer.Exit(job.exit_code)
