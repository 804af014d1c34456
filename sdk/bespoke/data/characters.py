# SPDX-License-Identifier: Apache-2.0
"""Character tables of the `tokenizers` package, read off its behaviour: which characters match a class of its regular expressions
and how NFC changes each. So the tables agree with the installed package, whatever version of Unicode its libraries have.

All code points are tried, a few thousand at a time, because long texts are slow in that package.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from bespoke.errors import ModelError

__all__ = ["Normalization", "matching", "normalization", "single_digits"]

_STRETCH = 2048  # code points at a time; the range of surrogates is a whole number of stretches
_CODE_POINTS = 0x110000
_SURROGATES = range(0xD800, 0xE000)
_HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)  # a formula composes them from three ranges of jamo
_HANGUL_SECONDS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
_LOWEST_CLASS, _HIGHEST_CLASS = "\u0334", "\u0345"  # marks of combining classes 1 and 240, the lowest and the highest


@dataclass(frozen=True)
class Normalization:
    """Unicode's NFC as data, without Hangul syllables.

    decompositions: character to its full canonical decomposition
    orders:         mark to a number that sorts like its combining class; only marks are keys
    compositions:   (first, second) to the composed character
    joining:        characters that may change with the character before them
    changing:       characters that NFC changes even alone
    """

    decompositions: dict[str, str]
    orders: dict[str, int]
    compositions: dict[tuple[str, str], str]
    joining: frozenset[str]
    changing: frozenset[str]


@functools.cache
def matching(pattern: str) -> frozenset[str]:
    """The characters that match `pattern`, a regular expression for one character."""
    remove = normalizers.Replace(Regex(pattern), "").normalize_str
    characters: set[str] = set()
    for stretch in _stretches():
        kept = remove(stretch)
        if len(kept) < len(stretch):
            characters |= set(stretch) - set(kept)
    return frozenset(characters)


@functools.cache
def single_digits() -> frozenset[str]:
    """The characters that the pre-tokenizer Digits puts into pieces of their own."""
    split = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str
    digits: set[str] = set()
    for stretch in _stretches():
        # Each piece begins with the letter a or is a digit.
        digits |= {piece for piece, _ in split("a" + "a".join(stretch)) if len(piece) == 1 and piece != "a"}
    return frozenset(digits)


@functools.cache
def normalization() -> Normalization:
    """NFC of the installed `tokenizers` package. ModelError if it composes a character of more than two."""
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
    """Yields all code points but surrogates, as texts of `_STRETCH` characters."""
    for begin in range(0, _CODE_POINTS, _STRETCH):
        if begin not in _SURROGATES:
            yield "".join(map(chr, range(begin, min(begin + _STRETCH, _CODE_POINTS))))


def _changed(change: Callable[[str], str], before: str, behind: str) -> set[str]:
    """The characters that `change` alters between the texts `before` and `behind`.

    One call changes many texts, separated by newlines: a newline never changes and never joins what is next to it.
    """
    altered: set[str] = set()
    for stretch in _stretches():
        characters = [character for character in stretch if character != "\n"]
        results = change("\n".join(before + character + behind for character in characters)).split("\n")
        altered |= {c for c, result in zip(characters, results, strict=True) if result != before + c + behind}
    return altered


def _orders(marks: set[str], decompose: Callable[[str], str]) -> dict[str, int]:
    """For each mark, the number of combining classes in use that are lower than its own, plus one.

    Unicode never changes the class of a mark, so Python's own tables can name one mark of each class.
    """
    by_class: dict[int, str] = {}
    for mark in sorted(marks):
        if unicodedata.combining(mark):
            by_class.setdefault(unicodedata.combining(mark), mark)
    ladder = [by_class[number] for number in sorted(by_class)]

    orders = {}
    for mark in sorted(marks):
        pairs = [mark + step for step in ladder]  # swapped if the class of the second is lower
        decomposed = decompose("\n".join(pairs)).split("\n")
        orders[mark] = 1 + sum(before != after for before, after in zip(pairs, decomposed, strict=True))
    return orders
