"""Stage repair: the repairs that `tagloom graft` wrote -> those of each shard, for the graphs that are made with them.

A file of repairs lies in the corpus under its own hash (``repairs/HASH.parquet``), named by ``graph.repairs``; it stays
when logs are added, and repairs whose interactions are gone are passed over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.parquet import decode_table, encode_table
from pipelines.stage import Inputs, Output, Stage, Unit
from pipelines.storage import Storage
from schemas.config import RunConfig
from schemas.errors import StoreError
from transforms.packing import Bools, key_of, listed_keys

REPAIR = "repair"
FOLDER = "repairs"
MENDED = frozenset(("facts", "concepts"))
"""Tables that repairs add to."""


def units(config: RunConfig) -> list[Unit]:
    """One unit, where a run has repairs."""
    names = list(config.graph.repairs)
    return [Unit(REPAIR, {"repairs": names}, ("ingest",), ("repairs",))] if names else []


def process(inputs: Inputs, wanted: Sequence[Unit]) -> list[Output]:
    """Take the repairs of one shard's interactions."""
    (unit,) = wanted
    there = pc.unique(key_of(inputs.table("ingest", "interactions", ["case_id", "interaction_id"])))
    found = pa.concat_tables([read(inputs.store.storage, name) for name in unit.config["repairs"]])
    taken = found.filter(pa.array(_all_there(found, there)))
    return [Output({"repairs": taken.unify_dictionaries()})]


def _all_there(repairs: pa.Table, there: pa.Array) -> Bools:
    """Tell which repairs rest on interactions that are all there."""
    owner, keys = listed_keys(repairs, "interaction_ids")
    known = np.asarray(pc.is_in(keys, value_set=there))
    missing = np.bincount(owner[~known], minlength=repairs.num_rows)
    sizes = np.bincount(owner, minlength=repairs.num_rows)
    found: Bools = (missing == 0) & (sizes > 0)
    return found


def write(storage: Storage, repairs: pa.Table) -> str:
    """Keep repairs in a corpus, and return the name that ``graph.repairs`` takes."""
    data = encode_table("repairs", repairs.unify_dictionaries())
    name = hashlib.sha256(data).hexdigest()[:32]
    if not storage.exists(f"{FOLDER}/{name}.parquet"):
        storage.write(f"{FOLDER}/{name}.parquet", data, durable=True)
    return name


def read(storage: Storage, name: str) -> pa.Table:
    """Return the repairs of a name.

    Raises:
        StoreError: They are not there, or damaged.
    """
    path = f"{FOLDER}/{name}.parquet"
    if not name.isalnum() or not storage.exists(path):
        raise StoreError(
            f"the corpus has no repairs '{name}'",
            where="graph.repairs",
            remedy="Make them: tagloom graft; or leave them out: --set graph.repairs=[]",
        )
    return decode_table("repairs", storage.read(path), storage.path(path))


STAGE = Stage(REPAIR, 1, "ray", units, process)
