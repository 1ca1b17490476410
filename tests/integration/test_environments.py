"""A worker of each stage needs what `infra/requirements/STAGE.txt` names, and no library of another stage.

Without network: an environment is a folder of links to what is installed here, of the named distributions and of what
they require in turn. Python runs with that folder, its own library and Tagloom's code alone.
"""

import pickle
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipelines import beam_engine, driver, execute, repair
from pipelines.store import Store
from schemas.tables import empty
from tests.pipelines.corpora import configure, live, tables

ROOT = Path(__file__).resolve().parents[2]
LISTS = ROOT / "infra" / "requirements"
PRESETS = ["bm25", "bm25-stem", "adaptivegraph", "dense", "router", "gaama"]

RUN = """
import sys
environment, root, item, stage = sys.argv[1:]
sys.path[:0] = [root, environment]
import pickle
if stage in ("ingest", "graph"):
    import apache_beam
    from pipelines import beam_items
else:
    import asyncio, ray
    from pipelines import crew
    worker = crew.Worker()
    asyncio.run(worker.ready(crew.PRELOADED))
with open(item, "rb") as file:
    todo = pickle.load(file)
for name, item in todo:
    if name in ("read_source", "merge_shard"):
        from pipelines import ingest
        getattr(ingest, name)(item)
    elif stage == "graph":
        from pipelines import work
        work.run(item)
    else:
        asyncio.run(worker.run(item))
strangers = [m.__file__ for m in sys.modules.values() if "site-packages" in (getattr(m, "__file__", None) or "")]
assert not [one for one in strangers if not one.startswith(environment)], strangers
"""


def closure(names):
    """Return the distributions of some requirements and of all that they require in turn, as installed here."""
    found, waiting = {}, [Requirement(name) for name in names]
    seen = set()
    while waiting:
        wanted = waiting.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        try:
            there = distribution(wanted.name)
        except PackageNotFoundError:
            continue  # for another platform
        found[key[0]] = there
        for text in there.requires or ():
            more = Requirement(text)
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                waiting.append(more)
    return list(found.values())


def installed_files(one):
    """Return the files of a distribution, relative to where packages are installed."""
    told = (one.read_text("RECORD") or "").splitlines()
    lines = (line.rpartition(",")[0].rpartition(",")[0].strip('"') for line in told)
    return [line for line in lines if line and not line.startswith(("..", "/")) and "__pycache__" not in line]


@pytest.fixture(scope="module")
def owners():
    """Name in the folder of installed packages -> the distributions that have files there."""
    found: dict[str, set[str]] = {}
    for one in distributions():
        for top in {file.partition("/")[0] for file in installed_files(one)}:
            found.setdefault(top, set()).add(one.name)
    return found


def linked(folder, chosen, owners):
    """Link what distributions have installed: whole packages, and file by file where several share one."""
    folder.mkdir()
    for one in chosen:
        files = installed_files(one)
        whole = {file.partition("/")[0] for file in files}
        alone = {top for top in whole if len(owners[top]) == 1}
        for name in sorted(alone | {file for file in files if file.partition("/")[0] not in alone}):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.is_symlink():  # some ship the same __init__.py
                target.symlink_to(Path(str(one.locate_file(name))))
    return folder


def required(stage):
    lines = (LISTS / f"{stage}.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def work_items(logs, tmp_path_factory):
    """A real work item of each stage, of a corpus that is done, so that what it makes can be compared."""
    corpus = tmp_path_factory.mktemp("work") / "c"
    items = {}
    real_make, real_map = execute.make_items, beam_engine.run_map

    def make(*arguments):
        made = real_make(*arguments)
        for one in made:
            items.setdefault((one.stage, one.units[0].name), (one.stage, one))
        return made

    def run_map(todo, function, *more, **named):
        if function.__name__ in ("read_source", "merge_shard"):
            items.setdefault(("ingest", function.__name__), (function.__name__, todo[0]))
        return real_map(todo, function, *more, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "make_items", make)
        patch.setattr(beam_engine, "run_map", run_map)
        own = {"rank.presets": PRESETS, "graph.kinds": ["taggraph"]}
        driver.run(configure(corpus, logs, **own), stages=())
        name = repair.write(Store.open(str(corpus)).storage, empty("repairs"))
        driver.run(configure(corpus, logs, **own, **{"graph.repairs": [name]}))
    return corpus, items


STAGES = ("ingest", "extract", "repair", "graph", "index", "embed", "route", "rank", "evaluate")


def test_every_stage_has_a_list():
    assert sorted(path.stem for path in LISTS.glob("*.txt")) == sorted(STAGES)
    for stage in STAGES:
        assert required(stage) == sorted(required(stage), key=str.lower)


def test_the_environment_of_vllm_has_what_a_worker_of_extract_needs():
    lines = (ROOT / "infra" / "vllm-requirements.txt").read_text().splitlines()
    there = {canonicalize_name(Requirement(line).name) for line in lines if line and not line.startswith("#")}
    needed = {canonicalize_name(Requirement(one).name) for one in required("extract")}
    assert needed - there == {"polars"}, "only the extractor lexical has a use for it"


@pytest.mark.parametrize("stage", STAGES)
def test_a_work_item_runs_where_only_its_own_libraries_are(work_items, owners, tmp_path, stage):
    corpus, items = work_items
    mine = [item for (owner, _), item in items.items() if owner == stage]
    assert mine
    environment = linked(tmp_path / "env", closure(required(stage)), owners)
    expected, bytes_before = live(corpus), tables(corpus)
    (tmp_path / "items").write_bytes(pickle.dumps(mine))
    removed = [path for _, item in mine if stage != "ingest" for path in outputs(corpus, item)]
    kept = {path: path.read_bytes() for path in removed}
    needed = {path for _, item in mine if stage != "ingest" for path in inputs(corpus, item)}
    for path in set(removed) - needed:
        path.unlink()
    command = [sys.executable, "-I", "-S", "-B", "-c", RUN, str(environment), str(ROOT), str(tmp_path / "items"), stage]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {path: path.read_bytes() for path in removed} == kept
    assert (live(corpus), tables(corpus)) == (expected, bytes_before)


def inputs(corpus, item):
    """Return every file of the parts that an item reads."""
    keys = {key for parts in item.parts.values() for _, key in parts}
    return [path for path in (corpus / "tables").rglob("*.parquet") if path.stem in keys]


def outputs(corpus, item):
    store = Store.open(str(corpus))
    return [
        corpus / store.part_path(table, item.shard, key)
        for unit, key in zip(item.units, item.keys, strict=True)
        for table in unit.outputs
    ]
