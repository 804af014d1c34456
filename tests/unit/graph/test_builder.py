# SPDX-License-Identifier: Apache-2.0
"""What the builder records, and what it says to the author of a method who misuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bespoke.errors import PlanError
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.value import Value
from bespoke.ops import QuantizedWeight

Make = Callable[..., PlanBuilder]


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def pair(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"same": x + 0, "twice": 2 * x}


def test_names_mean_the_same_value_every_time(builder: Make) -> None:
    b = builder()
    assert b.batch() == b.batch()
    assert b.weights("block_00") == b.weights("block_00")
    assert b.adapter("block_01")["q_proj.lora_A"] is b.adapter("block_01")["q_proj.lora_A"]
    assert b.constant(7) is b.constant(7)
    assert b.scalar("step") is b.scalar("step")
    piece = b.adapter("block_00")["q_proj.lora_A"]
    assert b.state(piece, "m") is b.state(piece, "m")
    assert b.state(piece, "m").name == "block_00.q_proj.lora_A.m"


def test_a_batch_has_the_shape_of_the_plan(builder: Make) -> None:
    batch = builder().batch()
    assert (batch.tokens.shape, batch.tokens.dtype) == ((2, 5), "int64")
    assert (batch.mask.shape, batch.mask.dtype) == ((2, 5), "float32")
    assert builder().batch(copies=3).tokens.shape == (6, 5)


def test_an_array_of_the_method_has_the_shape_of_the_batch(builder: Make) -> None:
    b = builder()
    rejected, weights = b.array("rejected", "int64"), b.array("weights", "float32")
    assert (rejected.name, rejected.shape, rejected.dtype) == ("array.rejected", (2, 5), "int64")
    assert (weights.shape, weights.dtype) == ((2, 5), "float32")
    assert b.array("rejected", "int64") is rejected


def test_a_quantized_weight_is_cut_in_both_parts(builder: Make) -> None:
    q = builder().weights("block_00")["gate_proj"]
    assert isinstance(q, QuantizedWeight)
    cut = q.rows(32, 64)
    assert (cut.codes.shape, cut.scales.shape, cut.columns, q.out) == ((32, 32), (32, 2), 64, 172)


def test_a_row_range_of_a_row_range_counts_from_the_whole(builder: Make) -> None:
    value = builder().zeros((10, 3))
    assert value.rows(2, 9).rows(1, 4).operand == [value.id, 3, 3]
    assert value.operand == [value.id]
    b = builder()
    value, position = b.zeros((10, 3)), b.scalar("position")
    assert value.rows_at(position, 4).operand == [value.id, 0, 4, position.id]


def test_results_are_made_filled_or_added(builder: Make) -> None:
    b = builder()
    x, whole, total = b.zeros((4, 3)), b.zeros((8, 3)), b.zeros((4, 3))
    made = b.call(pair, x, into={"same": whole.rows(4, 8)}, add_to={"twice": total})
    call = b.draft.sections["train_step"][-1]
    assert [(result.to, result.how) for result in call.results] == [([whole.id, 4, 4], "into"), ([total.id], "add_to")]
    assert made["twice"] is total
    assert b.call(double, x).shape == (4, 3)


def test_the_same_function_at_the_same_shapes_is_one_graph_of_the_plan(builder: Make) -> None:
    b = builder()
    for shape in ((4, 3), (4, 3), (5, 3)):
        b.call(double, b.zeros(shape))
    assert [graph.inputs[0][0] for graph in b.draft.graphs] == [(4, 3), (5, 3)]


def test_the_first_candidate_is_taken_unless_the_planner_says_otherwise(builder: Make) -> None:
    assert builder().choose("tile", [64, 256, 64]) == 64
    b = builder({"tile": 256})
    assert b.choose("tile", [64, 256, 64]) == 256
    assert b.candidates == {"tile": (64, 256)}
    assert b.choices == {"tile": 256}


def test_noise_names_block_tensor_and_query(builder: Make) -> None:
    b = builder()
    b.noise(b.adapter("block_02"), query=3, distribution="rademacher")
    found = b.draft.sections["train_step"]
    assert [(i.block, i.tensor, i.query) for i in found] == [(2, tensor, 3) for tensor in range(14)]
    assert {i.distribution for i in found} == {"rademacher"}


def test_noise_of_states_has_counters_of_its_own(builder: Make) -> None:
    b = builder()
    a = b.adapter("block_02")["q_proj.lora_A"]
    states = [b.state(b.adapter("block_00")["q_proj.lora_A"], "m"), b.state(a, "m"), b.state(a, "row", shape=(3,))]
    b.noise(states)
    b.noise(states[1:])
    found = [(i.block, i.tensor) for i in b.draft.sections["train_step"]]
    assert found == [(0, 14), (2, 14), (2, 15), (2, 14), (2, 15)]  # a block has 14 pieces
    assert [b.draft.values[i.value].shape for i in b.draft.sections["train_step"]][:3] == [a.shape, a.shape, (3,)]


def test_a_state_may_have_a_shape_of_its_own(builder: Make) -> None:
    b = builder()
    assert b.state(piece(b), "norm", shape=()).shape == ()
    assert b.state(piece(b), "norm").shape == ()  # a state of that name
    assert b.state(piece(b), "m").shape == piece(b).shape


def test_accumulation_changes_the_section(builder: Make) -> None:
    assert list(written(builder()).draft.sections) == ["train_step"]
    assert list(written(builder(accumulation=2)).draft.sections) == ["micro_step"]
    assert list(written(builder(clip_norm=1.0)).draft.sections) == ["micro_step"]


def written(b: PlanBuilder) -> PlanBuilder:
    b.zeros(())
    return b


def test_what_begins_with_another_section_has_no_training_step(builder: Make) -> None:
    b = builder()
    b.begin_section("prefill")
    assert list(written(b).draft.sections) == ["prefill"]


def piece(b: PlanBuilder) -> Value:
    return b.adapter("block_00")["q_proj.lora_A"]


MISUSE: dict[str, tuple[Callable[[PlanBuilder], Any], str]] = {
    "an unknown scalar": (lambda b: b.scalar("temperature"), "a name that no runtime binds"),
    "an unknown weight group": (lambda b: b.weights("block_77"), "a name that the model lacks"),
    "an adapter that is none": (lambda b: b.adapter("head"), "a name that the model lacks"),
    "an empty choice": (lambda b: b.choose("tile", []), "no candidates"),
    "a choice that is none": (lambda b: builder_with(b, {"tile": 5}).choose("tile", [1, 2]), "5"),
    "rows past the end": (lambda b: b.zeros((4, 3)).rows(2, 5), "rows(2, 5)"),
    "no rows": (lambda b: b.zeros((4, 3)).rows(2, 2), "rows(2, 2)"),
    "rows of a scalar": (lambda b: b.scalar("step").rows(0, 1), "rows(0, 1)"),
    "rows placed by a float": (lambda b: b.zeros((4, 3)).rows_at(b.scalar("step"), 2), "rows_at(step, 2)"),
    "too many rows placed": (lambda b: b.zeros((4, 3)).rows_at(b.scalar("position"), 5), "rows_at(position, 5)"),
    "a number as an operand": (lambda b: b.call(double, 3.0), "an operand of type float"),
    "a tensor as an operand": (lambda b: b.call(double, torch.zeros(3)), "an operand of type Tensor"),
    "a place for what is no result": (
        lambda b: b.call(pair, b.zeros((4, 3)), into={"half": b.zeros((4, 3))}),
        "a place for a result 'half'",
    ),
    "two places for one result": (
        lambda b: b.call(double, b.zeros((4, 3)), into=b.zeros((4, 3)), add_to=b.zeros((4, 3))),
        "two places",
    ),
    "a place of another shape": (
        lambda b: b.call(double, b.zeros((4, 3)), into=b.zeros((5, 3))),
        "into a value of float32 [5, 3]",
    ),
    "a place of another dtype": (
        lambda b: b.call(double, b.zeros((4, 3)), add_to=b.zeros((4, 3), "int64")),
        "add_to a value of int64 [4, 3]",
    ),
    "a store to what is no state": (lambda b: b.store(b.zeros((2, 64)), piece(b)), "for a value of role temporary"),
    "a store of another shape": (lambda b: b.store(piece(b), b.zeros((2, 3))), "float32 [2, 3]"),
    "a store of another dtype": (lambda b: b.store(piece(b), b.zeros((2, 64), "int64")), "int64 [2, 64]"),
    "a store to some rows": (lambda b: b.store(piece(b).rows(0, 1), b.zeros((1, 64))), "role adapter"),
    "fewer values than pieces": (lambda b: b.store([piece(b), piece(b)], [b.zeros((2, 64))]), "1 values for 2 pieces"),
    "two shapes of one state": (
        lambda b: (b.state(piece(b), "m", shape=(3,)), b.state(piece(b), "m", shape=(4,))),
        "the shape [4]",
    ),
    "a state of what is no adapter": (lambda b: b.state(b.zeros((2, 64)), "m"), "a value of role temporary"),
    "a state of a weight": (lambda b: b.state(b.weights("block_00")["input_norm"], "m"), "a value of role weight"),
    "a state of a state": (lambda b: b.state(b.state(piece(b), "m"), "n"), "a value of role optimizer"),
    "a state of some rows": (lambda b: b.state(piece(b).rows(0, 1), "m"), "some of its rows"),
    "a state with a dot in its name": (lambda b: b.state(piece(b), "m.n"), "the name 'm.n'"),
    "a state without a name": (lambda b: b.state(piece(b), ""), "the name ''"),
    "a state whose name is no text": (lambda b: b.state(piece(b), 3), "the name '3'"),  # type: ignore[arg-type]
    "a state named as no file could hold it": (lambda b: b.state(piece(b), 'm"\n\0'), "the name 'm"),
    "a state of a letter outside ASCII": (lambda b: b.state(piece(b), "µ"), "the name 'µ'"),
    "a state with a long name": (lambda b: b.state(piece(b), "m" * 200), "a name of 200 characters"),
    "a state named as the sum of gradients": (lambda b: b.state(piece(b), "gradient"), "the name 'gradient'"),
    "a state without elements": (lambda b: b.state(piece(b), "m", shape=(0, 3)), "the shape (0, 3)"),
    "a state of less than nothing": (lambda b: b.state(piece(b), "m", shape=(-1,)), "the shape (-1,)"),
    "a state whose shape holds no integers": (
        lambda b: b.state(piece(b), "m", shape=(2.0, True)),
        "the shape (2.0, True)",
    ),  # type: ignore[arg-type]
    "a state whose shape is a number": (lambda b: b.state(piece(b), "m", shape=3), "the shape 3"),  # type: ignore[arg-type]
    "a state of nine dimensions": (lambda b: b.state(piece(b), "m", shape=(1,) * 9), "the shape (1, 1"),
    "a state that no file could hold": (
        lambda b: b.state(piece(b), "m", shape=(2**20, 2**20)),
        "the shape [1048576, 1048576]",
    ),
    "another shape than the piece's, which a state has": (
        lambda b: (b.state(piece(b), "m"), b.state(piece(b), "m", shape=(3,))),
        "the shape [3]",
    ),
    "noise of what is no adapter": (lambda b: b.noise(b.zeros((2, 64))), "a value of role temporary"),
    "noise of some rows": (lambda b: b.noise(piece(b).rows(0, 1)), "some of its rows"),
    "a record of some rows": (lambda b: b.record(b.zeros((4, 3)).rows(0, 1)), "some of its rows"),
    "a metric of some rows": (lambda b: b.emit(loss=b.zeros((4,)).rows(0, 1)), "some of its rows"),
    "two dtypes of one array": (
        lambda b: (b.array("x", "int64"), b.array("x", "float32")),
        "float32, and int64 before",
    ),
    "an array named as the mask": (lambda b: b.array("mask", "float32"), "float32"),
    "an array of copies": (lambda b: b.array("x*2", "int64"), "int64"),
    "an array of bytes": (lambda b: b.array("x", "uint8"), "uint8"),  # type: ignore[arg-type]
    "an accumulator without micro-batches": (lambda b: b.accumulator(piece(b)), "a training without accumulation"),
}


def builder_with(b: PlanBuilder, choices: dict[str, Any]) -> PlanBuilder:
    return PlanBuilder(b.model, b.training, b.sequence_length, b.context_length, b._tracer, choices)


@pytest.mark.parametrize("misuse", MISUSE)
def test_misuse(misuse: str, builder: Make) -> None:
    do, got = MISUSE[misuse]
    with pytest.raises(PlanError) as caught:
        do(builder())
    assert got in caught.value.got
    assert caught.value.expected
    assert caught.value.next_step
