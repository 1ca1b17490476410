"""What `tagloom forget` does and shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs import console
from schemas.config import RunConfig
from schemas.errors import UsageError

if TYPE_CHECKING:
    from pipelines.forget import Forgotten, Variant

SHOWN = ("mrr", "recall@10")


def parse_settings(items: Sequence[str]) -> dict[str, Any]:
    """Return the settings of ``KEY=VALUE`` items; values are YAML, keys may have a dot.

    Raises:
        UsageError: One is not of that form.
    """
    import yaml

    found: dict[str, Any] = {}
    for item in items:
        key, sign, text = item.partition("=")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            sign = ""
        if not sign or not key.strip():
            raise UsageError(f"'{item}' is not KEY=VALUE", where="--set", remedy="Example: --set half_life_days=30")
        found[key.strip()] = value
    return found


def forget(
    config: RunConfig,
    graph: str,
    settings: Mapping[str, Any],
    *,
    sweep: Mapping[str, Sequence[Any]],
    origin: str,
    name: str | None,
    access: str | None,
    to: str | None,
    overwrite: bool,
    wait: float,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make the generations, measure, show, and write the results where they are to go."""
    from jobs.export import free_folder, write_folder
    from jobs.export_formats.flat import write_parquet
    from jobs.export_formats.joins import plain
    from pipelines import forget as maker

    if twice := sorted(set(settings) & set(sweep)):
        raise UsageError(f"'{twice[0]}' is given and swept", where="--sweep", remedy="Leave one of the two out.")
    if to is not None:
        free_folder(to, ".parquet", overwrite)  # before the work, not after it
    done = maker.run(
        config,
        graph,
        settings,
        sweep=sweep,
        origin=origin,
        name=name,
        access=access,
        wait=wait,
        progress=console.progress(quiet, as_json),
    )
    written = None
    if to is not None:
        written = write_folder(
            to,
            ".parquet",
            lambda folder: write_parquet(iter([plain(done.results)]), folder / "results.parquet"),
            overwrite=overwrite,
        )
    if as_json:
        files = {"files": [str(file) for file in written.files]} if written else {}
        console.emit_json({**_as_dict(done, config.corpus), **files})
        return
    _show(done, config.corpus)
    if written:
        console.emit(f"\n{written.rows:,} rows -> {written.files[0]}")


def _as_dict(done: Forgotten, corpus: str) -> dict[str, Any]:
    return {
        "corpus": corpus,
        "graph": done.graph,
        "generations": [
            {
                **{key: getattr(one, key) for key in ("x", "nodes", "edges", "bytes", "pinned")},
                "variant": one.name,
                "generation": one.generation.name,
                "kept": one.kept or None,
                "forgotten": dict(one.kinds),
            }
            for one in done.variants
        ],
        "presets": list(done.presets),
        "remarks": list(done.remarks),
        "results": done.results.to_pylist(),
    }


def _show(done: Forgotten, corpus: str) -> None:
    whole, *others = done.variants
    console.emit(f"graph '{done.graph}', whole in generation '{whole.generation.name}'")
    rows = [_size_row(one, whole) for one in done.variants]
    heads = ["generation", "variant", "nodes", "edges", "size", "nodes less", "edges less", "bytes less"]
    console.emit(console.table(heads, rows, "llrrrrrr"))
    for one in others:
        if one.kinds:
            told = ", ".join(f"{kind} {count:,}" for kind, count in one.kinds.items())
            console.emit(f"forgotten in '{one.generation.name}': {told}; pinned {one.pinned:,}")
        if one.kept:
            console.emit(f"what '{one.generation.name}' was before stays as '{one.kept}'")
    for remark in done.remarks:
        console.emit(f"note: {remark}")
    _show_effects(done)
    console.emit(
        f"next: tagloom compare -C {corpus} {whole.generation.name} {others[-1].generation.name}"
        f"   |   tagloom export -C {corpus} --name {others[-1].generation.name} forgotten"
    )


def _size_row(one: Variant, whole: Variant) -> list[str]:
    less = [_share(getattr(one, name), getattr(whole, name)) for name in ("nodes", "edges", "bytes")]
    shares = ["" if one is whole else text for text in less]
    return [one.generation.name, one.name, f"{one.nodes:,}", f"{one.edges:,}", console.size(one.bytes), *shares]


def _share(now: int, before: int) -> str:
    return f"{(before - now) / before:z.1%}" if before else "-"


def _show_effects(done: Forgotten) -> None:
    rows = done.results.to_pylist()
    paired = [row for row in rows if row["baseline"] is not None and row["metric"] in SHOWN]
    levels = [level for level in ("interaction", "session") if any(row["level"] == level for row in paired)]
    if not levels:
        return
    shown = [row for row in paired if row["level"] == levels[0]]
    whole = {
        (row["retriever"], row["metric"]): row["value"]
        for row in rows
        if row["baseline"] is None and row["level"] == levels[0] and row["scope"] == "all" and row["variant"] == "whole"
    }
    console.emit(
        f"\n{shown[0]['questions']:,} questions of {console.counted(shown[0]['cases'], 'case')} ({levels[0]} level); "
        "difference to the whole graph [95 % paired bootstrap interval], sign-flip p"
    )
    cells = []
    for row in shown:
        before = whole[row["retriever"], row["metric"]]
        span = "" if row["low"] is None else f" [{row['low']:+z.3f}, {row['high']:+z.3f}]"
        p_value = "-" if row["p_value"] is None else f"{row['p_value']:.4f}"
        values = [f"{before:.3f}", f"{before + row['value']:.3f}", f"{row['value']:+z.3f}{span}", p_value]
        cells.append([row["variant"], row["retriever"], row["metric"], *values])
    heads = ["variant", "preset", "metric", "whole", "forgotten", "difference", "p"]
    console.emit(console.table(heads, cells, "lllrrlr"))
