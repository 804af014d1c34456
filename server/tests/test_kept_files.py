# SPDX-License-Identifier: Apache-2.0
"""Files of a server's state: old ones are deleted, and devices that want one that is gone start from a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bespoke_federated import rounds as rounds_module
from federation_client import Client, Served
from guided_rounds import COLUMNS, PROBED, offer

from bespoke.rules.round_documents import RoundDocument

Serve = Callable[..., Served]
ROUNDS, KEPT = 8, 3  # as many rounds as the budget allows
GUIDED = {
    "rounds": ROUNDS,
    "guidance": True,
    "guidance_wait_seconds": 50.0,
    "probe_coefficient": PROBED,
    "guided_rate": 0.5,
    "devices": COLUMNS,
    "least_devices": COLUMNS,
}


@pytest.fixture
def guided(serve: Serve, probed: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setattr(rounds_module, "KEPT_ROUNDS", KEPT)
    return serve(served_bundle=probed, **GUIDED)


def files(served: Served) -> set[str]:
    return {path.name for path in (served.edge.store.folder / "files").iterdir()}


def take_rounds(served: Served, devices: list[Client], numbers: range) -> None:
    """Rounds with guidance that two devices take."""
    for number in numbers:
        offer(served.edge.store.folder, served.adapter, number)
        devices[0].ask()  # lets the server look
        for device in devices:
            device.measure(device.ask(), [2.0])
            device.ask()
        assert served.edge.store.last_ended().number == number


def has_all_files(client: Client, answer: RoundDocument) -> bool:
    """Whether the server has all files that its answer names."""
    named = [answer.snapshot] if answer.snapshot else []
    named += [file for span in answer.rounds if span.guidance for file in span.guidance.files]
    return all(client.fetch(file.sha256).status_code == 200 for file in named)


def test_files_long_before_the_newest_snapshot_are_deleted(guided: Served) -> None:
    devices = [guided.enrolled() for _ in range(2)]
    take_rounds(guided, devices, range(1, ROUNDS + 1))
    newest = guided.edge.store.newest_snapshot()
    assert newest.round >= ROUNDS - 3
    rows = guided.edge.store._all("SELECT sha256, round FROM files")
    assert files(guided) == {sha256 for sha256, _ in rows}
    assert min(number for _, number in rows) == newest.round - KEPT + 1
    assert len(list((guided.edge.store.folder / "guidance").glob("*.safetensors"))) == 0

    late = guided.enrolled()
    answer = late.ask()
    assert has_all_files(late, answer)
    assert answer.snapshot is not None
    assert (late.round, late.adapter) == (ROUNDS, guided.adapter)


def test_a_server_goes_on_without_its_old_files_and_its_checkpoint(serve: Serve, guided: Served, probed: Path) -> None:
    devices = [guided.enrolled() for _ in range(2)]
    take_rounds(guided, devices, range(1, ROUNDS))
    before, folder = guided.adapter, guided.edge.store.folder
    guided.close()
    (folder / "checkpoint.safetensors").unlink()
    again = serve(served_bundle=probed, **GUIDED)
    assert again.adapter == before
    for device in devices:
        device.served = again
    take_rounds(again, devices, range(ROUNDS, ROUNDS + 1))


@pytest.mark.parametrize("kind", ["guidance", "snapshot"])
def test_a_file_that_is_lost_is_said_to_be_gone_and_a_new_snapshot_takes_its_place(guided: Served, kind: str) -> None:
    devices = [guided.enrolled() for _ in range(2)]
    take_rounds(guided, devices, range(1, 4))
    late = guided.enrolled()
    guided.edge.rounds.want_snapshot()
    guided.edge.rounds.advance()
    wanted = guided.edge.store._all("SELECT sha256 FROM files WHERE kind = ?", kind)
    for (sha256,) in wanted:
        (guided.edge.store.folder / "files" / sha256).unlink()
    assert {late.fetch(sha256).status_code for (sha256,) in wanted} == {404}
    for _ in range(2):
        late.round, late.adapter = 0, guided.initial
        answer = late.ask()
    assert has_all_files(late, answer)
    assert (late.round, late.adapter) == (3, guided.adapter)


def test_nobody_is_sent_what_is_lost_while_there_is_no_snapshot(guided: Served) -> None:
    devices = [guided.enrolled() for _ in range(2)]
    take_rounds(guided, devices, range(1, 2))
    store = guided.edge.store
    for sha256, _ in store._all("SELECT sha256, round FROM files"):
        store.drop_file(sha256)
    late = guided.enrolled()
    first = late.ask()
    assert (first.rounds, first.snapshot, first.measure, first.done) == ((), None, None, False)
    second = late.ask()  # the snapshot was made behind the first answer
    assert second.snapshot is not None
    assert has_all_files(late, second)
    assert (late.round, late.adapter) == (1, guided.adapter)
