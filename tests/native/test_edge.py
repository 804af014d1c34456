# SPDX-License-Identifier: Apache-2.0
"""The server in server/, in a process of its own, and devices with the real core: they come to the same adapter, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bespoke import PersonalModel
from tests.native.edge_device import EdgeDevice
from tests.native.federation_devices import exact, with_federation
from tests.support import federation as f
from tests.support.federation_edge import running_edge
from tests.support.federation_key import PRIVATE
from tests.support.guidance_offer import offer

__all__ = ["exact"]


@pytest.mark.parametrize("method", ["zgr", "mesp"])
def test_devices_and_server_come_to_one_adapter(exact: Path, tmp_path: Path, method: str) -> None:
    """The server is killed in between. With zgr the plan has guidance of which nothing comes.

    With mesp the one that is late starts from a snapshot.
    """
    bundle = with_federation(exact, tmp_path / "bundle", method=method)  # type: ignore[arg-type]
    count = {"zgr": "1", "mesp": "512"}[method]  # so many that a snapshot is less than the rounds
    settings = {
        "devices": 2,
        "least_devices": 2,
        "directions": count,
        "rate": 0.05,
        "half_every": 3,
        "retry_seconds": 0,
    }
    with (
        running_edge(bundle, PRIVATE, tmp_path / "edge", tls=False, **settings) as edge,
        PersonalModel.open(bundle, tmp_path / "a") as first,
        PersonalModel.open(bundle, tmp_path / "b") as second,
        PersonalModel.open(bundle, tmp_path / "c") as late,
    ):
        devices = [EdgeDevice(first, edge), EdgeDevice(second, edge)]
        for number in range(1, 8):
            for device in devices:
                device.exchange()  # follows the last round and measures for this one
            for device in devices:
                device.exchange()  # sends the numbers
            edge.wait_for_round(number)
            if number == 4:
                edge.process.kill()
                edge.process.wait(20)
                edge.start()
        devices.append(EdgeDevice(late, edge))
        for device in devices:
            device.exchange()
        last = "SELECT number, adapter FROM rounds WHERE state = 'ended' ORDER BY number DESC LIMIT 1"
        ((number, adapter),) = edge.rows(last)
        assert number == 7
        for device in devices:
            assert (device.document["round"], device.document["adapter"]) == (7, adapter)
        assert [device.fetched > 0 for device in devices] == [False, False, method == "mesp"]
        assert edge.figure("numbers_counted_total") == 14


def test_devices_and_server_follow_guidance_to_one_adapter(exact: Path, tmp_path: Path) -> None:
    """Rounds 1 to 4 are guided, one of them in its second block alone. For round 5 no guidance comes in time.

    The server is killed while round 3 is open. The adapter is rounded to float16 twice, so it has zeros of either sign.
    """
    bundle = with_federation(exact, tmp_path / "bundle", method="zgr")  # type: ignore[arg-type]
    settings: dict[str, object] = {
        "devices": 2,
        "least_devices": 2,
        "rate": 0.05,
        "guided_rate": 0.01,
        "half_every": 2,
        "retry_seconds": 0,
        "guidance_wait_seconds": 15,
    }
    with (
        running_edge(bundle, PRIVATE, tmp_path / "edge", tls=False, guidance=True, **settings) as edge,
        PersonalModel.open(bundle, tmp_path / "a") as first,
        PersonalModel.open(bundle, tmp_path / "b") as second,
        PersonalModel.open(bundle, tmp_path / "c") as late,
    ):
        devices = [EdgeDevice(first, edge), EdgeDevice(second, edge)]
        for number in range(1, 6):
            files = f.guidance(bundle, seed=number)
            if number == 2:
                files = {name: array for name, array in files.items() if "block_01" in name}
            if number == 3:
                files = {name: (array & 0) + 0x88 if "codes" in name else array for name, array in files.items()}
            if number < 5:
                offer(edge.state, str(devices[0].document["adapter"]), files)
            edge.wait_for("SELECT 1 FROM rounds WHERE number = ? AND state = 'open'", number)
            if number == 3:
                edge.process.kill()
                edge.process.wait(20)
                edge.start()
            for _ in range(2):
                for device in devices:
                    device.exchange()
            edge.wait_for_round(number)
            for device in devices:  # follows the round that has ended
                device.exchange()
        kept = edge.rows("SELECT number, guidance IS NOT NULL, adapter FROM rounds WHERE state = 'ended'")
        assert [bool(guided) for _, guided, _ in kept] == [True, True, True, True, False]
        newcomer = EdgeDevice(late, edge)
        newcomer.exchange()
        for device in (*devices, newcomer):
            assert (device.document["round"], device.document["adapter"]) == (5, kept[-1][2])
        assert edge.figure("numbers_counted_total") == 10


@pytest.mark.parametrize("fault", ["another shape", "codes of -8", "a scale of many bits", "no file", "half a block"])
def test_guidance_that_does_not_fit_is_not_sent(exact: Path, tmp_path: Path, fault: str) -> None:
    files = f.guidance(exact)
    codes, scales = "guidance.block_00.codes", "guidance.block_00.scales"
    if fault == "another shape":
        files[codes] = files[codes][:-1]
    elif fault == "codes of -8":
        files[codes] = files[codes] & 0xF0
    elif fault == "a scale of many bits":
        files[scales] = files[scales] * np.float32(1.01)
    elif fault == "half a block":
        del files[scales]
    bundle = with_federation(exact, tmp_path / "bundle", method="zgr")  # type: ignore[arg-type]
    with (
        running_edge(bundle, PRIVATE, tmp_path / "edge", tls=False, guidance=True, guidance_wait_seconds=2) as edge,
        PersonalModel.open(bundle, tmp_path / "a") as model,
    ):
        device = EdgeDevice(model, edge)
        if fault == "no file":
            (edge.state / "guidance").mkdir()
            (edge.state / "guidance" / f"{device.document['adapter']}.safetensors").write_bytes(b"{}")
        else:
            offer(edge.state, str(device.document["adapter"]), files)
        edge.wait_for("SELECT 1 FROM rounds WHERE number = ? AND state = 'open'", 1)
        assert edge.rows("SELECT guidance FROM rounds") == [(None,)]
