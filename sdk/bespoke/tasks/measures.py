# SPDX-License-Identifier: Apache-2.0
"""How right answers are, as a share from 0 to 1: macro F1 of labels, exact match and F1 of texts, equality of function calls.

- Texts: SQuAD's `evaluate-v2.0.py` (Rajpurkar et al. 2016, 2018). Lower case, without ASCII punctuation, without the articles
  a, an and the, single spaces; exact match of that, and F1 over its words as a bag: P = common / said, R = common / right,
  F1 = 2 P R / (P + R). Where one of the two has no words, both are 1 if neither has any, else 0.
- Labels: F1 of each label that was right or said somewhere, TP / (TP + (FP + FN) / 2), and their plain mean (scikit-learn's
  `f1_score(average="macro")`).
- Function calls: the same function, and the same arguments as JSON values. Order of keys, spaces and the way a text is escaped do
  not count; 1 and 1.0 are one number, 1 and "1", and 1 and true, are different values.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

__all__ = ["Call", "call_of", "exact_match", "macro_f1", "normalized", "parse_call", "same_call", "token_f1"]

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalized(text: str) -> str:
    """A text as SQuAD compares it."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(said: str, right: Sequence[str]) -> bool:
    """Whether it is one of the right answers, normalized."""
    return normalized(said) in map(normalized, right)


def token_f1(said: str, right: Sequence[str]) -> float:
    """Of the right answers the one that it comes closest to."""
    return max(_token_f1(normalized(said).split(), normalized(one).split()) for one in right)


def _token_f1(said: list[str], right: list[str]) -> float:
    if not said or not right:
        return float(said == right)
    common = sum((Counter(said) & Counter(right)).values())
    return 2 * common / (len(said) + len(right))  # 2 P R / (P + R)


def macro_f1(said: Sequence[str], right: Sequence[str]) -> float:
    """`said` and `right`: the label of each row."""
    hits = Counter(one for one, other in zip(said, right, strict=True) if one == other)
    times = Counter(said) + Counter(right)  # 2 TP + FP + FN
    return sum(2 * hits[label] / count for label, count in times.items()) / len(times)


class Call(NamedTuple):
    """A call of the function `name`."""

    name: str
    arguments: Mapping[str, Any]

    def text(self) -> str:
        """As JSON, in the order in which the arguments stand."""
        return json.dumps(self._asdict(), ensure_ascii=False)

    def sorted_text(self) -> str:
        """The same for calls that differ in the order of their arguments."""
        return json.dumps(self._asdict(), ensure_ascii=False, sort_keys=True)


def parse_call(text: str) -> Call | None:
    """The call that `text` is, {"name": ..., "arguments": {...}} as JSON and nothing else; None where it is none."""
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return call_of(found)


def call_of(value: Any) -> Call | None:
    """The call that a JSON value is, or None."""
    if not isinstance(value, Mapping) or value.keys() != {"name", "arguments"}:
        return None
    name, arguments = value["name"], value["arguments"]
    return Call(name, arguments) if isinstance(name, str) and name and isinstance(arguments, Mapping) else None


def same_call(one: Call | None, other: Call | None) -> bool:
    """Equal in name and arguments; None, which is no call, equals nothing."""
    return one is not None and other is not None and one.name == other.name and _same(one.arguments, other.arguments)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)  # True == 1 in Python, not in JSON


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")  # which of the two would be meant?
    return found


def _refused(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
