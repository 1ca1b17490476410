"""Retrieval presets, as data: `presets.yaml` holds ours, a run's `rank.define` its own (docs/presets.md)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from itertools import product
from typing import Any

from pydantic import BaseModel

from indexers import methods
from schemas.errors import ConfigError, UsageError
from schemas.ids import fingerprint, nearest
from schemas.options import checked
from transforms import graphs

Spec = Mapping[str, Any]
"""A preset as written: ``method`` or ``base``, ``doc``, and the method's options."""

_WORDS = ("base", "method", "doc")
_DEPTH = 16


@dataclass(frozen=True)
class Preset:
    """One way to rank the interactions of a case for a question.

    Attributes:
        name: Name in configurations and in the column `retriever`.
        doc: What it is, in a line.
        method: Name of its method.
        options: The method's `Options`.
        arms: The presets that it puts together, by the names that `options.arms` gives them.
    """

    name: str
    doc: str
    method: str
    options: Any
    arms: Mapping[str, Preset]

    @property
    def code(self) -> methods.Method:
        """The module of the method."""
        return methods.load(self.method)

    @cached_property
    def described(self) -> dict[str, Any]:
        """All that its ranking depends on besides its input, as plain data; `rebuilt` makes the preset from it."""
        return {"method": self.method, "version": self.code.VERSION, **self._options()}

    def _options(self) -> dict[str, Any]:
        plain: dict[str, Any] = self.options.model_dump(mode="json")
        for name, arm in self.arms.items():
            plain["arms"][name]["preset"] = arm.described
        return plain

    @cached_property
    def mark(self) -> str:
        """The fingerprint of `described`: presets of one mark rank alike, whatever they are called."""
        return fingerprint(self.described)

    @cached_property
    def units(self) -> tuple[str, ...]:
        """Units of the stages index, embed and route that it reads, those of its arms included."""
        own = list(self.code.units(self.options))
        if getattr(self.code, "LEARNS", False):
            own.append(f"route/{self.mark}")
        return tuple(dict.fromkeys([*own, *(unit for arm in self.arms.values() for unit in arm.units)]))

    @property
    def learning(self) -> list[Preset]:
        """The presets among it and its arms whose numbers are learned, inner ones first."""
        inner = [one for arm in self.arms.values() for one in arm.learning]
        return [*inner, self] if getattr(self.code, "LEARNS", False) else inner


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    import yaml

    text = files("indexers").joinpath("presets.yaml").read_text(encoding="utf-8")
    loaded: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text)
    return loaded


def shipped() -> tuple[str, ...]:
    """Return the names of our presets, in order."""
    return tuple(_shipped()["presets"])


def groups() -> dict[str, tuple[str, ...]]:
    """Return the names that stand for several presets, and those presets."""
    return {"all": shipped(), **{name: tuple(members) for name, members in _shipped()["groups"].items()}}


@cache
def _ours(name: str) -> Preset:
    return _made(name, _shipped()["presets"][name], _shipped()["presets"], name)


def get(name: str, define: Mapping[str, Spec] | None = None) -> Preset:
    """Return a preset.

    Args:
        name: Its name.
        define: Presets of the run's own (``rank.define``).

    Raises:
        UsageError: None has that name.
        ConfigError: It is not valid.
    """
    define = define or {}
    if name in define:
        return _made(name, define[name], _all(define), f"rank.define.{name}")
    if name in _shipped()["presets"]:
        return _ours(name)
    raise _unknown(name, define, "rank.presets")


def expand(
    names: Iterable[str],
    define: Mapping[str, Spec] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Preset]:
    """Return the presets that names and groups stand for, each once, in order of first mention.

    Args:
        names: Presets and groups.
        define: Presets of the run's own.
        sweep: Values to try for numbers of presets, by path (``diffusion.alpha``). A preset that has such numbers is
            replaced by one preset for each combination of their values, called ``NAME@PATH=VALUE,...``; one that has
            none of them stays as it is.

    Raises:
        UsageError: A name is neither a preset nor a group, or no preset has a number that is swept.
        ConfigError: A preset is not valid.
    """
    define, sweep = define or {}, sweep or {}
    for name in define:
        if name in _shipped()["presets"] or name in groups():
            raise ConfigError(
                f"'{name}' is the name of a preset of ours", where="rank.define", remedy="Give yours another name."
            )
    known = groups()
    wanted = list(dict.fromkeys(preset for name in names for preset in known.get(name, (name,))))
    found: dict[str, Preset] = {}
    used: set[str] = set()
    for name in wanted:
        preset = get(name, define)
        paths = [path for path in sweep if _has(preset, path)]
        used.update(paths)
        if not paths:
            found[name] = preset
        for values in product(*(sweep[path] for path in paths)) if paths else ():
            label = f"{name}@" + ",".join(f"{path}={value}" for path, value in zip(paths, values, strict=True))
            spec: dict[str, Any] = {"base": name, "doc": f"{preset.doc} ({label.partition('@')[2]})"}
            for path, value in zip(paths, values, strict=True):
                _put(spec, preset, path, value)
            found[label] = _made(label, spec, _all(define), f"rank.sweep ({label})")
    for path in sweep:
        if path not in used:
            have = sorted({number for name in wanted for number in numbers(get(name, define))})
            guess = nearest(path, have)
            raise UsageError(
                f"none of the presets has a number '{path}'",
                where="rank.sweep",
                remedy=f"Did you mean '{guess}'?" if guess else f"Numbers: {', '.join(have)}.",
            )
    return found


def rebuilt(name: str, described: Mapping[str, Any], doc: str = "") -> Preset:
    """Return the preset of that name whose `Preset.described` is this."""
    spec = {key: value for key, value in described.items() if key != "version"}
    return _made(name, spec, {}, name, doc)


def numbers(preset: Preset) -> list[str]:
    """Return the paths of all values of a preset that can be swept."""

    def walk(value: Any, path: str) -> Iterable[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(inner, f"{path}.{key}" if path else key)
        else:
            yield path

    plain = {key: value for key, value in preset.described.items() if key not in ("method", "version")}
    return [path for path in walk(plain, "") if path.rpartition(".")[2] not in ("method", "version")]


def _has(preset: Preset, path: str) -> bool:
    value: Any = preset.described
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return path.rsplit(".", maxsplit=1)[-1] not in ("method", "version", "preset")


def _put(spec: dict[str, Any], preset: Preset, path: str, value: Any) -> None:
    """Set a value in a spec; an arm that is a preset's name becomes one written out on its way."""
    first, *rest = path.split(".")
    if first == "arms" and len(rest) > 2 and rest[1] == "preset":
        arm = spec.setdefault("arms", {}).setdefault(rest[0], {})
        arm.setdefault("preset", copy.deepcopy(_written(preset.arms[rest[0]])))
        _put(arm["preset"], preset.arms[rest[0]], ".".join(rest[2:]), value)
        return
    place = spec
    for part in path.split(".")[:-1]:
        place = place.setdefault(part, {})
    place[path.rpartition(".")[2]] = value


def _written(preset: Preset) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: plain(inner) for key, inner in value.items() if key != "version"}

    written: dict[str, Any] = plain(preset.described)
    return written


def _all(define: Mapping[str, Spec]) -> dict[str, Spec]:
    return {**_shipped()["presets"], **define}


def _unknown(name: str, define: Mapping[str, Spec], where: str) -> UsageError:
    known = [*define, *shipped()]
    guess = nearest(name, [*known, *groups()])
    hint = f"Did you mean '{guess}'? " if guess else ""
    return UsageError(f"no preset is called '{name}'", where=where, remedy=f"{hint}Presets: {', '.join(known)}.")


def _flat(spec: Any, known: Mapping[str, Spec], where: str, depth: int = 0) -> dict[str, Any]:
    """Return a spec with what its bases say, under what it says itself."""
    if not isinstance(spec, Mapping):
        raise ConfigError(f"is a {type(spec).__name__}, not settings", where=where)
    own = {key: value for key, value in spec.items() if key != "base"}
    base = spec.get("base")
    if base is None:
        return own
    if base not in known:
        raise _unknown(str(base), {k: v for k, v in known.items() if k not in _shipped()["presets"]}, f"{where}.base")
    if depth > _DEPTH:
        raise ConfigError("is its own base", where=where, remedy="Name another base.")
    below = _flat(known[base], known, f"{where}.base", depth + 1)
    if own.get("method", below.get("method")) != below.get("method"):
        raise ConfigError(
            f"has method '{own['method']}', and its base '{base}' '{below.get('method')}'",
            where=where,
            remedy="Leave out 'base' or 'method'.",
        )
    return _over(below, own)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        # An arm's preset is replaced whole: its numbers belong to its own method.
        merged[key] = _over(old, value) if both and key != "preset" else value  # type: ignore[arg-type]
    return merged


def _made(name: str, spec: Spec, known: Mapping[str, Spec], where: str, doc: str = "", depth: int = 0) -> Preset:
    if depth > _DEPTH:
        raise ConfigError("is an arm of itself", where=where, remedy="Name other presets.")
    flat = _flat(spec, known, where)
    if not isinstance(flat.get("method"), str):
        known_methods = ", ".join(methods.names())
        raise ConfigError(
            "names no method",
            where=where,
            remedy=f"Set 'base' to a preset, or 'method' to one of: {known_methods}.",
        )
    method = methods.load(flat["method"], f"{where}.method")
    given = {key: value for key, value in flat.items() if key not in _WORDS}
    options: BaseModel = checked(method.Options, given, owner=name, where=where)
    if isinstance(graph := getattr(options, "graph", None), str):
        graphs.load(graph, f"{where}.graph")
    arms = {}
    for key, arm in getattr(options, "arms", {}).items():
        inner, place = arm.preset, f"{where}.arms.{key}"
        if isinstance(inner, str):
            if inner not in known:
                raise _unknown(inner, {k: v for k, v in known.items() if k not in _shipped()["presets"]}, place)
            inner = known[inner]
        else:
            inner = {k: v for k, v in inner.items() if k != "version"}
        arms[key] = _made(
            f"{name}/{key}" if isinstance(arm.preset, dict) else arm.preset, inner, known, place, "", depth + 1
        )
    return Preset(name, doc or str(flat.get("doc", "")), flat["method"], options, arms)
