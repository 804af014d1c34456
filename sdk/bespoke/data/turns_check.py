# SPDX-License-Identifier: Apache-2.0
"""Check at build time, with the model's own tokenizer, that the tokens of a row begin with the tokens of its prompt."""

from __future__ import annotations

import random
from itertools import takewhile

from bespoke.data.encode import ExampleEncoder
from bespoke.data.rendering import refusal
from bespoke.data.template import random_conversation
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns
from bespoke.errors import DataError

__all__ = ["check_trained_as_asked"]

CONVERSATIONS = 40
_ANY_LENGTH = 1 << 20  # positions
_SHOWN = 16  # tokens


def check_trained_as_asked(tokenizer: Tokenizer, turns: Turns) -> None:
    """Checks on random conversations that each answer's row begins with its prompt and is trained from there on.

    TemplateError, with both texts, if a row does not.
    """
    encoder = ExampleEncoder(tokenizer, turns, "assistant", _ANY_LENGTH)
    chance = random.Random(0)
    for _ in range(CONVERSATIONS):
        conversation, _ = random_conversation(chance, turns)
        messages = [{"role": role, "content": content} for role, content in conversation]
        for last, (role, _) in enumerate(conversation):
            before = conversation[last - 1][0] if last else "start"
            if role == "assistant" and turns.knows(before, "generate", False):
                _check_answer(encoder, tokenizer, messages[: last + 1])


def _check_answer(encoder: ExampleEncoder, tokenizer: Tokenizer, messages: list[dict[str, str]]) -> None:
    try:
        row = encoder.encode({"messages": messages}).rows[0]
        prompt = encoder.prompt_ids(messages[:-1]) if len(messages) > 1 else []
    except DataError:  # random words that this tokenizer turns into the template's own tokens
        return

    tokens, mask = row.tokens.tolist(), row.mask.tolist()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt, tokens, strict=False)))
    trained_from = mask.index(1, min(len(prompt), len(mask) - 1)) if any(mask[len(prompt) :]) else len(mask)
    if same < len(prompt) or (prompt and trained_from != len(prompt)):
        begin = max(0, min(same, len(prompt)) - _SHOWN)
        raise refusal(
            got=f"{tokenizer.decode(tokens[begin : len(prompt) + _SHOWN], False)!r} in a row that is trained",
            expected=f"the end of this answer's prompt, {tokenizer.decode(prompt[begin:], False)!r}, and then trained words",
            next_step="Use prompt and completion instead of messages, or another template",
        )
