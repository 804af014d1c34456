# SPDX-License-Identifier: Apache-2.0
"""What is trained is what is asked: the text before an answer is the same in a training row and in a prompt.

Published templates break this in three ways. Qwen3 puts an empty think block before the last answer and asks without
one; DeepSeek asks with `<think>` and stores answers without it; gpt-oss leaves the channel of an answer to the model.
An adapter that was trained after one text and is asked after another answers nothing that it was taught. So:

- the prompt ends with what stands before the answer in training, where one of the two texts begins the other;
- earlier answers get the same header, so that an answer in the middle of a conversation is trained as it is asked;
- spaces before the content stay the model's own to write, since they are part of its first token (Llama 2, Vicuna).

The end of an answer is learned too. Where no token ends it, the model's end token is put behind it.
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
    """The entries of `Turns` by (previous, next, last)."""

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
        """Give `target` the glue and the trims of `source`; whether that changed anything."""
        before = self.glue.get(target), self.trims.get(target)
        self.glue[target] = self.glue[source]
        trim = self.trims.get(source)
        self.trims.pop(target, None)
        if trim is not None:
            self.trims[target] = trim.model_copy(update={"last": target[2]})
        return before != (self.glue[target], self.trims.get(target))


def agrees(turns: Turns) -> bool:
    """Whether every prompt already ends as the training row of a last answer begins."""
    table = _Table.of(turns)
    return all(_fits(prompt, trained) for _, prompt, trained in _headers(table))


def with_trained_prompts(turns: Turns, note: Note) -> Turns:
    """Turns whose prompts and earlier answers have the header that the last answer has in training.

    `note` gets a sentence for each change. TemplateError, with both texts, where neither header begins the other.
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
        asked = table.glue[previous, "generate", False]
        if last in table.glue and earlier in table.glue and not _fits(asked, table.glue[earlier]):
            was = table.glue[earlier]
            table.copy(last, earlier)
            if previous == "user":
                note(
                    f"the chat template writes {was!r} before earlier answers; here {table.glue[earlier]!r}, as before the last"
                )
    _make_last_questions_ordinary(table, note)
    return table.turns()


def with_learned_ends(turns: Turns, added_tokens: Collection[str], eos: str | None, note: Note) -> Turns:
    """Turns whose answers end with a token or with words; with `eos` behind each where they end with neither."""
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
    """The token that ends earlier answers, which ends the last one too from now on; "" where they end with none."""
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
    """Whether a second answer in a row begins as the first does, by the header of each and of its prompt."""

    def header(previous: str) -> tuple[str, str]:
        prompt = glue.get((previous, "generate", False), "")
        trained = glue.get((previous, "assistant", True), glue.get((previous, "assistant", False), ""))
        same = len(shared_beginning([prompt, trained]))
        return prompt[same:], trained[same:]

    return header("user") == header("assistant")


def shared_beginning(texts: Sequence[str]) -> str:
    first, final = min(texts), max(texts)  # in sorting order: what these two share, all share
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, final, strict=False))
    return "".join(character for character, _ in same)


def _headers(table: _Table) -> Iterable[tuple[str, str, str]]:
    """(role before, end of the prompt, what stands before the content of an answer in training)."""
    for previous in ("start", *ROLES):
        prompt = table.glue.get((previous, "generate", False))
        trained = table.glue.get((previous, "assistant", True), table.glue.get((previous, "assistant", False)))
        if prompt is not None and trained is not None:
            yield previous, prompt, trained


def _fits(prompt: str, trained: str) -> bool:
    """Equal, but for spaces that become part of the answer's first token."""
    return trained.startswith(prompt) and not trained[len(prompt) :].strip(" ")


def _make_last_questions_ordinary(table: _Table, note: Note) -> None:
    """The question of a prompt is its last message, and never the last one of a training row that answers it."""
    for last in [key for key in table.glue if key[2] and key[1] in ("system", "user")]:
        ordinary = (*last[:2], False)
        was = table.glue[last]
        if ordinary in table.glue and table.copy(ordinary, last):
            note(
                f"the chat template writes {was!r} before a last message; here it is {table.glue[last]!r}, as before earlier ones"
            )
