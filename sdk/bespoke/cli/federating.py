# SPDX-License-Identifier: Apache-2.0
"""`bespoke federate`: take part in what the users of an app learn together."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bespoke.cli.managing import on_a_state, opened
from bespoke.cli.output import PATH, Command, Output, Trust, print_json
from bespoke.errors import ConfigError

if TYPE_CHECKING:
    from bespoke.federated_device import DeviceKey

__all__ = ["federate"]


@click.group()
def federate() -> None:
    """Take part in what the users of an app learn together. Nothing is sent before `join`."""


def _key_option(command: Command) -> Command:
    text = "File of the device's key. By default next to the state, its name with .device behind it."
    return click.option("--key", type=PATH, help=text)(command)


def _key(state: Path, key: Path | None) -> DeviceKey:
    from bespoke.federated_device import DeviceKey

    return DeviceKey(key or state.with_name(f"{state.name}.device"))


@federate.command("join", short_help="Give the user's consent.")
@on_a_state()
@click.option("--yes", is_flag=True, help="Do not ask.")
def join(output: Output, bundle: Path, state: Path, trust: Trust, yes: bool) -> None:
    """Show what leaves the device, and ask for consent.

    \b
    bespoke federate join together.bundle --state alice
    """
    with opened(bundle, state, trust) as model:
        status = model.federation.status()
        if status.task is not None:
            click.echo(status.explanation, err=output.json)
            if not yes:
                click.confirm("Take part?", abort=True, err=output.json)
        model.federation.join()
        status = model.federation.status()
    if output.json:
        print_json(asdict(status))
    else:
        click.echo(f"joined: {status.task}")


@federate.command("run", short_help="Follow the rounds, and take part in one.")
@on_a_state()
@click.option("--server", required=True, help="Address of the app's server, https://...")
@click.option("--token", help="One-time token. Needed the first time.")
@click.option("--ca-file", type=PATH, help="PEM file of certificates, in the place of the system's.")
@click.option("--rounds", type=int, default=1, show_default=True, help="Most rounds to take part in.")
@_key_option
def run(
    output: Output,
    bundle: Path,
    state: Path,
    trust: Trust,
    server: str,
    token: str | None,
    ca_file: Path | None,
    rounds: int,
    key: Path | None,
) -> None:
    """Follow the rounds that have ended and measure for one that is open. Call it once a day.

    \b
    bespoke federate run together.bundle --state alice --server https://learn.example --token TOKEN
    """
    from bespoke.federation_client import FederationClient, learn_together

    device = _key(state, key)
    client = FederationClient(server, device, ca_file=ca_file)
    with opened(bundle, state, trust) as model:
        if not model.federation.status().joined:
            raise ConfigError(
                "federate", got="no consent", expected="the user's", next_step="bespoke federate join shows what leaves"
            )
        if device.server != client.server:
            if token is None:
                raise ConfigError(
                    "--token",
                    got="none",
                    expected="a token, since this server has not let this device in yet",
                    next_step="Ask who runs the server for one",
                )
            client.enrol(token)
        done = learn_together(model, client, rounds=rounds)
    if output.json:
        print_json(asdict(done))
        return
    measured = f"took part in round {', '.join(map(str, done.measured))}" if done.measured else "took part in no round"
    after = "the task has ended" if done.done else f"ask again in {done.wait_seconds:.0f} s"
    click.echo(f"{measured}; followed {done.followed}, the last is {done.round}; {after}")


@federate.command("status", short_help="Show what the user takes part in, and what it has cost.")
@on_a_state()
@_key_option
def status(output: Output, bundle: Path, state: Path, trust: Trust, key: Path | None) -> None:
    """Show what the user takes part in, and what it has cost.

    \b
    bespoke federate status together.bundle --state alice
    """
    with opened(bundle, state, trust) as model:
        found = model.federation.status()
    traffic = _key(state, key).traffic()
    if output.json:
        print_json({**asdict(found), **traffic._asdict()})
        return
    if found.task is None:
        click.echo("the bundle has no federation")
        return
    spent = "no noise, so nothing is promised" if found.epsilon_spent is None else f"epsilon {found.epsilon_spent:.2f}"
    limit = "no limit" if found.budget is None else f"{found.spent:.3g} of {found.budget:.3g} spent"
    click.echo(f"{found.task}: {'joined' if found.joined else 'not joined'}")
    click.echo(f"rounds: {found.rounds_sent} sent, {found.pending} not confirmed, {found.round} followed")
    click.echo(f"privacy: {limit}, {spent}")
    click.echo(f"bytes: {traffic.bytes_sent} sent, {traffic.bytes_received} received")
    click.echo(found.explanation)


@federate.command("leave", short_help="Take the consent back.")
@on_a_state()
@_key_option
def leave(output: Output, bundle: Path, state: Path, trust: Trust, key: Path | None) -> None:
    """Take the consent back. The device's key and what was to be sent are deleted.

    \b
    bespoke federate leave together.bundle --state alice
    """
    with opened(bundle, state, trust) as model:
        model.federation.leave()
        found = model.federation.status()
    _key(state, key).delete()
    if output.json:
        print_json(asdict(found))
    else:
        click.echo("left; what was sent before cannot be recalled")


@federate.command("guide", short_help="Make guidance for a server, from public examples.")
@click.argument("bundle", type=PATH)
@click.option("--public", type=PATH, required=True, help="File of public examples.")
@click.option(
    "--server-state", type=PATH, required=True, help="State of the server or cloud that runs with --guidance."
)
@click.option("--rows", type=int, default=16, show_default=True, help="Examples for each gradient.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Between two looks for a new adapter.")
@click.option("--once", is_flag=True, help="Look once.")
def guide(bundle: Path, public: Path, server_state: Path, rows: int, seconds: float, once: bool) -> None:
    """Make guidance for each adapter that a server has. It computes exact gradients of public examples and needs torch.

    \b
    bespoke federate guide together.bundle --public everyday.jsonl --server-state state
    """
    from bespoke.federated_guidance import GuidanceMaker, offer_guidance

    maker = GuidanceMaker(bundle, public, rows=rows)
    while True:
        if (sha256 := offer_guidance(maker, server_state)) is not None:
            click.echo(f"guidance for the adapter {sha256[:12]}")
        if once:
            return
        time.sleep(seconds)


@federate.command("adopt", short_help="Judge the shared adapter, and let it answer.")
@on_a_state()
def adopt(output: Output, bundle: Path, state: Path, trust: Trust) -> None:
    """Judge the shared adapter by the user's own examples. If it is accepted, it answers.

    \b
    bespoke federate adopt together.bundle --state alice
    """
    with opened(bundle, state, trust) as model:
        report = model.federation.adopt()
    if output.json:
        print_json({"accepted": report.accepted, "why_refused": report.why_refused})
    else:
        click.echo("accepted: it answers from now on" if report.accepted else f"refused: {report.why_refused}")
