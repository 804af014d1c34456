# SPDX-License-Identifier: Apache-2.0
"""A training step as a program for ExecuTorch's own runtime (bespoke.exports.forward_only). tests/native runs it from an app."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke.bundle.reader import read_bundle
from bespoke.config import Scalar
from bespoke.errors import ConfigError
from bespoke.exports.forward_only import DECOMPOSITIONS, ForwardOnly
from bespoke.exports.noise_in_graph import noise_in_graph
from bespoke.methods.update import copy
from bespoke.rules.noise import noise
from bespoke_plugins.optimizers.prge import PRGE, PRGEOptions
from bespoke_plugins.targets.executorch.forward_only import lowered
from tests.support.bundles import made_once
from tests.unit.exports.forward_only import EPSILON, RATE, SEED, STEPS, batch, build

pytestmark = pytest.mark.xdist_group("forward_only")


@pytest.fixture(scope="module")
def trailing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "trailing", lambda folder: build(folder, dual_forwarding=True)) / "bundle"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One block and one query: lowering takes minutes for more."""
    return (
        made_once(tmp_path_factory, "small", lambda folder: build(folder, 1, queries=1, dual_forwarding=True))
        / "bundle"
    )


@pytest.mark.slow
def test_noise_that_is_given_is_that_of_the_counter(trailing: Path) -> None:
    with read_bundle(trailing) as bundle:
        by_counter, given = ForwardOnly(bundle), ForwardOnly(bundle, noise="input")
    operands = [*operands_of(1), torch.zeros(2), torch.zeros(1), torch.zeros(1)]
    z = torch.from_numpy(np.stack([drawn(given, query) for query in (0, 1)]))
    with torch.no_grad():
        loss, g = by_counter(*operands, torch.tensor([SEED]), torch.tensor([1]))
        same_loss, same_g = given(*operands, z)
        torch.testing.assert_close(same_loss, loss, rtol=1e-6, atol=0)
        torch.testing.assert_close(same_g, g, rtol=0, atol=2e-6 / EPSILON)
        rate = torch.tensor([RATE])
        for one, other in zip(by_counter.finished(g, rate), given.finished(g, rate), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def operands_of(step: int) -> list[torch.Tensor]:
    of = batch(step)
    return [torch.from_numpy(array) for array in (of.tokens, of.targets, of.mask)]


def drawn(step: ForwardOnly, query: int) -> np.ndarray:
    parts = []
    for name in step.pieces:
        group, piece = name.split(".", 1)
        block, shapes = step.model.blocks.index(group), step.model.adapter_shapes(group)
        z = noise(shapes[piece], seed=SEED, step=1, query=query, block=block, tensor=list(shapes).index(piece))
        parts.append(z.reshape(-1))
    return np.concatenate(parts)


@pytest.mark.parametrize(("distribution", "off"), [("normal", 2e-4), ("rademacher", 0.0)])
def test_noise_in_a_graph_is_that_of_the_rule(distribution: str, off: float) -> None:
    seed, step, query, block, tensor = 2**40 + 77, 9, 1, 3, 2
    wanted = noise((40_000,), seed=seed, step=step, query=query, block=block, tensor=tensor, distribution=distribution)  # type: ignore[arg-type]
    first, second = (
        torch.arange(10_000, dtype=torch.int32),
        torch.full((10_000,), block << 16 | tensor, dtype=torch.int32),
    )
    found = noise_in_graph(first, second, query, torch.tensor([seed]), torch.tensor([step]), distribution).numpy()  # type: ignore[arg-type]
    assert np.abs(found - wanted).max() <= off
    assert np.median(np.abs(found - wanted)) <= 1e-7


def test_finishing_between_two_calls_changes_nothing_of_what_comes_after(trailing: Path) -> None:
    losses: dict[bool, list[float]] = {}
    pieces: dict[bool, tuple[torch.Tensor, ...]] = {}
    for looked in (False, True):
        with read_bundle(trailing) as bundle, torch.no_grad():
            step, g, rate = ForwardOnly(bundle), torch.zeros(2), torch.tensor([RATE])
            losses[looked] = []
            for number in range(1, STEPS + 1):
                begun = torch.tensor([float(number > 1)])
                loss, g = step(*operands_of(number), g, rate, begun, torch.tensor([SEED]), torch.tensor([number]))
                losses[looked].append(float(loss))
                if looked and number == 3:
                    step.finished(g, rate)
            pieces[looked] = step.finished(g, rate)
    assert losses[True] == pytest.approx(losses[False], rel=1e-6)
    for one, other in zip(pieces[True], pieces[False], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
        assert float(other.abs().max()) > 1e-3  # B began at zero


@pytest.mark.slow
def test_what_buffers_are_made_of_is_in_no_delegate(small: Path) -> None:
    with read_bundle(small) as bundle:
        edge = lowered(ForwardOnly(bundle).methods(), DECOMPOSITIONS)
    delegates = {}
    for method in ("forward", "finish"):
        program = edge.exported_program(method)
        delegates[method] = {node for node in program.graph.nodes if str(node.target) == "executorch_call_delegate"}
        mutated = program.graph_signature.buffers_to_mutate
        sides = [node for node in program.graph.nodes if node.name in mutated]
        assert len(sides) == 7 * 2  # both sides of each linear
        behind, waiting = set(), sides
        while waiting:
            behind.add(node := waiting.pop())
            waiting += [one for one in node.all_input_nodes if one not in behind]
        assert not behind & delegates[method]
    assert delegates["forward"]
    assert not delegates["finish"]


# Operators that move elements or make constants, and compute nothing.
MOVING = {
    "arange",
    "cat",
    "clone",
    "expand",
    "full",
    "full_like",
    "getitem",
    "repeat",
    "select",
    "slice",
    "unsqueeze",
    "view",
    "where",
}


@pytest.mark.slow
def test_with_given_noise_no_integers_are_multiplied(small: Path) -> None:
    with read_bundle(small) as bundle:
        left = {noise: integer_operators(ForwardOnly(bundle, noise=noise)) for noise in ("input", "counter")}  # type: ignore[arg-type]
    assert left["input"] == {
        "uint8": {"bitwise_and", "bitwise_right_shift", "_to_copy", "index_select"},  # operators on the int4 codes
        "int64": {
            "index_select",
            "gather",
            "max",
            "add",
            "sub",
            "clamp",
            "ge",
            "lt",
            "gt",
            "le",
        },  # operators on tokens, targets and positions
    }
    assert left["counter"]["int64"] >= left["input"]["int64"] | {
        "mul",
        "bitwise_xor",
        "bitwise_and",
        "bitwise_right_shift",
    }


def integer_operators(step: ForwardOnly) -> dict[str, set[str]]:
    """Those of `forward` that take or make integers, by dtype."""
    module, operands = step.methods()["forward"]
    table = {**torch.export.default_decompositions(), **DECOMPOSITIONS}
    exported = torch.export.export(module, operands, strict=False).run_decompositions(table)
    found: dict[str, set[str]] = {}
    for node in (node for node in exported.graph.nodes if node.op == "call_function"):
        name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
        tensors = [one.meta.get("val") for one in (*node.all_input_nodes, node)]
        flat = [one for value in tensors for one in (value if isinstance(value, list | tuple) else [value])]
        for dtype in {one.dtype for one in flat if isinstance(one, torch.Tensor)} - {torch.bool}:
            if not dtype.is_floating_point and name not in MOVING and not name.startswith("_assert"):
                found.setdefault(str(dtype).removeprefix("torch."), set()).add(name)
    return found


OTHERS: dict[str, dict[str, object]] = {
    "mesp": {},
    "mebp": {"clip_norm": 1.0},
    "mezo": {},
    "fzoo": {"queries": 2},
    "hizoo": {},
    "prge": {"queries": 2},
}


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of methods that update within the step."""
    return made_once(tmp_path_factory, "at_once", lambda folder: build(folder, 1, OTHERS)) / "bundle"


@pytest.mark.parametrize("method", OTHERS)
def test_a_step_that_makes_its_own_update_is_refused(method: str, at_once: Path) -> None:
    with read_bundle(at_once) as bundle, pytest.raises(ConfigError) as caught:
        ForwardOnly(bundle, method)
    assert (caught.value.subject, caught.value.got, caught.value.expected) == (
        f"method '{method}'",
        "a step that makes its own update",
        "one whose update trails by a call",
    )
    assert "dual_forwarding" in caught.value.next_step


class Weighed(PRGEOptions):
    """With an option that is bound when a step runs."""

    weight: Scalar = 3.0


def and_reads(scalar: str) -> Callable[..., None]:
    """The step of prge, with a number that it returns before its g."""
    step = PRGE.train_step

    def train_step(self: PRGE, b: Any, model: Any, options: Any) -> None:
        b.record(b.call(copy, b.scalar(scalar)))
        step(self, b, model, options)

    return train_step


def test_options_that_are_bound_at_run_time_are_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PRGE, "Options", Weighed)
    monkeypatch.setattr(PRGE, "train_step", and_reads("weight"))
    with read_bundle(build(tmp_path, 1, dual_forwarding=True)) as bundle:
        assert bundle.method().scalars == {"epsilon": EPSILON, "option.weight": 3.0}
        step = ForwardOnly(bundle)
        _, numbers = step(*step.example())
        assert float(numbers[0]) == 3.0


def test_a_step_that_reads_what_no_caller_hands_over_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PRGE, "train_step", and_reads("step"))
    with read_bundle(build(tmp_path, 1, dual_forwarding=True)) as bundle, pytest.raises(ConfigError) as caught:
        ForwardOnly(bundle)
    assert (caught.value.subject, caught.value.got) == ("method 'prge'", "a step that reads step")
    assert (
        caught.value.expected
        == "one that reads no more than batch_tokens, epsilon, learning_rate, mask, targets, tokens"
    )
    assert "device core" in caught.value.next_step
