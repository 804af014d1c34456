# SPDX-License-Identifier: Apache-2.0
"""The kinds of tokenizers that the core runs, and the recognition of a tokenizer.json as one of them.

They are byte-level BPE with the pre-tokenizer of GPT-2, Llama 3, Qwen2 or a relative, and SentencePiece's BPE over characters with
byte fallback. Every other tokenizer is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NoReturn

from bespoke.errors import ModelError
from bespoke.remedies import setting

__all__ = [
    "LLAMA3_PATTERN",
    "QWEN2_PATTERN",
    "QWEN3_5_PATTERN",
    "SPACE_SIGN",
    "Pattern",
    "Prefix",
    "TokenizerKind",
    "components",
    "read_kind",
    "refuse",
]

SPACE_SIGN = "▁"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES_AND_SPACES = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Pattern(IntEnum):
    """How a text is cut into words. Merges happen within a word."""

    sentencepiece = 0  # no pattern: a word ends where no merge can cross
    gpt2 = 1  # 's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^sLN]+|s+(?!S)|s+ with s for spaces, L for letters, N for numbers
    llama3 = 2  # (?i:'s|...)|[^rn L N]?L+|N{1,most}| ?[^sLN]+[rn]*|s*[rn]+|s+(?!S)|s+


class Prefix(IntEnum):
    """Where the tokenizer puts a space. A stretch is the text between two added tokens."""

    none = 0
    stretch = 1  # before each stretch
    bare_stretch = 2  # before each stretch that does not begin with a space
    bare_text = 3  # before the whole text, if it does not begin with a space


@dataclass(frozen=True)
class TokenizerKind:
    """What the core needs to know to tokenize like a tokenizer.json.

    `letters`, `numbers`, `spaces`, `before_letters` and `newlines` are regular expressions for the characters of these classes. A
    class that the pattern does not use is None.
    """

    pattern: Pattern
    prefix: Prefix = Prefix.none
    letters: str | None = None
    numbers: str | None = None
    spaces: str | None = None
    before_letters: str | None = None
    newlines: str | None = None
    most_numbers: int = 0  # most digits of one word; 0: no bound
    single_digits: bool = False  # each digit is a word, before the pattern applies
    nfc: bool = False
    replaces_spaces: bool = False  # before the search for added tokens with `normalized`
    whole_words: bool = False  # a word that is a token needs no merges
    strips_space: bool = False  # from the beginning of a decoded text


def _after_gpt2(letters: str, excluded: str, numbers: str, most: int) -> tuple[str, TokenizerKind]:
    """The pattern of Llama 3 or Qwen as tokenizer.json has it, and its kind. `excluded` is `letters` within a class."""
    count = f"{{1,{most}}}" if most > 1 else ""
    lead = r"[^\r\n\p{L}\p{N}]"
    text = rf"{_CONTRACTIONS}|{lead}?{letters}+|{numbers}{count}| ?[^\s{excluded}{numbers}]+{_LINES_AND_SPACES}"
    kind = TokenizerKind(
        Pattern.llama3,
        letters=letters,
        numbers=numbers,
        spaces=r"\s",
        before_letters=lead,
        newlines=r"[\r\n]",
        most_numbers=most,
    )
    return text, kind


_GPT2 = TokenizerKind(Pattern.gpt2, letters=r"\p{L}", numbers=r"\p{N}", spaces=r"\s")
_LLAMA3 = _after_gpt2(r"\p{L}", r"\p{L}", r"\p{N}", 3)
_QWEN2 = _after_gpt2(r"\p{L}", r"\p{L}", r"\p{N}", 1)  # 2.5 and 3 too
_QWEN3_5 = _after_gpt2(r"[\p{L}\p{M}]", r"\p{L}\p{M}", r"\p{N}", 1)
_WRITTEN_OUT = dict((_LLAMA3, _QWEN2, _QWEN3_5))
LLAMA3_PATTERN, QWEN2_PATTERN, QWEN3_5_PATTERN = (text for text, _ in (_LLAMA3, _QWEN2, _QWEN3_5))
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_SIGN}
_PREPEND = {"type": "Prepend", "prepend": SPACE_SIGN}
_DECODING: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": SPACE_SIGN}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_METASPACE = {"type": "Metaspace", "replacement": SPACE_SIGN, "split": False}
_DIGITS = {"type": "Digits", "individual_digits": True}
_SCHEMES = {"first": Prefix.bare_text, "always": Prefix.bare_stretch, "never": Prefix.none}


def read_kind(document: Mapping[str, Any], subject: str) -> TokenizerKind:
    """The kind of `document`, a tokenizer.json as the installed package writes it.

    ModelError, naming the difference, for a tokenizer that is not one of these kinds.
    """
    model = document["model"]
    _check_model(model, subject)
    for token in document["added_tokens"]:
        for name in ("single_word", "lstrip", "rstrip"):
            if token[name]:
                refuse(
                    f"{subject}: added token {token['content']!r}",
                    f"{name} = true",
                    "one that leaves what is around it",
                )

    normalizers = _steps(document["normalizer"], "normalizers")
    splits = _steps(document["pre_tokenizer"], "pretokenizers")
    decoders = _steps(document["decoder"], "decoders")
    if any(step["type"] == "ByteLevel" for step in splits):
        return _byte_level(model, normalizers, splits, decoders, subject)
    return _sentencepiece(model, normalizers, splits, decoders, subject)


def components(kind: TokenizerKind) -> dict[str, Any]:
    """The normalizer, pre-tokenizer and decoder of a tokenizer.json of this kind. The inverse of `read_kind`."""
    normalizers: list[dict[str, Any]] = []
    splits: list[dict[str, Any]] = []
    if kind.pattern == Pattern.sentencepiece:
        if kind.replaces_spaces:
            normalizers = [_PREPEND, _REPLACE] if kind.prefix == Prefix.stretch else [_REPLACE]
        else:
            scheme = next((name for name, prefix in _SCHEMES.items() if prefix == kind.prefix), "never")
            splits = [{**_METASPACE, "prepend_scheme": scheme}]
        decoders = [*_DECODING, _STRIP] if kind.strips_space else _DECODING
    else:
        normalizers = [{"type": "NFC"}] if kind.nfc else []
        own_pattern = kind.pattern == Pattern.gpt2
        if not own_pattern:
            regex = next(
                (
                    text
                    for text, known in _WRITTEN_OUT.items()
                    if (known.letters, known.most_numbers) == (kind.letters, kind.most_numbers)
                ),
                "",
            )
            splits.append({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False})
        if kind.single_digits:
            splits.append(_DIGITS)
        spaced = kind.prefix != Prefix.none
        decoders = [{"type": "ByteLevel", "add_prefix_space": spaced, "trim_offsets": True, "use_regex": own_pattern}]
        splits += decoders
    return {
        "normalizer": _component(normalizers, "normalizers"),
        "pre_tokenizer": _component(splits, "pretokenizers"),
        "decoder": _component(decoders, "decoders"),
    }


def refuse(subject: str, got: str, expected: str) -> NoReturn:
    """Raises the ModelError for a tokenizer that the core does not run."""
    raise ModelError(
        subject,
        got=got,
        expected=expected,
        next_step="Build with "
        + setting("text", False)
        + ", and the bundle takes token ids only; or take a model with another tokenizer",
    )


def _check_model(model: Mapping[str, Any], subject: str) -> None:
    if model["type"] != "BPE":
        refuse(f"{subject}: model.type", str(model["type"]), "BPE")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            refuse(f"{subject}: model.{name}", repr(model[name]), "none")


def _byte_level(
    model: Any, normalizers: list[Any], splits: list[Any], decoders: list[Any], subject: str
) -> TokenizerKind:
    if [step["type"] for step in normalizers] not in ([], ["NFC"]):
        refuse(f"{subject}: normalizer", _names(normalizers), "none or NFC")
    if [step["type"] for step in decoders] != ["ByteLevel"]:
        refuse(f"{subject}: decoder", _names(decoders), "ByteLevel")

    *before, last = splits
    own_pattern = last["type"] == "ByteLevel" and last["use_regex"]
    spaced = bool(last.get("add_prefix_space"))
    kind = None
    if not before and own_pattern:
        kind = replace(_GPT2, prefix=Prefix.bare_stretch if spaced else Prefix.none)
    elif len(before) == 1 and last["type"] == "ByteLevel" and not spaced:
        (first,) = before
        if own_pattern and first == _DIGITS:
            kind = replace(_GPT2, single_digits=True)
        elif not own_pattern and first["type"] == "Split" and first["behavior"] == "Isolated" and not first["invert"]:
            kind = _WRITTEN_OUT.get(first["pattern"].get("Regex", ""))

    if kind is None:
        shown = "; ".join(repr(step["pattern"]) if step["type"] == "Split" else repr(step) for step in splits)
        refuse(f"{subject}: pre_tokenizer", shown, "that of GPT-2, SmolLM, Llama 3, Qwen2 or Qwen3.5")
    return replace(kind, nfc=bool(normalizers), whole_words=bool(model.get("ignore_merges")))


def _sentencepiece(
    model: Any, normalizers: list[Any], splits: list[Any], decoders: list[Any], subject: str
) -> TokenizerKind:
    if not model.get("byte_fallback"):
        refuse(
            f"{subject}: model.byte_fallback",
            "false, without ByteLevel before it",
            "byte-level BPE, or BPE with byte fallback",
        )
    if model.get("ignore_merges"):
        refuse(f"{subject}: model.ignore_merges", "true", "false beside byte_fallback")
    if decoders not in (_DECODING, [*_DECODING, _STRIP]):
        refuse(f"{subject}: decoder", repr(decoders), f"{_names(_DECODING)}, with or without a Strip of one space")

    kind = TokenizerKind(Pattern.sentencepiece, strips_space=decoders[-1] == _STRIP)
    if normalizers:
        if normalizers not in ([_REPLACE], [_PREPEND, _REPLACE]):
            refuse(
                f"{subject}: normalizer",
                repr(normalizers),
                f"spaces replaced by {SPACE_SIGN}, with or without one put before",
            )
        # A split at spaces, as Gemma has, does nothing once the spaces are replaced.
        if splits and [(step["type"], step.get("pattern")) for step in splits] != [("Split", {"String": " "})]:
            refuse(f"{subject}: pre_tokenizer", repr(splits), "none")
        return replace(kind, replaces_spaces=True, prefix=Prefix.stretch if _PREPEND in normalizers else Prefix.none)

    settings = dict(splits[0]) if len(splits) == 1 else {}
    prefix = _SCHEMES.get(settings.pop("prepend_scheme", ""))
    if settings != _METASPACE or prefix is None:
        wanted = f"Metaspace with {SPACE_SIGN} and without split, or a normalizer that does it"
        refuse(f"{subject}: pre_tokenizer", repr(splits), wanted)
    return replace(kind, prefix=prefix)


def _steps(part: Any, inner: str) -> list[dict[str, Any]]:
    """The steps of a component of a tokenizer.json, which is a single step, a sequence of them, or null."""
    if part is None:
        return []
    return list(part[inner]) if part["type"] == "Sequence" else [part]


def _component(steps: list[dict[str, Any]], inner: str) -> dict[str, Any] | None:
    """The component of a tokenizer.json that has these steps. The inverse of `_steps`."""
    if len(steps) > 1:
        return {"type": "Sequence", inner: steps}
    return steps[0] if steps else None


def _names(steps: list[dict[str, Any]]) -> str:
    return ", ".join(step["type"] for step in steps) or "none"
