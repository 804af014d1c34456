# SPDX-License-Identifier: Apache-2.0
"""Text to tokens and back, by the model's own tokenizer.json (the `tokenizers` package, nothing larger).

Two ways to encode, because two kinds of text meet in one sequence. A user's words are *content*: in them no special
token is ever recognised, so that a message which contains `<|im_end|>` is tokenized as those ten characters and cannot
forge a turn. The text of the chat template is *ours*: there special tokens are recognised. Plain added tokens that
carry no structure (`<tool_call>`, Gemma's runs of spaces) are part of the vocabulary and are recognised in both.

A sequence is encoded piece by piece. Tokenizers of the SentencePiece kind put a space before a text; a piece that
goes on where another ended must not get one. `previous`, the token before the piece, says which it is.
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
WITHIN_TEXT = -1  # in place of the token before a text: no added token
_LONG_TEXT = 1 << 16  # characters


class Tokenizer:
    """A tokenizer.json, with the names that tokenizer_config.json gives to special tokens.

    `bos_id` is the token that a text begins with, None where the model begins texts with none (a model may name a bos
    token and not use it). `eos_id` ends a completion. `vocab_size` is one above the largest id. Safe to share
    between threads.
    """

    def __init__(self, data: bytes, config: dict[str, Any], subject: str = "tokenizer.json") -> None:
        self._subject = subject
        self._data = data
        with _that_works(subject):
            self._outer = _quiet(tokenizers.Tokenizer.from_buffer(data))
        self._lock = threading.Lock()
        self._inner: tokenizers.Tokenizer | None = None
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
        # Often an added token (<unk>), and yet no border between stretches.
        self._unknown = _unknown_ids(self._outer.model) if self._bytes is None else _one(self._bytes.unknown_id)
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
        """The tokenizer at `path`, a tokenizer.json or its folder, with `settings`, by default those beside it."""
        path = arguments.path("tokenizer", path, "the path of a tokenizer.json or its folder")
        if os.path.isdir(path):
            path = path / "tokenizer.json"
        if not path.exists():
            check_no_other_tokenizer(path.parent)
        beside = path.with_name(CONFIG_NAME)
        try:
            if settings is not None:
                return cls(read_plain(path), settings, str(path))
            return cls.from_bytes(read_plain(path), read_plain(beside) if beside.is_file() else None, str(path))
        except OSError as error:
            raise ModelError(
                str(path),
                got=error.strerror or str(error),
                expected="a tokenizer.json",
                next_step="Give a model folder that has one, or use examples of token ids",
            ) from None

    @classmethod
    def from_bytes(cls, data: bytes, config: bytes | None = None, subject: str = "tokenizer.json") -> Tokenizer:
        """The same from the files' contents, as a bundle reader hands them out."""
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
        """File name to contents, for `open` to give this tokenizer again; the settings cut to those that are read."""
        config: dict[str, Any] = {**self.special_tokens, "add_bos_token": self.bos_id is not None}
        text = json.dumps(config, sort_keys=True, ensure_ascii=False, indent=1) + "\n"
        return {"tokenizer.json": self._data, CONFIG_NAME: text.encode()}

    def protect(self, texts: Iterable[str]) -> None:
        """Never recognise these added tokens inside content (a template's turn markers need not be marked special)."""
        with self._lock:
            special = []
            for text in texts:
                token_id = self._outer.token_to_id(text)
                if token_id is None or text in self._control:
                    continue
                self._control[text] = token_id
                if token_id in self._added:
                    special.append(_as_special(self._added[token_id]))
            for one in (self._outer, self._inner):
                if one is not None and special:  # all at once: each call builds the tables of all added tokens again
                    one.add_special_tokens(special)
            self._glue.clear()
            self._forgeable = self._find_forgeable()

    @property
    def control_ids(self) -> frozenset[int]:
        """Tokens that content can never become."""
        return frozenset(self._control.values())

    @property
    def added_tokens(self) -> list[str]:
        """The texts that are one token wherever they stand in a template."""
        return [token.content for token in self._added.values()]

    def is_added(self, token_id: int) -> bool:
        """Whether a stretch of text ends before this token."""
        return token_id in self._added and token_id not in self._unknown

    def added_tokens_in(self, text: str) -> list[str]:
        """Added tokens that occur in `text`, in their order."""
        return [] if self._added_pattern is None else self._added_pattern.findall(text)

    def encode(self, text: str, *, previous: int | None = None) -> list[int]:
        """Tokens of a user's words, without bos. `previous` is the token before them, None at the start of a text."""
        ids: list[int] = self._content(text, previous).ids
        return ids

    def encode_spans(self, text: str, *, previous: int | None = None) -> tuple[list[int], list[tuple[int, int]]]:
        """The same, and for each token the characters of `text` that it stands for, first and end."""
        encoding = self._content(text, previous, spans=True)
        return encoding.ids, encoding.offsets

    def encode_template(self, text: str, *, previous: int | None = None) -> list[int]:
        """Tokens of a template's own text, in which special tokens are recognised. No bos is added."""
        inside = self._is_inside(previous)
        known = self._glue.get((text, inside))
        if known is None:
            known = self._encode_glue(text, inside)
            if len(self._glue) < _REMEMBERED_GLUE:
                self._glue[text, inside] = known
        return list(known)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of `ids`; ids beyond the vocabulary (a padded embedding has some) give nothing."""
        with _that_works(self._subject):
            text: str = self._outer.decode([int(i) for i in ids], skip_special_tokens=skip_special)
        return text

    def stream(self, prompt: Sequence[int] = ()) -> Callable[[int], str]:
        """Decodes token by token what follows `prompt`: a function that gives the text that a token completes, "" while
        a character is still in the making. Joined, the pieces keep the space that `decode` strips from a start."""
        steps = DecodeStream(ids=[int(i) for i in prompt], skip_special_tokens=True)

        def step(token: int) -> str:
            with _that_works(self._subject):
                text: str | None = steps.step(self._outer, int(token))
            return text or ""

        return step

    def parts(self, template_text: str) -> list[str | int]:
        """A template's text as stretches of words and the control tokens between them, in their order."""
        parts: list[str | int] = []
        begin = 0
        for found in self._added_pattern.finditer(template_text) if self._added_pattern else ():
            if (token_id := self._control.get(found.group())) is not None:
                parts += [template_text[begin : found.start()], token_id]
                begin = found.end()
        return [*parts, template_text[begin:]]

    def canonical(self, text: str) -> str:
        """One text for all contents that become the same tokens by normalization."""
        if self._is_nfc:
            text = self._outer.normalizer.normalize_str(text)
        return text.replace(_SPACE_SIGN, " ") if self._replaces_spaces else text

    def known_part(self, canonical: str) -> tuple[str, Sequence[int]]:
        """What of a canonical text the vocabulary has tokens for: texts in which that differs have different tokens. With it, which
        character of the text each of its characters is of (known_bytes.py)."""
        return (canonical, range(len(canonical))) if self._bytes is None else self._bytes.part(canonical)

    def known_sizes(self, ids: Sequence[int]) -> list[int] | None:
        """How many characters of a text's known part each token stands for; None where a text loses none."""
        return self._bytes.sizes(ids) if self._bytes is not None and self._bytes.drops_bytes else None

    # How it is done.

    def _content(self, text: str, previous: int | None, spans: bool = False) -> Any:
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
                next_step="Mend the escapes of the form \\ud83d; a character above U+FFFF needs both halves",
            ) from None
        with self._lock, _that_works(self._subject):
            one = self._without_prefix() if inside else self._outer
            one.encode_special_tokens = as_content  # True: special tokens are read as the characters they are
            # The same ids without where each token stands in the text: half of the work, but it starts threads of its own.
            if len(text) > _LONG_TEXT and not spans:
                return one.encode_batch_fast([text], add_special_tokens=False)[0]
            return one.encode(text, add_special_tokens=False)

    def _encode_glue(self, text: str, inside: bool) -> list[int]:
        pattern = self._added_pattern
        first = pattern.search(text) if inside and self._prefix == "stretch" and pattern else None
        if first is None:
            return self._encode(text, inside, as_content=False)
        # Up to its first added token the piece goes on where another ended; behind it, stretches begin again.
        head = self._encode(text[: first.start()], True, as_content=False)
        return head + self._encode(text[first.start() :], False, as_content=False)

    def _is_inside(self, previous: int | None) -> bool:
        """Whether a piece after `previous` goes on within a stretch, so that no space is put before it."""
        if self._prefix == "none" or previous is None:
            return False
        return self._prefix == "text" or not self.is_added(previous)

    def _without_prefix(self) -> tokenizers.Tokenizer:
        if self._inner is None:  # made when first needed: a second copy of the vocabulary is not small
            data = json.dumps(without_prefix(json.loads(self._data))).encode()
            self._inner = _quiet(tokenizers.Tokenizer.from_buffer(data))
            for token_id in self._control.values():
                if token_id in self._added:
                    self._inner.add_special_tokens([_as_special(self._added[token_id])])
        return self._inner

    @property
    def unknown_ids(self) -> list[int]:
        """What characters become that the vocabulary has not."""
        return sorted(self._unknown)

    def _find_forgeable(self) -> frozenset[int]:
        """Control tokens that the model itself, past the added tokens, might make of ordinary words, having them in its
        vocabulary: not by merges of BPE, but possible for a unigram model and where whole words are looked up first."""
        model = self._outer.model
        if isinstance(model, tokenizers.models.BPE) and not model.ignore_merges:
            return frozenset()
        return self.control_ids - self._unknown

    def _id_of_name(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        token_id: int | None = None if text is None else self._outer.token_to_id(text)
        return token_id

    def _find_bos(self, config: dict[str, Any]) -> int | None:
        """The settings' word where they give one, else what the tokenizer itself does to a text."""
        named = self._id_of_name("bos_token")
        if isinstance(config.get("add_bos_token"), bool):
            return named if config["add_bos_token"] else None
        with self._lock, _that_works(self._subject):
            with_specials = self._outer.encode("a").ids
            plain = self._outer.encode("a", add_special_tokens=False).ids
        starts = len(with_specials) > len(plain) and with_specials[0] in self.control_ids
        return int(with_specials[0]) if starts else None


@contextmanager
def _that_works(subject: str) -> Iterator[None]:
    """ModelError for what the Rust side raises: bare Exception where it cannot read a file, and panics, which are no Exception."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            raise
        raise ModelError(
            subject,
            got=f"{type(error).__name__}: {str(error)[:200]}",
            expected="a tokenizer.json of the tokenizers package",
            next_step="Take the file from the model's own folder; convert a sentencepiece tokenizer.model first",
        ) from None


def _quiet(one: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Without the truncation and padding that a training script may have left in the file."""
    one.no_truncation()
    one.no_padding()
    return one


def _unknown_ids(model: Any) -> frozenset[int]:
    """What a character becomes that no vocabulary has; nothing where the model refuses it."""
    try:
        return frozenset(token.id for token in model.tokenize("\U0010ffff"))
    except Exception:  # the Rust side raises bare Exception: a word model without a token for unknown words
        return frozenset()


def _one(token_id: int | None) -> frozenset[int]:
    return frozenset() if token_id is None else frozenset({token_id})


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
    """bos_token, eos_token, ... to their texts; the settings hold a string or an object with `content`."""
    found = {}
    for name in _NAMED:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str) and text:
            found[name] = text
    return found
