# SPDX-License-Identifier: Apache-2.0
"""A cloud on Flower, two edges that it leads, and a device of the core at each: guided rounds and plain ones."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from bespoke import PersonalModel
from bespoke.rules.federation import adapter_hash
from bespoke.rules.guidance import CHECKPOINT
from tests.native.edge_device import EdgeDevice
from tests.native.federation_devices import exact, with_federation
from tests.support import federation as f
from tests.support.federation_edge import COMMAND, PYTHON, running_edge
from tests.support.federation_key import PRIVATE
from tests.support.guidance_offer import offer

__all__ = ["exact"]

GUIDED, ROUNDS, SECONDS = 3, 4, 600
ASK_SECONDS = 1.0
STOP_SECONDS = 120.0


@pytest.mark.slow  # Flower's processes take minutes to start and to carry
def test_devices_of_two_edges_follow_guidance_that_is_mixed_with_noise(exact: Path, tmp_path: Path) -> None:
    """Rounds 1 to 3 are guided, the second one rounds to float16, and for round 4 no guidance comes in time."""
    if subprocess.run([str(PYTHON), "-c", "import flwr"], capture_output=True).returncode != 0:
        pytest.skip("no Flower in server/.venv")
    bundle = with_federation(exact, tmp_path / "bundle", method="zgr")  # type: ignore[arg-type]
    cloud_state = tmp_path / "cloud"
    cloud_state.mkdir()
    led: dict[str, object] = {"led": True, "retry_seconds": 0}
    with (
        running_edge(bundle, PRIVATE, tmp_path / "east", tls=False, **led) as east,
        running_edge(bundle, PRIVATE, tmp_path / "west", tls=False, **led) as west,
        PersonalModel.open(bundle, tmp_path / "a") as first,
        PersonalModel.open(bundle, tmp_path / "b") as second,
    ):
        devices = [EdgeDevice(first, east), EdgeDevice(second, west)]
        initial = str(devices[0].document["adapter"])
        command = [*COMMAND, "cloud", str(bundle), "--state", str(cloud_state)]
        command += ["--edge", str(east.state), "--edge", str(west.state), "--rounds", str(ROUNDS)]
        command += ["--devices", "1", "--least-devices", "2", "--rate", "0.05", "--half-every", "2"]
        command += ["--guidance", "--guided-rate", "0.01", "--guidance-wait-seconds", "15"]
        ends = time.monotonic() + SECONDS
        log = tmp_path / "log"
        with log.open("wb") as output, subprocess.Popen(command, stdout=output) as cloud:
            try:
                offered: list[str] = []
                while not all(device.done for device in devices):
                    assert cloud.poll() in (None, 0), log.read_text()
                    assert time.monotonic() < ends, log.read_text()
                    checkpoint = cloud_state / CHECKPOINT
                    adapter = adapter_hash(load_file(checkpoint)) if checkpoint.exists() else initial
                    if adapter not in offered and len(offered) < GUIDED:
                        offered.append(adapter)
                        offer(cloud_state, adapter, f.guidance(bundle, seed=len(offered)))
                    for device in devices:
                        if not device.done:
                            device.exchange()
                    time.sleep(ASK_SECONDS)
                cloud.wait(STOP_SECONDS)
            finally:
                cloud.terminate()
            assert cloud.returncode == 0, log.read_text()
        for edge in (east, west):
            kept = edge.rows("SELECT number, guidance IS NOT NULL FROM rounds WHERE state = 'ended'")
            assert [number for number, guided in kept if guided] == [*range(1, GUIDED + 1)]
            assert len(kept) == ROUNDS
            assert edge.figure("numbers_counted_total") == ROUNDS
        for device in devices:  # it compares its adapter with that of each round
            assert device.model.federation.status().round == ROUNDS
