# SPDX-License-Identifier: Apache-2.0
"""Edges in this process that a cloud leads, and what carries its orders to them: their JSON, without a network."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bespoke_federated.cloud.cloud import Cloud
from bespoke_federated.led.documents import Order, Refusal, Standing
from bespoke_federated.led.rounds import LedRounds
from bespoke_federated.problems import RequestError
from federation_client import Client, Served


class Edges:
    """Edges by node. One that is None is connected and does not answer."""

    def __init__(self, *edges: Served | None) -> None:
        self.edges = dict(enumerate(edges))
        self.orders: list[Mapping[int, Order]] = []

    def nodes(self) -> Collection[int]:
        return self.edges.keys()

    def carry(self, orders: Mapping[int, Order]) -> Mapping[int, Standing | Refusal]:
        self.orders.append(orders)
        return {node: obeyed(edge, order) for node, order in orders.items() if (edge := self.edges[node]) is not None}

    def ask(self, cloud: Cloud, times: int = 1) -> None:
        for _ in range(times):
            cloud.exchange(self)


def rounds_of(served: Served) -> LedRounds:
    rounds = served.edge.rounds
    assert isinstance(rounds, LedRounds)
    return rounds


def obeyed(served: Served, order: Order) -> Standing | Refusal:
    """What an edge answers, through JSON both ways."""
    try:
        answer = rounds_of(served).obey(Order.model_validate_json(order.model_dump_json()))
    except RequestError as error:
        return Refusal(object=error.subject, got=error.got, expected=error.expected, next_step=error.next_step)
    return Standing.model_validate_json(answer.model_dump_json())


def take_part(clients: list[Client], numbers: Mapping[int, float], devices: int) -> dict[int, float]:
    """Lets clients measure as much as they are asked for: what `numbers` has for their direction. Returns what was sent."""
    sent = {}
    for client in clients[:devices]:
        answer = client.ask()
        assert answer.measure is not None
        sent[answer.measure.first] = numbers[answer.measure.first]
        client.measure(answer, [numbers[answer.measure.first]])
        client.ask()
    return sent
