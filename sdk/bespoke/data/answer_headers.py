# SPDX-License-Identifier: Apache-2.0
"""Aligns the text before an answer: a prompt ends exactly as a training row begins its answer.

Published chat templates break this in three ways. Qwen3 puts an empty think block before the last answer and prompts without one.
DeepSeek prompts with `<think>` and stores answers without it. gpt-oss leaves the channel of an answer to the model. An adapter
that is trained after one text and prompted with another does not give the answers that it learned. So:

- The prompt ends with the text that stands before the answer in training, if one of the two texts begins with the other.
- Earlier answers get the same header, so an answer in the middle of a conversation is trained as it is prompted.
- Spaces before the content are left to the model, since they are part of its first token (Llama 2, Vicuna).

The end of an answer is learned too. If no token ends it, the model's end token is put behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from bespoke.data.rendering import refusal
from bespoke.data.turns import ROLES, Ending, Glue, Trim, Turns

__all__ = ["Note", "agrees", "continues_alike", "shared_beginning", "with_learned_ends", "with_trained_prompts"]

Note = Callable[[str], None]
Key = tuple[str, str, bool]


@dataclass
class _Table:
    """The entries of `Turns`, keyed by (previous, next, last), while they are changed."""

    glue: dict[Key, str]
    trims: dict[Key, Trim]
    endings: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, turns: Turns) -> _Table:
        glue: dict[Key, str] = {(g.previous, g.next, g.last): g.text for g in turns.glue}
        trims: dict[Key, Trim] = {(t.previous, t.role, t.last): t for t in turns.trims}
        return cls(glue, trims, {e.role: e.text for e in turns.endings})

    def turns(self) -> Turns:
        glue = tuple(Glue(previous=p, next=n, last=last, text=text) for (p, n, last), text in sorted(self.glue.items()))  # type: ignore[arg-type]
        trims = tuple(trim for _, trim in sorted(self.trims.items()))
        endings = tuple(Ending(role=role, text=text) for role, text in sorted(self.endings.items()))  # type: ignore[arg-type]
        return Turns(glue=glue, trims=trims, endings=endings)

    def copy(self, source: Key, target: Key) -> bool:
        """Gives `target` the glue and the trims of `source`. Returns whether that changed anything."""
        before = self.glue.get(target), self.trims.get(target)
        self.glue[target] = self.glue[source]
        trim = self.trims.get(source)
        self.trims.pop(target, None)
        if trim is not None:
            self.trims[target] = trim.model_copy(update={"last": target[2]})
        return before != (self.glue[target], self.trims.get(target))


def agrees(turns: Turns) -> bool:
    """Whether every prompt already ends with the header that the last answer has in training."""
    table = _Table.of(turns)
    return all(_fits(prompt, trained) for _, prompt, trained in _headers(table))


def with_trained_prompts(turns: Turns, note: Note) -> Turns:
    """Returns turns whose prompts and earlier answers have the header that the last answer has in training.

    `note` gets a sentence for each change. TemplateError, with both texts, if neither header begins with the other.
    """
    table = _Table.of(turns)
    for previous, prompt, trained in _headers(table):
        if not _fits(prompt, trained):
            if not (trained.startswith(prompt) or prompt.startswith(trained)):
                raise refusal(
                    got=f"{prompt!r} at the end of a prompt, and {trained!r} before an answer that is trained",
                    expected="one text that begins the other, so that an answer can be trained as it is asked",
                    next_step="Use prompt and completion instead of messages, or another template",
                )
            table.glue[previous, "generate", False] = trained
            if previous == "user":  # the other roles show the same
                note(
                    f"the chat template ends a prompt with {prompt!r}; here it ends with {trained!r}, as rows that are trained"
                )

        last, earlier = (previous, "assistant", True), (previous, "assistant", False)
        prompt = table.glue[previous, "generate", False]
        if last in table.glue and earlier in table.glue and not _fits(prompt, table.glue[earlier]):
            before = table.glue[earlier]
            table.copy(last, earlier)
            if previous == "user":
                after = table.glue[earlier]
                note(f"the chat template writes {before!r} before earlier answers; here {after!r}, as before the last")

    _make_last_questions_ordinary(table, note)
    return table.turns()


def with_learned_ends(turns: Turns, added_tokens: Collection[str], eos: str | None, note: Note) -> Turns:
    """Returns turns whose answers end with a token or with words. If they end with neither, `eos` is put behind each."""
    table = _Table.of(turns)
    ending = table.endings.get("assistant", "") or _same_end(table, added_tokens, note)
    if ending.strip():
        if not any(token in ending for token in added_tokens):
            note(f"no token ends an answer of this chat template: an answer ends before the words {ending.strip()!r}")
        return table.turns()

    if not eos:
        note(
            "no token ends an answer of this chat template, and the model names no eos_token: answers end at max_tokens"
        )
        return turns

    for key in [key for key in table.glue if key[0] == "assistant"]:
        table.glue[key] = eos + table.glue[key]
    table.endings["assistant"] = eos
    note(f"no token ends an answer of this chat template: {eos!r} is put behind each, so that the model learns to stop")
    return table.turns()


def _same_end(table: _Table, added_tokens: Collection[str], note: Note) -> str:
    """Ends the last answer with the token that ends earlier ones. Returns this token, "" if they end with none."""
    earlier = table.glue.get(("assistant", "user", False), "")
    token = max((token for token in added_tokens if token and earlier.startswith(token)), key=len, default="")
    last = ("assistant", "end", False)
    others = [text for key, text in table.glue.items() if key[0] == "assistant" and key != last]
    if not token or last not in table.glue or not all(text.startswith(token) for text in others):
        return ""

    note(
        f"the chat template ends the last answer with {table.glue[last]!r}; here it ends with {token!r}, as earlier ones"
    )
    table.glue[last] = table.endings["assistant"] = token
    return token


def continues_alike(glue: Mapping[Key, str]) -> bool:
    """Whether a second answer in a row has the same header as the first, in training and in the prompt."""

    def header(previous: str) -> tuple[str, str]:
        prompt = glue.get((previous, "generate", False), "")
        trained = glue.get((previous, "assistant", True), glue.get((previous, "assistant", False), ""))
        same = len(shared_beginning([prompt, trained]))
        return prompt[same:], trained[same:]

    return header("user") == header("assistant")


def shared_beginning(texts: Sequence[str]) -> str:
    """The longest text that all of `texts` begin with."""
    first, final = min(texts), max(texts)  # in sorting order: what these two share, all share
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, final, strict=False))
    return "".join(character for character, _ in same)


def _headers(table: _Table) -> Iterable[tuple[str, str, str]]:
    """Yields (role before, end of the prompt, text before the content of an answer in training)."""
    for previous in ("start", *ROLES):
        prompt = table.glue.get((previous, "generate", False))
        trained = table.glue.get((previous, "assistant", True), table.glue.get((previous, "assistant", False)))
        if prompt is not None and trained is not None:
            yield previous, prompt, trained


def _fits(prompt: str, trained: str) -> bool:
    """Whether the two are equal, apart from spaces that become part of the answer's first token."""
    return trained.startswith(prompt) and not trained[len(prompt) :].strip(" ")


def _make_last_questions_ordinary(table: _Table, note: Note) -> None:
    """Gives a last question the glue of earlier ones: it is the last message of its prompt but not of its training row."""
    for last in [key for key in table.glue if key[2] and key[1] in ("system", "user")]:
        ordinary = (*last[:2], False)
        before = table.glue[last]
        if ordinary in table.glue and table.copy(ordinary, last):
            after = table.glue[last]
            note(
                f"the chat template writes {before!r} before a last message; here it is {after!r}, as before earlier ones"
            )
