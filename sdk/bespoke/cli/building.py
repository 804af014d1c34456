# SPDX-License-Identifier: Apache-2.0
"""`bespoke build`: Personalizer on the command line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bespoke.arguments import TRAIN_ON
from bespoke.cli.hints import CommandLine, option_names
from bespoke.cli.output import PATH, Output, cut, format_option, print_json, progress
from bespoke.cli.row_options import ROW_FORMAT, encoding_option, field_option, given_fields, unused_lines
from bespoke.cli.settings import FLAGS, personalizer, setting_flags
from bespoke.errors import BuildWarning, BundleError, ConfigError
from bespoke.remedies import rendered
from bespoke.rules.report import megabytes

if TYPE_CHECKING:
    from bespoke.data.prepare import DataReport


@click.command(short_help="Build a bundle from a model.")
@click.argument("out", required=False, type=PATH)
@click.option("--config", type=PATH, metavar="FILE", help="TOML file shaped like Personalizer's arguments.")
@click.option("--model", metavar="DIR|ID|FILE", help="Hugging Face folder, hub id or GGUF file.")
@click.option("--tokenizer", metavar="DIR|ID", help="Folder or hub id of tokenizer and chat template [the model's].")
@click.option(
    "--optimizers", multiple=True, metavar="NAME", help="Methods, the default first, or none; may be repeated."
)
@click.option("--targets", multiple=True, metavar="NAME", help="Targets to compile for; may be repeated.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME.FIELD=VALUE", help="Option of one of them; may be repeated."
)
@click.option(
    "--context",
    type=int,
    metavar="TOKENS",
    help="Most tokens of a conversation [1024, or what the model can].",
)
@click.option(
    "--draft-tokens",
    type=int,
    metavar="TOKENS",
    help="Most tokens that an answer guesses at once from what was said before, 0 to 7 [0].",
)
@click.option(
    "--data", metavar="FILE|auto|none", help="JSONL, .json, CSV, .txt, ... for all users [auto: none but rehearsal]."
)
@click.option("--data-format", type=ROW_FORMAT, help="Shape of the rows of --data [the first row decides].")
@field_option
@encoding_option
@click.option(
    "--rehearsal/--no-rehearsal",
    default=None,
    help="Have the base model answer everyday prompts, so that it keeps answering so while it learns [--rehearsal].",
)
@click.option("--text/--no-text", default=None, help="With the model's tokenizer, or for token ids only [--text].")
@click.option("--train-on", type=click.Choice(TRAIN_ON), help="Whose messages are learned from [assistant].")
@click.option("--licence", metavar="TEXT", help="Terms of the base model, if its folder does not name them.")
@click.option("--template-date", metavar="TEXT", help="Date that the chat template prints, if it asks for today's.")
@click.option("--signing-key", metavar="FILE", help="Private ed25519 key (PEM) to sign the bundle with.")
@setting_flags(FLAGS)
@click.option("--zip", "zips", type=PATH, metavar="DIR", help="Also write weights.zip and method.zip to this folder.")
@click.option(
    "--dry-run", is_flag=True, help="Print the size and memory of the bundle, or why it cannot be built. Write nothing."
)
@format_option
@click.pass_obj
def build(
    output: Output,
    out: Path | None,
    config: Path | None,
    options: tuple[str, ...],
    fields: tuple[str, ...],
    zips: Path | None,
    dry_run: bool,
    **given: Any,
) -> None:
    """Build the bundle OUT from a model.

    \b
    bespoke build chat.bundle --model DIR --data FILE --optimizers mesp --targets executorch
    bespoke build chat.bundle --config bespoke.toml --memory-mb 200 --option mesp.update=sgd
    """
    from bespoke.bundle.writer import check_replaceable
    from bespoke.format.whole_folder import check_place, usable_folder

    output.file = config is not None
    given["fields"] = given_fields(fields) or None
    builder = personalizer(config, given, options)
    if out is not None:
        check_place(out, BundleError, check_replaceable)

    if dry_run:
        with _notes() as notes:
            estimate = builder.estimate()
        if output.json:
            print_json({**asdict(estimate), "peak_bytes": estimate.peak_bytes, "notes": notes})
        else:
            click.echo("\n".join([str(estimate), *notes]))
        return

    if out is None:
        raise ConfigError(
            "OUT", got="none", expected="a folder to write the bundle to", next_step="Name it, or ask for --dry-run"
        )
    if zips is not None:
        usable_folder(zips, BundleError)

    with _notes() as notes, progress() as tell:
        path, report = builder.build_with_report(out, tell)
    if zips is not None:
        from bespoke.bundle.archive import pack

        pack(path, zips)

    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    if output.json:
        data, cost = None if report.data is None else report.data.model_dump(mode="json"), report.quantization
        rehearsal = None if report.rehearsal is None else asdict(report.rehearsal)
        weights = {"quantized": cost.error.quantized, "kept": cost.error.kept, "relative_error": cost.error.relative}
        losses = {"loss_before": cost.loss_before, "loss_after": cost.loss_after}
        print_json(
            {
                "bundle": str(path),
                "bytes": size,
                "data": data,
                "rehearsal": rehearsal,
                "weights": weights | losses,
                "notes": notes,
            }
        )
        return

    click.echo(f"{path}: {megabytes(size)}")
    click.echo(f"int4: {report.quantization}")
    if report.rehearsal is not None:
        click.echo(f"rehearsal: {report.rehearsal}")
    for note in notes:
        click.echo(note)
    if not builder.request.methods:
        click.echo("It answers and does not train: it was built without a method")
    if not builder.request.compiled_for:
        click.echo("It runs on torch only. A phone's device core needs --targets executorch")
    if report.data is not None:
        click.echo(_data_lines(report.data))


@contextmanager
def _notes() -> Iterator[list[str]]:
    """Yields the list of a build's warnings in the words of the command line. Other warnings are shown as usual."""
    notes: list[str] = []
    language = CommandLine(option_names(build))
    with warnings.catch_warnings():
        warnings.simplefilter("always", BuildWarning)
        show = warnings.showwarning

        def take(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, BuildWarning):
                notes.append(rendered(message.args[0] if isinstance(message, Warning) else message, language))
            else:
                show(message, category, *place, **more)

        warnings.showwarning = take
        yield notes


def _data_lines(report: DataReport) -> str:
    """Returns lines that say how the rows of the data file were used."""
    lines = [
        f"{report.file}: {report.rows} rows of {report.format}, {report.examples_train} to train on, {report.examples_valid} held "
        f"out, {report.tokens} tokens ({report.trained_tokens} trained on)"
    ]
    if report.texts_as_turns:
        lines.append(f"  {report.texts_as_turns} texts held the chat template's own tokens and were read as turns")
    if report.truncated_examples:
        lines.append(f"  {cut(report.truncated_examples, report.truncated_tokens, report.truncated_trained_tokens)}")
    return "\n".join([*lines, *unused_lines(report.file, report)])
