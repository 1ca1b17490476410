"""Sections of options that several methods have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.options import Section

Share = Field(ge=0, le=1)


class Text(Section):
    """Which text a question is compared with."""

    field: Literal["raw", "note", "stem", "user"] = Field(
        "raw",
        description="raw: the interaction; note: with tags and summary; stem: the interaction's stems; user: the "
        "stems of what the user said",
    )
    stopword_share: float | None = Field(
        None, gt=0, le=1, description="Question words in more than this share of the case's documents are dropped"
    )


class Window(Section):
    """Neighbours that are part of a document."""

    reach: int = Field(0, ge=0, le=16, description="Interactions before, and as many after, in the same session")


class Edges(Section):
    """Which edges a walk uses, and how."""

    weights: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict, description="Factor of each edge kind; 0 leaves it out, kinds not named have 1"
    )
    undirected: bool = Field(False, description="Go along edges in both directions")
    hub_above: int | None = Field(
        None, ge=1, description="A node with a higher degree d keeps the share hub_above / d of what it passes on"
    )


class Diffusion(Section):
    """Personalised PageRank."""

    alpha: float = Field(0.85, ge=0, lt=1, description="Probability that a walk goes on; 0 ranks by the seeds alone")
    tolerance: float = Field(1e-8, gt=0, le=1, description="L1 error of the scores")


class Arm(Section):
    """One of several rankings that a preset puts together."""

    preset: str | dict[str, object] = Field(description="Name of a preset, or one written out")
    weight: float = Field(1.0, description="Its weight")
