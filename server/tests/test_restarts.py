# SPDX-License-Identifier: Apache-2.0
"""A server that starts again: it goes on where it was, and with nothing but its own state, bundle and key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from federation_client import Served
from small_bundle import by_hand, write_bundle

from bespoke.errors import BundleError, StateError, StateLocked

Serve = Callable[..., Served]


@pytest.mark.parametrize("checkpoint", ["there", "old", "missing", "of nothing"])
def test_a_restart_goes_on_where_it_was(serve: Serve, tmp_path: Path, checkpoint: str) -> None:
    served = serve(rounds=9, devices=1, least_devices=1, half_every=2)
    client, path = served.enrolled(), tmp_path / "state" / "checkpoint.safetensors"
    client.take_part(1.0)
    old = path.read_bytes()
    for _ in range(2):
        client.take_part(0.3)
    client.measure(client.ask(), [0.7])
    before = served.adapter
    served.close()
    if checkpoint == "old":
        path.write_bytes(old)
    elif checkpoint == "missing":
        path.unlink()
    elif checkpoint == "of nothing":
        path.write_bytes(old[:-4] + b"\0\0\1\0")
    client.served = serve(rounds=9, devices=1, least_devices=1, half_every=2)
    assert client.served.adapter == before
    client.ask()
    assert client.ask().rounds[0].first == 4


def test_a_round_whose_step_was_interrupted_is_stepped_again(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(devices=1, least_devices=1)
    client = served.enrolled()
    with monkeypatch.context() as patch:
        patch.setattr(served.edge.rounds, "_end_combined", lambda: None)
        client.take_part(1.0)
    waiting = client.ask()  # and the step is tried again behind the answer
    assert (waiting.measure, waiting.rounds) == (None, ())
    assert served.adapter == by_hand([[0.5]])


def test_a_restart_takes_the_step_that_was_interrupted(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(devices=1, least_devices=1)
    client = served.enrolled()
    monkeypatch.setattr(type(served.edge.rounds), "_end_combined", lambda self: None)
    client.take_part(1.0)
    served.close()
    monkeypatch.undo()
    assert serve(devices=1, least_devices=1).adapter == by_hand([[0.5]])


def test_a_longer_task_goes_on(serve: Serve) -> None:
    served = serve(rounds=1, devices=1, least_devices=1)
    client = served.enrolled()
    client.take_part(1.0)
    assert client.ask().done
    served.close()
    client.served = serve(rounds=2, devices=1, least_devices=1)
    answer = client.ask()
    assert not answer.done
    assert answer.measure is not None


def test_a_state_belongs_to_one_bundle_and_one_process(serve: Serve, tmp_path: Path) -> None:
    served = serve()
    with pytest.raises(StateLocked, match="runs already"):
        serve()
    served.close()
    other = write_bundle(tmp_path / "other.bundle")
    manifest = (other / "manifest.json").read_bytes()
    changed = manifest.replace(b'"task":"words"', b'"task":"other"').replace(b'"task": "words"', b'"task": "other"')
    (other / "manifest.json").write_bytes(changed)
    digest = hashlib.sha256(changed).hexdigest()
    (other / "manifest.sha256").write_text(f"{digest}  manifest.json\n")
    with pytest.raises(StateError, match="another bundle: task"):
        serve(served_bundle=other)


def test_a_bundle_of_another_server_is_refused(bundle: Path, tmp_path: Path) -> None:
    from bespoke_federated.edge import Edge
    from bespoke_federated.settings import RoundSettings

    from bespoke.bundle.reader import read_bundle
    from bespoke.bundle.signature import generate_key

    with read_bundle(bundle) as opened, pytest.raises(BundleError, match="another server"):
        Edge(opened, generate_key()[0], tmp_path / "state", RoundSettings())
