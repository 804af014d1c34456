# SPDX-License-Identifier: Apache-2.0
"""Check at build time, with the model's own tokenizer, that the tokens of a row begin with the tokens of its prompt."""

from __future__ import annotations

import random
from itertools import takewhile

from bespoke.data.messages import read_messages
from bespoke.data.rendering import refusal
from bespoke.data.template import random_conversation
from bespoke.data.text import Tokenizer
from bespoke.data.turn_tokens import TurnEncoder
from bespoke.data.turns import Turns, protect_markers
from bespoke.errors import DataError

__all__ = ["check_trained_as_asked"]

CONVERSATIONS = 40
_SHOWN = 16  # tokens


def check_trained_as_asked(tokenizer: Tokenizer, turns: Turns) -> None:
    """Checks on random conversations that each answer's row begins with its prompt and is trained from there on.

    TemplateError, with both texts, if a row does not.
    """
    protect_markers(tokenizer, turns)
    encoder = TurnEncoder(tokenizer, turns)
    chance = random.Random(0)
    for _ in range(CONVERSATIONS):
        conversation, _ = random_conversation(chance, turns)
        messages = [{"role": role, "content": content} for role, content in conversation]
        for last, (role, _) in enumerate(conversation):
            before = conversation[last - 1][0] if last else "start"
            if role == "assistant" and turns.knows(before, "generate", False):
                _check_answer(encoder, tokenizer, turns, messages[: last + 1])


def _check_answer(encoder: TurnEncoder, tokenizer: Tokenizer, turns: Turns, conversation: list[dict[str, str]]) -> None:
    try:
        messages = read_messages(conversation, "messages")
        row = encoder.encode(turns.pieces(messages, False, "messages"), "messages")
        prompt = encoder.encode(turns.pieces(messages[:-1], True, "prompt"), "prompt").tokens if messages[1:] else []
    except DataError:  # random words that this tokenizer turns into the template's own tokens
        return
    tokens, pieces = row.tokens, [row.pieces[number] for number in row.piece_of]
    if not any(piece.role == "assistant" and piece.is_content for piece in pieces):  # no words to train on
        return
    # What is trained on: the assistant's contents and endings, but no first token, since nothing stands before it.
    mask = [0, *(int(piece.role == "assistant") for piece in pieces[1:])]
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, tokens, strict=False)))
    trained_from = mask.index(1, min(len(prompt), len(mask) - 1)) if any(mask[len(prompt) :]) else len(mask)
    if same < len(prompt) or (prompt and trained_from != len(prompt)):
        begin = max(0, min(same, len(prompt)) - _SHOWN)
        raise refusal(
            got=f"{tokenizer.decode(tokens[begin : len(prompt) + _SHOWN], False)!r} in a row that is trained",
            expected=f"the end of this answer's prompt, {tokenizer.decode(prompt[begin:], False)!r}, and then trained words",
            next_step="Use prompt and completion instead of messages, or another template",
        )
