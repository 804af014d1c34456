# SPDX-License-Identifier: Apache-2.0
"""What a cloud tells edges of guided rounds, written by hand, and devices that take part in them."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import numpy as np
from bespoke_federated.led.documents import Ended, GuidedBy, Opened, Order, SentFile
from federation_client import Client
from guided_rounds import CODES, COLUMNS, PROBED, SCALE, SCALES, after, codes

from bespoke.rules.federation import coefficients_text, rounded
from bespoke.rules.round_documents import ReceivedFile

RATE = 0.5
SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "devices": 3,
    "least_devices": 2,
    "least_edges": 2,
    "half_every": 0,
    "guided_rate": RATE,
    "deadline_seconds": 100.0,
    "guidance": True,
    "guidance_wait_seconds": 50.0,
    "probe_coefficient": PROBED,
    "watchers": 1,
    "guard_rounds": 2,
}


def take_part(clients: list[Client], along: tuple[float, float], of_noise: float = 2.0) -> list[int]:
    """Sends a number for each column, and one along z. Returns the directions that were asked for."""
    asked = []
    for client in clients:
        answer = client.ask()
        assert answer.measure is not None
        first = answer.measure.first
        assert bool(answer.measure.files) is (first < COLUMNS)
        client.measure(answer, [along[first] if first < COLUMNS else of_noise])
        client.ask()
        asked.append(first)
    return asked


def step(*numbers: float) -> float:
    """The step along a column, of numbers that are c' v . g."""
    return rounded(RATE / PROBED * sum(numbers) / len(numbers))


def sent(array: np.ndarray) -> SentFile:
    data = array.tobytes()
    return SentFile(sha256=hashlib.sha256(data).hexdigest(), data=base64.b64encode(data).decode())


def named(name: str, array: np.ndarray) -> ReceivedFile:
    return ReceivedFile(name=name, sha256=sent(array).sha256, size=array.nbytes)


def guided_by(seed: int) -> GuidedBy:
    files = (named(CODES, codes(seed)), named(SCALE, SCALES))
    return GuidedBy(coefficient=0.0, guidance_coefficient=PROBED, watched=0, files=files)


def order(**more: Any) -> Order:
    return Order(**{"task": "words", "initial": after([]), "rounds": 3, **more})


def opened(number: int, guidance: GuidedBy | None = None) -> Opened:
    share = {"first_group": 0, "own_groups": COLUMNS, "devices": 2}
    return Opened(number=number, groups=COLUMNS, each=1, guidance=guidance or guided_by(number), **share)


def ended(taken: list[tuple[int, list[float]]]) -> Ended:
    """The last of these rounds: the seed of each one's columns, and the step along each."""
    seed, steps = taken[-1]
    return Ended(
        number=len(taken),
        groups=COLUMNS,
        each=1,
        guidance=guided_by(seed),
        coefficients=coefficients_text([0.0] * COLUMNS),
        guided=coefficients_text(steps),
        half=False,
        adapter=after(taken),
        counted=False,
    )
