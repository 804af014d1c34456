# SPDX-License-Identifier: Apache-2.0
"""The user's examples as the page lists them, and the changes since a browser last asked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from bespoke.data.messages import Message, read_messages
from bespoke.rules.records import ExampleInfo

__all__ = ["Notes", "question_of", "words_of"]

_SAID = ("text", "messages", "prompt", "completion", "chosen")  # what stands in an example, in this order
MOST_GONE_KEPT = 1000  # removed examples that are remembered; a browser that missed more gets the whole list

_Key = tuple[str, str, str, str]  # id, split, when it was added, words


class Notes:
    """A list of examples with revisions.

    Each added or removed example raises the revision by one. An example's number is the revision that added it. Only the number of
    a removed example is kept.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.went = 0  # number of removed examples
        self.question: str | None = None  # of the first example that has one and is learned from
        self._numbers: dict[_Key, int] = {}  # in the order in which they were added, so numbers rise
        self._gone: list[tuple[int, int]] = []  # (revision, number of the example that it removed)
        self._known_from = 0  # `_gone` has everything that was removed after this revision

    def __len__(self) -> int:
        return len(self._numbers)

    def update(self, examples: Sequence[ExampleInfo]) -> None:
        """Takes over the examples that the state has now."""
        learned = (question_of(example.json) for example in examples if example.split == "train")
        self.question = next(filter(None, learned), None)
        now = [(example.id, example.split, example.added_at, words_of(example.json)) for example in examples]

        gone = self._numbers.keys() - set(now)
        for key in gone:
            self.revision += 1
            self._gone.append((self.revision, self._numbers.pop(key)))
        self.went += len(gone)

        for key in now:  # new examples are at the end
            if key not in self._numbers:
                self.revision += 1
                self._numbers[key] = self.revision

        if len(self._gone) > MOST_GONE_KEPT:
            self._known_from = self._gone[-MOST_GONE_KEPT - 1][0]
            del self._gone[:-MOST_GONE_KEPT]

    def since(self, revision: int) -> dict[str, Any] | None:
        """The changes after a revision, None if there are none. "whole": it is the whole list, the changes are forgotten."""
        if revision == self.revision:
            return None
        whole = not self._known_from <= revision <= self.revision or revision == 0
        gone = [] if whole else [number for when, number in self._gone if when > revision and number <= revision]
        listed = list(self._numbers.items())
        first = 0 if whole else bisect_right(listed, revision, key=lambda item: item[1])
        new = [{"number": number, "id": key[0], "split": key[1], "words": key[3]} for key, number in listed[first:]]
        return {"revision": self.revision, "whole": whole, "gone": gone, "new": new}


def words_of(example: dict[str, Any]) -> str:
    """An example as one line of text."""
    if "tokens" in example:
        return f"{len(example['tokens'])} tokens"
    parts = [message.content for name in _SAID if name in example for message in _messages(example[name])]
    return " → ".join(parts)


def question_of(example: dict[str, Any]) -> str | None:
    """The question that an example answers, if it is the only message before the answer."""
    if example.get("as") == "text" or not {"messages", "prompt"} & example.keys():
        return None
    asked = _messages(example["messages"])[:-1] if "messages" in example else _messages(example["prompt"])
    return asked[0].content.strip() if [message.role for message in asked] == ["user"] else None


def _messages(said: Any) -> list[Message]:
    return [Message("user", said)] if isinstance(said, str) else read_messages(said, "example")
