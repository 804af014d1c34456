# SPDX-License-Identifier: Apache-2.0
"""`bespoke pack`, `bespoke install` and `bespoke export-base`: deliver a bundle to a device, and its model to llama.cpp."""

from __future__ import annotations

from pathlib import Path

import click

from bespoke.cli.output import PATH, Output, Trust, format_option, print_json, trust_options
from bespoke.errors import MissingDependency
from bespoke.rules.report import megabytes


@click.command(short_help="Write archives of a bundle, or a delta to an older one.")
@click.argument("bundle", type=PATH)
@click.argument("out", type=PATH)
@click.option(
    "--since", type=PATH, metavar="OLD", help="An older bundle. Write delta.zip with the files that differ from it."
)
@click.option("--whole", is_flag=True, help="Write bundle.zip with the whole bundle, for the assets of an app.")
@format_option
@click.pass_obj
def pack(output: Output, bundle: Path, out: Path, since: Path | None, whole: bool) -> None:
    """Write weights.zip and method.zip of BUNDLE into the folder OUT.

    \b
    bespoke pack chat.bundle zips
    bespoke pack chat.bundle zips --since shipped.bundle
    bespoke pack chat.bundle assets --whole
    """
    from bespoke.bundle.archive import pack as write_archives

    paths = write_archives(bundle, out, since, whole=whole)
    if output.json:
        print_json({"archives": [{"file": str(path), "bytes": path.stat().st_size} for path in paths]})
        return
    for path in paths:
        click.echo(f"{path}: {megabytes(path.stat().st_size)}")


@click.command(short_help="Install a bundle from its archives, or update an older one.")
@click.argument("archives", type=PATH, nargs=-1, required=True)
@click.argument("folder", type=PATH)
@trust_options
@format_option
@click.pass_obj
def install(output: Output, archives: tuple[Path, ...], folder: Path, trust: Trust) -> None:
    """Install a bundle from its ARCHIVES into FOLDER. Files that they lack come from the bundle that is there.

    \b
    bespoke install zips/weights.zip zips/method.zip chat.bundle
    bespoke install zips/delta.zip chat.bundle --public-key app.pub
    """
    from bespoke.delivery import install as install_archives

    path = install_archives(archives, folder, **trust)
    if output.json:
        print_json({"bundle": str(path)})
    else:
        click.echo(f"{path}: installed")


@click.command("export-base", short_help="Write the base model for llama.cpp.")
@click.argument("bundle", type=PATH)
@click.argument("out", type=PATH)
@trust_options
@format_option
@click.pass_obj
def export_base(output: Output, bundle: Path, out: Path, trust: Trust) -> None:
    """Write base.gguf into the folder OUT: the int4 weights of BUNDLE as Q4_0, for use with its adapters.

    \b
    bespoke export-base chat.bundle llama
    bespoke export chat.bundle learned --state alice --format gguf
    llama-cli --model llama/base.gguf --lora learned/adapter.gguf
    """
    try:
        from bespoke.exports.gguf_base import export_base as write_base
    except ModuleNotFoundError as error:
        if error.name != "gguf":
            raise
        raise MissingDependency.of("bespoke export-base", "gguf", "gguf") from None
    path = write_base(bundle, out, **trust)
    if output.json:
        print_json({"base": str(path), "bytes": path.stat().st_size})
    else:
        click.echo(f"{path}: {megabytes(path.stat().st_size)}")
