# SPDX-License-Identifier: Apache-2.0
"""Training as a function: the same bits wherever a run is cut, rejected steps, replayed journals, the schedule, whose rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bespoke.bundle.reader import Bundle, read_bundle
from bespoke.errors import BundleError, ConfigError, DataError, PlanError
from bespoke.reference.train import RunState, bundle_rows, replay, train
from bespoke.rules.batches import CursorState
from bespoke.rules.schedule import learning_rate_at
from tests.support.checks import few_of
from tests.unit.personal_model.tiny import METHODS, POISON, STEPS, changed, number_rows, poisoned, row, with_general


def same(one: RunState, other: RunState) -> bool:
    """Bit for bit."""
    pairs = [(one.adapter, other.adapter), (one.optimizer, other.optimizer)]
    places = (one.cursor, one.rejected_in_a_row), (other.cursor, other.rejected_in_a_row)
    return places[0] == places[1] and all(
        a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a) for a, b in pairs
    )


@pytest.mark.parametrize("method", few_of(METHODS, ("mesp",)))
def test_a_run_in_parts_has_the_bits_of_one_in_a_single_call(bundle: Bundle, method: str) -> None:
    settings = bundle.method(method).training.model_copy(update={"schedule": "cosine", "warmup_steps": 2})
    whole = train(bundle, method, user_rows=number_rows(), seed=3, settings=settings)
    assert len(whole.losses) == STEPS == whole.state.cursor.step
    assert len(set(whole.losses)) > 1
    state, losses = RunState(bundle.initial_adapter()), []
    for steps in (1, 4, 100):
        part = train(bundle, method, state, user_rows=number_rows(), seed=3, settings=settings, steps=steps)
        state, losses = part.state, [*losses, *part.losses]
    assert tuple(losses) == whole.losses
    assert same(state, whole.state)
    assert train(bundle, method, state, user_rows=number_rows(), seed=3, settings=settings).losses == ()


def test_another_seed_is_another_run_and_the_arguments_stay_as_they_were(bundle: Bundle) -> None:
    start = RunState({name: value.copy() for name, value in bundle.initial_adapter().items()})
    before = {name: value.copy() for name, value in start.adapter.items()}
    one, other = (train(bundle, "mesp", start, user_rows=number_rows(), seed=seed, steps=3) for seed in (1, 2))
    assert one.losses != other.losses
    assert not same(one.state, other.state)
    assert all(np.array_equal(start.adapter[name], before[name]) for name in before)


def test_the_rate_is_that_of_the_schedule_of_the_whole_run(bundle: Bundle) -> None:
    """AdamW's first step moves every element by nearly the rate."""
    settings = bundle.method("mesp").training.model_copy(update={"schedule": "linear", "warmup_steps": 3})
    made = train(bundle, "mesp", user_rows=number_rows(), seed=1, settings=settings, steps=1)
    rate = learning_rate_at(1, peak=settings.learning_rate, schedule="linear", warmup_steps=3, total_steps=STEPS)
    moved = max(np.abs(value).max() for name, value in made.adapter.items() if name.endswith("lora_B"))
    assert moved == pytest.approx(rate, rel=1e-3)


def test_a_journal_makes_the_adapter_again(bundle: Bundle) -> None:
    made = train(bundle, "mezo", user_rows=number_rows(), seed=2)
    again = replay(bundle, "mezo", bundle.initial_adapter(), made.journal, seed=2)
    assert {name: value.tobytes() for name, value in again.items()} == {n: v.tobytes() for n, v in made.adapter.items()}


@pytest.fixture(scope="module")
def poison(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    with read_bundle(poisoned(tiny_bundle, tmp_path_factory.mktemp("poison") / "bundle")) as opened:
        yield opened


BAD = row([1, POISON, 2], [0, 1, 1])


@pytest.mark.parametrize("method", few_of(METHODS, ("mesp",)))
def test_a_step_with_a_nan_loss_changes_the_cursor_alone(poison: Bundle, method: str) -> None:
    whole = train(poison, method, user_rows=[*number_rows(), BAD], seed=1)
    assert whole.rejected == tuple(step for step, loss in enumerate(whole.losses, 1) if not np.isfinite(loss))
    assert 0 < len(whole.rejected) < STEPS
    assert not whole.diverged
    assert [step for step, _ in whole.journal] == [step for step in range(1, STEPS + 1) if step not in whole.rejected]
    first = whole.rejected[0]
    before = train(poison, method, user_rows=[*number_rows(), BAD], seed=1, steps=first - 1)
    after = train(poison, method, before.state, user_rows=[*number_rows(), BAD], seed=1, steps=1)
    moved = RunState(before.state.adapter, before.state.optimizer, after.state.cursor, 1)
    assert same(after.state, moved)
    assert after.state.cursor.step == first


@pytest.mark.parametrize("steps", [100, 2, 1])
def test_three_rejected_steps_in_a_row_end_the_run_also_where_it_was_cut_between_them(
    poison: Bundle, steps: int
) -> None:
    state, losses = RunState(poison.initial_adapter()), 0
    for _ in range(5):
        part = train(poison, "mesp", state, user_rows=[BAD] * 4, seed=1, steps=steps)
        state, losses = part.state, losses + len(part.losses)
    assert part.diverged
    assert losses == 3 == state.cursor.step


def test_general_rows_take_their_share_of_the_batches(tiny_bundle: Path, tmp_path: Path) -> None:
    def example(index: int) -> dict[str, list[int]]:
        return {"tokens": [80 + (index + place) % 6 for place in range(9)], "mask": [0] + [1] * 8}

    general = with_general(
        tiny_bundle, tmp_path / "b", [example(i) for i in range(20)], [example(i) for i in range(20, 23)]
    )
    with read_bundle(general) as opened:
        own = bundle_rows(opened, "train")
        assert [list(one.tokens) for one in own] == [example(i)["tokens"] for i in range(20)]
        assert len(bundle_rows(opened, "valid")) == 3
        positions = []
        for share in (0.0, 0.5, 1.0):
            settings = opened.method("mesp").training.model_copy(update={"general_share": share})
            cursor = train(
                opened, "mesp", user_rows=number_rows(), general_rows=own, seed=1, settings=settings
            ).state.cursor
            positions.append((cursor.user_position > 0, cursor.general_position > 0))
        assert positions == [(True, False), (True, True), (False, True)]
    with read_bundle(tiny_bundle) as opened:
        assert bundle_rows(opened, "train") == []


def test_what_cannot_be_trained_is_refused(bundle: Bundle, tiny_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no method of that name"):
        train(bundle, "nosuch", user_rows=number_rows(), seed=1)
    with pytest.raises(DataError, match="at least one row"):
        train(bundle, seed=1)
    with pytest.raises(DataError, match="which the model knows"):
        train(bundle, user_rows=[row([3, 16776960, 5], [0, 1, 1])], seed=1)
    with pytest.raises(PlanError, match="batch_size"):
        train(
            bundle,
            user_rows=number_rows(),
            seed=1,
            settings=bundle.method().training.model_copy(update={"batch_size": 3}),
        )
    piece, array = next(iter(bundle.initial_adapter().items()))
    shorter = np.ascontiguousarray(array[:, : array.shape[1] // 2])
    with (
        read_bundle(changed(tiny_bundle, tmp_path / "b", arrays={bundle.manifest.adapter: {piece: shorter}})) as other,
        pytest.raises(BundleError, match=piece),
    ):
        train(other, user_rows=number_rows(), seed=1)


def test_a_cursor_is_where_a_run_stands(bundle: Bundle) -> None:
    made = train(bundle, "mebp", user_rows=number_rows(), seed=1, steps=3)
    batch_size, accumulation = bundle.method("mebp").training.batch_size, bundle.method("mebp").training.accumulation
    assert made.state.cursor == CursorState(step=3, user_position=3 * batch_size * accumulation)
    assert made.tokens > 0
