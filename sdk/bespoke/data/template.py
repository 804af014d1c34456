# SPDX-License-Identifier: Apache-2.0
"""From a Jinja chat template to `Turns`: render short conversations of marked messages, read off what stands between.

Compiled are the orders (system) user assistant user ..., which a template must know; and, where the template renders
them with the same glue, orders beyond it (two user messages in a row, the assistant first). Everything is then checked
against the template on random conversations. Not covered, and so not said by the table: what a template does to
certain words within a content (Qwen3 cuts `<think>...</think>` out of earlier answers) or to one of white space alone
(GLM leaves out what stands before it); contents stay as given.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bespoke.data.answer_headers import (
    Note,
    agrees,
    continues_alike,
    shared_beginning,
    with_learned_ends,
    with_trained_prompts,
)
from bespoke.data.rendering import NotAllowed, Render, refusal, rendering
from bespoke.data.turns import ROLES, Ending, Glue, Role, Trim, Turns
from bespoke.errors import ModelError, TemplateError
from bespoke.format.plain_file import read_plain

__all__ = ["compile_turns", "find_template", "random_conversation"]

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
# Names by which templates let a caller turn the thinking of a model off.
_SWITCH = re.compile(r"\b(?:enable_thinking|\w*thinking\w*)\b")
MOST_SWITCHES = 4
WORDS = (
    "Hello",
    "what's",
    "the",
    "weather",
    "in",
    "Zürich",
    "?",
    "我明天",
    "不在",
    "🙂",
    "{{ x }}",
    "{% y %}",
    '"quoted"',
    "\\n",
    "'s",
    "1,024",
    "<b>",
    "&amp;",
    "line\nbreak",
    "tab\tstop",
    "two  spaces",
    "\n\n",
    "- item",
    "</s>",
    "<|im_end|>",
    "user",
)


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
    *,
    added_tokens: Collection[str] = (),
    note: Note = lambda words: None,
) -> Turns:
    """Compile a Jinja chat template, and hold the result against the template itself on random conversations.

    `special_tokens` are the names that a template uses (`bos_token`, `eos_token`). `date`, "2024-07-26", is what a
    template that prints today's date prints from now on. `variables` go to the template (`{"enable_thinking": False}`).
    `added_tokens` are the texts that the tokenizer makes one token of: no piece of a turn ends within one.

    A prompt ends as a training row begins. Where the template has it otherwise, its switches of thinking are tried, and what
    remains is made the same (answer_headers.py); `note` gets a sentence for each such change.

    TemplateError, with the two texts that differ, for a template whose glue depends on anything else.
    """
    first = _rendered(template, special_tokens, date, variables or {}, added_tokens)
    turns = first
    if not agrees(first):
        for name in () if variables else _switches(template):
            try:
                switched = _rendered(template, special_tokens, date, {name: False}, added_tokens)
            except TemplateError:
                continue
            if agrees(switched):
                note(f"the chat template is used with {name}=False, so that an answer is asked for as it is trained")
                turns = switched
                break
    return with_learned_ends(with_trained_prompts(turns, note), added_tokens, special_tokens.get("eos_token"), note)


def _rendered(
    template: str,
    special_tokens: Mapping[str, str],
    date: str | None,
    variables: Mapping[str, Any],
    added_tokens: Collection[str],
) -> Turns:
    with rendering(template, special_tokens, date, variables) as render:
        return _compiled(render, added_tokens)


def _switches(template: str) -> list[str]:
    found = dict.fromkeys(["enable_thinking", *sorted(set(_SWITCH.findall(template)))])
    return [name for name in found if name in template][:MOST_SWITCHES]


def _compiled(render: Render, added_tokens: Collection[str]) -> Turns:
    table = _base_table(render)
    for transition in OPTIONAL:
        wider = _with_transition(render, table, transition)
        if transition != ("assistant", "assistant") or continues_alike(wider):
            table = wider
    try:
        turns = _turns(render, table, added_tokens)
        _check(render, turns)
    except TemplateError:
        base = _base_table(render)  # what only the optional orders break is left out, not refused
        if base == table:
            raise
        turns = _turns(render, base, added_tokens)
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
            if not found and order[index] == "system":
                raise NotAllowed("it leaves out a message of the system")
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


def _turns(render: Render, table: Table, added_tokens: Collection[str]) -> Turns:
    glue = tuple(Glue(previous=p, next=n, last=last, text=text) for (p, n, last), text in sorted(table.items()))  # type: ignore[arg-type]
    endings = []
    for role in sorted(ROLES):
        if (role, "end", False) not in table:
            continue  # no text is known to end such a turn: what follows may be the next turn's header
        behind = [text for (previous, _, _), text in table.items() if previous == role]
        shared = _whole_tokens(shared_beginning(behind), behind, added_tokens)
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


def _whole_tokens(shared: str, texts: Sequence[str], added_tokens: Collection[str]) -> str:
    """The beginning `shared` of `texts`, ended before a token that some of them go on with."""
    for end in range(len(shared), 0, -1):
        parts = [
            (token, cut) for token in added_tokens for cut in range(1, len(token)) if shared[:end].endswith(token[:cut])
        ]
        if not any(text.startswith(token, end - cut) for token, cut in parts for text in texts):
            return shared[:end]
    return ""


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
    for _ in range(CHECKED_CONVERSATIONS):
        messages, generate = random_conversation(chance, turns)
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


def random_conversation(chance: random.Random, turns: Turns) -> tuple[list[tuple[Role, str]], bool]:
    """(role, content) messages in an order that the table knows, and whether an answer is asked for."""
    known: set[tuple[str, str, bool]] = {(g.previous, g.next, g.last) for g in turns.glue}
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
            return [(role, _content(chance)) for role in line[1:]], chance.choice(ends) == "generate"  # type: ignore[misc]


def _content(chance: random.Random) -> str:
    words = " ".join(chance.choices(WORDS, k=chance.randint(1, 12)))
    words = words if words.strip() else "user"
    return chance.choice(("", "", " ", "\n", " \n\t")) + words + chance.choice(("", "", " ", "\n"))
