# SPDX-License-Identifier: Apache-2.0
"""Evaluates a model on a task. `classify` chooses among options, and `generate` gives free answers greedily.

The answer among options is the most likely one, as in `score` and `classify`: by the sum of ln p over the tokens of an answer
and of its end. That is the probability of the whole answer, which training raises. With its end, no option is the beginning of
another. This is `acc` of lm-evaluation-harness (Gao et al. 2021), which leaves out the end. MeZO's code takes the mean over the
tokens instead, which favours long options (`large_models/run.py`). If all options have the same number of tokens, both choose
the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bespoke.errors import ConfigError, DataError, GenerationError
from bespoke.remedies import Like, setting
from bespoke.tasks.measures import exact_match, macro_f1, normalized, parse_call, same_call, token_f1
from bespoke.tasks.task import Task, TaskKind, TaskRow, worded

__all__ = ["Answering", "TaskReport", "WrongRow", "judge"]

# Most tokens of a generated answer. MeZO's code has 50 for SQuAD. A call is JSON, which takes more tokens.
_MOST_TOKENS: dict[TaskKind, int] = {"answers": 50, "calls": 256}


class Answering(Protocol):
    """The part of PersonalModel that judging needs."""

    @property
    def has_turns(self) -> bool: ...

    def classify(self, prompt: Any, labels: Sequence[str]) -> Any: ...

    def generate(self, prompt: Any, *, max_tokens: int, stop_texts: Sequence[str]) -> Iterator[str]: ...


@dataclass(frozen=True)
class WrongRow:
    """A row that the model answered wrongly. `number` is that of the row in its file."""

    number: int
    prompt: str
    right: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class TaskReport:
    """The results on a task: shares from 0 to 1 of `rows` rows. None marks a measure that this kind of task does not have.

    accuracy:    labels, choice: rows whose right option was the most likely. calls: rows with the right function
    macro_f1:    labels: mean F1 of all labels that occur among the right answers or the model's
    exact_match: answers: texts that are equal as SQuAD compares them. calls: the right function with the right arguments
    f1:          answers: F1 over words, as in SQuAD
    chance:      accuracy of a guess among the options
    majority:    accuracy, else exact match, of always giving the most frequent right answer
    options:     labels: the number of labels
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
        """A table for people. It counts the wrong rows."""
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
    """Evaluates a model on a task, as `PersonalModel.evaluate` does. `on_row` gets the number of rows that are done.

    Raises ConfigError for a task with a single label. An error of the model is raised with the row in its subject.
    """
    if task.kind == "labels" and len(task.labels) < 2:
        raise ConfigError(
            f"the labels of {task.source}",
            got=f"{task.labels[0]!r} alone",
            expected="two or more to choose from",
            next_step="Name all that there are: " + setting("labels", Like("[...]", "for each")),
        )

    answers: list[str] = []
    for row in task.rows:
        try:
            answers.append(_answer(model, task.kind, row))
        except (DataError, GenerationError) as error:
            where = f"{task.source}, row {row.number}: {error.subject}"
            raise type(error)(where, got=error.got, expected=error.expected, next_step=error.next_step) from error
        if on_row is not None:
            on_row(len(answers))
    return _report(task, answers)


def _answer(model: Answering, kind: TaskKind, row: TaskRow) -> str:
    chat = model.has_turns
    prompt = row.asked(chat=chat)
    if row.options:
        by_answer = {worded(option, chat=chat): option for option in row.options}
        return by_answer[model.classify(prompt, list(by_answer)).label]
    stop_texts = (
        [] if chat else ["\n"]
    )  # a model without turns continues after the answer unless it was trained to end there
    return "".join(model.generate(prompt, max_tokens=_MOST_TOKENS[kind], stop_texts=stop_texts)).strip()


def _report(task: Task, answers: Sequence[str]) -> TaskReport:
    kind, rows = task.kind, task.rows
    answered = list(zip(answers, rows, strict=True))
    correct = [_correct(kind, answer, row) for answer, row in answered]
    share = sum(correct) / len(rows)
    chosen = kind in ("labels", "choice")
    functions = sum(_same_function(answer, row.right[0]) for answer, row in answered) / len(rows)
    word_f1 = sum(token_f1(answer, row.right) for answer, row in answered) / len(rows) if kind == "answers" else None

    return TaskReport(
        task=kind,
        rows=len(rows),
        accuracy=share if chosen else functions if kind == "calls" else None,
        macro_f1=macro_f1(answers, [row.right[0] for row in rows]) if kind == "labels" else None,
        exact_match=None if chosen else share,
        f1=word_f1,
        chance=sum(1 / len(row.options) for row in rows) / len(rows) if chosen else None,
        majority=max(Counter(key for row in rows for key in _keys(kind, row)).values()) / len(rows),
        options=len(task.labels) or None,
        wrong=tuple(
            WrongRow(row.number, row.prompt, row.right, answer)
            for (answer, row), is_correct in zip(answered, correct, strict=True)
            if not is_correct
        ),
    )


def _correct(kind: TaskKind, answer: str, row: TaskRow) -> bool:
    if kind == "calls":
        return same_call(parse_call(answer), parse_call(row.right[0]))
    return exact_match(answer, row.right) if kind == "answers" else answer == row.right[0]


def _same_function(answer: str, right: str) -> bool:
    answered, expected = parse_call(answer), parse_call(right)
    return answered is not None and expected is not None and answered.name == expected.name


def _keys(kind: TaskKind, row: TaskRow) -> set[str]:
    """The row's right answers in a form in which equivalent answers are equal."""
    if kind == "answers":
        return {normalized(answer) for answer in row.right}
    call = parse_call(row.right[0]) if kind == "calls" else None
    return {row.right[0] if call is None else call.sorted_text()}
