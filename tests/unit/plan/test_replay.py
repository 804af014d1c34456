# SPDX-License-Identifier: Apache-2.0
"""Which steps a journal of recorded values can make again, and with which instructions."""

from __future__ import annotations

from typing import Any

import pytest

from bespoke.plan.instructions import Plan
from bespoke.plan.replay import recorded_values, replay_slice
from tests.unit.plan.drafts import Draft


def sliced(draft: Draft) -> tuple[Plan, list[Any] | None]:
    """The verified plan, and the instructions that a replay runs."""
    plan = draft.read(draft.compile())
    code = plan.sections["train_step"]
    positions = replay_slice(code, [value.role for value in plan.values])
    return plan, None if positions is None else [code[position] for position in positions]


def zeroth_order() -> tuple[Draft, dict[str, int]]:
    """theta <- theta - eta g z, with g from a loss over weights and tokens."""
    draft = Draft()
    weight, tokens, theta = draft.weight("block_00"), draft.batch(), draft.adapter("block_00.q_proj.lora_A")
    loss = draft.make([[tokens], [weight], [theta], [draft.noise(theta)]], ())
    g = draft.record(loss)
    z = draft.noise(theta)
    new = draft.make([[theta], [z], [g], [draft.scalar("learning_rate")]])
    draft.store(theta, [new])
    draft.emit("loss", loss)
    return draft, {"loss": loss, "g": g, "z": z, "new": new, "theta": theta}


def test_a_step_that_depends_on_recorded_values_is_replayed_by_its_end_alone() -> None:
    draft, names = zeroth_order()
    plan, code = sliced(draft)
    assert plan.replayable
    assert recorded_values(plan.sections["train_step"]) == [names["g"]]
    assert code is not None
    assert [instruction.op for instruction in code] == ["noise", "call", "free", "store", "free"]
    assert code[0].value == names["z"]


def test_sums_and_ranges_belong_to_the_slice() -> None:
    draft, names = zeroth_order()
    theta = draft.adapter("block_00.q_proj.lora_B")
    total = draft.zeros()
    draft.call([[names["g"]]], ([total], "add_to"))
    draft.call([[theta, 0, 2]], ([total, 0, 2], "into"))
    draft.store(theta, [total])
    _, code = sliced(draft)
    assert code is not None
    assert [i.op for i in code if i.op != "free"] == ["noise", "call", "store", "zero", "call", "call", "store"]


@pytest.mark.parametrize("spoiled_by", ["weight", "batch", "loss"])
def test_a_store_that_needs_more_than_the_journal_cannot_be_replayed(spoiled_by: str) -> None:
    draft, names = zeroth_order()
    other = draft.adapter("block_00.q_proj.lora_B")
    sources = {"weight": draft.weight("block_01"), "batch": draft.batch("targets"), "loss": names["loss"]}
    draft.store(other, [draft.make([[other], [sources[spoiled_by]]])])
    plan, code = sliced(draft)
    assert code is None
    assert not plan.replayable


def test_gradients_leave_no_journal() -> None:
    draft = Draft()
    theta = draft.adapter("block_00.q_proj.lora_A")
    draft.store(theta, [draft.make([[theta], [draft.scalar("learning_rate")]])])
    plan, code = sliced(draft)
    assert code is None
    assert not plan.replayable
