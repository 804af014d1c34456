# SPDX-License-Identifier: Apache-2.0
"""Text to tokens and back by the model's own tokenizer.json, with the `tokenizers` package.

There are two ways to encode, because two kinds of text meet in one sequence. A user's words are *content*: special tokens are never
recognised in it. So a message that contains `<|im_end|>` is tokenized as those ten characters and cannot forge a turn. The text of
the chat template is trusted, and special tokens are recognised in it. Plain added tokens without structure (`<tool_call>`, Gemma's
runs of spaces) are part of the vocabulary and are recognised in both.

A sequence is encoded piece by piece. Tokenizers of the SentencePiece kind put a space before a text, but a piece that continues
another must not get one. The argument `previous`, the token before the piece, decides that.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.decoders import DecodeStream

from bespoke import arguments
from bespoke.data.known_bytes import KnownBytes
from bespoke.data.other_tokenizers import check_no_other_tokenizer
from bespoke.data.space_prefix import prefix_of, settings_of, steps_of, without_prefix
from bespoke.errors import DataError, ModelError
from bespoke.format.plain_file import read_plain

__all__ = ["WITHIN_TEXT", "Tokenizer"]

CONFIG_NAME = "tokenizer_config.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_REMEMBERED_GLUE = 256
_SPACE_SIGN = "▁"  # SentencePiece's sign for a space
WITHIN_TEXT = -1  # a value for `previous`: the piece continues a text
_LONG_TEXT = 1 << 16  # characters


class Tokenizer:
    """A model's tokenizer, with the names that tokenizer_config.json gives to special tokens. Threads may share it.

    bos_id:         the token that texts begin with, or None. A model may name a bos token and not use it.
    eos_id:         the token that ends a completion, or None.
    vocab_size:     the largest id plus one.
    special_tokens: names (`bos_token`, `eos_token`, ...) to texts.
    """

    def __init__(self, data: bytes, config: dict[str, Any], subject: str = "tokenizer.json") -> None:
        self._subject = subject
        self._data = data
        with _as_model_error(subject):
            self._outer = _without_padding(tokenizers.Tokenizer.from_buffer(data))
        self._lock = threading.Lock()
        self._inner: tokenizers.Tokenizer | None = None  # the same without the space before a text
        self._glue: dict[tuple[str, bool], list[int]] = {}

        normalizer, pre_tokenizer = settings_of(self._outer.normalizer), settings_of(self._outer.pre_tokenizer)
        self._prefix = prefix_of(normalizer, pre_tokenizer)
        self._is_nfc = [step.get("type") for step in steps_of(normalizer, "normalizers")] == ["NFC"]
        self._replaces_spaces = _SPACE_SIGN in json.dumps([normalizer, pre_tokenizer], ensure_ascii=False)
        self._added: dict[int, tokenizers.AddedToken] = dict(self._outer.get_added_tokens_decoder())
        longest_first = sorted((token.content for token in self._added.values()), key=len, reverse=True)
        self._added_pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self.special_tokens: dict[str, str] = _named_tokens(config)

        byte_level = any(step.get("type") == "ByteLevel" for step in steps_of(pre_tokenizer, "pretokenizers"))
        is_bpe = isinstance(self._outer.model, tokenizers.models.BPE)
        falls_back = is_bpe and (byte_level or self._outer.model.byte_fallback)
        self._bytes = KnownBytes(self._outer, byte_level) if falls_back else None
        # The unknown token is often an added token (<unk>), but a stretch of text does not end before it.
        if self._bytes is None:
            self._unknown = _unknown_ids(self._outer.model)
        else:
            self._unknown = frozenset(() if self._bytes.unknown_id is None else (self._bytes.unknown_id,))

        self._control: dict[str, int] = {}
        self._forgeable: frozenset[int] = frozenset()
        self.protect([token.content for token in self._added.values() if token.special])
        self.protect(self.special_tokens.values())

        self.vocab_size: int = max([self._outer.get_vocab_size() - 1, *self._added]) + 1
        self.bos_id: int | None = self._find_bos(config)
        self.eos_id: int | None = self._id_of_name("eos_token")
        if self.bos_id is not None:
            self.special_tokens.setdefault("bos_token", str(self._outer.id_to_token(self.bos_id)))

    @classmethod
    def open(cls, path: str | Path, settings: dict[str, Any] | None = None) -> Tokenizer:
        """The tokenizer at `path`, a tokenizer.json or its folder.

        `settings` replace those of the tokenizer_config.json next to it.
        """
        path = arguments.path("tokenizer", path, "the path of a tokenizer.json or its folder")
        if os.path.isdir(path):
            path = path / "tokenizer.json"
        if not path.exists():
            check_no_other_tokenizer(path.parent)
        config = path.with_name(CONFIG_NAME)
        try:
            if settings is not None:
                return cls(read_plain(path), settings, str(path))
            return cls.from_bytes(read_plain(path), read_plain(config) if config.is_file() else None, str(path))
        except OSError as error:
            raise ModelError(
                str(path),
                got=error.strerror or str(error),
                expected="a tokenizer.json",
                next_step="Give a model folder that has one, or use examples of token ids",
            ) from None

    @classmethod
    def from_bytes(cls, data: bytes, config: bytes | None = None, subject: str = "tokenizer.json") -> Tokenizer:
        """A tokenizer from the contents of its files."""
        try:
            settings = json.loads(config) if config is not None else {}
        except (ValueError, RecursionError):
            settings = None
        if not isinstance(settings, dict):
            raise ModelError(
                f"{CONFIG_NAME} beside {subject}",
                got="no JSON object",
                expected="the settings of a tokenizer",
                next_step="Take the file from the model's own folder",
            )
        return cls(data, settings, subject)

    def files(self) -> dict[str, bytes]:
        """File names to contents, from which `open` makes an equal tokenizer. The settings are cut to those that it reads."""
        config: dict[str, Any] = {**self.special_tokens, "add_bos_token": self.bos_id is not None}
        text = json.dumps(config, sort_keys=True, ensure_ascii=False, indent=1) + "\n"
        return {"tokenizer.json": self._data, CONFIG_NAME: text.encode()}

    def protect(self, texts: Iterable[str]) -> None:
        """Stops recognising these added tokens inside content. A template's turn markers need it: not all are special."""
        with self._lock:
            special = []
            for text in texts:
                token_id = self._outer.token_to_id(text)
                if token_id is None or text in self._control:
                    continue
                self._control[text] = token_id
                if token_id in self._added:
                    special.append(_as_special(self._added[token_id]))
            for tokenizer in (self._outer, self._inner):
                if tokenizer is not None and special:
                    # One call for all: each call builds the tables of all added tokens again.
                    tokenizer.add_special_tokens(special)
            self._glue.clear()
            self._forgeable = self._find_forgeable()

    @property
    def control_ids(self) -> frozenset[int]:
        """The tokens that content can never become."""
        return frozenset(self._control.values())

    @property
    def added_tokens(self) -> list[str]:
        """The texts of the added tokens. Each is one token wherever it stands in a template."""
        return [token.content for token in self._added.values()]

    def is_added(self, token_id: int) -> bool:
        """Whether a stretch of text ends before this token."""
        return token_id in self._added and token_id not in self._unknown

    def added_tokens_in(self, text: str) -> list[str]:
        """The added tokens that occur in `text`, in their order."""
        return [] if self._added_pattern is None else self._added_pattern.findall(text)

    def encode(self, text: str, *, previous: int | None = None) -> list[int]:
        """The tokens of content, without bos. `previous` is the token before it, None at the start of a text."""
        ids: list[int] = self._content(text, previous).ids
        return ids

    def encode_spans(self, text: str, *, previous: int | None = None) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of content and, for each, the characters of `text` that it stands for, as (first, end)."""
        encoding = self._content(text, previous, spans=True)
        return encoding.ids, encoding.offsets

    def encode_template(self, text: str, *, previous: int | None = None) -> list[int]:
        """The tokens of a template's own text, in which special tokens are recognised. No bos is added."""
        inside = self._is_inside(previous)
        tokens = self._glue.get((text, inside))
        if tokens is None:
            tokens = self._encode_glue(text, inside)
            if len(self._glue) < _REMEMBERED_GLUE:
                self._glue[text, inside] = tokens
        return list(tokens)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of `ids`. Ids beyond the vocabulary, as a padded embedding has, give no text."""
        with _as_model_error(self._subject):
            text: str = self._outer.decode([int(i) for i in ids], skip_special_tokens=skip_special)
        return text

    def stream(self, prompt: Sequence[int] = ()) -> Callable[[int], str]:
        """Returns a function that decodes the tokens after `prompt` one by one.

        It returns the text that a token completes, "" while a character is incomplete. The joined pieces keep the space that
        `decode` strips from the start of a text.
        """
        steps = DecodeStream(ids=[int(i) for i in prompt], skip_special_tokens=True)

        def step(token: int) -> str:
            with _as_model_error(self._subject):
                text: str | None = steps.step(self._outer, int(token))
            return text or ""

        return step

    def parts(self, template_text: str) -> list[str | int]:
        """A template's text as texts and the control tokens between them, in their order."""
        parts: list[str | int] = []
        begin = 0
        for match in self._added_pattern.finditer(template_text) if self._added_pattern else ():
            if (token_id := self._control.get(match.group())) is not None:
                parts += [template_text[begin : match.start()], token_id]
                begin = match.end()
        return [*parts, template_text[begin:]]

    def canonical(self, text: str) -> str:
        """The normalized text. Contents with equal normalized texts become the same tokens."""
        if self._is_nfc:
            text = self._outer.normalizer.normalize_str(text)
        return text.replace(_SPACE_SIGN, " ") if self._replaces_spaces else text

    def known_part(self, canonical: str) -> tuple[str, Sequence[int]]:
        """The part of a canonical text that the vocabulary has tokens for, and the place in the text of each of its characters.

        Texts with different known parts have different tokens (known_bytes.py).
        """
        return (canonical, range(len(canonical))) if self._bytes is None else self._bytes.part(canonical)

    def known_sizes(self, ids: Sequence[int]) -> list[int] | None:
        """The number of characters of a text's known part that each token stands for. None if texts lose no characters."""
        return self._bytes.sizes(ids) if self._bytes is not None and self._bytes.drops_bytes else None

    def _content(self, text: str, previous: int | None, spans: bool = False) -> Any:
        """The encoding of content. DataError if its words would become a control token."""
        encoding = self._encoding(text, self._is_inside(previous), as_content=True, spans=spans)
        forged = self._forgeable.intersection(encoding.ids) if self._forgeable else None
        if forged:
            raise DataError(
                "a text",
                got=f"words that this tokenizer turns into its special token {self.decode([min(forged)], False)!r}",
                expected="words that stay words",
                next_step="Leave that token out of the text",
            )
        return encoding

    def _encode(self, text: str, inside: bool, as_content: bool) -> list[int]:
        ids: list[int] = self._encoding(text, inside, as_content).ids
        return ids

    def _encoding(self, text: str, inside: bool, as_content: bool, spans: bool = False) -> Any:
        try:
            text.encode()
        except (UnicodeEncodeError, AttributeError):
            raise DataError(
                "a text",
                got="half of a surrogate pair" if isinstance(text, str) else type(text).__name__,
                expected="Unicode text",
                next_step="Correct the escapes of the form \\ud83d; a character above U+FFFF needs both halves",
            ) from None

        with self._lock, _as_model_error(self._subject):
            tokenizer = self._without_prefix() if inside else self._outer
            tokenizer.encode_special_tokens = as_content  # True: special tokens are read as plain characters
            # The same ids without spans take half of the work. But this call starts threads, so only long texts use it.
            if len(text) > _LONG_TEXT and not spans:
                return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
            return tokenizer.encode(text, add_special_tokens=False)

    def _encode_glue(self, text: str, inside: bool) -> list[int]:
        pattern = self._added_pattern
        first = pattern.search(text) if inside and self._prefix == "stretch" and pattern else None
        if first is None:
            return self._encode(text, inside, as_content=False)
        # Up to its first added token the piece continues another. Behind that token a new stretch begins.
        head = self._encode(text[: first.start()], True, as_content=False)
        return head + self._encode(text[first.start() :], False, as_content=False)

    def _is_inside(self, previous: int | None) -> bool:
        """Whether a piece after `previous` continues a stretch, so that no space is put before it."""
        if self._prefix == "none" or previous is None:
            return False
        return self._prefix == "text" or not self.is_added(previous)

    def _without_prefix(self) -> tokenizers.Tokenizer:
        if self._inner is None:  # created when first needed, because a second copy of the vocabulary is not small
            data = json.dumps(without_prefix(json.loads(self._data))).encode()
            self._inner = _without_padding(tokenizers.Tokenizer.from_buffer(data))
            for token_id in self._control.values():
                if token_id in self._added:
                    self._inner.add_special_tokens([_as_special(self._added[token_id])])
        return self._inner

    @property
    def unknown_ids(self) -> list[int]:
        """The tokens of a character that the vocabulary lacks."""
        return sorted(self._unknown)

    def _find_forgeable(self) -> frozenset[int]:
        """The control tokens that the model might produce from ordinary words, because they are in its own vocabulary.

        BPE merges cannot produce them. A unigram model can, and so can a model that looks up whole words first.
        """
        model = self._outer.model
        if isinstance(model, tokenizers.models.BPE) and not model.ignore_merges:
            return frozenset()
        return self.control_ids - self._unknown

    def _id_of_name(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        token_id: int | None = None if text is None else self._outer.token_to_id(text)
        return token_id

    def _find_bos(self, config: dict[str, Any]) -> int | None:
        """The bos token that the settings ask for. If they do not say, the one that the tokenizer puts before a text."""
        named = self._id_of_name("bos_token")
        if isinstance(config.get("add_bos_token"), bool):
            return named if config["add_bos_token"] else None
        with self._lock, _as_model_error(self._subject):
            with_specials = self._outer.encode("a").ids
            plain = self._outer.encode("a", add_special_tokens=False).ids
        starts = len(with_specials) > len(plain) and with_specials[0] in self.control_ids
        return int(with_specials[0]) if starts else None


@contextmanager
def _as_model_error(subject: str) -> Iterator[None]:
    """Turns errors of the Rust side into ModelError. It raises a bare Exception for an unreadable file, and panics."""
    try:
        yield
    except BaseException as error:
        # A panic is a BaseException too.
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            raise
        raise ModelError(
            subject,
            got=f"{type(error).__name__}: {str(error)[:200]}",
            expected="a tokenizer.json of the tokenizers package",
            next_step="Take the file from the model's own folder; convert a sentencepiece tokenizer.model first",
        ) from None


def _without_padding(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Turns off the truncation and padding that a training script may have left in the file."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _unknown_ids(model: Any) -> frozenset[int]:
    """The tokens of a character that no vocabulary has. None of them if the model refuses it."""
    try:
        return frozenset(token.id for token in model.tokenize("\U0010ffff"))
    except Exception:  # the Rust side raises bare Exception: a word model without a token for unknown words
        return frozenset()


def _as_special(token: tokenizers.AddedToken) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=True,
    )


def _named_tokens(config: dict[str, Any]) -> dict[str, str]:
    """Names such as bos_token to their texts. The settings hold a string or an object with `content`."""
    named = {}
    for name in _NAMED:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str) and text:
            named[name] = text
    return named
