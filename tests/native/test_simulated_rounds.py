# SPDX-License-Identifier: Apache-2.0
"""The parts of the simulation of federated learning, on a tiny model: what a round measures and what it steps by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bespoke.rules.aggregation import Along
from bespoke.rules.guidance import unpacked
from tests.benchmarks.federated.intents import KINDS, LENGTH, Sentences, World, dealt
from tests.benchmarks.federated.parties import BATCH, COLUMNS, EPSILON, Judge, Party, Place
from tests.benchmarks.federated.rounds import Method, Run, Simulation, together
from tests.native.conftest import compile_core
from tests.support.federation import flat_noise
from tests.support.models import tiny_model

VOCABULARY = 131
AT = {"seed": 5, "round": 9}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    lab = compile_core("core") / "tests" / "federation_lab"
    folder = tmp_path_factory.mktemp("simulated")
    model = tiny_model("llama", folder / "model", num_hidden_layers=2)
    return Place([str(lab)], model, folder, kept=folder, probe=True)


@pytest.fixture(scope="module")
def world() -> World:
    random = np.random.default_rng(3)

    def some(count: int) -> Sentences:
        last = random.integers(3, LENGTH, count)
        tokens = random.integers(20, VOCABULARY, (count, LENGTH)) * (np.arange(LENGTH) <= last[:, None])
        return Sentences(tokens, last, random.integers(0, KINDS, count), np.arange(3, 3 + KINDS))

    train = some(200)
    clients = dealt(np.arange(200), train.kinds, 15, 12, 0.5, random)
    return World(train, clients, some(40), some(40))


@pytest.fixture(scope="module")
def devices(place: Place) -> Iterator[Party]:
    with Party(place, "zgr") as party:
        yield party


@pytest.fixture(scope="module")
def cloud(place: Place) -> Iterator[Party]:
    with Party(place, "mesp") as party:
        yield party


def some_adapter(party: Party) -> np.ndarray:
    return np.random.default_rng(2).normal(0, 0.05, party.size).astype(np.float32)


def test_sentences_are_dealt_once_and_unevenly(world: World) -> None:
    numbers = np.concatenate(world.clients)
    assert len(numbers) == len(set(numbers)) == 15 * 12
    kinds = [np.bincount(world.train.kinds[one], minlength=KINDS).max() for one in world.clients]
    assert np.mean(kinds) > 12 / KINDS * 2


def test_a_device_sends_the_difference_of_two_losses(place: Place, world: World, devices: Party) -> None:
    adapter, batch = some_adapter(devices), world.train.at(slice(BATCH))
    devices.fill(adapter)
    np.testing.assert_array_equal(devices.adapter(), adapter)
    judge = Judge(place, devices.shapes)
    (number,) = devices.measure([(batch, Along(3, 1.0, 0.0))], AT)
    z = flat_noise(devices.shapes, 3, 5, 9)
    plus, minus = (judge((adapter + sign * EPSILON * z).astype(np.float32), batch)[0] for sign in (1, -1))
    assert number == pytest.approx((plus - minus) / (2 * EPSILON), abs=2e-6 / EPSILON)


@pytest.mark.slow
def test_what_devices_project_is_summed_by_measuring_them_together(world: World, cloud: Party) -> None:
    cloud.fill(some_adapter(cloud))
    batches = [world.train.at(world.clients[one][:BATCH]) for one in range(3)]
    each = np.array([cloud.project(batch, AT, 8) for batch in batches])
    gradient = cloud.gradient(together(batches))
    whole = cloud.project(together(batches), AT, 8)
    np.testing.assert_allclose(each.mean(0), whole, atol=1e-5 * np.abs(each).max())
    expected = [flat_noise(cloud.shapes, number, 5, 9) @ gradient for number in range(8)]
    np.testing.assert_allclose(whole, expected, atol=1e-5 * np.abs(each).max())


@pytest.mark.parametrize("method", ["plain", "literal", "guided"])
def test_a_round_steps_by_what_devices_sent(
    method: Method, place: Place, world: World, devices: Party, cloud: Party
) -> None:
    simulation = Simulation(Run(method, 1e-3, clients=4), world, devices, cloud, place)
    simulation.start()
    step = simulation.measured(0)
    assert sorted(step.sent) == [along.number for along in step.along] == [0, 1, 2, 3]
    c, c_g = simulation.coefficients(method != "plain", devices.size)
    for along in step.along:
        (number,) = step.sent[along.number]
        assert along.coefficient == pytest.approx(1e-3 / 4 * number * c, rel=2**-11)
        assert along.guidance_coefficient == pytest.approx(1e-3 / 4 * number * c_g, rel=2**-11)
    z = np.stack([flat_noise(devices.shapes, number, 2000, 0) for number in range(4)])
    rest = devices.adapter() + np.array([along.coefficient for along in step.along]) @ z
    if method != "plain":
        names = [f"guidance.block_{block:02d}.{what}" for block in (0, 1) for what in ("codes", "scales")]
        files = {name: (place.folder / "guidance" / name).read_bytes() for name in names}
        basis = unpacked({name: _array(name, file) for name, file in files.items()}, devices.shapes)
        assert np.linalg.norm(rest) > 0
        rest = rest - np.linalg.lstsq(basis.T, rest, rcond=1e-6)[0] @ basis
    np.testing.assert_allclose(rest, 0, atol=1e-7)


def _array(name: str, file: bytes) -> np.ndarray:
    return (
        np.frombuffer(file, np.float32)
        if name.endswith("scales")
        else np.frombuffer(file, np.uint8).reshape(-1, COLUMNS)
    )


@pytest.mark.parametrize("method", ["cloud", "fedsgd"])
def test_exact_steps_lower_the_loss(method: Method, place: Place, world: World, devices: Party, cloud: Party) -> None:
    simulation = Simulation(Run(method, 1.0, clients=8), world, devices, cloud, place)
    simulation.start()
    of = world.public if method == "cloud" else world.train.at(np.concatenate(world.clients))
    judge = Judge(place, cloud.shapes)
    before = judge(cloud.adapter(), of)[0]
    for number in range(10):
        simulation.round(number)
    assert judge(cloud.adapter(), of)[0] < before


def test_a_guard_watches_devices_that_measure_noise(place: Place, world: World, devices: Party, cloud: Party) -> None:
    run = Run("probe", 0.5, clients=12, guard=100.0, rate_after=1e-3)  # no span holds so much
    simulation = Simulation(run, world, devices, cloud, place)
    simulation.start()
    steps = [simulation.measured(number) for number in range(22)]
    assert [sorted(step.sent) for step in steps[:20]] == [list(range(COLUMNS))] * 20
    assert len(simulation.seen) == 20
    assert simulation.guard
    assert simulation.guard.stopped
    assert all(along.guidance_coefficient == 0 for along in steps[20].along)
    assert len(steps[21].sent) == 12
