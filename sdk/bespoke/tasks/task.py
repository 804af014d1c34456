# SPDX-License-Identifier: Apache-2.0
r"""Tasks: rows of a file, each with a prompt and its right answers. There are four kinds, by columns (CSV) or keys (JSONL, .json):

    kind     columns                      prompt                         right answer
    labels   text, label                  <text>\nLabel:                 the label, one of all labels
    choice   question, options, answer    Question: <question>\nAnswer:  the answer, one of the row's options
    answers  question, answers, context   Question: <question>\nAnswer:  one of the answers; the context stands before the question
    calls    query, call                  <query>\nCall:                 the call, {"name": ..., "arguments": {...}}

The context may be left out. A column `prompt` replaces the first column and the context, and is used unchanged. If the model
has chat turns, the prompt is a message of the user and the answer a message of the assistant. Else the answer follows the
prompt after a space, which most vocabularies have at the start of a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from bespoke import arguments
from bespoke.data.files import ReadReport, checked_fields, mapped, read_rows
from bespoke.errors import ConfigError, DataError, kind_of, shown
from bespoke.remedies import Like, setting
from bespoke.tasks.measures import call_of, parse_call

__all__ = ["Prompt", "Task", "TaskKind", "TaskRow", "read_task"]

TaskKind = Literal["labels", "choice", "answers", "calls"]
Prompt = str | list[dict[str, str]]

_COLUMNS: dict[TaskKind, tuple[str, ...]] = {
    "labels": ("text", "label"),
    "choice": ("question", "options", "answer"),
    "answers": ("question", "answers"),
    "calls": ("query", "call"),
}
_WORDING: dict[TaskKind, str] = {
    "labels": "{}\nLabel:",
    "choice": "Question: {}\nAnswer:",
    "answers": "Question: {}\nAnswer:",
    "calls": "{}\nCall:",
}


@dataclass(frozen=True)
class TaskRow:
    """A row of a task.

    number:  the number of the row in its file
    right:   the accepted answers, at least one. The first one is trained on.
    options: the options to choose from. Without any, the answer is generated.
    """

    number: int
    prompt: str
    right: tuple[str, ...]
    options: tuple[str, ...] = ()

    def asked(self, *, chat: bool) -> Prompt:
        """The prompt in the form that `generate`, `score` and `classify` take."""
        return [{"role": "user", "content": self.prompt}] if chat else self.prompt


def worded(answer: str, *, chat: bool) -> str:
    """The text of an answer behind its prompt."""
    return answer if chat else f" {answer}"


@dataclass(frozen=True)
class Task:
    """Rows with right answers. DataError if there are none.

    source:       the name that errors have for the task, usually the file
    unknown_keys: the keys that are not used, with the number of rows that have them
    """

    kind: TaskKind
    rows: tuple[TaskRow, ...]
    source: str = "task"
    unknown_keys: Mapping[str, int] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if not self.rows:
            raise _refused(self.source, "no rows", "at least one", "Write a row for each example")

    def examples(self, *, chat: bool) -> list[dict[str, Any]]:
        """Examples to train on, one for each row: messages for a model with chat turns, else prompt and completion.

        `chat` says whether the model has chat turns (`PersonalModel.has_turns`).
        """
        return [_example(row, chat) for row in self.rows]

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels, for a task of labels. Give them to `read_task` for a file in which not all of them occur."""
        return self.rows[0].options if self.kind == "labels" else ()


def _example(row: TaskRow, chat: bool) -> dict[str, Any]:
    answer = worded(row.right[0], chat=chat)
    if chat:
        return {"messages": [*row.asked(chat=True), {"role": "assistant", "content": answer}]}
    return {"prompt": row.prompt, "completion": answer}


def read_task(
    kind: TaskKind,
    path: str | Path,
    *,
    fields: Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
    encoding: str | None = None,
) -> Task:
    """Reads a task from a CSV, JSONL or .json file.

    Args:
        kind: "labels", "choice", "answers" or "calls".
        path: the file.
        fields: which column holds what, for instance {"label": "category"}.
        labels: all labels, for the kind "labels". By default those of the file, sorted. Set it if the file lacks some.
        encoding: the encoding of the file, such as "cp1252", if it is not UTF-8.

    Raises:
        ConfigError: for invalid arguments.
        DataError: with file and row, for a row that cannot be used.
    """
    arguments.one_of("kind", kind, get_args(TaskKind))
    wanted = _COLUMNS[kind]
    names = (*wanted, "prompt", *(["context"] if kind == "answers" else []))
    mapping = checked_fields(names, fields or {})
    known = None if labels is None else _known_labels(kind, labels)

    rows = []
    read = ReadReport()
    for number, row in read_rows(path, encoding, read):
        where = f"{path}, row {number}"
        given, used = mapped(row, mapping, where)
        read.unknown_keys.update(row.keys() - used - (set(names) - mapping.keys()))
        right, options = _READERS[kind](given, where)
        if known is not None and right[0] not in known:
            next_step = "Correct it, or name it too: " + setting("labels", Like("[...]", "for each"))
            raise _refused(f"{where}: label", shown(right[0]), f"one of {_listed(known)}", next_step)
        rows.append(TaskRow(number, _asked(kind, given, where), right, options))

    if kind == "labels":
        known = known or tuple(sorted({row.right[0] for row in rows}))
        rows = [TaskRow(row.number, row.prompt, row.right, known) for row in rows]
    return Task(kind, tuple(rows), str(path), dict(read.unknown_keys))


def _known_labels(kind: TaskKind, labels: Sequence[str]) -> tuple[str, ...]:
    """The labels in their order. Among equally likely labels the first one is the answer."""
    listed = isinstance(labels, Sequence) and not isinstance(labels, str)
    known = tuple(label.strip() for label in labels if isinstance(label, str)) if listed else ()
    if kind != "labels" or not known or "" in known or not len(set(known)) == len(known) == len(labels):
        raise ConfigError(
            setting("labels"),
            got=shown(labels),
            expected="different texts, for a task of kind 'labels'",
            next_step="Change " + setting("labels"),
        )
    return known


def _asked(kind: TaskKind, row: Mapping[str, Any], where: str) -> str:
    """The prompt of a row."""
    first = _COLUMNS[kind][0]
    if "prompt" in row:
        replaced = (first, "context") if kind == "answers" else (first,)
        others = [name for name in replaced if row.get(name) not in (None, "")]
        if others:
            raise _refused(
                where,
                f"both 'prompt' and {others[0]!r}",
                "one of the two: a prompt is asked as it stands",
                f"Leave out 'prompt', or {others[0]!r}",
            )
        return _text(row["prompt"], f"{where}: prompt")

    context = row.get("context") if kind == "answers" else None  # some questions have none
    before = "" if context in (None, "") else _text(context, f"{where}: context") + "\n"
    return before + _WORDING[kind].format(_text(_column(row, first, where), f"{where}: {first}"))


def _label(row: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    label = _column(row, "label", where)
    if isinstance(label, int) and not isinstance(label, bool):  # many data sets in JSON have numbers as labels
        label = str(label)
    return (_text(label, f"{where}: label").strip(),), ()


def _choice(row: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    options = _texts(_column(row, "options", where), f"{where}: options")
    answer = _text(_column(row, "answer", where), f"{where}: answer").strip()
    if not 2 <= len(set(options)) == len(options):
        raise _refused(f"{where}: options", _listed(options), "two or more, each once", "Correct the row")
    if answer not in options:
        raise _refused(
            f"{where}: answer", shown(answer), f"one of the options {_listed(options)}", "Write it as the option is"
        )
    return (answer,), options


def _answers(row: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    answers = _column(row, "answers", where)
    if isinstance(answers, str) and answers.strip():
        return (answers.strip(),), ()
    return _texts(answers, f"{where}: answers"), ()


def _call(row: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    value = _column(row, "call", where)
    call = parse_call(value) if isinstance(value, str) else call_of(value)
    # Python also reads NaN and numbers that are too large, which JSON does not have.
    if call is None or parse_call(call.text()) is None:
        raise _refused(
            f"{where}: call",
            shown(value),
            'a call: {"name": "...", "arguments": {...}}',
            "Write it as JSON with these two keys, and with finite numbers",
        )
    return (call.text(),), ()


_READERS: dict[TaskKind, Callable[[Mapping[str, Any], str], tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "labels": _label,
    "choice": _choice,
    "answers": _answers,
    "calls": _call,
}


def _column(row: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in row:
        raise _refused(
            where,
            f"the keys {', '.join(map(repr, row)) or 'none'}, without {name!r}",
            repr(name),
            "Give every row this key, or name the column that holds it: "
            + setting("fields", Like("{name: column}", "NAME=COLUMN")),
        )
    return row[name]


def _text(value: Any, subject: str) -> str:
    if not isinstance(value, str) or not value.strip():
        got = "an empty text" if isinstance(value, str) else kind_of(value)
        raise _refused(subject, got, "text", "Correct the row, or leave it out")
    return value


def _texts(value: Any, subject: str) -> tuple[str, ...]:
    """The texts of a list, without spaces around them."""
    if not isinstance(value, list) or not value:
        got = "an empty list" if value == [] else kind_of(value)
        raise _refused(subject, got, "a list of texts", "Write the rows as JSONL, with a list")
    return tuple(_text(text, subject).strip() for text in value)


def _listed(texts: Sequence[str], most: int = 8) -> str:
    return ", ".join(map(repr, texts[:most])) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _refused(subject: str, got: str, expected: str, next_step: str) -> DataError:
    return DataError(subject, got=got, expected=expected, next_step=next_step)
