# SPDX-License-Identifier: Apache-2.0
"""`bespoke generate` and `bespoke export`: use the adapter, for an answer or as a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any, get_args

import click

from bespoke.cli.output import (
    PATH,
    Command,
    Trust,
    engine_option,
    need_state,
    state_option,
    trust_options,
    typed,
)
from bespoke.rules.records import AdapterFormat


def answer_options(max_tokens: int, temperature: float) -> Callable[[Command], Command]:
    """Returns a decorator that adds the options of an answer, with these defaults."""
    option = partial(click.option, show_default=True)
    options = (
        option("--max-tokens", type=click.IntRange(1), default=max_tokens, help="Most tokens of an answer."),
        option("--temperature", type=float, default=temperature, help="0 takes the likeliest token."),
        option(
            "--top-p",
            type=float,
            default=1.0,
            help="Sample from the likeliest tokens whose probabilities add up to this.",
        ),
        option("--top-k", type=int, help="Sample from this many of the likeliest tokens [all]."),
        option("--seed", type=int, default=0, help="Same seed, same answer."),
        click.option(
            "--notes", is_flag=True, help="Put the notes among the examples that are nearest to it before a question."
        ),
    )
    return lambda command: reduce(lambda decorated, add: add(decorated), reversed(options), command)


@click.command(short_help="Answer a prompt with what was learned.")
@click.argument("bundle", type=PATH)
@click.argument("prompt")
@state_option
@click.option("--text", is_flag=True, help="Continue PROMPT as a text, even if the model has chat turns.")
@answer_options(max_tokens=128, temperature=0.0)
@engine_option()
@trust_options
def generate(
    bundle: Path, prompt: str, state: Path, text: bool, engine: str | None, trust: Trust, **settings: Any
) -> None:
    """Answer PROMPT with the adapter that answers, piece by piece. PROMPT "-" is read from stdin.

    If the model has chat turns, PROMPT is a message of the user. Else it is a text to continue.

    \b
    bespoke generate chat.bundle --state alice "What do I take to the lake?" --temperature 0.7
    """
    from bespoke.personal_model import PersonalModel

    need_state(bundle, state, trust)
    if prompt == "-":
        prompt = typed(sys.stdin.read)

    with PersonalModel.open(bundle, state, engine=engine, **trust) as model:
        question: str | list[dict[str, str]] = (
            [{"role": "user", "content": prompt}] if model.has_turns and not text else prompt
        )
        for piece in model.generate(question, **settings):
            click.echo(piece, nl=False)  # click flushes, so each piece shows at once
        click.echo()


@click.command(short_help="Write the adapter to a folder.")
@click.argument("bundle", type=PATH)
@click.argument("out", type=PATH)
@state_option
@click.option(
    "--format",
    "form",
    type=click.Choice([*get_args(AdapterFormat), "merged"]),
    default="peft",
    show_default=True,
    help="Layout of the adapter. merged: the whole model with it.",
)
@click.option(
    "--model",
    type=PATH,
    metavar="PATH",
    help="For --format merged: the folder or GGUF file that BUNDLE was built from.",
)
@click.option("--base", is_flag=True, help="If no adapter was accepted, export one that changes nothing.")
@trust_options
def export(bundle: Path, out: Path, state: Path, form: str, model: Path | None, base: bool, trust: Trust) -> None:
    """Write the adapter that answers to the folder OUT, for the original model.

    peft is for `peft.PeftModel.from_pretrained`, mlx for mlx-lm's --adapter-path, gguf for llama.cpp's --lora. merged is a folder
    for transformers in float16: the bundle's weights with the adapter merged, and the tokenizer and configuration of --model.

    \b
    bespoke export chat.bundle adapter/ --state alice --format peft
    """
    from bespoke.personal_model import PersonalModel

    if (form == "merged") != (model is not None):
        raise click.UsageError("--format merged and --model go together")
    need_state(bundle, state, trust)
    with PersonalModel.open(bundle, state, **trust) as opened:
        if model is not None:
            click.echo(str(opened.export_merged(out, model, base=base)))
            return
        click.echo(str(opened.export_adapter(out, format=form, base=base)))  # type: ignore[arg-type]
