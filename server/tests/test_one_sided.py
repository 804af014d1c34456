# SPDX-License-Identifier: Apache-2.0
"""Devices whose numbers always lie at an end are left out after a while, also after a restart and by a led edge."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bespoke_federated.cloud.cloud import Cloud
from bespoke_federated.cloud.settings import CloudSettings
from federation_client import Client, ManualClock, Served
from led_edges import Edges
from small_bundle import write_bundle

from bespoke.bundle.reader import read_bundle
from bespoke.rules.federation import coefficients_of, rounded
from bespoke.rules.one_sided import LEAST_ROUNDS

RATE, DEVICES, ROUNDS = 0.5, 7, LEAST_ROUNDS + 5
Serve = Callable[..., Served]


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a clip and without a budget."""
    return write_bundle(tmp_path_factory.mktemp("endless") / "words.bundle", noise=0.0, budget=None)


def sent_in(number: int) -> list[float]:
    """What devices send: the first one always the largest number."""
    return [1.0, *np.random.default_rng(number).uniform(-0.5, 0.5, DEVICES - 1).tolist()]


def step_of(numbers: list[float]) -> float:
    return rounded(RATE * statistics.median(numbers))


def coefficients(served: Served) -> list[float]:
    return [coefficients_of(row.coefficients or "")[0] for row in served.edge.store.ended_after(0, ROUNDS)]


def take_part(clients: list[Client], number: int) -> None:
    for client, value in zip(clients, sent_in(number), strict=True):
        client.take_part(value)


def started(serve: Serve, bundle: Path, **settings: object) -> Served:
    how = {"devices": DEVICES, "least_devices": DEVICES, "rounds": ROUNDS, "whose": "shared", "rate": RATE, **settings}
    return serve(served_bundle=bundle, limit_device_requests=10**6, limit_address_requests=10**6, **how)


def test_a_device_is_left_out_once_it_is_known(serve: Serve, endless: Path) -> None:
    served = started(serve, endless, combine="median")
    clients = [served.enrolled() for _ in range(DEVICES)]
    for number in range(1, ROUNDS + 1):
        take_part(clients, number)
        if number == LEAST_ROUNDS // 2:  # what is remembered is on the disk
            served.close()
            served = started(serve, endless, combine="median")
            for client in clients:
                client.served = served
    with_all = [step_of(sent_in(number)) for number in range(1, LEAST_ROUNDS)]
    without = [step_of(sent_in(number)[1:]) for number in range(LEAST_ROUNDS, ROUNDS + 1)]
    assert coefficients(served) == with_all + without


def test_a_mean_compares_nobody(serve: Serve, endless: Path) -> None:
    served = started(serve, endless, rounds=LEAST_ROUNDS + 1)
    clients = [served.enrolled() for _ in range(DEVICES)]
    for number in range(1, LEAST_ROUNDS + 2):
        take_part(clients, number)
    assert coefficients(served)[-1] == rounded(RATE * statistics.fmean(sent_in(LEAST_ROUNDS + 1)))


def test_a_led_edge_leaves_them_out_of_what_it_sends(
    serve: Serve, endless: Path, tmp_path: Path, clock: ManualClock
) -> None:
    settings = CloudSettings(
        rounds=ROUNDS, devices=DEVICES, least_devices=DEVICES, least_edges=2, rate=RATE, half_every=0, whose="shared",
        combine="median", deadline_seconds=100.0,
    )  # fmt: skip
    served = [started(serve, endless, state=f"edge{number}", led=True) for number in range(2)]
    clients = [[edge.enrolled() for _ in range(DEVICES)] for edge in served]
    edges, expected = Edges(*served), []
    with read_bundle(endless) as opened, Cloud(opened, tmp_path / "cloud", settings, lambda _: None, clock) as cloud:
        edges.ask(cloud, 2)
        for number in range(1, ROUNDS + 1):
            take_part(clients[0], number)
            honest = np.random.default_rng(1000 + number).uniform(-0.5, 0.5, DEVICES).tolist()
            for client, value in zip(clients[1], honest, strict=True):
                client.take_part(value)
            expected.append(step_of([*sent_in(number)[number >= LEAST_ROUNDS :], *honest]))
            edges.ask(cloud, 2)
        assert cloud.done
    assert coefficients(served[0]) == coefficients(served[1]) == expected
