# SPDX-License-Identifier: Apache-2.0
"""The command line: python -m bespoke_federated serve | token | remove | key | cloud."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import click
import uvicorn
from click.core import ParameterSource

from bespoke.bundle.reader import read_bundle
from bespoke.errors import BespokeError, ConfigError
from bespoke.rules.aggregation import Combine
from bespoke_federated.app import application
from bespoke_federated.clock import SystemClock
from bespoke_federated.edge import Edge, made_tokens
from bespoke_federated.keys import write_certificate, write_key
from bespoke_federated.led.rounds import LedRounds
from bespoke_federated.led.socket import LedSocket
from bespoke_federated.settings import Limits, RoundSettings, Whose
from bespoke_federated.store import Store

DEFAULTS = {name: field.default for name, field in RoundSettings.model_fields.items()}
LIMITS = {name: field.default for name, field in Limits.model_fields.items()}
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


DECIDED_BY_CLOUD = set(DEFAULTS) - {"deadline_seconds", "retry_seconds"}


def _of_rounds(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of rounds."""
    for option in (
        click.option("--guard-least", type=float, default=DEFAULTS["guard_least"], show_default=True),
        click.option("--guard-rounds", type=int, default=DEFAULTS["guard_rounds"], show_default=True),
        click.option(
            "--watchers", type=int, default=DEFAULTS["watchers"], show_default=True, help="Devices for the guard."
        ),
        click.option("--probe-coefficient", type=float, default=DEFAULTS["probe_coefficient"], show_default=True),
        click.option(
            "--mix", type=float, default=DEFAULTS["mix"], show_default=True, help="Share of z; not with probe."
        ),
        click.option(
            "--guided-rate", type=float, default=DEFAULTS["guided_rate"], show_default=True, help="With guidance."
        ),
        click.option(
            "--guidance-wait-seconds", type=float, default=DEFAULTS["guidance_wait_seconds"], show_default=True
        ),
        click.option("--guidance", is_flag=True, help="Wait for guidance, as `bespoke federate guide` makes it."),
        click.option(
            "--half-every", type=int, default=DEFAULTS["half_every"], show_default=True, help="Rounds; 0: never."
        ),
        click.option("--deadline-seconds", type=float, default=DEFAULTS["deadline_seconds"], show_default=True),
        click.option("--combine", type=click.Choice(get_args(Combine)), default=DEFAULTS["combine"], show_default=True),
        click.option("--rate", type=float, default=DEFAULTS["rate"], show_default=True, help="Step for a number of 1."),
        click.option("--whose", type=click.Choice(get_args(Whose)), default=DEFAULTS["whose"], show_default=True),
        click.option(
            "--directions", type=int, default=DEFAULTS["directions"], show_default=True, help="Of each device."
        ),
        click.option("--least-devices", type=int, default=DEFAULTS["least_devices"], show_default=True),
        click.option(
            "--devices", type=int, default=DEFAULTS["devices"], show_default=True, help="Numbers that end a round."
        ),
        click.option("--rounds", type=int, default=DEFAULTS["rounds"], show_default=True, help="Rounds of the task."),
    ):
        command = option(command)
    return command


@click.group()
def cli() -> None:
    """The server of a federation: devices learn a shared adapter together."""


@cli.command()
@click.argument("bundle", type=click.Path(path_type=Path, exists=True))
@click.option("--key", type=FILE, required=True, help="The server's private key, as `key` writes it.")
@click.option("--state", type=FOLDER, required=True, help="Folder of all that the server keeps.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", default=8443, show_default=True, help="Port to listen at.")
@click.option("--tls-cert", type=FILE, help="Certificate in PEM. Without one the server speaks plain HTTP.")
@click.option("--tls-key", type=FILE, help="The certificate's private key in PEM.")
@_of_rounds
@click.option("--retry-seconds", type=float, default=DEFAULTS["retry_seconds"], show_default=True)
@click.option("--most-devices", type=int, default=LIMITS["devices"], show_default=True, help="That may enrol.")
@click.option("--device-requests", type=int, default=LIMITS["device_requests"], show_default=True, help="A minute.")
@click.option("--address-requests", type=int, default=LIMITS["address_requests"], show_default=True, help="A minute.")
@click.option("--led", is_flag=True, help="A cloud decides of rounds. This server asks devices and sums up.")
def serve(
    bundle: Path,
    key: Path,
    state: Path,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    most_devices: int,
    device_requests: int,
    address_requests: int,
    led: bool,
    **rounds: Any,
) -> None:
    """Serves the federation of BUNDLE."""
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError(
            "--tls-cert, --tls-key",
            got="one of them",
            expected="both or none",
            next_step="Give the certificate and its key",
        )
    if led:
        _refuse_what_the_cloud_decides()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    limits = Limits(devices=most_devices, device_requests=device_requests, address_requests=address_requests)
    with (
        read_bundle(bundle) as opened,
        Edge(opened, key.read_bytes(), state, RoundSettings(**rounds), limits, led=led) as edge,
        LedSocket(edge.rounds, state) if isinstance(edge.rounds, LedRounds) else nullcontext(),
    ):
        click.echo(f"task '{edge.federation.task}' at {'https' if tls_cert else 'http'}://{host}:{port}")
        uvicorn.run(
            application(edge),
            host=host,
            port=port,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
            access_log=False,
            log_level="warning",
            server_header=False,
            ws="none",
        )


@cli.command()
@click.option("--state", type=FOLDER, required=True, help="Folder of the server's state.")
@click.option("--count", default=1, show_default=True, help="Tokens to make.")
@click.option("--days", default=30.0, show_default=True, help="Days for which they are valid.")
def token(state: Path, count: int, days: float) -> None:
    """Prints one-time tokens. Each lets one device in."""
    store = Store(state)
    try:
        for made in made_tokens(store, count, SystemClock().calendar() + days * 86_400):
            click.echo(made)
    finally:
        store.close()


@cli.command()
@click.argument("device")
@click.option("--state", type=FOLDER, required=True, help="Folder of the server's state.")
def remove(device: str, state: Path) -> None:
    """Lets DEVICE, an id, in no more until it enrols with a new token. Numbers that it has sent stay in their rounds."""
    store = Store(state)
    try:
        if not store.remove_device(device):
            raise ConfigError(
                "DEVICE", got="one that is not enrolled", expected="an id", next_step="Look it up in the state"
            )
    finally:
        store.close()
    click.echo("removed")


@cli.command()
@click.option("--folder", type=FOLDER, default=Path(), help="Where to write the files. By default here.")
def key(folder: Path) -> None:
    """Writes the server's key, and a certificate for localhost."""
    click.echo(f"server_key for Federation(...): {write_key(folder)}")
    certificate, _ = write_certificate(folder)
    click.echo(f"for trying it on this machine: {certificate}")


@cli.command()
@click.argument("bundle", type=click.Path(path_type=Path, exists=True))
@click.option("--state", type=FOLDER, required=True, help="Folder of all that the cloud and Flower keep.")
@click.option(
    "--edge", "edges", type=FOLDER, multiple=True, required=True, help="State of a led edge. May be repeated."
)
@_of_rounds
@click.option("--poll-seconds", type=float, default=20.0, show_default=True, help="Wait of an edge's app for numbers.")
def cloud(bundle: Path, state: Path, edges: tuple[Path, ...], **settings: Any) -> None:
    """Leads edges on this machine with Flower until the rounds of BUNDLE have ended."""
    from bespoke_federated.flower.local import lead  # Flower is an extra

    lead(bundle, state, edges, settings)


def _refuse_what_the_cloud_decides() -> None:
    source = click.get_current_context().get_parameter_source
    given = sorted(name for name in DECIDED_BY_CLOUD if source(name) is ParameterSource.COMMANDLINE)
    if given:
        raise ConfigError(
            ", ".join(f"--{name.replace('_', '-')}" for name in given),
            got="settings of rounds for a server that is led",
            expected="none: the cloud decides",
            next_step="Give them to the cloud",
        )


def main() -> None:
    """Runs the command line. An error of bespoke takes one line."""
    try:
        cli()
    except BespokeError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
