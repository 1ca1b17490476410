"""Conversations that are trees, because questions were edited and answers made again, taken apart into paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from transforms.records import Message, Session


def sessions(
    whole: Session,
    messages: Mapping[str, Message | None],
    parents: Mapping[str, str | None],
    current: str | None,
    repairs: Counter[str],
) -> Iterator[Session]:
    """Yield the sessions of a conversation that is a tree.

    Args:
        whole: The conversation, still without messages.
        messages: Its messages by their place in the tree; None for what is there and says nothing.
        parents: See `paths`; for each of `messages`.
        current: See `paths`.
        repairs: See `paths`.

    Yields:
        `whole` with the messages that end at `current`; then ``ID~branch-N`` for each branch that says something,
        N from 1, which began when its first message did.
    """
    main, branches = paths(parents, current, repairs)
    yield replace(whole, messages=[one for key in main if (one := messages[key])])
    number = 0
    for branch in branches:
        said = [one for key in branch if (one := messages[key])]
        if said:
            number += 1
            began = next((one.at for one in said if one.at is not None), whole.started_at)
            name = f"{whole.session_id}~branch-{number}"
            yield Session(whole.case_id, name, said, began, None, whole.offset)


def paths(
    parents: Mapping[str, str | None], current: str | None, repairs: Counter[str]
) -> tuple[list[str], list[list[str]]]:
    """Take a tree of messages apart, every message in exactly one path.

    Where several messages follow one, the path they are on goes on with the newest; each of the others begins a
    branch. There is no recursion: a path may be as long as the file allows. Time grows with the number of messages.

    Args:
        parents: Each message's parent, the oldest message first. A parent that is not among the messages makes its
            child a root.
        current: The message at which the conversation ends. None, or one that is not there, means the newest message
            that none follows.
        repairs: Where cyclic_tree is counted: a message that follows itself, whose tie is cut.

    Returns:
        The path that ends at `current`, from its root on; and the branches by the age of their first messages, each
        without what came before its fork.
    """
    if not parents:
        return [], []
    ties = _acyclic(parents, repairs)
    children: dict[str | None, list[str]] = {}
    for key, parent in ties.items():
        children.setdefault(parent, []).append(key)
    main: list[str] = []
    at: str | None = current if current in ties else [key for key in ties if key not in children][-1]
    while at is not None:
        main.append(at)
        at = ties[at]
    main.reverse()
    taken = set(main)
    heads = [key for parent in (None, *main) for key in children.get(parent, ()) if key not in taken]
    branches = []
    while heads:
        branch = [heads.pop()]
        while following := children.get(branch[-1]):
            heads += following[:-1]
            branch.append(following[-1])
        branches.append(branch)
    age = {key: number for number, key in enumerate(ties)}
    return main, sorted(branches, key=lambda branch: age[branch[0]])


def _acyclic(parents: Mapping[str, str | None], repairs: Counter[str]) -> dict[str, str | None]:
    ties = {key: parent if parent in parents else None for key, parent in parents.items()}
    walk_of: dict[str, str] = {}
    for start in parents:
        at: str | None = start
        while at in ties and at not in walk_of:
            walk_of[at] = start
            at = ties[at]
        if at in ties and walk_of[at] == start:
            ties[at] = None
            repairs["cyclic_tree"] += 1
    return ties
