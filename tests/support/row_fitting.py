# SPDX-License-Identifier: Apache-2.0
"""A row that is longer than the longest sequence (bindings/native/src/text/row_fitting.h).

What follows the last trained token goes first. An answer that fits stays whole, and of its prompt the end. Of an
answer that does not fit by itself the beginning stays, without what would end it, behind half a row of prompt, or all
of a shorter one: so a model learns how such an answer begins, and not to stop there. A token of bos stays in front.
Older answers are trained on from their beginning or not at all.
"""

from __future__ import annotations

__all__ = ["Row", "fitted", "fitted_range", "kept_of", "prompt_room", "trained_end", "with_prompt_of"]

Row = tuple[list[int], list[int]]  # tokens, mask


def trained_end(mask: list[int]) -> int:
    """The place behind the last trained token."""
    return len(mask) - mask[::-1].index(1) if any(mask) else 0


def prompt_room(prompt: int, answer: int, room: int) -> int:
    """How many tokens of a prompt find room before an answer, of `room` for both."""
    return min(prompt, room - answer if answer < room else room // 2)


def with_prompt_of(row: Row, answer: int, prompt: int, with_bos: bool, room: int) -> Row:
    """At most `room` tokens of a row whose answer begins at `answer`: `prompt` tokens before it, then as many as find room."""
    begin = answer - prompt + (with_bos and prompt < answer)
    return kept_of(row, begin, begin + room - (with_bos and begin > 0), with_bos)


def fitted(row: Row, with_bos: bool, whole_answers: bool, room: int) -> Row:
    """At most `room` tokens of a row whose answers are its trained stretches. `whole_answers`: one that begins before the row is
    left out."""
    return kept_of(row, *fitted_range(row[1], with_bos, whole_answers, room), with_bos)


def fitted_range(mask: list[int], with_bos: bool, whole_answers: bool, room: int) -> tuple[int, int]:
    """Which tokens of a row `fitted` keeps: from the first of these to before the second, and bos where the first is not 0."""
    if len(mask) <= room:
        return 0, len(mask)
    end = trained_end(mask)
    if end <= room:
        return 0, end
    answer = end - 1
    while answer and mask[answer - 1]:
        answer -= 1
    prompt = prompt_room(answer, end - answer, room)
    begin = answer - prompt + (with_bos and prompt < answer)
    while whole_answers and begin < answer and mask[begin]:
        begin += 1
    if begin == answer and begin > 0 and not with_bos:
        begin -= 1  # its first token is predicted from one before it
    return begin, min(end, begin + room - (with_bos and begin > 0))


def kept_of(row: Row, begin: int, end: int, with_bos: bool) -> Row:
    """Bos, where the row has it and loses more than that, then the tokens from `begin` to before `end`."""
    tokens, mask = row
    bos = with_bos and begin > 0
    kept = tokens[:bos] + tokens[begin:end]
    return kept, [0, *(mask[:bos] + mask[begin:end])[1:]]
