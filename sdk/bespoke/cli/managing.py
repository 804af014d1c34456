# SPDX-License-Identifier: Apache-2.0
"""`bespoke examples`, `versions`, `rollback`, `reset` and `abandon`: list the contents of a state and undo some of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bespoke.cli.output import (
    PATH,
    Command,
    Output,
    Trust,
    format_option,
    need_state,
    print_json,
    state_option,
    table,
    trust_options,
)
from bespoke.errors import DataError

if TYPE_CHECKING:
    from bespoke.personal_model import PersonalModel
    from bespoke.rules.records import Version

_SHOWN_CHARACTERS = 60


def on_a_state(*arguments: str) -> Callable[[Command], Command]:
    """Adds BUNDLE, these arguments, and the options of a command that works on a state."""

    def add(command: Command) -> Command:
        command = click.pass_obj(format_option(trust_options(state_option(command))))  # type: ignore[assignment]
        for name in reversed(arguments):
            command = click.argument(name)(command)
        return click.argument("bundle", type=PATH)(command)

    return add


def opened(bundle: Path, state: Path, trust: Trust) -> PersonalModel:
    from bespoke.personal_model import PersonalModel

    need_state(bundle, state, trust)
    return PersonalModel.open(bundle, state, **trust)


@click.group()
def examples() -> None:
    """List or forget the user's examples. `bespoke train --examples FILE` adds them."""


@examples.command("list", short_help="List the examples of a state.")
@on_a_state()
def list_examples(output: Output, bundle: Path, state: Path, trust: Trust) -> None:
    """List the examples of a state, in the order in which they were added.

    \b
    bespoke examples list chat.bundle --state alice
    """
    with opened(bundle, state, trust) as model:
        stored = model.examples.list()
    if output.json:
        print_json({"examples": [asdict(example) for example in stored]})
        return

    rows = [
        (example.id, example.split, example.tokens, example.trained_tokens, example.added_at, _shortened(example.json))
        for example in stored
    ]
    click.echo(table(("id", "split", "tokens", "trained", "added", "example"), rows))


def _shortened(example: dict[str, Any]) -> str:
    """Returns an example on one line."""
    text = example["text"] if isinstance(example.get("text"), str) else json.dumps(example, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."


@examples.command("forget", short_help="Delete an example and what was learned from it.")
@on_a_state("id")
def forget_example(output: Output, bundle: Path, state: Path, id: str, trust: Trust) -> None:
    """Delete the example ID at once, with every adapter that was trained on it. A run that uses it stops.

    \b
    bespoke examples forget chat.bundle 42 --state alice
    """
    with opened(bundle, state, trust) as model:
        forgotten = model.examples.forget(id)
        answers = _answers(model)
    if not forgotten.example:
        raise DataError(
            f"example '{id}'",
            got="no such example",
            expected="the id of a stored one",
            next_step=f"See which there are: {click.get_current_context().command_path.rpartition(' ')[0]} list",
        )
    if output.json:
        print_json(asdict(forgotten))
        return
    run = "; the unfinished run has ended" if forgotten.run_stopped else ""
    click.echo(f"forgotten, and {forgotten.accepted_deleted} adapters that had seen it{run}; {answers}")
    if forgotten.rounds:
        rounds = ", ".join(map(str, forgotten.rounds))
        click.echo(f"it had entered rounds {rounds} of federated learning: what was sent of them cannot be recalled")


@click.command(short_help="List the accepted adapters.")
@on_a_state()
def versions(output: Output, bundle: Path, state: Path, trust: Trust) -> None:
    """List the accepted adapters, oldest first. The last one answers.

    \b
    bespoke versions chat.bundle --state alice
    """
    with opened(bundle, state, trust) as model:
        accepted = model.versions()
    if output.json:
        print_json({"versions": [asdict(version) for version in accepted]})
    elif not accepted:
        click.echo("no adapter was accepted yet: the base model answers")
    else:
        rows = [
            (version.id, _origin(version), version.step, _loss(version), version.accepted_at) for version in accepted
        ]
        click.echo(table(("version", "from", "step", "loss", "accepted"), rows))
        if accepted[-1].other_text:
            click.echo(
                "The newest was trained with another chat template or tokenizer: it does not answer before a run is judged"
            )


def _loss(version: Version) -> str:
    loss = version.metrics.get("validation_loss")  # missing if it was imported, or accepted without an example
    return "none" if loss is None else f"{loss:.4f}"


def _origin(version: Version) -> str:
    return f"run {version.run_id}" if version.run_id is not None else f"import of {version.source}"


@click.command(short_help="Return to the adapter before the one that answers.")
@on_a_state()
def rollback(output: Output, bundle: Path, state: Path, trust: Trust) -> None:
    """Drop the adapter that answers. The one accepted before it answers again, or the base model if there is none.

    \b
    bespoke rollback chat.bundle --state alice
    """
    with opened(bundle, state, trust) as model:
        version = model.rollback()
        answers = _answers(model)
    if output.json:
        print_json({"answers": None if version is None else asdict(version)})
    else:
        click.echo(answers)


def _answers(model: PersonalModel) -> str:
    accepted = model.versions()
    return f"version {accepted[-1].id}, of {_origin(accepted[-1])}, answers" if accepted else "the base model answers"


@click.command(short_help="Delete everything that was learned; examples stay.")
@on_a_state()
def reset(output: Output, bundle: Path, state: Path, trust: Trust) -> None:
    """Delete everything that was learned, all adapters and runs. The examples stay.

    \b
    bespoke reset chat.bundle --state alice
    """
    with opened(bundle, state, trust) as model:
        model.reset()
        kept = len(model.examples)
    if output.json:
        print_json({"answers": None, "examples": kept})
    else:
        click.echo(f"the base model answers; {kept} examples are kept")


@click.command(short_help="End the unfinished run.")
@on_a_state()
def abandon(output: Output, bundle: Path, state: Path, trust: Trust) -> None:
    """End the unfinished run, so that the next `bespoke train` starts a new one. Its accepted adapters stay.

    \b
    bespoke abandon chat.bundle --state alice
    """
    with opened(bundle, state, trust) as model:
        abandoned = model.abandon_run()
    if output.json:
        print_json({"abandoned": abandoned})
    else:
        click.echo("the unfinished run has ended" if abandoned else "there was no unfinished run")
