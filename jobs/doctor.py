"""Looks at what is installed, what is missing, and what can be named in a configuration."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from typing import Any

LIBRARIES = (
    ("apache-beam", "ingest and graph", "pip install tagloom"),
    ("ray", "extract, index and rank", "pip install tagloom"),
    ("pyarrow", "tables", "pip install tagloom"),
    ("polars", "joins", "pip install tagloom"),
    ("scipy", "matrices", "pip install tagloom"),
    ("dateparser", "free-text dates", "pip install tagloom"),
    ("spacy", "extractor spacy", "pip install 'tagloom[spacy]'"),
    ("xllamacpp", "engine llamacpp", "pip install 'tagloom[llamacpp]'"),
    ("vllm", "engine vllm", "its own environment (docs/engines.md)"),
    ("wordllama", "vectors", "pip install tagloom"),
    ("sentence-transformers", "embedder sentence_transformers", "pip install 'tagloom[sentence-transformers]'"),
    ("onnxruntime", "embedder onnx", "pip install 'tagloom[onnx]'"),
    ("faiss-cpu", "neighbours among millions of vectors", "pip install 'tagloom[faiss]'"),
    ("s3fs", "corpora on s3://", "pip install s3fs"),
    ("gcsfs", "corpora on gs://", "pip install gcsfs"),
    ("adlfs", "corpora on abfs://", "pip install adlfs"),
    ("duckdb", "SQL over exports (docs/export.md)", "pip install duckdb"),
)
"""(distribution, what it is for, how to get it)."""


def examine() -> dict[str, Any]:
    """Return libraries with versions, names of formats, extractors, graphs and presets, and facts of the machine."""
    from indexers import embedders, presets
    from transforms import engines, extractors, graphs, tasks
    from transforms.formats import readers

    libraries = [
        {"name": name, "version": _version(name), "purpose": purpose, "remedy": "" if _version(name) else remedy}
        for name, purpose, remedy in LIBRARIES
    ]
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return {
        "tagloom": _version("tagloom"),
        "libraries": libraries,
        "formats": sorted(readers()),
        "extractors": sorted(extractors.names()),
        "engines": list(engines.names()),
        "tasks": list(tasks.names()),
        "embedders": list(embedders.names()),
        "graphs": sorted(graphs.names()),
        "presets": list(presets.shipped()),
        "machine": [
            f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            f"temporary files: {tempfile.gettempdir()}, {free / 1e9:.1f} GB free",
        ],
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
