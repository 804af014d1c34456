# SPDX-License-Identifier: Apache-2.0
"""The command `bespoke`: the verbs of Personalizer and PersonalModel on the command line.

At its start it imports click and nothing heavy. Each command imports what it needs when it runs. Plugins are looked up only to find
a command that is not built in, or to list all commands.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from bespoke.cli.answering import export, generate
from bespoke.cli.benching import bench
from bespoke.cli.building import build
from bespoke.cli.chatting import chat
from bespoke.cli.delivering import export_base, install, pack
from bespoke.cli.federating import federate
from bespoke.cli.hints import on_the_command_line, option_names
from bespoke.cli.inspecting import doctor, inspect, plugins, verify
from bespoke.cli.managing import abandon, examples, reset, rollback, versions
from bespoke.cli.output import INTERRUPTED, Output, tell_error
from bespoke.cli.reading import read
from bespoke.cli.showing import ui
from bespoke.cli.training import evaluate, train
from bespoke.errors import BespokeError
from bespoke.system.descriptors import no_free_descriptor
from bespoke.version import __version__

__all__ = ["cli", "main", "run"]


class Commands(click.Group):
    """The built-in commands in the order of a bundle's life, then those of plugins, which cannot replace a built-in one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *sorted(self._of_plugins().keys() - self.commands.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.commands.get(cmd_name) or self._of_plugins().get(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BespokeError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            options = option_names(build) | (
                option_names(command) if command else {}
            )  # an error may say to build the bundle again
            raise on_the_command_line(error, options, ctx.obj.file) from error
        except OSError as error:
            refusal = no_free_descriptor(error)
            if refusal is None:
                raise
            raise refusal from error

    def _of_plugins(self) -> dict[str, click.Command]:
        from bespoke.plugins import commands

        return {command.name: command for command in commands() if isinstance(command, click.Command) and command.name}


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="bespoke")
@click.option("--debug", is_flag=True, help="Show where in the code an error was raised.")
@click.pass_obj
def cli(output: Output, debug: bool) -> None:
    """Fine-tune a language model for its user, on the user's own device.

    A bundle is built once from a model, ships with the app, and is trained on the user's own words within a memory budget.
    """
    output.debug = debug


for _command in (
    read,
    build,
    inspect,
    verify,
    pack,
    install,
    export_base,
    train,
    evaluate,
    generate,
    chat,
    ui,
    export,
    examples,
    versions,
    rollback,
    reset,
    abandon,
    federate,
    plugins,
    doctor,
    bench,
):
    cli.add_command(_command)


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and returns its exit code. Prints errors of the SDK and does not raise them."""
    output = Output()
    try:
        code = cli.main(list(arguments), prog_name="bespoke", standalone_mode=False, obj=output)
        return code if isinstance(code, int) else 0
    except BespokeError as error:
        if output.debug:
            traceback.print_exception(error)
        tell_error(output, error)
        return error.exit_code
    except click.ClickException as error:
        tell_error(output, error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED


def main() -> NoReturn:
    """Entry point of the command `bespoke`."""
    sys.exit(run(sys.argv[1:]))
