# SPDX-License-Identifier: Apache-2.0
"""How right a model is on a task: options by `classify`, which the model compares itself; free answers by `generate`, greedily.

One rule for options, that of `score` and `classify`: the likeliest is said, by the sum of ln p over the tokens of an answer and of
what ends it. That is the probability of the whole answer, which training on it raises; with what ends it, no option is the
beginning of another. It is `acc` of lm-evaluation-harness (Gao et al. 2021; there without the end). MeZO's code takes the mean over
the tokens instead, which favours long options (`large_models/run.py`); where all have as many tokens, both say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bespoke.errors import ConfigError, DataError, GenerationError
from bespoke.tasks.measures import exact_match, macro_f1, normalized, parse_call, same_call, token_f1
from bespoke.tasks.task import Task, TaskKind, TaskRow, worded

__all__ = ["Answering", "TaskReport", "WrongRow", "judge"]

# Most tokens of a generated answer. 50: as MeZO's code has it for SQuAD. A call is JSON, which takes more of them.
_MOST_TOKENS: dict[TaskKind, int] = {"answers": 50, "calls": 256}


class Answering(Protocol):
    """Of a PersonalModel what judging needs."""

    @property
    def has_turns(self) -> bool: ...

    def classify(self, prompt: Any, labels: Sequence[str]) -> Any: ...

    def generate(self, prompt: Any, *, max_tokens: int, stop_texts: Sequence[str]) -> Iterator[str]: ...


@dataclass(frozen=True)
class WrongRow:
    """`number`: of the row in its file."""

    number: int
    prompt: str
    right: tuple[str, ...]
    said: str


@dataclass(frozen=True)
class TaskReport:
    """Shares from 0 to 1 of `rows` rows; None: not of this kind of task.

    accuracy:    labels, choice: the right one was the likeliest. calls: the function is the right one, whatever its arguments
    macro_f1:    labels: mean of the F1 of each label that was right or said
    exact_match: answers: as SQuAD compares texts. calls: the right function with the right arguments
    f1:          answers: F1 over words, as SQuAD has it
    chance:      accuracy of a guess among the options
    majority:    what the most frequent right answer would reach if it were said to every row: accuracy, else exact match
    options:     labels: how many there are
    """

    task: TaskKind
    rows: int
    accuracy: float | None
    macro_f1: float | None
    exact_match: float | None
    f1: float | None
    chance: float | None
    majority: float
    options: int | None
    wrong: tuple[WrongRow, ...]

    def __str__(self) -> str:
        """A table for people; the wrong rows are counted in it."""
        baselines = (("chance", self.chance), ("always the commonest answer", self.majority))
        reached = [f"{name} {share:.1%}" for name, share in baselines if share is not None]
        lines = [("task", self.task if self.options is None else f"{self.options} {self.task}")]
        for name in ("accuracy", "macro_f1", "exact_match", "f1"):
            share = getattr(self, name)
            if share is not None:
                lines.append((name.replace("_", " ").replace("f1", "F1"), f"{share:.1%}"))
        lines += [("to compare", ", ".join(reached)), ("rows", f"{self.rows}, of which {len(self.wrong)} wrong")]
        return "\n".join(f"{name:<13}{value}" for name, value in lines)


def judge(model: Answering, task: Task, on_row: Callable[[int], None] | None = None) -> TaskReport:
    """`PersonalModel.evaluate` of a task; `on_row` is told how many rows are done.

    Raises ConfigError where there is nothing to choose from, and what the model raises, naming the row.
    """
    if task.kind == "labels" and len(task.labels) < 2:
        raise ConfigError(
            f"the labels of {task.source}",
            got=f"{task.labels[0]!r} alone",
            expected="two or more to choose from",
            next_step="Name all that there are: labels=[...]",
        )
    said = []
    for row in task.rows:
        try:
            said.append(_said(model, task.kind, row))
        except (DataError, GenerationError) as error:
            where = f"{task.source}, row {row.number}: {error.subject}"
            raise type(error)(where, got=error.got, expected=error.expected, next_step=error.next_step) from error
        if on_row is not None:
            on_row(len(said))
    return _report(task, said)


def _said(model: Answering, kind: TaskKind, row: TaskRow) -> str:
    chat = model.has_turns
    prompt = row.asked(chat=chat)
    if row.options:
        by_answer = {worded(option, chat=chat): option for option in row.options}
        return by_answer[model.classify(prompt, list(by_answer)).label]
    stop_texts = [] if chat else ["\n"]  # a plain text goes on after the answer, where it was not trained to end
    return "".join(model.generate(prompt, max_tokens=_MOST_TOKENS[kind], stop_texts=stop_texts)).strip()


def _report(task: Task, said: Sequence[str]) -> TaskReport:
    kind, rows = task.kind, task.rows
    correct = [_correct(kind, one, row) for one, row in zip(said, rows, strict=True)]
    share = sum(correct) / len(rows)
    chosen = kind in ("labels", "choice")
    functions = sum(_same_function(one, row.right[0]) for one, row in zip(said, rows, strict=True)) / len(rows)
    return TaskReport(
        task=kind,
        rows=len(rows),
        accuracy=share if chosen else functions if kind == "calls" else None,
        macro_f1=macro_f1(said, [row.right[0] for row in rows]) if kind == "labels" else None,
        exact_match=None if chosen else share,
        f1=sum(token_f1(one, row.right) for one, row in zip(said, rows, strict=True)) / len(rows)
        if kind == "answers"
        else None,
        chance=sum(1 / len(row.options) for row in rows) / len(rows) if chosen else None,
        majority=max(Counter(key for row in rows for key in _keys(kind, row)).values()) / len(rows),
        options=len(task.labels) or None,
        wrong=tuple(
            WrongRow(row.number, row.prompt, row.right, one)
            for one, row, fits in zip(said, rows, correct, strict=True)
            if not fits
        ),
    )


def _correct(kind: TaskKind, said: str, row: TaskRow) -> bool:
    if kind == "calls":
        return same_call(parse_call(said), parse_call(row.right[0]))
    return exact_match(said, row.right) if kind == "answers" else said == row.right[0]


def _same_function(said: str, right: str) -> bool:
    one, other = parse_call(said), parse_call(right)
    return one is not None and other is not None and one.name == other.name


def _keys(kind: TaskKind, row: TaskRow) -> set[str]:
    """The row's right answers, so that those which are the same are equal."""
    if kind == "answers":
        return {normalized(one) for one in row.right}
    call = parse_call(row.right[0]) if kind == "calls" else None
    return {row.right[0] if call is None else call.sorted_text()}
