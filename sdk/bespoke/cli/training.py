# SPDX-License-Identifier: Apache-2.0
"""`bespoke train` and `bespoke evaluate`, which take examples and print a report."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import click

from bespoke.arguments import unclear_steps
from bespoke.cli.output import (
    PATH,
    Command,
    Output,
    Trust,
    cut,
    engine_option,
    format_option,
    need_state,
    print_json,
    progress,
    state_option,
    table,
    trust_options,
)
from bespoke.cli.row_options import ROW_FORMAT, encoding_option, field_option, given_fields, unknown_lines, unused_lines
from bespoke.cli.settings import TRAIN_FLAGS, setting_flags
from bespoke.errors import ConfigError, DataError
from bespoke.format.result_file import check_place, write
from bespoke.remedies import setting

if TYPE_CHECKING:
    from bespoke.data.files import ReadReport
    from bespoke.personal_model import PersonalModel
    from bespoke.rules.records import AddedExample
    from bespoke.rules.report import Progress
    from bespoke.tasks import Task

TASKS = ("labels", "choice", "answers", "calls")
# Arguments of `train` and `open`, which are not fields of Training.
_OWN = ("run_steps", "most_steps", "seconds", "seed", "memory_mb")


def _example_options(command: Command) -> Command:
    add_task = click.option(
        "--task",
        type=click.Choice(TASKS),
        help="Rows with right answers. labels: text, label; choice: question, options, answer; answers: question, answers; "
        "calls: query, call.",
    )
    add_format = click.option(
        "--examples-format", type=ROW_FORMAT, help="Shape of the examples [the first row decides]."
    )
    return add_format(add_task(field_option(encoding_option(command))))


def _check_task(task: str | None, examples: Path | None, format: str | None) -> None:
    if task is not None and (examples is None or format is not None):
        raise click.UsageError("--task goes with --examples, and in the place of --examples-format")


def _check_answers_are_trained(bundle: Path, task: str, trust: Trust) -> None:
    """Raises ConfigError for a bundle that trains only on the user's turns: those of a task are its questions, not its answers."""
    from bespoke.bundle.reader import read_bundle

    with read_bundle(bundle, **trust) as opened:
        text = opened.manifest.text
    if text.turns is not None and text.train_on == "user":
        raise ConfigError(
            f"--task {task}",
            got="a bundle that trains on the user's words, which are the questions of a task",
            expected="one that trains on the answers",
            next_step="Build a bundle with " + setting("train_on", "assistant"),
        )


@click.command(short_help="Train on the user's examples, and report.")
@click.argument("bundle", type=PATH)
@state_option
@click.option(
    "--examples",
    type=PATH,
    metavar="FILE",
    help="JSONL, .json, CSV, .txt, ... to add first. No example is added twice.",
)
@_example_options
@click.option(
    "--use",
    type=click.Choice(["train"]),
    help="train: hold none of --examples out for the gate, for facts that must be known [from the fifth on one in ten].",
)
@click.option("--method", help="Method to train with [that of the unfinished run, else the bundle's first].")
@engine_option()
@click.option("--new-run", is_flag=True, help="Drop an unfinished run and start a new one.")
@click.option("--seconds", type=float, help="Deadline of this call, which ends in a committed state [none].")
@click.option("--run-steps", type=int, help="Length of a new run [the bundle's].")
@click.option(
    "--most-steps", type=int, help="Most steps of this call; the run goes on in the next one [all that are left]."
)
@click.option("--steps", hidden=True)
@setting_flags(TRAIN_FLAGS)
@click.option("--plot", type=PATH, metavar="FILE", help="Draw memory and losses (.svg or .png).")
@click.option(
    "--csv", type=PATH, metavar="FILE", help="File for a line of each step: loss, seconds, memory, judged loss."
)
@trust_options
@format_option
@click.pass_obj
def train(
    output: Output,
    bundle: Path,
    state: Path,
    examples: Path | None,
    examples_format: str | None,
    task: str | None,
    fields: tuple[str, ...],
    encoding: str | None,
    use: Literal["train"] | None,
    method: str | None,
    engine: str | None,
    new_run: bool,
    steps: str | None,
    plot: Path | None,
    csv: Path | None,
    trust: Trust,
    **given: Any,
) -> None:
    """Train BUNDLE on the examples in --state and print the report.

    An unfinished run continues where it stopped; settings are for a new run. --most-steps trains a part of a run. Ctrl-C or SIGTERM
    stops in a committed state, prints the report (stopped_because: stop_requested) and ends with 0. A second one ends at once with
    130, and what was committed stays. A refused adapter is no error: `accepted` in the report says whether it was accepted.

    \b
    bespoke train chat.bundle --state alice --examples notes.jsonl --most-steps 50 --format json
    """
    if steps is not None:
        raise unclear_steps(steps)
    _check_task(task, examples, examples_format)
    if use is not None and examples is None:
        raise click.UsageError("--use goes with --examples")
    if plot is not None:
        from bespoke.plot import check_path

        check_path(plot)  # before an hour of training, not after
    if csv is not None:
        check_place(f"CSV {csv}", csv)
    if task is not None:
        _check_answers_are_trained(bundle, task, trust)

    from bespoke.data.files import ReadReport
    from bespoke.personal_model import PersonalModel

    overrides = {name: value for name, value in given.items() if value is not None and name not in _OWN}
    asked = {"method": method, **{name: given[name] for name in ("run_steps", "most_steps", "seed")}}
    with PersonalModel.open(bundle, state, memory_mb=given["memory_mb"], engine=engine, **trust) as model:
        model.check_settings(**asked, new_run=new_run, **overrides)
        if examples is not None:
            unused = ReadReport()
            rows = _rows(model, examples, examples_format, task, given_fields(fields), encoding, unused)
            _add(model, examples, rows, use, unused)

        if new_run:
            model.abandon_run()

        with progress() as tell, _stop_by_signal() as stop:
            tell("training: getting ready", 0, 0)

            def on_progress(at: Progress) -> None:
                if at.loss is not None:
                    tell(f"training: loss {at.loss:.4f}", at.step, at.steps)

            report = model.train(**asked, seconds=given["seconds"], stop=stop, on_progress=on_progress, **overrides)

    if plot is not None:
        from bespoke.plot import plot_training

        plot_training(report, plot)
    if csv is not None:
        from bespoke.rules.steps_csv import steps_csv

        write(f"CSV {csv}", csv, steps_csv(report).encode("ascii"))

    if output.json:
        print_json(report.as_dict())
    else:
        click.echo(str(report))


def _rows(
    model: PersonalModel,
    path: Path,
    format: str | None,
    task: str | None,
    fields: dict[str, str],
    encoding: str | None,
    unused: ReadReport,
) -> Iterable[tuple[int, dict[str, Any]]]:
    """Returns (row, example) of a file. Reads a task completely before the first. Fills `unused` meanwhile."""
    if task is None:
        from bespoke.data.files import read_examples

        return read_examples(path, format, fields, unused, encoding)  # type: ignore[arg-type]

    loaded = _task(path, task, fields, encoding=encoding)
    unused.unknown_keys.update(loaded.unknown_keys)
    return zip((row.number for row in loaded.rows), loaded.examples(chat=model.has_turns), strict=True)


def _task(
    path: Path, kind: str, fields: dict[str, str], labels: Sequence[str] = (), encoding: str | None = None
) -> Task:
    from bespoke.tasks import read_task

    return read_task(kind, path, fields=fields, labels=labels or None, encoding=encoding)  # type: ignore[arg-type]


def _add(
    model: PersonalModel,
    path: Path,
    rows: Iterable[tuple[int, dict[str, Any]]],
    use: Literal["train"] | None,
    unused: ReadReport,
) -> None:
    """Adds the examples of a file. Those before a row that cannot be used stay."""
    created = there = 0
    longer: list[AddedExample] = []
    with progress() as tell:
        for row, example in rows:
            try:
                added = model.examples.add(example, use=use)
            except DataError as error:
                raise type(error)(
                    f"{path}, row {row}: {error.subject}",
                    got=error.got,
                    expected=error.expected,
                    next_step=error.next_step,
                ) from None
            created, there = created + added.created, there + (not added.created)
            longer += [added] if added.truncated_tokens else []
            unused.unknown_keys.update(added.unused_keys.keys())
            tell("examples", created + there, 0)

    # After the progress bar is gone, because it would stay above this line.
    before = max(0, there - unused.repeated_rows)
    click.echo(
        "\n".join([f"{path}: {created} examples added, {before} were there already", *unused_lines(path, unused)]),
        err=True,
    )
    if longer:
        tokens = sum(added.truncated_tokens for added in longer)
        trained = sum(added.truncated_trained_tokens for added in longer)
        click.echo(cut(len(longer), tokens, trained), err=True)


@contextmanager
def _stop_by_signal() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns True after the first Ctrl-C or SIGTERM. The second one interrupts."""
    asked = False

    def ask(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command(short_help="Measure the adapter on examples or on a task.")
@click.argument("bundle", type=PATH)
@state_option
@click.option("--examples", type=PATH, metavar="FILE", help="File to evaluate on. None of it is stored.")
@_example_options
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="TEXT",
    help="For --task labels: a label, if the file lacks some; may be repeated [those of the file].",
)
@click.option("--wrong", is_flag=True, help="List the rows of a task with a wrong answer.")
@click.option(
    "--split",
    type=click.Choice(["validation", "train"]),
    default="validation",
    show_default=True,
    help="Which of the user's own examples, without --examples.",
)
@click.option(
    "--behaviour",
    is_flag=True,
    help="Measure on the base model's answers to other questions, and show three of them with the answers of today.",
)
@engine_option()
@trust_options
@format_option
@click.pass_obj
def evaluate(
    output: Output,
    bundle: Path,
    state: Path,
    examples: Path | None,
    examples_format: str | None,
    task: str | None,
    fields: tuple[str, ...],
    encoding: str | None,
    labels: tuple[str, ...],
    wrong: bool,
    split: str,
    behaviour: bool,
    engine: str | None,
    trust: Trust,
) -> None:
    """Print loss, perplexity and next-token accuracy of the adapter that answers. With --task, score its answers.

    The scores are accuracy and macro F1 of labels, and exact match and F1 of answers. For comparison there are the scores of
    chance and of the most frequent answer.

    \b
    bespoke evaluate chat.bundle --state alice --examples held_out.jsonl --format json
    bespoke evaluate chat.bundle --state alice --examples tickets.csv --task labels --field label=category
    bespoke evaluate chat.bundle --state alice --behaviour
    """
    _check_task(task, examples, examples_format)
    if behaviour and examples is not None:
        raise click.UsageError("--behaviour goes without --examples")
    if (wrong and task is None) or (labels and task != "labels"):
        raise click.UsageError("--wrong goes with --task, and --label with --task labels")
    from bespoke.data.files import ReadReport
    from bespoke.personal_model import PersonalModel

    need_state(bundle, state, trust)

    with PersonalModel.open(bundle, state, engine=engine, **trust) as model:
        if behaviour:
            answered = model.evaluate_behaviour()
            if output.json:
                print_json(asdict(answered))
            else:
                click.echo(str(answered))
            return

        columns = given_fields(fields)
        if examples is not None and task is not None:
            loaded = _task(examples, task, columns, labels, encoding)
            _report_lines(unknown_lines(examples, loaded.unknown_keys), examples)
            _judge(output, model, loaded, wrong)
            return

        rows = None
        if examples is not None:
            unused = ReadReport()
            rows = [example for _, example in _rows(model, examples, examples_format, None, columns, encoding, unused)]
            _report_lines(unused_lines(examples, unused), examples)
        evaluation = model.evaluate(rows, split=split)

    if output.json:
        print_json(asdict(evaluation))
        return
    click.echo(str(evaluation))


def _report_lines(lines: Sequence[str], path: Path) -> None:
    if lines:
        click.echo("\n".join([f"{path}:", *lines]), err=True)


def _judge(output: Output, model: PersonalModel, task: Task, wrong: bool) -> None:
    from bespoke.tasks import judge

    with progress() as tell:
        report = judge(model, task, lambda done: tell("rows", done, len(task.rows)))
    if output.json:
        print_json({name: value for name, value in asdict(report).items() if wrong or name != "wrong"})
        return

    click.echo(str(report))
    if wrong and report.wrong:
        click.echo(
            "\n" + table(("row", "right", "answer"), [(row.number, row.right[0], row.answer) for row in report.wrong])
        )
