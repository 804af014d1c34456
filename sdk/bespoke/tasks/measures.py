# SPDX-License-Identifier: Apache-2.0
"""Measures of answers, from 0 to 1: macro F1 of labels, exact match and F1 of texts, equality of function calls.

- Texts: SQuAD's `evaluate-v2.0.py` (Rajpurkar et al. 2016, 2018). Texts are compared in lower case, without ASCII punctuation and
  the articles a, an and the, and with single spaces. F1 is over the words as a bag: P = common / answered, R = common / right,
  F1 = 2 P R / (P + R). If a text has no words, exact match and F1 are 1 if the other has none either, else 0.
- Labels: F1 of each label that occurs among the right answers or the model's, TP / (TP + (FP + FN) / 2), and the plain mean of
  these (scikit-learn's `f1_score(average="macro")`).
- Function calls: equal functions, and equal arguments as JSON values. The order of keys, spaces and the escapes of a text do not
  count. 1 and 1.0 are the same number. 1 and "1" are different values, and so are 1 and true.
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
    """The form of a text that SQuAD compares."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(answer: str, right: Sequence[str]) -> bool:
    """Whether the answer equals one of the right answers, all normalized."""
    return normalized(answer) in map(normalized, right)


def token_f1(answer: str, right: Sequence[str]) -> float:
    """The F1 over words against the closest right answer."""
    return max(_token_f1(normalized(answer).split(), normalized(accepted).split()) for accepted in right)


def _token_f1(answer: list[str], right: list[str]) -> float:
    if not answer or not right:
        return float(answer == right)
    common = sum((Counter(answer) & Counter(right)).values())
    return 2 * common / (len(answer) + len(right))  # 2 P R / (P + R)


def macro_f1(answers: Sequence[str], right: Sequence[str]) -> float:
    """The macro F1 of the labels that were answered for each row, against the right ones."""
    hits = Counter(answer for answer, label in zip(answers, right, strict=True) if answer == label)
    times = Counter(answers) + Counter(right)  # 2 TP + FP + FN
    return sum(2 * hits[label] / count for label, count in times.items()) / len(times)


class Call(NamedTuple):
    """A call of the function `name`."""

    name: str
    arguments: Mapping[str, Any]

    def text(self) -> str:
        """The call as JSON, with the arguments in their own order."""
        return json.dumps(self._asdict(), ensure_ascii=False)

    def sorted_text(self) -> str:
        """The call as JSON, equal for calls that differ only in the order of their arguments."""
        return json.dumps(self._asdict(), ensure_ascii=False, sort_keys=True)


def parse_call(text: str) -> Call | None:
    """The call that `text` is: {"name": ..., "arguments": {...}} as JSON and nothing else. None for any other text."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return call_of(value)


def call_of(value: Any) -> Call | None:
    """The call that a JSON value is, None for any other value."""
    if not isinstance(value, Mapping) or value.keys() != {"name", "arguments"}:
        return None
    name, arguments = value["name"], value["arguments"]
    return Call(name, arguments) if isinstance(name, str) and name and isinstance(arguments, Mapping) else None


def same_call(first: Call | None, second: Call | None) -> bool:
    """Whether two calls are equal in name and arguments. None is not a call and equals nothing."""
    return (
        first is not None
        and second is not None
        and first.name == second.name
        and _same(first.arguments, second.arguments)
    )


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_same(value, second[key]) for key, value in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and bool(
        first == second
    )  # True == 1 in Python, not in JSON


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key twice")  # it is unclear which of the two is meant
    return members


def _refused(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
