# SPDX-License-Identifier: Apache-2.0
"""An encoder of examples next to the shipped one (bindings/native/src/text/examples.h), which tests hold that one against.

It makes rows of tokens with an explicit loss mask. It refuses preferences, which the shipped encoder takes.

Token i + 1 is predicted from tokens 0 .. i, so a row of n tokens has n - 1 positions, and mask[i] says whether token i
is trained on; mask[0] is 0. Which tokens are:

- `messages`: contents of the roles that `train_on` names, each with the ending of its turn ("all": of every role), but of
  no message with weight 0; the template's other text never;
- `prompt` + `completion`: the completion and what ends it; with "all" the prompt too. Where the model has a chat
  template they are a question and its answer in the chat, since that is how they are asked; `"as": "text"` keeps them
  as they are, with the eos token behind;
- `text`: every token and the eos token behind it, each exactly once; `"end": "none"` for a text that goes on. A long
  text becomes windows. Where the model begins texts with bos, each window does, and windows do not overlap; elsewhere
  a window begins with the last token of the one before;
- `tokens` (+ `mask`): as given; without a mask like `text`.

Messages are tokenized as the template's whole text (turn_tokens.py). A conversation that is too long becomes several rows
(conversation_rows.py); what else is too long is cut (row_fitting.py).

A prompt is tokenized as `generate` will tokenize it and the completion goes on from there: together they read prompt +
completion, and the border between them is always a border of tokens, as it is when the model answers. So a space
between the two belongs at the start of the completion, where most vocabularies have it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bespoke.arguments import TRAIN_ON, TrainOn, token_ids
from bespoke.data.messages import ROLES, Message, read_messages
from bespoke.data.rows import Encoded, TokenRow, text_rows
from bespoke.data.shapes import FIELDS, OPTIONAL_FIELDS, Format, shape_of
from bespoke.data.text import Tokenizer
from bespoke.data.turn_tokens import TurnEncoder, TurnTokens
from bespoke.data.turns import Turns, protect_markers, stop_ids
from bespoke.errors import ConfigError, DataError, kind_of
from tests.support.conversation_rows import conversation_rows
from tests.support.row_fitting import Row, fitted, prompt_room, trained_end, with_prompt_of
from tests.support.unused_keys import unused_keys

__all__ = ["Encoded", "ExampleEncoder", "TrainOn"]


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
        if train_on not in TRAIN_ON:
            raise ConfigError(
                "train_on", got=repr(train_on), expected=f"one of {', '.join(TRAIN_ON)}", next_step="Change train_on"
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
        self._turn_encoder: TurnEncoder | None = None
        if tokenizer is not None and turns is not None:
            protect_markers(tokenizer, turns)
            self._turn_encoder = TurnEncoder(tokenizer, turns)

    def encode(self, example: Mapping[str, Any], subject: str = "example") -> Encoded:
        """Rows of `example`; DataError, naming `subject`, where it cannot be used or nothing of it would be trained."""
        encoded = self.try_encode(example, subject)
        if encoded.untrained is not None:
            raise encoded.untrained
        return encoded

    def try_encode(self, example: Mapping[str, Any], subject: str = "example") -> Encoded:
        """Like `encode`, but an example of which nothing would be trained gives no rows instead of an error."""
        shape = shape_of(example, subject)
        encoded = self._encoded(example, shape, subject)
        if not encoded.trained_tokens:
            return replace(encoded, untrained=self._nothing_to_train(example, subject))
        return replace(encoded, unused_keys=unused_keys(example, (*FIELDS[shape], *OPTIONAL_FIELDS[shape])))

    def _encoded(self, example: Mapping[str, Any], shape: Format, subject: str) -> Encoded:
        if shape == "messages":
            return self._encode_messages(example["messages"], subject)
        if shape == "prompt_completion":
            return self._encode_pair(example, subject)
        if shape == "preference":
            raise DataError(
                subject,
                got="a chosen and a rejected answer",
                expected="messages, prompt and completion, or text",
                next_step="Give the chosen answer as the completion",
            )
        if shape == "text":
            tokenizer = self._need_tokenizer(subject)
            tokens = self._content(tokenizer, example["text"], f"{subject}.text")
            goes_on = _says(example, "end", "none", subject, "a text that goes on")
            if tokens and not goes_on and tokenizer.eos_id is not None:
                tokens = [*tokens, tokenizer.eos_id]
            return self._windows(tokens, tokenizer.bos_id)
        return self._encode_ids(example["tokens"], example.get("mask"), subject)

    def prompt_ids(self, prompt: str | Sequence[Any]) -> list[int]:
        """Tokens to answer: of messages with the header of the answer, of a plain text with bos where there is one, or
        token ids as they are."""
        if isinstance(prompt, str):
            tokenizer = self._need_tokenizer("prompt")
            return self._begin(tokenizer) + self._content(tokenizer, prompt, "prompt")
        if len(prompt) and all(_is_int(token) for token in prompt):
            return self._ids(prompt, "prompt").tolist()
        self._need_turns("prompt")
        return self._turn_tokens(read_messages(prompt, "prompt"), "prompt", generate=True).tokens

    def stop_ids(self) -> set[int]:
        """Tokens that end an answer: eos, and the token that ends the assistant's turn."""
        return stop_ids(self.tokenizer, self.turns) if self.tokenizer is not None else set()

    # The shapes.

    def _encode_messages(self, given: Any, subject: str) -> Encoded:
        subject = f"{subject}.messages"
        turns = self._need_turns(subject)
        messages = read_messages(given, subject)
        trains = [self._trains(message) for message in messages]
        bos = self.tokenizer.bos_id if self.tokenizer is not None else None
        found = conversation_rows(
            messages,
            trains,
            lambda some: self._turn_tokens(some, subject),
            turns,
            bos,
            self.train_on != "all",
            self.max_length + 1,
        )
        # An ending alone would teach the model to say nothing.
        return _encoded([_row(*row) for row in found.rows], len(found.rows), found.truncated, found.truncated_trained)

    def _turn_tokens(self, messages: Sequence[Message], subject: str, generate: bool = False) -> TurnTokens:
        assert self.turns is not None
        assert self._turn_encoder is not None
        return self._turn_encoder.encode(self.turns.pieces(messages, generate, subject), subject)

    def _trains(self, message: Message) -> bool:
        return not message.is_context and self.train_on in ("all", message.role)

    def _begins_with_bos(self, row: Row) -> bool:
        return self.tokenizer is not None and row[0][0] == self.tokenizer.bos_id

    def _encode_pair(self, example: Mapping[str, Any], subject: str) -> Encoded:
        tokenizer = self._need_tokenizer(subject)
        is_text = _says(example, "as", "text", subject, "a prompt and a completion outside of the chat")
        if self._turn_encoder is None or is_text:
            row, answer = self._text_pair(example["prompt"], example["completion"], tokenizer, subject)
        else:
            row, answer = self._turn_pair(example["prompt"], example["completion"], subject)
        if not any(row[1]):
            return _nothing()
        room = self.max_length + 1
        kept = prompt_room(answer, len(row[0]) - answer, room)
        return _counted(row, with_prompt_of(row, answer, kept, self._begins_with_bos(row), room))

    def _text_pair(self, prompt: Any, completion: Any, tokenizer: Tokenizer, subject: str) -> tuple[Row, int]:
        """The row, and where the answer begins; nothing of a row without an answer is trained."""
        first = self._begin(tokenizer) + self._content(tokenizer, prompt, f"{subject}.prompt")
        answer = self._content(tokenizer, completion, f"{subject}.completion", first[-1] if prompt else None)
        if not answer:
            return ([], []), 0
        answer += [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        mask = [int(self.train_on == "all")] * len(first) + [1] * len(answer)
        return (first + answer, [0, *mask[1:]]), len(first)

    def _turn_pair(self, prompt: Any, completion: Any, subject: str) -> tuple[Row, int]:
        """The same as a turn of the chat, up to its end. The answer is trained, whoever's words else are."""
        for name, words in (("prompt", prompt), ("completion", completion)):
            if not isinstance(words, str):
                raise DataError(
                    f"{subject}.{name}", got=kind_of(words), expected="text", next_step="Give it as one string"
                )
        if not completion:
            return ([], []), 0
        found = self._turn_tokens([Message("user", prompt), Message("assistant", completion)], subject)
        roles = ROLES if self.train_on == "all" else ("assistant",)
        pieces = [found.pieces[number] for number in found.piece_of]
        mask = [0, *(int(piece.role in roles) for piece in pieces[1:])]
        begins = next(number for number, piece in enumerate(found.pieces) if piece.begins_answer)
        end = trained_end(mask)
        return (found.tokens[:end], mask[:end]), bisect_left(found.piece_of, begins)

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
        row = (ids.tolist(), [0, *(int(m) for m in mask[1:])])
        if not any(row[1]):
            return _nothing()
        return _counted(row, fitted(row, self._begins_with_bos(row), True, self.max_length + 1))

    # Rows.

    def _windows(self, tokens: list[int], bos: int | None) -> Encoded:
        rows = text_rows(tokens, bos, self.max_length)
        return _encoded(rows, len(rows))

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
        return np.asarray(token_ids(subject, tokens, self.vocab_size or 2**31), dtype=np.int32)

    def _need_tokenizer(self, subject: str) -> Tokenizer:
        if self.tokenizer is None:
            raise DataError(
                subject,
                got="text, but this bundle takes token ids only",
                expected='{"tokens": [...], "mask": [...]}',
                next_step="Tokenize with the model's own tokenizer and give the ids",
            )
        return self.tokenizer

    def _need_turns(self, subject: str) -> Turns:
        self._need_tokenizer(subject)
        if self.turns is None:
            raise DataError(
                subject,
                got="messages, for a model without a chat template",
                expected="text, or prompt and completion",
                next_step='Give {"prompt": ..., "completion": ...} or {"text": ...}',
            )
        return self.turns

    def _nothing_to_train(self, example: Mapping[str, Any], subject: str) -> DataError:
        """Why `try_encode` gave no rows for `example`."""
        if "messages" in example:
            messages = read_messages(example["messages"], subject)
            has = sorted({message.role for message in messages})
            if any(
                message.is_context and message.content and self.train_on in ("all", message.role)
                for message in messages
            ):
                return DataError(
                    subject,
                    got="weight 0 for every message with words that would be trained on",
                    expected=f"words of the {self.train_on}, which train_on={self.train_on!r} trains",
                    next_step="Give one of them weight 1, or leave this example out",
                )
            missing = self.train_on != "all" and self.train_on not in has
            return DataError(
                subject,
                got=f"messages of {' and '.join(has)}" + ("" if missing else ", without words"),
                expected=f"words of the {self.train_on}, which train_on={self.train_on!r} trains",
                next_step=f"Add a message of the {self.train_on}, or build with train_on={has[0]!r} or 'all'"
                if missing and has[0] in TRAIN_ON
                else "Leave this example out",
            )
        return DataError(
            subject,
            got="nothing to train on: empty, a single token, or every token masked",
            expected="at least one token that is trained on",
            next_step="Leave this example out",
        )


def _says(example: Mapping[str, Any], name: str, word: str, subject: str, meaning: str) -> bool:
    """Whether the optional field `name` of an example is `word`, the only one that it may have. DataError for another."""
    value = example.get(name)
    if value is not None and value != word:
        raise DataError(
            f"{subject}.{name}",
            got=repr(value)[:100],
            expected=f"{word!r}, or no such key",
            next_step=f"Write {word!r} for {meaning}",
        )
    return value is not None


def _row(tokens: list[int], mask: list[int]) -> TokenRow:
    return TokenRow(np.asarray(tokens, dtype=np.int32), np.asarray(mask, dtype=np.uint8))


def _counted(whole: Row, kept: Row) -> Encoded:
    """The one row that is kept, and what it lacks of the whole one."""
    return _encoded([_row(*kept)], 1, len(whole[0]) - len(kept[0]), sum(whole[1]) - sum(kept[1]))


def _encoded(rows: list[TokenRow], windows: int, truncated: int = 0, truncated_trained: int = 0) -> Encoded:
    tokens = sum(len(row.tokens) for row in rows)
    return Encoded(rows, tokens, sum(int(row.mask.sum()) for row in rows), truncated, truncated_trained, windows)


def _nothing() -> Encoded:
    return Encoded([], 0, 0, 0, 0, 0)


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_bit(value: Any) -> bool:
    return isinstance(value, int | np.integer | np.bool_) and value in (0, 1)
