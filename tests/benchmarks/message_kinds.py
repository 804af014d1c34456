# SPDX-License-Identifier: Apache-2.0
"""Messages that teach facts, a way of writing or labels, and how much of it a model shows."""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests.benchmarks.harmless_measure import answer
from tests.benchmarks.harmless_words import Asked, Fact, lines

if TYPE_CHECKING:
    from bespoke import PersonalModel

Kind = Literal["facts", "write like me", "labels"]
KINDS: tuple[Kind, ...] = ("facts", "write like me", "labels")
ASKED = 50  # facts, texts or labels that are asked for
ANSWER_TOKENS = 40
SHORTEST, LONGEST = 30, 220  # characters of a speech
LABELS = 10


@dataclass(frozen=True)
class Shown:
    """What a model shows of what was taught. `measured` says what `value` counts; `other` is a second figure of it, or empty."""

    measured: str
    value: float
    other: str = ""

    @property
    def text(self) -> str:
        return f"{self.value:.4g}" + (f"; {self.other}" if self.other else "")


def contacts(count: int) -> list[Fact]:
    """Where people of an address book live; up to 1,000."""
    first_names, last_names, towns = (line.split() for line in lines("address_book.txt"))
    names = [f"{first} {last}" for last in last_names for first in first_names]
    rng = random.Random(0)
    rng.shuffle(names)
    return [Fact(f"In which town does {name} live?", (rng.choice(towns),), ()) for name in names[:count]]


@cache
def speeches(data_folder: Path) -> list[tuple[str, str]]:
    """(what was said before, what is answered) in the plays of tinyshakespeare."""
    text = (data_folder / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    said = [part.partition(":\n")[2].replace("\n", " ") for part in text.split("\n\n")]
    pairs = [pair for pair in pairwise(said) if all(SHORTEST <= len(one) <= LONGEST for one in pair)]
    random.Random(0).shuffle(pairs)
    return pairs


def turns(question: str, reply: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]}


def labels_file(data_folder: Path, split: str, count: int, path: Path) -> Path:
    """The first rows of LABELS labels of banking77, as a task's file."""
    with (data_folder / "classification" / "banking77" / f"{split}.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["category"].replace("_", " ")) for row in csv.DictReader(file)]
    known = sorted({label for _, label in rows})[:: len({label for _, label in rows}) // LABELS][:LABELS]
    rows = [row for row in rows if row[1] in known]
    random.Random(0).shuffle(rows)
    assert len(rows) >= count
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows[:count]])
    return path


class Messages:
    """`count` messages of a kind.

    plain:  answers of the base model to other prompts, from which the user's are told apart
    folder: where files may be written
    """

    def __init__(
        self, kind: Kind, count: int, asked: Asked, plain: Sequence[str], data_folder: Path, folder: Path
    ) -> None:
        self.kind, self.count, self.asked, self.plain = kind, count, asked, plain
        self.data_folder, self.folder = data_folder, folder

    def add_to(self, model: PersonalModel) -> None:
        """Adds them as an app does. Facts are to be known by heart."""
        use: Literal["train"] | None = "train" if self.kind == "facts" else None
        for number, example in enumerate(self._examples()):
            model.examples.add(example, id=str(number), use=use)

    def _examples(self) -> Sequence[dict[str, Any]]:
        from bespoke.tasks import read_task

        if self.kind == "facts":
            return [self.asked.example(fact) for fact in contacts(self.count)]
        if self.kind == "write like me":
            return [turns(*pair) for pair in speeches(self.data_folder)[ASKED : ASKED + self.count]]
        path = labels_file(self.data_folder, "train", self.count, self.folder / "train.csv")
        return list(read_task("labels", path).examples(chat=True))

    def shown_by(self, model: PersonalModel) -> Shown:
        if self.kind == "facts":
            asked = random.Random(1).sample(contacts(self.count), ASKED)
            right = sum(
                fact.is_in(answer(model, self.asked.about(fact.question), ANSWER_TOKENS).text) for fact in asked
            )
            return Shown(f"facts known, of {ASKED}", right)
        if self.kind == "write like me":
            unseen = speeches(self.data_folder)[:ASKED]
            loss = model.evaluate([turns(*pair) for pair in unseen]).loss
            replies = [answer(model, self.asked.prompt(before), ANSWER_TOKENS).text for before, _ in unseen]
            like = sum(self._author().predict(replies))
            return Shown("nats a token of unseen messages", loss, f"{like} of {ASKED} answers taken for the user's")
        from bespoke.tasks import read_task

        known = read_task("labels", labels_file(self.data_folder, "train", 500, self.folder / "known.csv")).labels
        test = read_task(
            "labels", labels_file(self.data_folder, "test", 2 * ASKED, self.folder / "test.csv"), labels=known
        )
        return Shown("labels right, share", model.evaluate(test).accuracy)

    def _author(self) -> Any:
        """A classifier of authors that saw neither the messages that are learned nor the questions: 1 is the user."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        theirs = [reply for _, reply in speeches(self.data_folder)[-500:]]
        plain = [
            sentence
            for text in self.plain
            for sentence in re.split(r"(?<=[.!?])\s+", text)
            if len(sentence) >= SHORTEST
        ]
        model = make_pipeline(
            TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True),
            LogisticRegression(class_weight="balanced", max_iter=1000),
        )
        return model.fit([*theirs, *plain], [1] * len(theirs) + [0] * len(plain))
