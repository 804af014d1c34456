# SPDX-License-Identifier: Apache-2.0
"""A device that takes part in federated learning: what it sends, what it follows, and what answers."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.stats import kstest

from bespoke import PersonalModel
from bespoke.errors import ConfigError, StateError
from bespoke.rules.privacy import epsilon, rho_of
from tests.conftest import REPOSITORY
from tests.native.federation_devices import (
    PRIVATE,
    exact,
    joined,
    measured_by_reference,
    model,
    server,
    with_federation,
)
from tests.support import federation as f
from tests.support.federation_server import Server, sync
from tests.support.json_schema import violations
from tests.support.reading import read_state

__all__ = ["exact", "model", "server"]


def test_nothing_leaves_without_consent(model: PersonalModel, server: Server) -> None:
    status = model.federation.status()
    assert (status.task, status.joined, status.rounds_sent) == ("words", False, 0)
    assert "exact" in status.explanation  # what a mode without noise tells
    with pytest.raises(ConfigError, match="not joined"):
        model.federation.request()
    with pytest.raises(ConfigError, match="not joined"):
        model.federation.take_part()


def test_a_device_follows_rounds_to_the_same_bits(model: PersonalModel, server: Server) -> None:
    joined(model)
    rng = np.random.default_rng(3)
    for _ in range(20):
        server.end_round(rng.normal(0, 1e-2, 3).tolist())
    report = sync(model, server)
    assert report is not None
    assert (report.followed, report.round, report.differs) == (20, 20, False)
    for _ in range(3):
        server.end_round(rng.normal(0, 1e-2, 2).tolist())
    assert sync(model, server).followed == 3  # type: ignore[union-attr]
    assert json.loads(model.federation.request().body)["adapter"] == server.adapter


def test_what_is_sent_is_what_the_reference_measures(model: PersonalModel, server: Server) -> None:
    joined(model)
    server.end_round([0.01, -0.02])
    report = sync(model, server, server.measurement(first=4, count=3))
    assert report is not None
    assert (report.measured, report.numbers) == (2, 3)
    (sent,) = json.loads(model.federation.request().body)["numbers"]
    assert (sent["round"], sent["first"]) == (2, 4)
    expected = [measured_by_reference(server, 2, number) for number in (4, 5, 6)]
    np.testing.assert_allclose(sent["numbers"], expected, rtol=0, atol=2e-3)


def test_guidance_may_come_while_it_is_measured(model: PersonalModel, server: Server, exact: Path) -> None:
    joined(model)
    guidance = f.guidance(exact)
    asked = server.measurement(count=2, files=server.received(guidance), coefficient=0.5, guidance_coefficient=0.1)
    request = model.federation.request()
    model.federation.respond(request, server.answer(request.body, asked))

    def fetch() -> None:
        while (wanted := model.federation.request()).step == "fetch":
            model.federation.respond(wanted, server.fetched(wanted)[:1000])  # in pieces

    fetching = threading.Thread(target=fetch)
    fetching.start()
    assert model.federation.take_part(seconds=60).numbers == 2
    fetching.join()
    (sent,) = json.loads(model.federation.request().body)["numbers"]
    expected = [measured_by_reference(server, 2, number, 0.5, 0.1, received=guidance) for number in (0, 1)]
    assert sent["numbers"] != [measured_by_reference(server, 2, number, 0.5) for number in (0, 1)]
    np.testing.assert_allclose(sent["numbers"], expected, rtol=0, atol=2e-3)
    assert not list((model._core.state / "received").iterdir())


def test_numbers_go_out_until_they_are_confirmed_and_never_twice(
    model: PersonalModel, server: Server, exact: Path, tmp_path: Path
) -> None:
    joined(model)
    asked = server.measurement()
    sync(model, server, asked)
    body = model.federation.request().body
    model.close()
    with PersonalModel.open(exact, tmp_path / "state") as again:  # another process would say the same
        assert again.federation.request().body == body
        assert again.federation.status().pending == 1
        report = sync(again, server, asked, taken=())  # the server asks once more: its own answer was lost
        assert report is not None
        assert report.not_measured_because == "measured_before"
        assert again.federation.request().body == body
        assert sync(again, server) is None
        assert again.federation.status().pending == 0
        assert json.loads(again.federation.request().body)["numbers"] == []


def test_forgetting_drops_what_was_not_confirmed(model: PersonalModel, server: Server) -> None:
    joined(model)
    sync(model, server, server.measurement())
    sync(model, server)  # round 1 is confirmed
    server.end_round([0.01])
    sync(model, server, server.measurement())
    forgotten = model.examples.forget("0")
    assert (forgotten.numbers_dropped, forgotten.rounds) == (1, (1, 2))
    assert model.federation.status().pending == 0
    assert json.loads(model.federation.request().body)["numbers"] == []
    again = model.examples.forget("1")
    assert (again.numbers_dropped, again.rounds) == (0, (1, 2))


def test_only_examples_for_training_are_measured(model: PersonalModel, server: Server) -> None:
    model.federation.join()
    assert sync(model, server, server.measurement()).not_measured_because == "no_examples"  # type: ignore[union-attr]
    assert json.loads(model.federation.request().body)["measures"] is False


def test_another_adapter_is_noticed_and_a_snapshot_takes_its_place(model: PersonalModel, server: Server) -> None:
    joined(model)
    server.end_round([0.01])
    lying = server.document(0).model_copy(update={"measure": server.measurement()})
    wrong = lying.model_copy(
        update={
            "rounds": (lying.rounds[0].model_copy(update={"adapter": "0" * 64}),),
            "measure": server.measurement(adapter="0" * 64),
        }
    )
    model.federation.respond(model.federation.request(), server.signed(wrong))
    report = model.federation.take_part()
    assert report.differs
    assert report.not_measured_because == "another_adapter"
    body = json.loads(model.federation.request().body)
    assert body["differs"]
    assert body["round"] == 1

    server.end_round([0.02])
    report = sync(model, server, server.measurement(), rounds=(), snapshot=server.snapshot())
    assert report is not None
    assert not report.differs
    assert report.measured == 3
    assert json.loads(model.federation.request().body)["adapter"] == server.adapter


def test_a_snapshot_of_half_the_size_is_exact(
    model: PersonalModel, server: Server, exact: Path, tmp_path: Path
) -> None:
    """One device follows the rounds, another one starts from the snapshot: both have the server's bits."""
    joined(model)
    rng = np.random.default_rng(5)
    for number in range(5):
        server.end_round(rng.normal(0, 1e-2, 2).tolist(), half=number == 3)
        if number == 3:
            snapshot = server.snapshot()
    report = sync(model, server)
    assert report is not None
    assert (report.followed, report.differs) == (5, False)
    with PersonalModel.open(exact, tmp_path / "late") as late:
        joined(late)
        report = sync(late, server, snapshot=snapshot, rounds=server.spans(4))
        assert report is not None
        assert (report.round, report.followed, report.differs) == (5, 1, False)
    elements = sum(piece.size for piece in server.machine.adapter().values())
    assert 2 * elements < snapshot.size < 3 * elements  # with the header


def test_leaving_deletes_what_was_to_be_sent_and_keeps_what_was_spent(exact: Path, tmp_path: Path) -> None:
    bundle = with_federation(exact, tmp_path / "noised", clip=1.0, noise=1.0, budget=1.0)
    server = Server(bundle, PRIVATE)
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        joined(model)
        for spent in (0.5, 1.0):  # 1 / (2 sigma^2) each
            sync(model, server, server.measurement())
            assert model.federation.status().spent == spent
            server.end_round([0.01])
        model.federation.leave()
        assert not model.federation.status().joined
        assert model.federation.status().pending == 0
        model.federation.join()
        report = sync(model, server, server.measurement())
        assert report is not None
        assert (report.followed, report.not_measured_because) == (2, "budget_spent")
        assert json.loads(model.federation.request().body)["measures"] is False
        status = model.federation.status()
        assert status.spent == rho_of([1.0, 1.0])
        assert status.epsilon_spent == pytest.approx(epsilon(1.0, 1e-5))
        assert model.reset() is None
        assert model.federation.status().spent == 1.0


def test_the_norm_of_what_is_sent_is_clipped(exact: Path, tmp_path: Path) -> None:
    bundle = with_federation(exact, tmp_path / "clipped", clip=1e-3)
    server = Server(bundle, PRIVATE)
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        joined(model)
        sync(model, server, server.measurement(count=5))
        (sent,) = json.loads(model.federation.request().body)["numbers"]
        exact = np.array([measured_by_reference(server, 2, number) for number in range(5)])
        np.testing.assert_allclose(sent["numbers"], exact * 1e-3 / np.linalg.norm(exact), rtol=0.02, atol=5e-6)


def test_noise_is_normal_and_never_the_same(exact: Path, tmp_path: Path) -> None:
    bundle = with_federation(exact, tmp_path / "noised", clip=1e-3, noise=2.0, budget=100.0)
    server, sent = Server(bundle, PRIVATE), []
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        joined(model)
        for _ in range(2):
            sync(model, server, server.measurement(count=400))
            (numbers,) = json.loads(model.federation.request().body)["numbers"]
            sent.append(np.array(numbers["numbers"]) / (2.0 * 1e-3))
            sync(model, server)
            server.end_round([0.01])
    both = np.concatenate(sent)
    assert len(set(both)) > 500  # of a grid of a thousandth of the noise
    assert abs(np.corrcoef(*sent)[0, 1]) < 0.2
    assert kstest(both, "norm").pvalue > 1e-4  # the exact numbers are a fortieth of the noise in norm


def test_rounds_that_come_again_are_followed_once(model: PersonalModel, server: Server) -> None:
    joined(model)
    for _ in range(4):
        server.end_round([0.01, -0.03])
    old = server.signed(server.document(0))
    model.federation.respond(model.federation.request(), old)
    assert model.federation.take_part().followed == 4
    model.federation.respond(model.federation.request(), old)  # replayed by somebody
    assert model.federation.take_part().followed == 0
    assert json.loads(model.federation.request().body)["adapter"] == server.adapter


def test_the_shared_adapter_answers_once_the_gate_lets_it(
    model: PersonalModel, server: Server, exact: Path, tmp_path: Path
) -> None:
    with pytest.raises(StateError, match="no round"):
        joined(model).federation.adopt()
    server.end_round([1e-9])  # changes nothing that could be of use
    sync(model, server)
    report = model.federation.adopt()
    assert (report.accepted, report.total_steps) == (False, 1)
    assert model.versions() == []
    assert model.current_run() is None

    with PersonalModel.open(exact, tmp_path / "other") as other:  # what the others have learned
        joined(other).train(method="mesp", run_steps=60, learning_rate=0.3)
        (learned,) = other._core.state.glob("accepted_*")
    server.machine.buffers.fill(load_file(learned))
    report = sync(model, server, rounds=(), snapshot=server.snapshot(after=2))
    assert report is not None
    assert (report.round, report.followed) == (2, 0)
    report = model.federation.adopt()
    assert report.accepted, report.refused_because
    (version,) = model.versions()
    assert version.step == 1
    run = model.train(run_steps=1)
    assert model.current_run() is None
    assert run.run != version.run_id
    assert read_state(model._core.state)["broken"] == []


def test_the_report_of_adopting_has_every_field_that_other_languages_read(model: PersonalModel, server: Server) -> None:
    joined(model)
    server.end_round([1e-9])
    sync(model, server)
    schema = REPOSITORY / "bindings" / "schema" / "train_report.schema.json"
    assert violations(model.federation._calls.adopt(), json.loads(schema.read_text(encoding="utf-8"))) == []


def test_a_run_that_goes_on_is_not_disturbed(model: PersonalModel, server: Server) -> None:
    joined(model)
    server.end_round([0.01])
    sync(model, server)
    model.train(run_steps=3, most_steps=1, method="mesp")
    with pytest.raises(StateError, match="unfinished run"):
        model.federation.adopt()
    assert model.train().total_steps == 3
