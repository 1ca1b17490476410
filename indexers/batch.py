"""Some questions of a shard at work; what several presets need of them is computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from indexers import tfidf, traversal
from indexers.postings import Postings, Queries
from indexers.queries import questions_to_queries
from indexers.scores import Ints, Scores
from indexers.shard import Shard, Singles
from transforms import graphs as kinds

if TYPE_CHECKING:
    from indexers.presets import Preset

T = TypeVar("T")


class Embedding(Protocol):
    """Where the vectors of what is asked come from."""

    def questions(self, questions: pa.Table) -> Singles:
        """Return (questions, dimensions) vectors of rows of the table `questions`."""
        ...

    def words(self, words: Sequence[str]) -> Singles:
        """Return (words, dimensions) vectors of words that the unit ``embed/words`` does not have; rows may be 0."""
        ...


@dataclass
class RankStats:
    """Counts of one preset on one shard.

    Attributes:
        questions: Questions ranked.
        no_matches: Questions whose words match no node that is searched by words (presets over graphs).
        no_seeds: Questions without a seed for the walk (diffusion); all their scores are 0.
        no_results: Questions for which nothing was retrieved.
    """

    questions: int = 0
    no_matches: int = 0
    no_seeds: int = 0
    no_results: int = 0


class Batch:
    """Some questions of a shard.

    Attributes:
        shard: The shard.
        questions: Table `questions`, all of cases of the shard.
        case: (questions,) number of each one's case in the shard.
        shared: Marks of presets whose scores are kept, because several presets are made of them.
    """

    def __init__(
        self,
        shard: Shard,
        questions: pa.Table,
        case: Ints,
        embedding: Embedding,
        shared: frozenset[str] = frozenset(),
    ) -> None:
        """Prepare questions; `embedding` is asked when a preset needs vectors of them."""
        self.shard = shard
        self.questions = questions
        self.case = case
        self.shared = shared
        self.embedding = embedding
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was made under a key; it is made on first call."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def scores(self, preset: Preset, stats: RankStats | None = None) -> Scores:
        """Return the scores of a preset.

        Args:
            preset: The preset.
            stats: Where it counts; None counts nowhere (arms).
        """
        if preset.mark not in self.shared:
            return preset.code.scores(preset, self, stats or RankStats())
        found, counts = self.once(("scores", preset.mark), lambda: self._counted(preset))
        if stats is not None:
            stats.no_matches += counts.no_matches
            stats.no_seeds += counts.no_seeds
        return found

    def _counted(self, preset: Preset) -> tuple[Scores, RankStats]:
        counts = RankStats()
        return preset.code.scores(preset, self, counts), counts

    def queries(self, unit: str, name: str, share: float | None = None) -> Queries:
        """Return the questions' words as terms of a unit's vocabulary.

        Args:
            unit: Whose vocabulary.
            name: Field of the postings that they are compared with.
            share: Words in more than this share of that field's documents are dropped.
        """
        return self.once(("queries", unit, name, share), lambda: self._queries(unit, name, share))

    def _queries(self, unit: str, name: str, share: float | None) -> Queries:
        if share is not None:
            return tfidf.drop_common(self.queries(unit, name), self.text(unit, name), share)
        texts = self.questions["question"].combine_chunks()
        if name in ("stem", "user"):
            return questions_to_queries(texts, self.case, self.shard.vocabulary(unit), self.shard.language)
        # The same words, whichever field of the unit they are compared with.
        return self.once(("words", unit), lambda: questions_to_queries(texts, self.case, self.shard.vocabulary(unit)))

    def text(self, unit: str, name: str) -> Postings:
        """Return the postings of a field whose terms are numbered as in a unit's vocabulary.

        The vocabulary of ``index/note`` begins with that of ``index/raw``, and a graph's with that of ``index/note``.
        """
        return self.shard.postings(f"index/{name}" if name in ("raw", "note", "stem", "user") else unit, name)

    def content(self, kind: str, unit: str, name: str, share: float | None) -> Scores:
        """Return how much questions and documents of a field have in common: ``overlap`` or ``tfidf``."""
        score = tfidf.tfidf_scores if kind == "tfidf" else tfidf.overlap_scores
        return self.once(
            ("content", kind, unit, name, share),
            lambda: score(self.text(unit, name), self.queries(unit, name, share)),
        )

    def matches(self, graph: str, name: str, share: float | None, match: str = "any") -> traversal.Matches:
        """Return the nodes of a graph that the questions' words name."""
        unit = f"index/{graph}"
        return self.once(
            ("matches", graph, name, share, match),
            lambda: traversal.match_nodes(
                self.shard.graphs(graph),
                kinds.load(graph).SEARCHED,
                self.shard.postings(unit, "tag"),
                self.queries(unit, name, share),
                whole=match == "all",
            ),
        )

    def vectors(self) -> Singles:
        """Return the vectors of the questions, (questions, dimensions)."""
        return self.once(("vectors",), lambda: self.embedding.questions(self.questions))
