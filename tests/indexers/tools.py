"""Indexes texts as the stage index does: raw, then the note over it, then the tags over both."""

from indexers.postings import add_postings, build_postings, vocabulary_table
from indexers.queries import numbered
from transforms.tokens import tokenize


def index_texts(raw, extra, tags, case_offsets, tag_offsets):
    """Return postings by field and the terms of all."""
    first = tokenize(raw)
    second = numbered(vocabulary_table(first.terms), tokenize(extra))
    third = numbered(vocabulary_table(second.terms), tokenize(tags))
    own = build_postings(first, case_offsets)
    note = add_postings(own, build_postings(second, case_offsets))
    return {"raw": own, "note": note, "tag": build_postings(third, tag_offsets)}, third.terms
