# SPDX-License-Identifier: Apache-2.0
"""A process that takes part in federated learning, killed at the calls that change a file: no number is made twice."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from tests.native.core_lab import Core, faults_library
from tests.native.federation_devices import exact, with_federation
from tests.support.faulty import KILL_AFTER, KILL_BEFORE, KILL_TORN
from tests.support.federation_key import PRIVATE
from tests.support.federation_server import Server
from tests.support.reading import read_state, select_all

__all__ = ["exact", "faults_library"]

KILLED = -9
ROUNDS = 4


@pytest.fixture
def bundle(exact: Path, tmp_path: Path) -> Path:
    return with_federation(exact, tmp_path / "noised", clip=1.0, noise=1.0, budget=2.0)


@pytest.fixture
def state(bundle: Path, tmp_path: Path) -> Path:
    """A state whose next process follows some rounds and measures."""
    server = Server(bundle, PRIVATE)
    for number in range(ROUNDS):
        server.end_round([0.01 * (number + 1)])
    with PersonalModel.open(bundle, tmp_path / "filled") as model:
        for number in range(3):
            model.examples.add({"tokens": [3, 4, 5 + number], "mask": [0, 1, 1]}, id=str(number), use="train")
        model.federation.join()
        request = model.federation.request()
        model.federation.respond(request, server.answer(request.body, server.measurement()))
    return tmp_path / "filled"


def kept(folder: Path) -> dict[str, Any]:
    (federations, rounds, outbox) = select_all(
        folder,
        "SELECT round, spent, adapter FROM federations",
        "SELECT round FROM rounds",
        "SELECT round, numbers FROM outbox",
    )
    ((followed, spent, adapter),) = federations
    assert spent == 0.5 * len(rounds)  # a round costs 1 / (2 noise^2)
    assert len(outbox) == len(rounds) <= 1
    return {"round": followed, "adapter": adapter, "outbox": outbox}


@pytest.mark.parametrize("every", [pytest.param(12, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_what_was_made_before_a_kill_is_what_goes_out(
    native_build: Path, bundle: Path, faults_library: Path, state: Path, tmp_path: Path, every: int
) -> None:
    core = Core(native_build / "bespoke-core", bundle, faults_library)
    folder, log = tmp_path / "state", tmp_path / "calls"
    shutil.copytree(state, folder)
    assert core.train(folder, verb="take_part", log=log).report["measured"] == ROUNDS + 1
    expected = kept(folder)
    assert expected["round"] == ROUNDS
    calls = log.read_text().splitlines()

    chance, killed, after_the_number = random.Random(every), 0, 0
    for call in range(0, len(calls), every):
        shutil.rmtree(folder)
        shutil.copytree(state, folder)
        mode = chance.choice((KILL_BEFORE, KILL_TORN, KILL_AFTER))
        ended = core.train(folder, verb="take_part", fault=(call, mode, 0))
        assert ended.code in (0, KILLED), ended
        killed += ended.code == KILLED
        before = kept(folder)
        after_the_number += bool(before["outbox"])
        again = core.train(folder, verb="take_part")
        assert again.code == 0, again.error
        after = kept(folder)
        assert (after["round"], after["adapter"]) == (ROUNDS, expected["adapter"])
        assert len(after["outbox"]) == 1
        assert not before["outbox"] or before["outbox"] == after["outbox"]
        assert read_state(folder)["broken"] == []
        with PersonalModel.open(bundle, folder) as model:
            (numbers,) = json.loads(model.federation.request().body)["numbers"]
            assert json.loads(after["outbox"][0][1]) == numbers
    assert killed * 3 > len(range(0, len(calls), every))
    print(f"\n| kills while it takes part | {killed} | {after_the_number} of them after the number was made |")
