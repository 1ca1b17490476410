"""Prompts: versioned files, one a task or study, and the messages that they make (docs/prompts.md).

A file has YAML front matter (``task``, ``version``, optionally ``description``), then a section begun by a line
``=== system ===``, which is the same for every request, and one begun by ``=== user ===`` with placeholders such as
``{{text}}``. Whatever else stands in braces is literal, and so is ``{{name}}`` after a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NoReturn

from schemas.errors import ConfigError
from schemas.ids import fingerprint, nearest
from transforms import tasks
from transforms.tasks import studies
from transforms.text import clean

VERSION = 1
"""Goes up by one whenever the same prompt and values would give other messages."""

_PLACEHOLDER = re.compile(r"\\?\{\{([a-z][a-z0-9_]*)\}\}")
_SECTION = re.compile(r"^=== *(system|user) *===[ \t]*$", re.MULTILINE)
_KEYS = ("task", "version", "description")
_LARGEST = 1 << 20
_QUOTED = 1000

_SPECIAL = re.compile(
    r"""
      <(?=[|｜][^|｜<>\s]{1,64}[|｜]>)                       # <|im_start|>, <|eot_id|>, and with full-width bars
    | <(?=/?(?: s | sop | eop | unk | (?:bos|eos|pad)(?:_token)? | end_of_utterance
            | (?:start|beginning|end)_of_(?:turn|text|sentence|image|audio) | image(?:_soft_token)? | __media__
            | im_(?:start|end|sep) | fim_(?:prefix|middle|suffix|pad) | unused\d+ | extra_id_\d+ | reserved_\d+
            | think(?:ing)? | thought | reasoning | reflection
            | tool_(?:calls?|response|list) | tools | function(?:_calls?|_response|s)?
            | system | user | assistant | human | bot
            | interaction | facts | vocabulary )[ ]*>)
    | <(?=</?SYS>>)
    | \[(?=/?(?: INST | SYSTEM_PROMPT | AVAILABLE_TOOLS | TOOL_(?:CALLS|RESULTS|CONTENT)
             | ARGS | THINK | gMASK | IMG )\])
    """,
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        task: Task that it is for.
        name: ``TASK@VERSION`` of Tagloom's own prompts, else the file's name.
        system: The constant part, with placeholders escaped as in the file.
        user: The part that placeholders fill.
        hash: Fingerprint of both parts; front matter does not count.
    """

    task: str
    name: str
    system: str
    user: str
    hash: str


def load(task: str, path: str | None = None) -> Prompt:
    """Read the prompt of a task.

    Args:
        task: Name of the task.
        path: File (path or fsspec URI); None takes Tagloom's own.

    Raises:
        ConfigError: The file cannot be read, is for another task, or its sections or placeholders are not right.
        UsageError: No task has that name.
    """
    tasks.asked(task)
    if path is None:
        own = files(__name__).joinpath(f"{task}.md").read_text(encoding="utf-8")
        return _parse(own, f"{task}.md", None)
    prompt = _read(path)
    if prompt.task != task:
        raise ConfigError(f"is a prompt for the task '{prompt.task}', not for '{task}'", where=path)
    return prompt


def chosen(names: Sequence[str], given: str | Sequence[str] | None) -> dict[str, Prompt]:
    """Return the prompt of each task, in order of `names`.

    Args:
        names: Tasks.
        given: Own prompt files, each of which names its task; the other tasks take Tagloom's own.

    Raises:
        ConfigError: As `load`; or a file is for a task that is not asked, or two are for the same.
        UsageError: No task has one of those names.
    """
    own: dict[str, Prompt] = {}
    places: dict[str, str] = {}
    for path in [given] if isinstance(given, str) else given or ():
        prompt = _read(path)
        if prompt.task not in names:
            raise ConfigError(
                f"is a prompt for the task '{prompt.task}', which is not asked",
                where=path,
                remedy=f"extract.tasks has {', '.join(names)}: add '{prompt.task}' there, or leave the file out.",
            )
        if prompt.task in own:
            raise ConfigError(
                f"is a second prompt for the task '{prompt.task}', besides {places[prompt.task]}",
                where=path,
                remedy="Leave one of them out of extract.prompt.",
            )
        own[prompt.task], places[prompt.task] = prompt, path
    return {name: own[name] if name in own else load(name) for name in names}


def placeholders(prompt: Prompt) -> frozenset[str]:
    """Return the names of the placeholders that a prompt has."""
    return frozenset(_names(prompt.user))


def messages(prompt: Prompt, values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Fill a prompt.

    Values are neutralised, put in once and never read again for placeholders. An empty or missing one becomes
    ``(none)``.

    Returns:
        (role, text) of the system message, which is the same for all values, and of the user message.
    """

    def filled(match: re.Match[str]) -> str:
        if match[0].startswith("\\"):
            return match[0][1:]
        return neutralise(values.get(match[1], "")).strip() or "(none)"

    return (("system", _PLACEHOLDER.sub(_literal, prompt.system)), ("user", _PLACEHOLDER.sub(filled, prompt.user)))


def again(sent: Sequence[tuple[str, str]], bad_reply: str, fault: str) -> tuple[tuple[str, str], ...]:
    """Return the messages that ask once more after a reply that cannot be used.

    Args:
        sent: The messages that were answered.
        bad_reply: The reply; its first 1,000 characters are shown to the model.
        fault: What is wrong with it, a phrase.
    """
    reply = neutralise(bad_reply.strip()[:_QUOTED]).strip() or "(nothing)"
    request = (
        f"That reply cannot be used: {neutralise(fault).strip().rstrip('.')}. Answer the request above again with the "
        "JSON object alone: no other text, no code fence, every field as asked."
    )
    return (*sent, ("assistant", reply), ("user", request))


def neutralise(text: str) -> str:
    """Break what a chat template or a prompt's delimiters could be mistaken for, by a space after its first character.

    ``<|im_start|>`` becomes ``< |im_start|>``, ``[INST]`` becomes ``[ INST]``, ``</interaction>`` becomes
    ``< /interaction>``; NUL characters and lone surrogates become U+FFFD. Other text, HTML and code among it, stays as
    it is; what was broken once is not changed again.
    """
    return _SPECIAL.sub(lambda match: match[0] + " ", clean(text))


def _literal(match: re.Match[str]) -> str:
    return match[0].removeprefix("\\")


def _names(text: str) -> list[str]:
    return [match[1] for match in _PLACEHOLDER.finditer(text) if not match[0].startswith("\\")]


def _read(path: str) -> Prompt:
    import fsspec

    try:
        with fsspec.open(path, "rb") as stream:
            data = stream.read(_LARGEST + 1)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(
            f"cannot be read: {error}", where=path, remedy="Give UTF-8 text; check extract.prompt and the access to it."
        ) from error
    if len(data) > _LARGEST:
        raise ConfigError(f"is larger than {_LARGEST} bytes", where=path, remedy="A prompt is a page of text.")
    return _parse(text, path, path.rstrip("/").rpartition("/")[2])


def _parse(text: str, where: str, name: str | None) -> Prompt:
    """Read a prompt file; `name` is None for Tagloom's own."""
    text = text.replace("\r\n", "\n")
    head, body, start = _front_matter(text, where)
    task = head.get("task")
    known = (*tasks.names(), *studies.names())
    if task not in known:
        told = "names no task" if task is None else f"names the task {task!r}, which there is not"
        close = nearest(str(task), known)
        hint = f"Did you mean '{close}'? " if close else ""
        _fail(where, told, f"{hint}Write 'task: NAME' in the front matter, one of {', '.join(known)}.")
    system, user = _sections(body, start, where)
    _check(str(task), system, user, where)
    return Prompt(
        str(task),
        name or f"{task}@{head.get('version')}",
        system[1],
        user[1],
        fingerprint({"system": system[1], "user": user[1]}),
    )


def _front_matter(text: str, where: str) -> tuple[dict[str, Any], str, int]:
    """Return the front matter, what follows it, and the line (from 1) that this begins on."""
    import yaml

    match = re.match(r"\s*---[ \t]*\n(.*?)^---[ \t]*$\n?", text, re.DOTALL | re.MULTILINE)
    if match is None:
        _fail(where, "has no front matter", "Begin the file with '---', 'task: notes', 'version: 1' and '---'.")
    try:
        head = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        _fail(where, f"front matter is not valid YAML: {' '.join(str(error).split())}", "Write 'key: value' lines.")
    if not isinstance(head, dict):
        _fail(where, "front matter holds no settings", "Write 'task: notes' and 'version: 1'.")
    for key in head:
        if key not in _KEYS:
            close = nearest(str(key), _KEYS)
            hint = f"Did you mean '{close}'? " if close else ""
            _fail(where, f"unknown key {key!r} in the front matter", f"{hint}Keys: {', '.join(_KEYS)}.")
    if not isinstance(head.get("version"), int | str | float) or isinstance(head.get("version"), bool):
        _fail(where, "front matter names no version", "Write 'version: 1', and raise it with every change.")
    return head, text[match.end() :], text.count("\n", 0, match.end()) + 1


def _sections(body: str, start: int, where: str) -> tuple[tuple[int, str], tuple[int, str]]:
    """Return the line that each section's text begins on, and the text."""
    marks = list(_SECTION.finditer(body))
    if [mark[1] for mark in marks] != ["system", "user"]:
        told = ", ".join(f"'{mark[1]}' in line {start + body.count(chr(10), 0, mark.start())}" for mark in marks)
        _fail(
            where,
            f"sections are {told or 'missing'}; expected 'system', then 'user', once each",
            "Begin them by lines '=== system ===' and '=== user ==='.",
        )
    if body[: marks[0].start()].strip():
        _fail(where, f"line {start}: text before the first section", "Move it below '=== system ==='.")
    found = []
    for mark, end in zip(marks, (marks[1].start(), len(body)), strict=True):
        text = body[mark.end() : end]
        if not text.strip():
            _fail(where, f"the section '{mark[1]}' is empty", "Write what the model shall be told there.")
        lead = len(text) - len(text.lstrip("\n"))
        found.append((start + body.count("\n", 0, mark.end() + lead), text.strip("\n").rstrip()))
    return found[0], found[1]


def _check(task: str, system: tuple[int, str], user: tuple[int, str], where: str) -> None:
    known = tasks.asked(task).PLACEHOLDERS
    listed = f"Placeholders of '{task}': {', '.join('{{' + name + '}}' for name in known)}."
    for first, text in (system, user):
        for match in _PLACEHOLDER.finditer(text):
            name, line = match[1], first + text.count("\n", 0, match.start())
            if match[0].startswith("\\"):
                continue
            if name not in known:
                close = nearest(name, list(known))
                hint = f"Did you mean '{{{{{close}}}}}'? " if close else ""
                _fail(
                    where,
                    f"line {line}: unknown placeholder '{match[0]}'",
                    f"{hint}{listed} Write '\\{match[0]}' for the literal text.",
                )
            if text is system[1]:
                _fail(
                    where,
                    f"line {line}: placeholder '{match[0]}' in the section 'system'",
                    "That section is the same for all requests, so that engines compute it once; move it to 'user'.",
                )
    for name in known:
        if known[name] and name not in _names(user[1]):
            odd = re.search(rf"\\?\{{+\s*{name}\s*\}}+", user[1], re.IGNORECASE)
            line = user[0] + user[1].count("\n", 0, odd.start()) if odd else 0
            told = f" (line {line} has '{' '.join(odd[0].split())}', which is literal)" if odd else ""
            _fail(where, f"lacks the placeholder '{{{{{name}}}}}'{told}", f"Put {{{{{name}}}}} into 'user'. {listed}")


def _fail(where: str, told: str, remedy: str) -> NoReturn:
    raise ConfigError(told, where=where, remedy=remedy)
