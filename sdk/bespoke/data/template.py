# SPDX-License-Identifier: Apache-2.0
"""From a Jinja chat template to `Turns`: render short conversations of marked messages, read off what stands between.

Compiled are the orders (system) user assistant user ..., which a template must know; and, where the template renders
them with the same glue, orders beyond it (two user messages in a row, the assistant first). Everything is then checked
against the template on random conversations. Not covered, and so not said by the table: what a template does to
certain words within a content (Qwen3 cuts `<think>...</think>` out of earlier answers); contents stay as given.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bespoke.data.rendering import NotAllowed, Render, refusal, rendering
from bespoke.data.turns import ROLES, Ending, Glue, Role, Trim, Turns
from bespoke.errors import ModelError, TemplateError
from bespoke.format.plain_file import read_plain

__all__ = ["compile_turns", "find_template"]

Table = dict[tuple[str, str, bool], str]

LONGEST = 5  # messages of a compiled conversation: enough for each (previous, next, last) to be met in two surroundings
LONGEST_OPTIONAL = 4
CHECKED_CONVERSATIONS = 200
# Transitions that a template may know beyond (system) user assistant user ...
OPTIONAL = (
    ("user", "user"),
    ("assistant", "assistant"),
    ("start", "assistant"),
    ("system", "assistant"),
    ("system", "end"),
)
# str.isspace(), which is what Jinja's `trim` strips.
WHITESPACE = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_FIRST: tuple[tuple[Role, ...], ...] = ((), ("system",))
_ALTERNATING: tuple[Role, Role] = ("user", "assistant")
WORDS = (
    "Hello", "what's", "the", "weather", "in", "Zürich", "?", "我明天", "不在", "🙂", "{{ x }}", "{% y %}",
    '"quoted"', "\\n", "'s", "1,024", "<b>", "&amp;", "line\nbreak", "tab\tstop", "two  spaces", "\n\n", "- item",
    "</s>", "<|im_end|>", "user",
)  # fmt: skip


def find_template(folder: Path) -> str | None:
    """The chat template of a model folder: chat_template.jinja, else the one in tokenizer_config.json, else None."""
    own, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    reading = own if own.is_file() else config
    try:
        if reading == own:
            return read_plain(own).decode()
        settings = json.loads(read_plain(config)) if config.is_file() else {}
        value = settings.get("chat_template")
        if isinstance(value, list):  # several by name; "default" is the one without tools and the like
            value = {entry["name"]: entry["template"] for entry in value}.get("default")
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise ModelError(
            str(reading),
            got=f"{type(error).__name__}: {error}",
            expected="a chat template" if reading == own else "the settings of a tokenizer",
            next_step="Take the file from the model's own folder",
        ) from None
    return value if isinstance(value, str) else None


def compile_turns(
    template: str,
    special_tokens: Mapping[str, str],
    date: str | None = None,
    variables: Mapping[str, Any] | None = None,
) -> Turns:
    """Compile a Jinja chat template, and hold the result against the template itself on random conversations.

    `special_tokens` are the names that a template uses (`bos_token`, `eos_token`). `date`, "2024-07-26", is what a
    template that prints today's date prints from now on. `variables` go to the template (`{"enable_thinking": False}`).
    TemplateError, with the two texts that differ, for a template whose glue depends on anything else.
    """
    with rendering(template, special_tokens, date, variables or {}) as render:
        return _compiled(render)


def _compiled(render: Render) -> Turns:
    table = _base_table(render)
    for transition in OPTIONAL:
        table = _with_transition(render, table, transition)
    try:
        turns = _turns(render, table)
        _check(render, turns)
    except TemplateError:
        base = _base_table(render)  # what only the optional orders break is left out, not refused
        if base == table:
            raise
        turns = _turns(render, base)
        _check(render, turns)
    return turns


def _mark(index: int) -> str:
    return f"␂{index}␃"


def _orders(longest: int) -> Iterator[tuple[Role, ...]]:
    """(system) user assistant user ..., up to `longest` messages."""
    for count in range(1, longest + 1):
        for first in _FIRST:
            body = count - len(first)
            if body >= 1:
                yield (*first, *(_ALTERNATING[i % 2] for i in range(body)))


def _base_table(render: Render) -> Table:
    table: Table = {}
    complaint = "nothing"
    for order in _orders(LONGEST):
        for generate in (False, True):
            try:
                _read_off(render, order, generate, table)
            except NotAllowed as no:
                complaint = str(no)
    if ("start", "user", True) not in table:
        raise refusal(
            got=f"no text for one user message: {complaint}",
            expected="a template that renders a user message",
            next_step="Use prompt and completion instead of messages, or another template",
        )
    return table


def _read_off(render: Render, order: Sequence[Role], generate: bool, table: Table) -> None:
    """Add the glue of one conversation to `table`; TemplateError where it contradicts what is there."""
    rest = render([(role, _mark(i)) for i, role in enumerate(order)], generate)
    line = ["start", *order, "generate" if generate else "end"]
    for index in range(len(order) + 1):
        if index < len(order):
            before, found, rest = rest.partition(_mark(index))
            if not found or _mark(index) in rest:
                raise refusal(
                    got=f"the content of message {index} of {' '.join(order)} {'twice' if found else 'nowhere'}",
                    expected="each content once, in order",
                    next_step="Use prompt and completion instead of messages, or another template",
                )
        else:
            before = rest
        key = (line[index], line[index + 1], index == len(order) - 1)
        if table.setdefault(key, before) != before:
            raise refusal(
                got=f"{before!r} between {key[0]} and {key[1]} in {' '.join(order)}",
                expected=f"{table[key]!r} as elsewhere: a text fixed by the roles before and after",
                next_step="Use prompt and completion instead of messages, or a template that does not count messages",
            )


def _with_transition(render: Render, table: Table, transition: tuple[str, str]) -> Table:
    """The table with one more transition between roles, or as it was where the template does not bear it."""
    known = {(previous, following) for previous, following, _ in table} | {transition}
    wider = dict(table)
    met = False
    for count in range(1, LONGEST_OPTIONAL + 1):
        for order in itertools.product(ROLES, repeat=count):
            for generate in (False, True):
                line = ("start", *order, "generate" if generate else "end")
                steps = list(itertools.pairwise(line))
                if transition not in steps or not known.issuperset(steps):
                    continue
                try:
                    _read_off(render, order, generate, wider)
                except (NotAllowed, TemplateError):
                    return table
                met = True
    return wider if met else table


def _turns(render: Render, table: Table) -> Turns:
    glue = tuple(Glue(previous=p, next=n, last=last, text=text) for (p, n, last), text in sorted(table.items()))  # type: ignore[arg-type]
    endings = []
    for role in sorted(ROLES):
        if (role, "end", False) not in table:
            continue  # no text is known to end such a turn: what follows may be the next turn's header
        behind = [text for (previous, _, _), text in table.items() if previous == role]
        shared = _common_prefix(behind)
        # Whitespace behind the closing token is never generated: generation stops at the token.
        shared = shared.rstrip() or shared
        if shared:
            endings.append(Ending(role=role, text=shared))
    trims = []
    for previous, following, last in sorted(table):
        found = _order_with(table, previous, following, last)
        left, right = _trimmed(render, *found) if found is not None else ("", "")
        if left or right:
            trims.append(Trim(previous=previous, role=following, last=last, left=left, right=right))  # type: ignore[arg-type]
    return Turns(glue=glue, trims=tuple(trims), endings=tuple(endings))


def _common_prefix(texts: Sequence[str]) -> str:
    first, final = min(texts), max(texts)  # in sorting order: what these two share, all share
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, final, strict=False))
    return "".join(character for character, _ in same)


def _order_with(table: Table, previous: str, following: str, last: bool) -> tuple[list[Role], int] | None:
    """A conversation that the table knows and the place in it of a message of such surroundings; None for no message."""
    for count in range(1, LONGEST + 1):
        for order in itertools.product(ROLES, repeat=count):
            line = ("start", *order, "end")
            if not all((line[i], line[i + 1], i == count - 1) in table for i in range(count + 1)):
                continue
            for place in range(count):
                if line[place : place + 2] == (previous, following) and (place == count - 1) == last:
                    return list(order), place
    return None


def _trimmed(render: Render, order: Sequence[Role], place: int) -> tuple[str, str]:
    """Which whitespace the template strips before and behind the content at `place`."""

    def around(content: str) -> tuple[str, str]:
        marked = [(role, content if i == place else _mark(i)) for i, role in enumerate(order)]
        before, _, behind = render(marked, False).partition(_mark(place))
        return before, behind

    plain_before, plain_behind = around(_mark(place))
    left = right = ""
    for space in WHITESPACE:
        before, behind = around(space + _mark(place) + space)
        if before not in (plain_before, plain_before + space) or behind not in (plain_behind, space + plain_behind):
            raise refusal(
                got=f"{before + _mark(place) + behind!r} for a content with {space!r} around it",
                expected=f"{plain_before + _mark(place) + plain_behind!r}, with or without that character",
                next_step="Use prompt and completion instead of messages, or another template",
            )
        left += space if before == plain_before else ""
        right += space if behind == plain_behind else ""
    return left, right


def _check(render: Render, turns: Turns) -> None:
    """Hold the table against the template on random conversations."""
    chance = random.Random(0)
    known: set[tuple[str, str, bool]] = {(g.previous, g.next, g.last) for g in turns.glue}
    for _ in range(CHECKED_CONVERSATIONS):
        messages, generate = _conversation(chance, known)
        given = [{"role": role, "content": content} for role, content in messages]
        ours = "".join(piece.text for piece in turns.render(given, generate))
        try:
            theirs = render(messages, generate)
        except NotAllowed as no:
            theirs = f"refused: {no}"
        if ours != theirs:
            raise refusal(
                got=repr(theirs),
                expected=repr(ours),
                next_step="Use prompt and completion instead of messages, or a template without rules beyond roles",
            )


def _conversation(chance: random.Random, known: set[tuple[str, str, bool]]) -> tuple[list[tuple[str, str]], bool]:
    """A random conversation of an order that the table knows."""
    while True:
        count = chance.randint(1, 9)
        line = ["start"]
        for index in range(count):
            last = index == count - 1
            possible = [role for role in ROLES if (line[-1], role, last) in known]
            if not possible:
                break
            line.append(chance.choice(possible))
        ends = [end for end in ("end", "generate") if (line[-1], end, False) in known]
        if len(line) == count + 1 and ends:
            return [(role, _content(chance)) for role in line[1:]], chance.choice(ends) == "generate"


def _content(chance: random.Random) -> str:
    words = " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))
    return chance.choice(("", "", " ", "\n", " \n\t")) + words + chance.choice(("", "", " ", "\n"))
