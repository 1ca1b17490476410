"""Commands that put what was retrieved to a language model: read, graft."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jobs import console
from jobs.app import app
from jobs.options import Corpus, Json, Name, Quiet, Set, Verbose, Wait, Workers, configure
from schemas.errors import UsageError

Engine = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="Engine that answers: openai, vllm, llamacpp.", show_default=False),
]
Model = Annotated[
    str | None, typer.Option("--model", "-m", metavar="MODEL", help="Its model: a name, a folder or a GGUF file.")
]
Budget = Annotated[
    int | None, typer.Option("--budget-tokens", metavar="N", min=1, help="Tokens to ask for at most; then it stops.")
]
Prompt = Annotated[
    list[str] | None, typer.Option("--prompt", metavar="FILE", help="Own prompt file; repeatable, one a study.")
]


@app.command(
    epilog="Example: tagloom read -C ./corpus --preset bm25 --preset dense --engine openai --model gemma-3-12b-it "
    "--set extract.options.base_url=http://localhost:8000/v1 --judge"
)
def read(
    corpus: Corpus,
    presets: Annotated[
        list[str],
        typer.Option(
            "--preset", metavar="NAME", help="Preset; repeatable, the first is the baseline.", show_default=False
        ),
    ],
    engine: Engine,
    model: Model = None,
    name: Name = "main",
    top: Annotated[int, typer.Option("--top", "-k", min=1, max=1000, help="Interactions to show, by rank.")] = 5,
    pack: Annotated[
        bool, typer.Option("--pack", help="Show packs of facts, reflections and interactions instead.")
    ] = False,
    words: Annotated[int, typer.Option("--words", min=1, help="Words of a pack.")] = 1000,
    facts: Annotated[int, typer.Option("--facts", min=0, max=10_000, help="Facts of a pack at most.")] = 60,
    reflections: Annotated[
        int, typer.Option("--reflections", min=0, max=10_000, help="Reflections of a pack at most.")
    ] = 20,
    episodes: Annotated[
        int, typer.Option("--episodes", min=0, max=10_000, help="Interactions of a pack at most.")
    ] = 80,
    tokens: Annotated[
        int, typer.Option("--tokens", min=16, help="Tokens of memory in a prompt (3 bytes each), for all presets.")
    ] = 4000,
    judge: Annotated[bool, typer.Option("--judge", help="Also let a model say whether replies are right.")] = False,
    judge_model: Annotated[
        str | None, typer.Option("--judge-model", metavar="MODEL", help="The judge, where it is another one.")
    ] = None,
    prompt: Prompt = None,
    budget_tokens: Budget = None,
    sets: Set = None,
    workers: Workers = None,
    wait: Wait = 0.0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Let a language model answer the questions from what each preset ranked, and mark its replies."""
    from jobs import reader_view

    console.set_up_logging(verbose)
    settings = _configure(corpus, name, engine, model, prompt, budget_tokens, workers, sets)
    reading = {
        "presets": presets,
        "top": top,
        "tokens": tokens,
        "pack": pack,
        "words": words,
        "facts": facts,
        "reflections": reflections,
        "episodes": episodes,
        "judge": judge or judge_model is not None,
        "judge_model": judge_model,
    }
    reader_view.read(settings, reading, wait=wait, quiet=quiet, as_json=as_json)


@app.command(
    epilog="Example: tagloom graft -C ./corpus --preset gaama   |   tagloom graft -C ./corpus --preset gaama --online "
    "--engine openai --model gemma-3-12b-it --set extract.options.base_url=http://localhost:8000/v1"
)
def graft(
    corpus: Corpus,
    preset: Annotated[
        str, typer.Option("--preset", metavar="NAME", help="Preset whose packs are mended.", show_default=False)
    ],
    origin: Annotated[str, typer.Option("--from", metavar="NAME", help="Generation to repair.")] = "main",
    name: Annotated[
        str | None, typer.Option("--name", "-n", metavar="NAME", help="Name of the repaired one [FROM-graft].")
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="Let a model say what is missing, rather than the gold answers.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="NAME", help="Engine that writes repairs; none takes sentences of the gold."),
    ] = None,
    model: Model = None,
    share: Annotated[
        float, typer.Option("--share", help="Share of the questions to repair on; the others are held out.")
    ] = 0.5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw of these questions.")] = 7,
    words: Annotated[int, typer.Option("--words", min=1, help="Words of a pack.")] = 1000,
    tokens: Annotated[
        int, typer.Option("--tokens", min=16, help="Tokens of memory in a prompt (3 bytes each).")
    ] = 4000,
    prompt: Prompt = None,
    budget_tokens: Budget = None,
    sets: Set = None,
    workers: Workers = None,
    wait: Wait = 0.0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Repair a memory where questions cannot be answered from it, and tell what that gains on other questions."""
    from jobs import graft_view

    console.set_up_logging(verbose)
    if not 0 < share <= 1:
        raise UsageError(f"{share} is no share above 0 and up to 1", where="--share")
    settings = _configure(corpus, origin, engine, model, prompt, budget_tokens, workers, sets)
    grafting = {
        "preset": preset,
        "mode": "online" if online else "batch",
        "share": share,
        "seed": seed,
        "words": words,
        "tokens": tokens,
    }
    graft_view.graft(settings, grafting, name=name, wait=wait, quiet=quiet, as_json=as_json)


def _configure(
    corpus: str,
    name: str,
    engine: str | None,
    model: str | None,
    prompt: list[str] | None,
    budget_tokens: int | None,
    workers: str | None,
    sets: list[str] | None,
) -> Any:
    return configure(
        None,
        None,
        sets,
        corpus=corpus,
        name=name,
        extract__extractor=engine,
        extract__model=model,
        extract__prompt=prompt,
        extract__budget_tokens=budget_tokens,
        compute__workers=workers,
    )
