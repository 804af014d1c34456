# SPDX-License-Identifier: Apache-2.0
"""Compiles a Jinja chat template to `Turns`: renders short conversations of marked messages and reads off the text between them.

A template must know the orders (system) user assistant user ... Other orders, such as two user messages in a row or the assistant
first, are compiled if the template renders them with the same glue. The result is checked against the template on random
conversations.

Contents stay as they are. So two things that templates do are not compiled: changes within a content (Qwen3 cuts
`<think>...</think>` out of earlier answers), and a different text before a content of white space alone (GLM).
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

# (previous, next, last) to the text between the two messages, as in `Glue`.
GlueTable = dict[tuple[str, str, bool], str]

# Most messages of a rendered conversation. With 5, each (previous, next, last) occurs in two different conversations.
LONGEST = 5
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
# The characters of str.isspace(), which Jinja's `trim` strips.
WHITESPACE = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_FIRST: tuple[tuple[Role, ...], ...] = ((), ("system",))
_ALTERNATING: tuple[Role, Role] = ("user", "assistant")
# Variables by which a template lets its caller turn the model's thinking off.
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
    """The chat template of a model folder, from chat_template.jinja or else tokenizer_config.json. None if it has none."""
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
    """Compiles a Jinja chat template and checks the result against the template on random conversations.

    A prompt ends as a training row begins its answer. If the template does otherwise, its switches for thinking are tried. The
    remaining differences are removed (answer_headers.py).

    Args:
        template: the text of the template.
        special_tokens: the tokens that a template may use by name (`bos_token`, `eos_token`).
        date: the day, such as "2024-07-26", for a template that prints today's date.
        variables: further variables of the template, such as `{"enable_thinking": False}`.
        added_tokens: the texts that are one token of the tokenizer. No piece of a turn ends within one.
        note: gets a sentence for each change to the template's behaviour.

    Raises:
        TemplateError: with the two texts that differ, for a template whose glue depends on more than the roles.
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
    """Names in the template that may turn thinking off, enable_thinking first."""
    names = dict.fromkeys(["enable_thinking", *sorted(set(_SWITCH.findall(template)))])
    return [name for name in names if name in template][:MOST_SWITCHES]


def _compiled(render: Render, added_tokens: Collection[str]) -> Turns:
    """The turns of a template, with as many optional orders as it renders with the same glue."""
    table = _base_table(render)
    for transition in OPTIONAL:
        wider = _with_transition(render, table, transition)
        if transition != ("assistant", "assistant") or continues_alike(wider):
            table = wider

    try:
        turns = _turns(render, table, added_tokens)
        _check(render, turns)
    except TemplateError:
        base = _base_table(render)  # a template that only the optional orders break is compiled without them
        if base == table:
            raise
        turns = _turns(render, base, added_tokens)
        _check(render, turns)
    return turns


def _mark(index: int) -> str:
    return f"␂{index}␃"


def _orders(longest: int) -> Iterator[tuple[Role, ...]]:
    """Yields the orders (system) user assistant user ..., up to `longest` messages."""
    for count in range(1, longest + 1):
        for first in _FIRST:
            body = count - len(first)
            if body >= 1:
                yield (*first, *(_ALTERNATING[i % 2] for i in range(body)))


def _base_table(render: Render) -> GlueTable:
    """The glue of the orders that every template must know. TemplateError if it does not render one user message."""
    table: GlueTable = {}
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


def _read_off(render: Render, order: Sequence[Role], generate: bool, table: GlueTable) -> None:
    """Adds the glue of one conversation to `table`. TemplateError if an entry of the table contradicts it."""
    rest = render([(role, _mark(i)) for i, role in enumerate(order)], generate)
    line = ["start", *order, "generate" if generate else "end"]
    for index in range(len(order) + 1):
        if index < len(order):
            before, mark, rest = rest.partition(_mark(index))
            if not mark and order[index] == "system":
                raise NotAllowed("it leaves out a message of the system")
            if not mark or _mark(index) in rest:
                raise refusal(
                    got=f"the content of message {index} of {' '.join(order)} {'twice' if mark else 'nowhere'}",
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


def _with_transition(render: Render, table: GlueTable, transition: tuple[str, str]) -> GlueTable:
    """The table with one more transition between roles, or `table` itself if the template does not allow it."""
    known = {(previous, following) for previous, following, _ in table} | {transition}
    wider = dict(table)
    is_rendered = False
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
                is_rendered = True
    return wider if is_rendered else table


def _turns(render: Render, table: GlueTable, added_tokens: Collection[str]) -> Turns:
    glue = tuple(Glue(previous=p, next=n, last=last, text=text) for (p, n, last), text in sorted(table.items()))  # type: ignore[arg-type]
    endings = []
    for role in sorted(ROLES):
        if (role, "end", False) not in table:
            continue  # without the end of a conversation, the end of this turn and the next header cannot be separated
        behind = [text for (previous, _, _), text in table.items() if previous == role]
        shared = _whole_tokens(shared_beginning(behind), behind, added_tokens)
        # White space behind the closing token is cut off, because generation stops at the token.
        shared = shared.rstrip() or shared
        if shared:
            endings.append(Ending(role=role, text=shared))

    trims = []
    for previous, following, last in sorted(table):
        conversation = _order_with(table, previous, following, last)
        left, right = _trimmed(render, *conversation) if conversation is not None else ("", "")
        if left or right:
            trims.append(Trim(previous=previous, role=following, last=last, left=left, right=right))  # type: ignore[arg-type]
    return Turns(glue=glue, trims=tuple(trims), endings=tuple(endings))


def _whole_tokens(shared: str, texts: Sequence[str], added_tokens: Collection[str]) -> str:
    """The beginning `shared` of `texts`, cut so that it does not end within an added token of any text."""
    for end in range(len(shared), 0, -1):
        parts = [
            (token, cut) for token in added_tokens for cut in range(1, len(token)) if shared[:end].endswith(token[:cut])
        ]
        if not any(text.startswith(token, end - cut) for token, cut in parts for text in texts):
            return shared[:end]
    return ""


def _order_with(table: GlueTable, previous: str, following: str, last: bool) -> tuple[list[Role], int] | None:
    """A known conversation with this transition, and the place of the message behind it. None if that is not a message."""
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
    """The white space that the template strips before and behind the content at `place`."""

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
    """Checks the turns against the template on random conversations. TemplateError for a text that differs."""
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
    """Random (role, content) messages in an order that the turns know, and whether they are a prompt."""
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
