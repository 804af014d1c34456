# SPDX-License-Identifier: Apache-2.0
"""Guided rounds: what devices are asked along columns, the step that comes of it, and the guard."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from federation_client import Client, Served
from safetensors.numpy import save_file
from small_bundle import CODE_BYTES, PIECES, initial_pieces, write_bundle

from bespoke.errors import BundleError
from bespoke.rules.federation import coefficients_of

Serve = Callable[..., Served]
COLUMNS, PROBED = 2, 4.0  # and c' of a column
SCALES = np.array([0.5, 0.25], np.float32)
PROBING = {
    "guidance": True,
    "guidance_wait_seconds": 50.0,
    "probe_coefficient": PROBED,
    "guided_rate": 0.5,
    "devices": 4,
    "least_devices": 4,
    "watchers": 2,
    "guard_rounds": 2,
}


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("probed") / "words.bundle", probed_columns=COLUMNS, clip=100.0)


def codes(seed: int) -> np.ndarray:
    """Columns of codes from -7 to 7."""
    low, high = np.random.default_rng(seed).integers(1, 16, (2, CODE_BYTES, COLUMNS))
    return (low | high << 4).astype(np.uint8)


def offer(served: Served, seed: int, inside: float = 1.0, whole: float = 2.0) -> None:
    """Puts guidance for the server's adapter where it looks."""
    folder = served.edge.store.folder / "guidance"
    folder.mkdir(exist_ok=True)
    files = {"guidance.block_00.codes": codes(seed), "guidance.block_00.scales": SCALES}
    save_file(files, folder / "new", {"public": json.dumps({"inside": inside, "whole": whole})})
    os.replace(folder / "new", folder / f"{served.adapter}.safetensors")


def column(seed: int, number: int) -> dict[str, np.ndarray]:
    """A column by piece, read code by code."""
    pieces, start = {}, 0
    for place, (name, shape) in enumerate(PIECES.items()):
        size = int(np.prod(shape))
        numbers = []
        for element in range(size):
            byte = int(codes(seed)[start + element // 2, number])
            numbers.append(((byte >> 4 if element % 2 else byte & 15) - 8) * float(SCALES[place]))
        pieces[name] = np.array(numbers, np.float32).reshape(shape)
        start += size // 2
    return pieces


def measured(devices: list[Client], of_column: float, of_noise: float) -> None:
    """A round: devices along columns send one number, those along z another."""
    for device in devices:
        answer = device.ask()
        assert answer.measure is not None
        along_column = answer.measure.guidance_coefficient != 0
        assert (answer.measure.first < COLUMNS) is along_column
        assert bool(answer.measure.files) is along_column
        device.measure(answer, [of_column if along_column else of_noise])
        device.ask()


def test_columns_are_probed_and_the_step_goes_along_them(serve: Serve, probed: Path) -> None:
    served = serve(served_bundle=probed, **PROBING)
    devices = [served.enrolled() for _ in range(4)]
    assert devices[0].ask().measure is None  # the round waits
    offer(served, 1)
    devices[0].ask()  # lets the server look
    measured(devices, of_column=2.0, of_noise=30.0)

    (span,) = devices[0].ask(round=0, adapter=served.initial).rounds
    assert span.guidance is not None
    assert coefficients_of(span.coefficients) == [0.0] * 4  # along z nobody steps
    step = 0.5 / PROBED**2 * 2.0 * PROBED
    assert coefficients_of(span.guidance.coefficients) == [step, step, 0.0, 0.0]
    pieces = {name: piece.copy() for name, piece in initial_pieces().items()}
    for number in range(COLUMNS):
        for name, of in column(1, number).items():
            pieces[name] = pieces[name] - np.float32(step) * of
    assert served.adapter == hashlib.sha256(b"".join(pieces[name].tobytes() for name in sorted(pieces))).hexdigest()

    by_name = {file.name: devices[0].fetch(file.sha256).content for file in span.guidance.files}
    assert by_name["guidance.block_00.codes"] == codes(1).tobytes()
    assert by_name["guidance.block_00.scales"] == SCALES.tobytes()


@pytest.mark.parametrize(("of_column", "stops"), [(0.1, True), (4.0, False)])
def test_a_guard_stops_guidance_that_tells_devices_little(
    serve: Serve, probed: Path, of_column: float, stops: bool
) -> None:
    """Half of the public gradients lie in the span. Of the devices' it is 2 (c / 4)^2 / 2^2, with z . g = 2."""
    served = serve(served_bundle=probed, **PROBING)
    devices = [served.enrolled() for _ in range(4)]
    for number in (1, 2):
        offer(served, number)
        devices[0].ask()
        measured(devices, of_column, of_noise=2.0)
        if number == 1:
            served.close()
            served = serve(served_bundle=probed, **PROBING)
            for device in devices:
                device.served = served
    offer(served, 3)
    devices[0].ask()
    answer = devices[0].ask()
    assert answer.measure is not None
    assert bool(answer.measure.files) is not stops


def test_a_round_for_which_nothing_comes_is_a_plain_one(serve: Serve, probed: Path) -> None:
    served = serve(served_bundle=probed, **PROBING)
    device = served.enrolled()
    served.clock.wait(49)
    device.ask()
    assert device.ask().measure is None
    served.clock.wait(2)
    device.ask()
    answer = device.ask()
    assert answer.measure is not None
    assert (answer.measure.coefficient, answer.measure.guidance_coefficient, answer.measure.files) == (1.0, 0.0, ())


def test_rounds_without_guidance_move_zeros_as_devices_do(serve: Serve, probed: Path) -> None:
    served = serve(served_bundle=probed, devices=1, least_devices=1)
    device = served.enrolled()
    device.take_part(0.0)
    assert served.adapter == served.initial


def test_guidance_is_refused_for_a_method_without_it(serve: Serve) -> None:
    with pytest.raises(BundleError, match="guidance_columns"):
        serve(guidance=True)
