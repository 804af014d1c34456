# SPDX-License-Identifier: Apache-2.0
"""From an example to rows of tokens with an explicit loss mask: once, when an example is added, never while training.

Token i + 1 is predicted from tokens 0 .. i, so a row of n tokens has n - 1 positions, and mask[i] says whether token i
is trained on; mask[0] is 0. Which tokens are:

- `messages`: contents of the roles that `train_on` names, each with the ending of its turn ("all": of every role); the
  template's other text never;
- `prompt` + `completion`: the completion and the eos token behind it; with "all" the prompt too;
- `text`: every token, each exactly once. A long text becomes windows. Where the model begins texts with bos, each
  window does, and windows do not overlap; elsewhere a window begins with the last token of the one before;
- `tokens` (+ `mask`): as given; without a mask like `text`.

A prompt is tokenized as `generate` will tokenize it and the completion goes on from there: together they read prompt +
completion, and the border between them is always a border of tokens, as it is when the model answers. So a space
between the two belongs at the start of the completion, where most vocabularies have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bespoke.data.rows import Encoded, TokenRow, text_rows
from bespoke.data.shapes import shape_of
from bespoke.data.text import Tokenizer
from bespoke.data.turns import ROLES, Turns, protect_markers, stop_ids
from bespoke.errors import ConfigError, DataError, kind_of

__all__ = ["Encoded", "ExampleEncoder", "TokenRow", "TrainOn"]

TrainOn = Literal["assistant", "user", "all"]
_TRAIN_ON = ("assistant", "user", "all")


class ExampleEncoder:
    """Tokenizes examples for one model. `max_length` is the most positions of a row, which has one token more.

    `tokenizer` None: the bundle takes token ids only. `turns` None: the model has no chat template. `vocab_size` bounds
    given token ids; by default the tokenizer's.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        turns: Turns | None,
        train_on: TrainOn = "assistant",
        max_length: int = 256,
        *,
        vocab_size: int | None = None,
    ) -> None:
        if train_on not in _TRAIN_ON:
            raise ConfigError(
                "train_on", got=repr(train_on), expected=f"one of {', '.join(_TRAIN_ON)}", next_step="Change train_on"
            )
        if max_length < 1:
            raise ConfigError(
                "max_length", got=str(max_length), expected="1 or more positions", next_step="Change max_length"
            )
        self.tokenizer = tokenizer
        self.turns = turns
        self.train_on: TrainOn = train_on
        self.max_length = max_length
        self.vocab_size = vocab_size if vocab_size is not None else tokenizer.vocab_size if tokenizer else None
        if tokenizer is not None and turns is not None:
            protect_markers(tokenizer, turns)

    def encode(self, example: Mapping[str, Any], subject: str = "example") -> Encoded:
        """Rows of `example`; DataError, naming `subject`, where it cannot be used or nothing of it would be trained."""
        encoded = self.try_encode(example, subject)
        if encoded.untrained is not None:
            raise encoded.untrained
        return encoded

    def try_encode(self, example: Mapping[str, Any], subject: str = "example") -> Encoded:
        """Like `encode`, but an example of which nothing would be trained gives no rows instead of an error."""
        encoded = self._encoded(example, subject)
        return encoded if encoded.trained_tokens else replace(encoded, untrained=self._nothing_to_train(example, subject))

    def _encoded(self, example: Mapping[str, Any], subject: str) -> Encoded:
        shape = shape_of(example, subject)
        if shape == "messages":
            return self._encode_messages(example["messages"], subject)
        if shape == "prompt_completion":
            return self._encode_pair(example["prompt"], example["completion"], subject)
        if shape == "preference":
            raise DataError(
                subject, got="a chosen and a rejected answer", expected="messages, prompt and completion, or text",
                next_step="Give the chosen answer as the completion",
            )  # fmt: skip
        if shape == "text":
            tokenizer = self._need_tokenizer(subject)
            return self._windows(self._content(tokenizer, example["text"], f"{subject}.text"), tokenizer.bos_id)
        return self._encode_ids(example["tokens"], example.get("mask"), subject)

    def prompt_ids(self, prompt: str | Sequence[Any]) -> list[int]:
        """Tokens to answer: of messages with the header of the answer, of a plain text with bos where there is one, or
        token ids as they are."""
        if isinstance(prompt, str):
            tokenizer = self._need_tokenizer("prompt")
            return self._begin(tokenizer) + self._content(tokenizer, prompt, "prompt")
        if len(prompt) and all(_is_int(token) for token in prompt):
            return self._ids(prompt, "prompt").tolist()
        return self._message_tokens(prompt, "prompt", generate=True)[0]

    def token_ids(self, prompt: Any) -> list[int]:
        """Token ids as they are, where they are some."""
        return self._ids(prompt, "prompt").tolist()

    def stop_ids(self) -> set[int]:
        """Tokens that end an answer: eos, and the token that ends the assistant's turn."""
        return stop_ids(self.tokenizer, self.turns) if self.tokenizer is not None else set()

    # The shapes.

    def _encode_messages(self, messages: Any, subject: str) -> Encoded:
        tokens, mask, trained_contents = self._message_tokens(messages, f"{subject}.messages", generate=False)
        if not trained_contents:
            return _nothing()  # an ending alone would teach the model to say nothing
        return self._one_row(tokens, mask)

    def _message_tokens(self, messages: Any, subject: str, generate: bool) -> tuple[list[int], list[int], int]:
        """Tokens, mask, and how many of the tokens are trained content."""
        tokenizer = self._need_tokenizer(subject)
        if self.turns is None:
            raise DataError(
                subject,
                got="messages, for a model without a chat template",
                expected="text, or prompt and completion",
                next_step='Give {"prompt": ..., "completion": ...} or {"text": ...}',
            )
        roles = ROLES if self.train_on == "all" else (self.train_on,)
        tokens: list[int] = []
        mask: list[int] = []
        trained_contents = 0
        for piece in self.turns.render(messages, generate, subject):
            previous = tokens[-1] if tokens else None
            if piece.is_content:
                ids = self._content(tokenizer, piece.text, subject, previous)
            else:
                ids = tokenizer.encode_template(piece.text, previous=previous)
            trained = piece.role in roles
            tokens += ids
            mask += [int(trained)] * len(ids)
            trained_contents += len(ids) if trained and piece.is_content else 0
        return tokens, mask, trained_contents

    def _encode_pair(self, prompt: Any, completion: Any, subject: str) -> Encoded:
        tokenizer = self._need_tokenizer(subject)
        first = self._begin(tokenizer) + self._content(tokenizer, prompt, f"{subject}.prompt")
        answer = self._content(tokenizer, completion, f"{subject}.completion", first[-1] if prompt else None)
        if not answer:
            return _nothing()
        answer += [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        return self._one_row(first + answer, [int(self.train_on == "all")] * len(first) + [1] * len(answer))

    def _encode_ids(self, tokens: Any, mask: Any, subject: str) -> Encoded:
        ids = self._ids(tokens, f"{subject}.tokens")
        if mask is None:
            return self._windows(ids.tolist(), None)
        if not isinstance(mask, Sequence | np.ndarray) or len(mask) != len(ids) or not all(_is_bit(m) for m in mask):
            raise DataError(
                f"{subject}.mask",
                got=f"{len(mask)} entries" if isinstance(mask, Sequence | np.ndarray) else kind_of(mask),
                expected=f"{len(ids)} times 0 or 1, one per token",
                next_step="Give 1 for each token that is to be trained, or leave the mask out to train all",
            )
        return self._one_row(ids.tolist(), [int(m) for m in mask])

    # Rows.

    def _windows(self, tokens: list[int], bos: int | None) -> Encoded:
        rows = text_rows(tokens, bos, self.max_length)
        return _encoded(rows, len(rows))

    def _one_row(self, tokens: list[int], mask: list[int]) -> Encoded:
        mask[:1] = [0] * len(mask[:1])
        if not any(mask):
            return _nothing()
        kept, kept_mask = self._fit(tokens, mask)
        return _encoded([_row(kept, kept_mask)], 1, len(tokens) - len(kept), sum(mask) - sum(kept_mask))

    def _fit(self, tokens: list[int], mask: list[int]) -> tuple[list[int], list[int]]:
        """At most max_length + 1 tokens: what follows the last trained token goes first, then the oldest context (bos
        stays); of a trained stretch that is itself too long, the beginning stays with one token before it."""
        room = self.max_length + 1
        if len(tokens) <= room:
            return tokens, mask
        end = len(mask) - mask[::-1].index(1)
        if end <= room:
            return tokens[:end], mask[:end]
        start = end - 1
        while mask[start - 1]:
            start -= 1
        with_bos = self.tokenizer is not None and tokens[0] == self.tokenizer.bos_id
        if end - start >= room:
            first = 0 if with_bos else start - 1
            return [tokens[first], *tokens[start : start + room - 1]], [0] + [1] * (room - 1)
        if with_bos:
            return [tokens[0], *tokens[end - room + 1 : end]], [0, *mask[end - room + 1 : end]]
        return tokens[end - room : end], [0, *mask[end - room + 1 : end]]

    # Parts.

    def _begin(self, tokenizer: Tokenizer) -> list[int]:
        return [] if tokenizer.bos_id is None else [tokenizer.bos_id]

    def _content(self, tokenizer: Tokenizer, text: Any, subject: str, previous: int | None = None) -> list[int]:
        if not isinstance(text, str):
            raise DataError(subject, got=kind_of(text), expected="text", next_step="Give it as one string")
        try:
            return tokenizer.encode(text, previous=previous)
        except DataError as error:
            raise DataError(subject, got=error.got, expected=error.expected, next_step=error.next_step) from None

    def _ids(self, tokens: Any, subject: str) -> npt.NDArray[np.int32]:
        largest = (self.vocab_size or 2**31) - 1
        whole = isinstance(tokens, Sequence | np.ndarray) and not isinstance(tokens, str | bytes)
        wrong = [t for t in tokens if not _is_int(t) or not 0 <= t <= largest] if whole else [tokens]
        if wrong or not len(tokens):
            raise DataError(
                subject,
                got=repr(wrong[0])[:100] if wrong else "no tokens",
                expected=f"a list of token ids from 0 to {largest}",
                next_step="Tokenize with the tokenizer of the bundle's own model",
            )
        return np.asarray(tokens, dtype=np.int32)

    def _need_tokenizer(self, subject: str) -> Tokenizer:
        if self.tokenizer is None:
            raise DataError(
                subject,
                got="text, but this bundle takes token ids only",
                expected='{"tokens": [...], "mask": [...]}',
                next_step="Tokenize with the model's own tokenizer and give the ids",
            )
        return self.tokenizer

    def _nothing_to_train(self, example: Mapping[str, Any], subject: str) -> DataError:
        """Why `try_encode` gave no rows for `example`."""
        if "messages" in example:
            has = sorted({m["role"] for m in example["messages"]})
            missing = self.train_on != "all" and self.train_on not in has
            return DataError(
                subject,
                got=f"messages of {' and '.join(has)}" + ("" if missing else ", without words"),
                expected=f"words of the {self.train_on}, which train_on={self.train_on!r} trains",
                next_step=f"Add a message of the {self.train_on}, or build with train_on={has[0]!r} or 'all'"
                if missing and has[0] in _TRAIN_ON
                else "Leave this example out",
            )
        return DataError(
            subject,
            got="nothing to train on: empty, a single token, or every token masked",
            expected="at least one token that is trained on",
            next_step="Leave this example out",
        )


def _row(tokens: list[int], mask: list[int]) -> TokenRow:
    return TokenRow(np.asarray(tokens, dtype=np.int32), np.asarray(mask, dtype=np.uint8))


def _encoded(rows: list[TokenRow], windows: int, truncated: int = 0, truncated_trained: int = 0) -> Encoded:
    tokens = sum(len(row.tokens) for row in rows)
    return Encoded(rows, tokens, sum(int(row.mask.sum()) for row in rows), truncated, truncated_trained, windows)


def _nothing() -> Encoded:
    return Encoded([], 0, 0, 0, 0, 0)


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_bit(value: Any) -> bool:
    return isinstance(value, int | np.integer | np.bool_) and value in (0, 1)
