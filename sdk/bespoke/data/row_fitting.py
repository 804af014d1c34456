# SPDX-License-Identifier: Apache-2.0
"""A row that is longer than the longest sequence (bindings/native/src/text/row_fitting.h).

What follows the last trained token goes first. An answer that fits stays whole, and of its prompt the end. Of an
answer that does not fit by itself the beginning stays, without what would end it, behind half a row of prompt, or all
of a shorter one: so a model learns how such an answer begins, and not to stop there. A token of bos stays in front.
Older answers are trained on from their beginning or not at all.
"""

from __future__ import annotations

__all__ = ["fitted", "prompt_room", "trained_end", "with_prompt_of"]

Row = tuple[list[int], list[int]]  # tokens, mask


def trained_end(mask: list[int]) -> int:
    """The place behind the last trained token."""
    return len(mask) - mask[::-1].index(1) if any(mask) else 0


def prompt_room(prompt: int, answer: int, room: int) -> int:
    """How many tokens of a prompt find room before an answer, of `room` for both."""
    return min(prompt, room - answer if answer < room else room // 2)


def with_prompt_of(row: Row, answer: int, prompt: int, with_bos: bool, room: int) -> Row:
    """At most `room` tokens of a row whose answer begins at `answer`: `prompt` tokens before it, then as many as find room."""
    return _from(row, answer - prompt + (with_bos and prompt < answer), with_bos, room)


def fitted(row: Row, with_bos: bool, whole_answers: bool, room: int) -> Row:
    """At most `room` tokens of a row whose answers are its trained stretches. `whole_answers`: one that begins before the row is
    left out."""
    tokens, mask = row
    if len(tokens) <= room:
        return row
    end = trained_end(mask)
    if end <= room:
        return tokens[:end], mask[:end]
    answer = end - 1
    while answer and mask[answer - 1]:
        answer -= 1
    prompt = prompt_room(answer, end - answer, room)
    begin = answer - prompt + (with_bos and prompt < answer)
    while whole_answers and begin < answer and mask[begin]:
        begin += 1
    if begin == answer and begin > 0 and not with_bos:
        begin -= 1  # its first token is predicted from one before it
    return _from((tokens[:end], mask[:end]), begin, with_bos, room)


def _from(row: Row, begin: int, with_bos: bool, room: int) -> Row:
    """Bos, where the row has it and loses more than that, then the tokens from `begin` on."""
    tokens, mask = row
    bos = tokens[:1] if with_bos and begin > 0 else []
    kept = bos + tokens[begin : begin + room - len(bos)]
    return kept, [0, *(mask[:1] * len(bos) + mask[begin:])[1 : len(kept)]]
