"""The front door for Python users.

>>> import tagloom
>>> corpus = tagloom.open_corpus("corpus")                          # doctest: +SKIP
>>> corpus.query("conv-26", "When did Caroline join the group?")    # doctest: +SKIP

>>> memory = tagloom.Memory("my-memory", case="me")                 # doctest: +SKIP
>>> memory.remember("I adopted a cat called Miso.", "Lovely!")      # doctest: +SKIP
>>> memory.query("What is my cat called?")                          # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from pipelines.driver import RunResult
    from pipelines.store import Generation

from pipelines.memory import Hit, Memory

__all__ = ["Corpus", "Hit", "Memory", "open_corpus", "run"]


@dataclass(frozen=True)
class Corpus:
    """A corpus at rest: its tables, and questions to its cases.

    Attributes:
        uri: Where it lies.
        generation: Name of the generation that is read.
    """

    uri: str
    generation: str = "main"

    def _generation(self) -> Generation:
        from pipelines.store import Store

        return Store.open(self.uri).generation(self.generation)

    @property
    def cases(self) -> list[str]:
        """All case ids, sorted."""
        from pipelines.query import cases

        return cases(self._generation())

    @property
    def tables(self) -> list[str]:
        """Names of the tables that the generation holds."""
        return sorted(self._generation().tables())

    @overload
    def table(self, name: str, *, form: Literal["arrow"] = "arrow", columns: list[str] | None = None) -> pa.Table: ...
    @overload
    def table(self, name: str, *, form: Literal["polars"], columns: list[str] | None = None) -> pl.DataFrame: ...
    def table(self, name: str, *, form: str = "arrow", columns: list[str] | None = None) -> Any:
        """Return a table whole; `interactions` gains a column `text`, both sides of each joined.

        Args:
            name: A table of `schemas.tables`.
            form: ``arrow`` or ``polars``.
            columns: Only these.

        Raises:
            SchemaError: No table has that name.
            StoreError: The generation does not hold it.
            UsageError: `form` is neither.
        """
        from schemas.errors import UsageError

        if name == "interactions":
            found = _with_text(self._generation().table(name))
            found = found if columns is None else found.select(columns)
        else:
            found = self._generation().table(name, columns)
        if form == "arrow":
            return found
        if form == "polars":
            import polars

            return polars.from_arrow(found)
        raise UsageError(f"'{form}' is neither 'arrow' nor 'polars'", where="form")

    def query(self, case: str, text: str, retriever: str = "bm25", k: int = 10) -> list[Hit]:
        """Return the best interactions of a case for a question, best first.

        Raises:
            UsageError: There is no such case or preset.
            StoreError: The generation lacks the index that the preset needs.
        """
        from pipelines.query import answer

        return [Hit(**row) for row in answer(self._generation(), case, text, retriever, k).to_pylist()]


def _with_text(interactions: pa.Table) -> pa.Table:
    from transforms.interactions import full_text

    return interactions.append_column("text", full_text(interactions))


def open_corpus(uri: str, generation: str = "main") -> Corpus:
    """Open a corpus that a run made.

    Args:
        uri: Folder or fsspec URI.
        generation: Which of its generations to read.

    Raises:
        StoreError: There is no corpus, or no such generation.
    """
    corpus = Corpus(uri, generation)
    corpus._generation()
    return corpus


def run(
    config: str | Mapping[str, Any] | None = None,
    *,
    overrides: Iterable[str] = (),
    append: bool = False,
    wait: float = 0.0,
    **settings: Any,
) -> RunResult:
    """Run a configuration, as the command `tagloom run` does.

    Args:
        config: Path of a run.yaml, or its content as a mapping.
        overrides: ``a.b=value`` settings, as with ``--set``.
        append: Add the inputs to those ingested before.
        wait: Seconds to wait while another run holds the corpus.
        settings: Top-level settings, such as ``corpus=`` and ``inputs=``.

    Raises:
        TagloomError: Anything that the user must mend.
        ShardsAsideError: The run finished without some shards, which failed too often.
        TooManyRejectsError: The run finished, with too many rejects.
    """
    from pipelines.driver import check_finished
    from pipelines.driver import run as drive
    from schemas.config import load_config

    path = config if isinstance(config, str) else None
    base = {**(config if isinstance(config, Mapping) else {}), **settings}
    loaded = load_config(path, overrides, base)
    result = drive(loaded, append=append, wait=wait)
    check_finished(result)
    return result
