# SPDX-License-Identifier: Apache-2.0
"""Rounds: who is asked for what, which numbers count, when a round ends, and what devices are told of it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from federation_client import Client, Served
from safetensors.numpy import load
from small_bundle import by_hand, write_bundle

from bespoke.errors import ConfigError
from bespoke.rules.federation import coefficients_of, rounded

Serve = Callable[..., Served]


def test_devices_that_ask_at_once_get_directions_of_their_own(serve: Serve) -> None:
    served = serve(devices=8, least_devices=8, rounds=8)  # as many as the budget allows
    clients = [served.enrolled() for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for number in range(1, 9):
            list(threads.map(lambda client: client.take_part(1.0), clients))
            assert sorted(first for first, _ in served.edge.store.numbers(number)) == list(range(8))
            assert served.edge.store.last_ended().number == number
    assert served.adapter == by_hand([[rounded(0.5 / 8)] * 8] * 8)


def test_a_round_ends_when_enough_numbers_came(served: Served) -> None:
    devices = [served.enrolled() for _ in range(3)]
    asked = [device.ask().measure for device in devices]
    assert [(one.round, one.first, one.count) for one in asked] == [(1, 0, 1), (1, 1, 1), (1, 2, 1)]
    for device, number in zip(devices, (1.0, 2.0, -3.0), strict=True):
        device.numbers = [{"round": 1, "first": devices.index(device), "numbers": [number]}]
        assert device.ask().taken == (1,)
    answer = devices[0].ask()
    (span,) = answer.rounds
    expected = [rounded(0.5 / 3 * number) for number in (1.0, 2.0, -3.0)]  # rate and a third of the round
    assert coefficients_of(span.coefficients) == expected
    assert (span.first, span.count, span.directions, span.half) == (1, 1, 3, False)
    assert span.adapter == served.adapter == by_hand([expected])
    assert answer.measure is not None
    assert (answer.measure.round, answer.measure.adapter) == (2, span.adapter)


def test_more_devices_than_wanted_wait(served: Served) -> None:
    for _ in range(3):
        assert served.enrolled().ask().measure is not None
    late = served.enrolled().ask()
    assert late.measure is None
    assert late.wait_seconds == served.settings.retry_seconds


def test_a_device_is_asked_for_one_thing_a_round(client: Client) -> None:
    first, again = client.ask(), client.ask()  # the first answer was lost
    assert first.measure == again.measure is not None
    assert first.wait_seconds == 0
    assert again.wait_seconds > 0  # a device that cannot measure would ask in a circle
    client.measure(again, [1.0])
    assert client.ask().measure is None


def test_a_device_that_does_not_measure_is_not_asked(client: Client) -> None:
    assert client.ask(measures=False).measure is None


def test_a_deadline_ends_a_round_without_those_that_are_missing(served: Served) -> None:
    devices = [served.enrolled() for _ in range(3)]
    devices[0].take_part(1.0)
    devices[2].ask()
    devices[1].take_part(2.0)
    served.clock.wait(99)
    served.edge.rounds.advance()
    assert served.edge.store.last_ended() is None
    served.clock.wait(2)
    served.edge.rounds.advance()
    (span,) = devices[0].ask().rounds
    assert coefficients_of(span.coefficients) == [0.25, 0.0, 0.5]  # a half of the round each


def test_too_few_devices_get_another_deadline_and_others_are_asked(served: Served) -> None:
    devices = [served.enrolled() for _ in range(4)]
    devices[0].take_part(1.0)
    asked = [device.ask().measure for device in devices[1:3]]
    assert devices[3].ask().measure is None
    served.clock.wait(101)
    served.edge.rounds.advance()
    assert served.edge.store.last_ended() is None
    replacing = devices[3].ask().measure
    assert replacing is not None
    assert replacing.first == asked[0].first  # in place of one that did not answer
    devices[3].numbers = [{"round": 1, "first": replacing.first, "numbers": [2.0]}]
    devices[3].ask()
    served.clock.wait(99)
    served.edge.rounds.advance()
    assert served.edge.store.last_ended() is None
    served.clock.wait(2)
    served.edge.rounds.advance()
    assert served.edge.store.last_ended().number == 1


def test_late_numbers_are_confirmed_and_not_counted(served: Served) -> None:
    devices = [served.enrolled() for _ in range(3)]
    late = devices[2].ask()
    for device in devices[:2]:
        device.take_part(1.0)
    served.clock.wait(101)
    served.edge.rounds.advance()
    before = served.adapter
    devices[2].measure(late, [5.0])
    answer = devices[2].ask()
    assert answer.taken == (1,)
    assert answer.rounds[0].adapter == before == served.adapter
    assert served.edge.store.totals() == {"late": 1, "counted": 2, "most_rounds": 1}


def test_the_same_numbers_are_counted_once(served: Served) -> None:
    client = served.enrolled()
    client.measure(client.ask(), [1.0])
    kept = list(client.numbers)
    client.ask()
    client.numbers = kept  # the confirmation was lost
    assert client.ask().taken == (1,)
    client.numbers = [{**kept[0], "numbers": [9.0]}, {**kept[0], "numbers": [8.0]}]
    assert client.ask().taken == (1,)
    assert served.edge.store.numbers(1) == [(0, [1.0])]


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"round": 1, "first": 1, "numbers": [1.0]}, "other_directions"),
        ({"round": 1, "first": 0, "numbers": [1.0, 1.0]}, "other_directions"),
        ({"round": 2, "first": 0, "numbers": [1.0]}, "not_asked"),
        ({"round": 77, "first": 0, "numbers": [1.0]}, "not_asked"),
        ({"round": 1, "first": 0, "numbers": [14.1]}, "too_long"),  # clip 1, noise 1: 1 + 1 + 12
        ({"round": 1, "first": 0, "numbers": [-1e300]}, "too_long"),
    ],
)
def test_numbers_that_nobody_may_send_are_confirmed_and_not_counted(client: Client, numbers: dict, reason: str) -> None:
    """An honest device would send them for ever otherwise."""
    client.ask()
    client.numbers = [numbers]
    assert client.ask().taken == (numbers["round"],)
    assert client.served.edge.store.totals()["counted"] == 0
    metrics = client.served.send("GET", "/metrics").text
    assert f'bespoke_numbers_refused_total{{reason="{reason}"}} 1' in metrics


def test_numbers_without_being_asked_do_not_count(served: Served) -> None:
    client = served.enrolled()
    client.numbers = [{"round": 1, "first": 0, "numbers": [1.0]}]
    assert client.ask(measures=False).taken == (1,)
    assert served.edge.store.number_count(1) == 0


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", '"1"', "null", "true"])
def test_what_is_no_number_is_refused(client: Client, text: str) -> None:
    document = json.dumps(client.document(numbers=[{"round": 1, "first": 0, "numbers": [123456]}]))
    body = document.replace("123456", text).encode()
    response = client.served.send("POST", "/v1/ask", body, client.headers("POST", "/v1/ask", body, 0))
    assert response.status_code == 400
    assert "123456" not in response.text


def test_honest_noise_of_many_numbers_is_not_too_long(serve: Serve) -> None:
    served = serve(directions=256, whose="shared")
    client = served.enrolled()
    rng = np.random.default_rng(1)
    client.take_part(*(rng.standard_normal(256) + 1 / 16).tolist())
    assert served.edge.store.number_count(1) == 1


def test_directions_that_all_share_are_combined_by_their_median(serve: Serve) -> None:
    served = serve(directions=2, whose="shared", combine="median")
    for numbers in ((1.0, 2.0), (1.5, -2.0), (9.0, 2.5)):
        answer = served.enrolled().take_part(*numbers)
        assert answer.taken == (1,)
    (span,) = served.enrolled().ask().rounds
    assert coefficients_of(span.coefficients) == [rounded(0.25 * 1.5), 0.5]


def test_a_step_that_float32_cannot_hold_changes_nothing(tmp_path: Path, serve: Serve) -> None:
    bundle = write_bundle(tmp_path / "wide.bundle", clip=1e38, noise=0.0, budget=None)
    served = serve(served_bundle=bundle, rate=1e6, devices=1, least_devices=1, directions=2)
    unchanged = served.adapter
    # Above float32; so large that the adapter would be infinite; below float32's normal numbers.
    for number in (5e37, 6e32, 1e-45):
        served.enrolled().take_part(number, number)
    (span,) = served.enrolled().ask(measures=False).rounds
    assert coefficients_of(span.coefficients) == [0.0] * 6
    assert served.adapter == unchanged


def test_a_device_over_the_budget_is_asked_for_nothing_more(tmp_path: Path, serve: Serve) -> None:
    bundle = write_bundle(tmp_path / "short.bundle", noise=1.0, budget=1.0)  # 1 / (2 sigma^2) each
    served = serve(served_bundle=bundle, devices=1, least_devices=1)
    client, other = served.enrolled(), served.enrolled()
    for _ in range(2):
        client.take_part(1.0)
    assert client.ask().measure is None
    other.take_part(1.0)
    answer = client.ask()
    assert answer.measure is None
    assert client.round == 3  # it still follows rounds
    text = served.send("GET", "/metrics").text
    assert "bespoke_most_active_rho 1\n" in text
    assert f"bespoke_most_active_epsilon {1 + 2 * math.sqrt(math.log(1e5)):.10g}\n" in text


def test_the_last_round_ends_the_task(serve: Serve) -> None:
    served = serve(rounds=2, devices=1, least_devices=1)
    client = served.enrolled()
    assert not client.take_part(1.0).done
    client.take_part(1.0)
    answer = client.ask()
    assert (answer.done, answer.measure, client.round) == (True, None, 2)
    behind = served.enrolled()
    assert behind.ask().done  # with the rounds in it
    assert behind.adapter == served.adapter


def test_a_device_that_is_behind_follows_all_rounds_in_one_span(serve: Serve) -> None:
    served = serve(rounds=30, devices=1, least_devices=1, half_every=10)
    client = served.enrolled()
    for number in range(12):
        served.enrolled().take_part(0.1 * number)
    client.ask()
    answer = served.enrolled().ask()
    assert [(span.first, span.count, span.half) for span in answer.rounds] == [(1, 10, True), (11, 2, False)]
    assert answer.snapshot is None  # so few numbers are less than the adapter
    assert answer.rounds[-1].adapter == served.adapter == client.adapter
    joined = base64.b64decode(answer.rounds[0].coefficients)
    assert len(joined) == 3 * 10


def test_a_snapshot_is_sent_where_it_is_less(serve: Serve) -> None:
    served = serve(rounds=100, devices=1, least_devices=1, directions=16, half_every=2)
    client = served.enrolled()
    for _ in range(5):
        client.take_part(*[0.01] * 16)
    late = served.enrolled()
    answer = late.ask()
    assert answer.snapshot is not None
    assert answer.snapshot.round == 4
    assert [(span.first, span.count) for span in answer.rounds] == [(5, 1)]
    assert late.adapter == served.adapter
    file = late.fetch(answer.snapshot.sha256).content
    assert hashlib.sha256(file).hexdigest() == answer.snapshot.sha256
    pieces = load(file)
    assert {piece.dtype for piece in pieces.values()} == {np.dtype(np.float16)}
    whole = b"".join(pieces[name].astype(np.float32).tobytes() for name in sorted(pieces))
    assert hashlib.sha256(whole).hexdigest() == answer.snapshot.adapter


def test_a_device_whose_adapter_differs_gets_a_snapshot(serve: Serve) -> None:
    served = serve(devices=1, least_devices=1)
    client = served.enrolled()
    client.take_part(1.0)
    differing = served.enrolled()
    answer = differing.ask(round=1, adapter="0" * 64, differs=True)
    assert (answer.snapshot, answer.rounds, answer.measure) == (None, (), None)  # it is being made
    answer = differing.ask(round=1, adapter="0" * 64, differs=True)
    assert answer.snapshot is not None
    assert answer.snapshot.adapter == served.adapter
    assert answer.measure is not None
    pieces = load(differing.fetch(answer.snapshot.sha256).content)
    assert {piece.dtype for piece in pieces.values()} == {np.dtype(np.float32)}


def test_a_device_that_does_not_know_that_it_differs_measures_nothing(serve: Serve) -> None:
    served = serve(devices=1, least_devices=1)
    client = served.enrolled()
    client.take_part(1.0)
    assert served.enrolled().ask(round=1, adapter="0" * 64).measure is None
    assert served.enrolled().ask(round=9, adapter="0" * 64).measure is None  # the server lost rounds


def test_rounding_to_half_is_in_the_hash(serve: Serve) -> None:
    served = serve(devices=1, least_devices=1, half_every=2)
    client = served.enrolled()
    for number in (0.3, 0.7, 0.1):
        client.take_part(number)
    assert served.adapter == by_hand([[rounded(0.5 * number)] for number in (0.3, 0.7, 0.1)], half=2)


def test_another_task_is_refused(client: Client) -> None:
    assert client.post(client.document(task="others")).status_code == 400


@pytest.mark.parametrize(
    "settings",
    [
        {"devices": 2, "least_devices": 3},
        {"devices": 100, "directions": 100},
        {"combine": "median"},
        {"rate": math.nan},
    ],
)
def test_settings_that_cannot_work_are_refused(serve: Serve, settings: dict) -> None:
    with pytest.raises(ConfigError):
        serve(**settings)
