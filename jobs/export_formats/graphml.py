"""Graphs as GraphML, one file a case and graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.export_formats.flat import by_case
from jobs.export_formats.joins import plain, units
from pipelines.store import Generation
from schemas.ids import escape_id
from schemas.tables import empty

_ILLEGAL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x{FFFE}\x{FFFF}]"
_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\r", "&#13;"))
_NODE = ("kind", "key", "text", "interaction_id")
_EDGE = ("kind", "weight", "interaction_id")
_HEAD = "".join(
    [
        '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n',
        *(f'<key id="n_{n}" for="node" attr.name="{n}" attr.type="string"/>\n' for n in _NODE),
        *(
            f'<key id="e_{n}" for="edge" attr.name="{n}" attr.type="{"double" if n == "weight" else "string"}"/>\n'
            for n in _EDGE
        ),
        '<graph edgedefault="directed">\n',
    ]
)
_TAIL = "</graph>\n</graphml>\n"


def write_graphs(generation: Generation, target: Path) -> int:
    """Write ``CASE/GRAPH.graphml`` under a folder and return the number of nodes and edges.

    Nodes are called ``n0``, ``n1``, ... by node_id. Characters that XML cannot hold are left out.
    """
    rows = 0
    for unit in units(generation, "nodes"):
        # A part holds both tables of its shard, so the two sequences run in step.
        both = zip(generation.parts("nodes", unit=unit), generation.parts("edges", unit=unit), strict=True)
        for nodes, edges in both:
            links = dict(by_case(plain(edges)))
            for case, own in by_case(plain(nodes)):
                folder = target / escape_id(case)
                folder.mkdir(exist_ok=True)
                for graph in pc.unique(own.column("graph")).to_pylist():
                    ends, between = _of(own, graph), _of(links.get(case, plain(empty("edges"))), graph)
                    with (folder / f"{escape_id(graph)}.graphml").open("w", encoding="utf-8", newline="\n") as out:
                        out.write(_HEAD)
                        out.writelines(_node_lines(ends))
                        out.writelines(_edge_lines(between))
                        out.write(_TAIL)
                    rows += ends.num_rows + between.num_rows
    return rows


def _of(rows: pa.Table, graph: str) -> pa.Table:
    return rows.filter(pc.equal(rows.column("graph"), graph))


def _node_lines(nodes: pa.Table) -> Iterator[str]:
    pieces = ['<node id="n', nodes.column("node_id").cast(pa.string()).combine_chunks(), '">']
    for name in _NODE:
        pieces.append(_data(f"n_{name}", nodes.column(name)))
    return _lines(*pieces, "</node>\n")


def _edge_lines(edges: pa.Table) -> Iterator[str]:
    ends = [edges.column(name).cast(pa.string()).combine_chunks() for name in ("source", "target")]
    pieces = ['<edge source="n', ends[0], '" target="n', ends[1], '">']
    for name in _EDGE:
        pieces.append(_data(f"e_{name}", edges.column(name)))
    return _lines(*pieces, "</edge>\n")


def _lines(*pieces: Any) -> Iterator[str]:
    yield from pc.binary_join_element_wise(*pieces, "").to_pylist()


def _data(key: str, column: Any) -> Any:
    text = column.cast(pa.string()).combine_chunks()
    text = pc.replace_substring_regex(text, _ILLEGAL, "")
    for raw, escaped in _ESCAPES:
        text = pc.replace_substring(text, raw, escaped)
    return pc.binary_join_element_wise(f'<data key="{key}">', text, "</data>", "").fill_null("")
