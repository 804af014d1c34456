# SPDX-License-Identifier: Apache-2.0
"""What the `tokenizers` package knows of each character, asked of itself: which match a class of its regular expressions, and
how NFC changes them. So tables made of the answers agree with it, whatever version of Unicode its libraries hold.

All code points are asked, in stretches: its offsets make long texts slow.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from bespoke.errors import ModelError

__all__ = ["Normalization", "matching", "normalization", "single_digits"]

_STRETCH = 2048  # so that surrogates fill whole ones
_CODE_POINTS = 0x110000
_SURROGATES = range(0xD800, 0xE000)
_HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)  # composed by a formula, of the three ranges of jamo
_HANGUL_SECONDS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
_LOWEST_CLASS, _HIGHEST_CLASS = "\u0334", "\u0345"  # combining classes 1 and 240: no mark is below or above


@dataclass(frozen=True)
class Normalization:
    """Unicode's NFC as data, Hangul syllables apart. `decompositions`: characters to their full canonical decomposition.
    `orders`: marks to a number that sorts as their combining class does; characters that are no marks are absent.
    `compositions`: (first, second) to the one character. `joining`: those that may change with what stands before them;
    `changing`: those that NFC changes where they stand alone."""

    decompositions: dict[str, str]
    orders: dict[str, int]
    compositions: dict[tuple[str, str], str]
    joining: frozenset[str]
    changing: frozenset[str]


@functools.cache
def matching(pattern: str) -> frozenset[str]:
    """Characters that a regular expression of one character matches."""
    remove = normalizers.Replace(Regex(pattern), "").normalize_str
    found: set[str] = set()
    for stretch in _stretches():
        kept = remove(stretch)
        if len(kept) < len(stretch):
            found |= set(stretch) - set(kept)
    return frozenset(found)


@functools.cache
def single_digits() -> frozenset[str]:
    """Characters that the pre-tokenizer Digits puts into pieces of their own."""
    split = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str
    found: set[str] = set()
    for stretch in _stretches():
        # Every piece begins with the letter or is a digit.
        found |= {piece for piece, _ in split("a" + "a".join(stretch)) if len(piece) == 1 and piece != "a"}
    return frozenset(found)


@functools.cache
def normalization() -> Normalization:
    compose, decompose = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    changing = _changed(compose, "", "")
    decompositions = {c: decompose(c) for c in sorted(_changed(decompose, "", "")) if ord(c) not in _HANGUL_SYLLABLES}
    marks = _changed(decompose, _HIGHEST_CLASS, "") | _changed(decompose, "", _LOWEST_CLASS)
    orders = _orders(marks - decompositions.keys(), decompose)
    compositions: dict[tuple[str, str], str] = {}
    for character, parts in decompositions.items():
        if character in changing:
            continue
        first, second = compose(parts[:-1]), parts[-1]
        if len(first) != 1 or compose(first + second) != character:
            raise ModelError(
                "NFC of the tokenizers package",
                got=f"a character U+{ord(character):04X} that is not composed of two",
                expected="compositions of two characters",
                next_step="Install the version of tokenizers that constraints.txt names",
            )
        compositions[first, second] = character
    seconds = {second for _, second in compositions} | {chr(code) for code in _HANGUL_SECONDS} | orders.keys()
    joining = seconds | {character for character, parts in decompositions.items() if parts[0] in seconds}
    return Normalization(decompositions, orders, compositions, frozenset(joining), frozenset(changing))


def _stretches() -> Iterator[str]:
    for begin in range(0, _CODE_POINTS, _STRETCH):
        if begin not in _SURROGATES:
            yield "".join(map(chr, range(begin, min(begin + _STRETCH, _CODE_POINTS))))


def _changed(change: Callable[[str], str], before: str, behind: str) -> set[str]:
    """Characters that `change` alters between these two texts. A newline never changes and joins nothing."""
    found: set[str] = set()
    for stretch in _stretches():
        asked = [character for character in stretch if character != "\n"]
        answers = change("\n".join(before + character + behind for character in asked)).split("\n")
        found |= {c for c, answer in zip(asked, answers, strict=True) if answer != before + c + behind}
    return found


def _orders(marks: set[str], decompose: Callable[[str], str]) -> dict[str, int]:
    """How many combining classes, of those that Unicode has given out, lie below each mark's, plus one. A class once given
    never changes, so one mark of each may come from Python's own tables."""
    known: dict[int, str] = {}
    for mark in sorted(marks):
        if unicodedata.combining(mark):
            known.setdefault(unicodedata.combining(mark), mark)
    ladder = [known[number] for number in sorted(known)]
    orders = {}
    for mark in sorted(marks):
        asked = [mark + step for step in ladder]  # swapped where the second one's class is lower
        answers = decompose("\n".join(asked)).split("\n")
        orders[mark] = 1 + sum(before != after for before, after in zip(asked, answers, strict=True))
    return orders
