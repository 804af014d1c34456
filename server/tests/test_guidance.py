# SPDX-License-Identifier: Apache-2.0
"""Guided rounds: what devices are asked along columns, the step that comes of it, and the guard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bespoke_federated.adapter import Adapter
from bespoke_federated.guidance import check_bundle
from bespoke_federated.settings import RoundSettings
from federation_client import Client, Served
from guided_rounds import CODES, COLUMNS, PROBED, SCALE, SCALES, after, codes, offer

from bespoke.bundle.reader import read_bundle
from bespoke.errors import BundleError
from bespoke.rules.federation import coefficients_of

Serve = Callable[..., Served]
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


def offered(served: Served, seed: int) -> None:
    """Offers guidance for the server's adapter."""
    offer(served.edge.store.folder, served.adapter, seed)


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
    offered(served, 1)
    devices[0].ask()  # lets the server look
    measured(devices, of_column=2.0, of_noise=30.0)

    (span,) = devices[0].ask(round=0, adapter=served.initial).rounds
    assert span.guidance is not None
    assert coefficients_of(span.coefficients) == [0.0] * 4  # along z nobody steps
    step = 0.5 / PROBED**2 * 2.0 * PROBED
    assert coefficients_of(span.guidance.coefficients) == [step, step, 0.0, 0.0]
    assert served.adapter == after([(1, [step, step])])

    by_name = {file.name: devices[0].fetch(file.sha256).content for file in span.guidance.files}
    assert by_name[CODES] == codes(1).tobytes()
    assert by_name[SCALE] == SCALES.tobytes()


@pytest.mark.parametrize(("of_column", "stops"), [(0.1, True), (4.0, False)])
def test_a_guard_stops_guidance_that_tells_devices_little(
    serve: Serve, probed: Path, of_column: float, stops: bool
) -> None:
    """Half of the public gradients lie in the span. Of the devices' it is 2 (c / 4)^2 / 2^2, with z . g = 2."""
    served = serve(served_bundle=probed, **PROBING)
    devices = [served.enrolled() for _ in range(4)]
    for number in (1, 2):
        offered(served, number)
        devices[0].ask()
        measured(devices, of_column, of_noise=2.0)
        if number == 1:
            served.close()
            served = serve(served_bundle=probed, **PROBING)
            for device in devices:
                device.served = served
    offered(served, 3)
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


def test_a_guard_is_refused_where_no_column_is_measured_alone(probed: Path) -> None:
    with read_bundle(probed) as opened:
        adapter = Adapter.of_bundle(opened)
        mixed = Adapter(adapter.pieces, adapter.steps._replace(probe=False), 7)
        settings = RoundSettings(**PROBING)
        check_bundle(adapter, opened.manifest.federation, settings)
        with pytest.raises(BundleError, match="expected probe"):
            check_bundle(mixed, opened.manifest.federation, settings)
