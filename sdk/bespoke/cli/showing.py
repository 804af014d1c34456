# SPDX-License-Identifier: Apache-2.0
"""`bespoke ui`: a page in the browser."""

from __future__ import annotations

import secrets
import signal
from pathlib import Path

import click

from bespoke.cli.output import PATH, Trust, engine_option, state_option, trust_options
from bespoke.errors import MissingDependency


@click.command(short_help="Open the user's model on a page in the browser.")
@click.argument("bundle", type=PATH)
@state_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port of the page, on this machine only [any free one]."
)
@click.option("--memory-mb", type=float, help="Memory limit of training, MB of 10**6 bytes [the bundle's budget].")
@engine_option()
@trust_options
def ui(bundle: Path, state: Path, port: int, memory_mb: float | None, engine: str | None, trust: Trust) -> None:
    """Serve a page for the user's model: add and forget notes, watch training, compare answers with the base model's, roll back.

    It listens on this machine only. Everybody who has the printed link can use it. Ctrl-C or SIGTERM commits a
    running training and ends the page.

    \b
    bespoke ui chat.bundle --state alice
    """
    try:
        from bespoke.ui.server import listening, serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MissingDependency.of("The page", error.name, "ui") from None
    from bespoke.personal_model import PersonalModel
    from bespoke.ui.base import BaseModel
    from bespoke.ui.desk import Desk

    token = secrets.token_urlsafe(24)
    with (
        listening(port) as here,
        PersonalModel.open(bundle, state, memory_mb=memory_mb, engine=engine, **trust) as model,
    ):
        desk = Desk(model, state, BaseModel(bundle, engine=engine, trust=trust))
        try:
            host, own_port = here.getsockname()
            # SIGTERM acts like Ctrl-C: the server raises it again when it has ended.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            click.echo(f"http://{host}:{own_port}/#token={token}")
            serve(desk, here, token)
        finally:
            desk.close()
