# SPDX-License-Identifier: Apache-2.0
"""Reader of tokenizer.bin: the inverse of tokenizer_file.py.

A bundle has only tokenizer.bin if that is enough to make the tokenizer again. The tokenizer from it gives the same tokens and the
same text as the original. It differs in these ways: it has no post-processor and no offsets of its own, its added tokens are
special if content may never become them, and a token that nothing looks up may have another spelling. A build asks
`can_be_read_back` and keeps tokenizer.json if the answer is no.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from bespoke.data.known_bytes import BYTE_TOKEN, byte_names
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import (
    LARGEST_TOKEN,
    MAGIC,
    NONE,
    SECTIONS,
    SETTINGS,
    VERSION,
    AddedFlag,
    Flag,
    write_tokenizer_file,
)
from bespoke.data.tokenizer_kind import SPACE_SIGN, Pattern, Prefix, TokenizerKind, components, read_kind
from bespoke.errors import BespokeError, BundleError, ModelError

__all__ = ["TextFiles", "can_be_read_back", "read_tokenizer_file", "tokenizer_of"]

_COUNTS_AT = -(-(len(MAGIC) + 4 * len(SETTINGS)) // 8) * 8
_HEADER = _COUNTS_AT + 8 * len(SECTIONS)
_MOST_TOKENS = 1 << 22
_MOST_BYTES = 1 << 25  # of all merges' texts together, which a damaged file could make long
_ACUTE = 0x301  # a combining mark; only Qwen3.5's pattern counts it as a letter
_BLOCK = 128  # characters


class TextFiles(Protocol):
    """The names that a bundle's manifest has for the files of its tokenizer."""

    @property
    def tokenizer(self) -> str | None: ...
    @property
    def tokenizer_config(self) -> str | None: ...
    @property
    def tokenizer_bin(self) -> str | None: ...


def tokenizer_of(files: TextFiles, read: Callable[[str], bytes]) -> Tokenizer | None:
    """The tokenizer of a bundle, None if it takes token ids only. Bundles before format 1.6 have a tokenizer.json."""
    if files.tokenizer is not None:
        config = None if files.tokenizer_config is None else read(files.tokenizer_config)
        return Tokenizer.from_bytes(read(files.tokenizer), config, files.tokenizer)
    return None if files.tokenizer_bin is None else read_tokenizer_file(read(files.tokenizer_bin), files.tokenizer_bin)


def can_be_read_back(data: bytes) -> bool:
    """Whether the tokenizer that is read from a tokenizer.bin is written as the same bytes again.

    The bytes hold everything that a tokenizer does to a text. So if they are equal, both tokenizers do the same.
    """
    try:
        return write_tokenizer_file(read_tokenizer_file(data)) == data
    except BespokeError:
        return False


def read_tokenizer_file(data: bytes, subject: str = "tokenizer.bin") -> Tokenizer:
    """The tokenizer of a tokenizer.bin, its control tokens protected. BundleError for a damaged file."""
    file = _File(data, subject)
    document = json.dumps(file.document(), ensure_ascii=False).encode()
    try:
        tokenizer = Tokenizer(document, file.named_tokens(), subject)
    except ModelError as error:
        file.refuse(error.got, "what bespoke wrote")
    tokenizer.protect(file.text(token_id) for token_id in file.sections["control"].tolist())
    return tokenizer


class _File:
    """The tables of a tokenizer.bin, with checks of everything that is used."""

    def __init__(self, data: bytes, subject: str) -> None:
        self.subject = subject
        if len(data) < _HEADER or not data.startswith(MAGIC):
            self.refuse(f"{len(data)} bytes with another beginning", "a tokenizer.bin")
        self.settings = dict(zip(SETTINGS, struct.unpack_from(f"<{len(SETTINGS)}I", data, len(MAGIC)), strict=True))
        if not 1 <= self.settings["version"] <= VERSION:
            self.refuse(f"version {self.settings['version']}", f"version 1 to {VERSION}")
        if self.settings["version"] == 1:
            self.settings["unknown"] = NONE

        self.size: int = self.settings["vocabulary"]
        self.sections = self._sections(data)
        self._check()

        added = self.sections["added"]
        text = self.sections["added_text"].tobytes()
        self.added = {
            record[0]: (self._decoded(text[record[2] : record[2] + record[3]]), record[1]) for record in added.tolist()
        }
        self.kind, self.components = self._kind()
        self.texts = self._texts()

    def document(self) -> dict[str, Any]:
        """The contents of tokenizer.json."""
        plain = {"single_word": False, "lstrip": False, "rstrip": False}
        added = [
            {
                "id": token_id,
                "content": content,
                **plain,
                "normalized": bool(flags & AddedFlag.normalized),
                "special": bool(flags & AddedFlag.protected),
            }
            for token_id, (content, flags) in sorted(self.added.items())
        ]

        unknown = self.settings["unknown"]
        model = {
            **_model(self.kind),
            "unk_token": None if unknown == NONE else self.text(unknown),
            "fuse_unk": bool(self.settings["flags"] & Flag.fuses_unknown),
            "vocab": self._vocabulary(),
            "merges": self._merges(),
        }
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "post_processor": None,
            **self.components,
            "model": model,
        }

    def named_tokens(self) -> dict[str, Any]:
        """The contents of tokenizer_config.json."""
        ids = {name: self.settings[name] for name in ("bos", "eos") if self.settings[name] != NONE}
        return {
            **{f"{name}_token": self.text(token_id) for name, token_id in ids.items()},
            "add_bos_token": "bos" in ids,
        }

    def text(self, token_id: int) -> str:
        """The spelling of a token. BundleError if the file has none for it."""
        text = self.texts[token_id]
        if text is None:
            self.damaged("tokens")
        return text

    # Tables.

    def _sections(self, data: bytes) -> dict[str, npt.NDArray[Any]]:
        counts = struct.unpack_from(f"<{len(SECTIONS)}Q", data, _COUNTS_AT)
        sections = {}
        end = _HEADER
        for count, (name, (dtype, width)) in zip(counts, SECTIONS.items(), strict=True):
            begin = -(-end // 8) * 8
            end = begin + count * width * np.dtype(dtype).itemsize
            if end > len(data):
                self.refuse("tables that end behind the file", "a whole file")
            sections[name] = np.frombuffer(data, dtype, count * width, begin).reshape((-1, width) if width > 1 else -1)
        if end != len(data):
            self.refuse(f"{len(data)} bytes", str(end))
        return sections

    def _check(self) -> None:
        """Raises BundleError if a table is damaged. Sets `merges`, in the order of their ranks, and `character_ids`."""
        tables, size = self.sections, self.size
        ends = tables["token_ends"].astype(np.int64)
        lengths = np.diff(ends, prepend=0)
        if not 1 <= size <= _MOST_TOKENS or len(ends) != size or ends[-1] != len(tables["token_bytes"]):
            self.damaged("tokens")
        if lengths.min() < 0 or lengths.max() > LARGEST_TOKEN:
            self.damaged("tokens")

        merges = tables["merges"][tables["merges"][:, 0] != NONE]
        characters = tables["characters"][tables["characters"][:, 0] != NONE]
        ids = {
            "bytes": tables["byte_ids"],
            "words": tables["words"],
            "named tokens": np.array([self.settings[name] for name in ("bos", "eos", "unknown")]),
        }
        ids = {name: tokens[tokens != NONE] for name, tokens in ids.items()}
        ids |= {"merges": merges[:, [0, 1, 3]], "characters": characters[:, 1]}
        ids |= {"added tokens": tables["added"][:, 0], "control tokens": tables["control"]}
        for name, tokens in ids.items():
            if (tokens >= size).any():
                self.damaged(name)

        if len(tables["byte_ids"]) != len(byte_names(byte_level=True)):
            self.damaged("bytes")
        if lengths[merges[:, 3]].sum() > _MOST_BYTES:
            self.damaged("merges")
        added = tables["added"].astype(np.int64)
        if added[:, [3, 5]].sum() > len(tables["added_text"]) or len(np.unique(added[:, 0])) != len(added):
            self.damaged("added tokens")

        self.merges = merges[np.argsort(merges[:, 2], kind="stable")]
        self.character_ids = characters[:, 1]

    def _kind(self) -> tuple[TokenizerKind, dict[str, Any]]:
        """The kind that the settings name, and its parts of a tokenizer.json. BundleError if no kind has these settings."""
        flags = self.settings["flags"]
        try:
            given = TokenizerKind(
                Pattern(self.settings["pattern"]),
                Prefix(self.settings["prefix"]),
                most_numbers=self.settings["most_numbers"],
                letters=r"[\p{L}\p{M}]" if self._is_letter(_ACUTE) else r"\p{L}",
                **{flag.name: bool(flags & flag) for flag in Flag if flag.name in _NAMES},  # type: ignore[arg-type]
            )
            parts = components(given)
            kind = read_kind({**parts, "added_tokens": [], "model": _model(given)}, self.subject)
        except (ValueError, ModelError):
            self.damaged("settings")
        if any(getattr(kind, name) != getattr(given, name) for name in (*_NAMES, "pattern", "prefix", "most_numbers")):
            self.damaged("settings")
        return kind, parts

    def _is_letter(self, character: int) -> bool:
        blocks, classes = self.sections["class_blocks"], self.sections["classes"]
        block = character // _BLOCK
        place = int(blocks[block]) * _BLOCK + character % _BLOCK if block < len(blocks) else len(classes)
        if place >= len(classes):
            self.damaged("classes")
        return bool(classes[place] & 1)

    # Tokens and merges.

    def _texts(self) -> list[str | None]:
        """The spelling of each token, None for an id without a token."""
        data = self.sections["token_bytes"].tobytes()
        borders = list(pairwise([0, *self.sections["token_ends"].tolist()]))
        texts: list[str | None]
        if self.kind.pattern == Pattern.sentencepiece:
            byte_tokens = {token_id: name for token_id, name in self._byte_tokens() if token_id != NONE}
            spelled = (
                byte_tokens.get(n) or self._decoded(data[a:b]).replace(" ", SPACE_SIGN)
                for n, (a, b) in enumerate(borders)
            )
            texts = [text or None for text in spelled]
        else:
            whole = data.decode("latin-1").translate(dict(enumerate(byte_names(byte_level=True))))
            texts = [whole[a:b] or None for a, b in borders]
        for token_id, (content, _) in self.added.items():
            texts[token_id] = content
        return texts

    def _byte_tokens(self) -> list[tuple[int, str]]:
        byte_level = self.kind.pattern != Pattern.sentencepiece
        return list(zip(self.sections["byte_ids"].tolist(), byte_names(byte_level), strict=True))

    def _vocabulary(self) -> dict[str, int]:
        """The model's own vocabulary, text to id.

        An added token that no table mentions is left out if the model would look it up, and so are all such tokens behind it. These
        tokens get their ids by their order. Any other added token stays in, which fixes its id and changes nothing else.
        """
        tables = self.sections
        in_tables = {
            *self.merges[:, [0, 1, 3]].reshape(-1).tolist(),
            *self.character_ids.tolist(),
            *tables["words"].tolist(),
            *tables["byte_ids"].tolist(),
            self.settings["unknown"],
        }
        only_added = self.added.keys() - in_tables
        first = min((token_id for token_id in only_added if self._is_looked_up(self.text(token_id))), default=self.size)

        vocabulary: dict[str, int] = {}
        for token_id, text in enumerate(self.texts):
            if text is None or (token_id >= first and token_id in only_added):
                continue
            if vocabulary.setdefault(text, token_id) != token_id:
                self.refuse(f"tokens {vocabulary[text]} and {token_id} of one text", "a text of its own for each token")
        return vocabulary

    def _is_looked_up(self, text: str) -> bool:
        """Whether the model looks up `text` in its vocabulary although no merge results in it."""
        if self.kind.pattern == Pattern.sentencepiece:
            return len(text) == 1 or BYTE_TOKEN.fullmatch(text) is not None
        names = byte_names(byte_level=True)
        return set(names).issuperset(text) if self.kind.whole_words else text in names

    def _merges(self) -> list[tuple[str, str]]:
        """The merges as texts, in the order of their ranks."""
        merges = [(self.text(left), self.text(right)) for left, right in self.merges[:, :2].tolist()]
        results = [self.texts[result] for result in self.merges[:, 3].tolist()]
        if results != [left + right for left, right in merges]:
            self.damaged("merges")
        return merges

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.damaged("tokens")

    def damaged(self, what: str) -> NoReturn:
        self.refuse(f"damaged {what}", "what bespoke wrote")

    def refuse(self, got: str, expected: str) -> NoReturn:
        raise BundleError(
            self.subject, got=got, expected=expected, next_step="Build the bundle again, or copy it again"
        )


_NAMES = [field.name for field in fields(TokenizerKind) if field.name in Flag.__members__]


def _model(kind: TokenizerKind) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "byte_fallback": kind.pattern == Pattern.sentencepiece,
        "ignore_merges": kind.whole_words,
    }
