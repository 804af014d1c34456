# SPDX-License-Identifier: Apache-2.0
"""Update rules in float64 against torch.optim, and the order in which gradients are used and dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from bespoke.graph.builder import PlanBuilder
from bespoke.methods.update import FirstOrderOptions, adamw, clip_factor, sgd, square_sum, update
from bespoke.plan.instructions import Call, Store

EXACT: dict[str, float] = {"rtol": 1e-12, "atol": 1e-15}


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1}, {"betas": (0.0, 0.9)}, {"betas": (0.5, 0.0)}, {"eps": 1e-2, "betas": (0.95, 0.99)}],
)
def test_adamw_is_torchs(options: dict[str, Any]) -> None:
    p = random(7, 5, seed=0)
    theirs = torch.nn.Parameter(p.clone())
    settings = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, **options}
    rule = torch.optim.AdamW([theirs], lr=0.03, **settings)
    m = v = torch.zeros_like(p)
    for step in range(1, 8):
        theirs.grad = random(7, 5, seed=step)
        rule.step()
        p, m, v = adamw(
            p,
            random(7, 5, seed=step),
            m,
            v,
            torch.tensor(0.03, dtype=torch.float64),
            torch.tensor(float(step)).double(),
            {},
            beta1=settings["betas"][0],
            beta2=settings["betas"][1],
            epsilon=settings["eps"],
            decay=settings["weight_decay"],
        )
        torch.testing.assert_close(p, theirs.detach(), **EXACT)


def test_the_first_step_of_adamw_keeps_its_digits_in_fp32() -> None:
    """1 - 0.999^1 in fp32 is 0.00100004673: four digits lost, were it computed so."""
    p, g = random(50, seed=0).float(), random(50, seed=1).float()
    zero = torch.zeros_like(p)
    new, _, _ = adamw(
        p, g, zero, zero, torch.tensor(1.0), torch.tensor(1.0), {}, beta1=0.9, beta2=0.999, epsilon=1e-8, decay=0.0
    )
    torch.testing.assert_close(p - new, torch.sign(g), rtol=1e-5, atol=1e-6)


def test_sgd_is_torchs() -> None:
    p, g = random(7, 5, seed=0), random(7, 5, seed=1)
    theirs = torch.nn.Parameter(p.clone())
    theirs.grad = g.clone()
    torch.optim.SGD([theirs], lr=0.03).step()
    torch.testing.assert_close(sgd(p, g, torch.tensor(0.03).double(), {}), theirs.detach(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("clip_norm", [0.5, 1e6])
def test_clipping_is_torchs(clip_norm: float) -> None:
    gradients = [random(7, 5, seed=1), random(3, seed=2)]
    theirs = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for parameter, g in zip(theirs, gradients, strict=True):
        parameter.grad = g.clone()
    torch.nn.utils.clip_grad_norm_(theirs, clip_norm)
    factor = clip_factor(torch.stack([square_sum(g) for g in gradients]).sum(), clip_norm=clip_norm)
    one = torch.tensor(1.0, dtype=torch.float64)
    for parameter, g in zip(theirs, gradients, strict=True):
        torch.testing.assert_close(sgd(torch.zeros_like(g), g, one, {"factor": factor}), -parameter.grad, **EXACT)


# ---- in the plan -----------------------------------------------------------------------------------------------------------------


def gradient_of(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def block_by_block(b: PlanBuilder) -> Iterator[tuple[Any, Any]]:
    for group in reversed(b.model.blocks):
        adapter = b.adapter(group)
        yield adapter, {name: b.call(gradient_of, value) for name, value in adapter.items()}


def kinds(b: PlanBuilder, section: Any) -> list[str]:
    """`gradient_of block_02` for a call, `store block_02` for a store; each run of equal ones once."""
    lines: list[str] = []
    for instruction in b.draft.sections[section]:
        if isinstance(instruction, Call):
            name = b.draft.graphs[instruction.graph].name
            line = f"{name} {b.draft.values[instruction.operands[0][0]].name.split('.')[0]}"
        elif isinstance(instruction, Store):
            line = f"store {b.draft.values[instruction.state].name.split('.')[0]}"
        else:
            line = instruction.op
        if line.startswith(("gradient_of", "store")) and line not in lines[-1:]:
            lines.append(line)
    return lines


def test_a_blocks_gradients_are_used_before_the_next_blocks_are_made(builder: Callable[..., PlanBuilder]) -> None:
    b = builder()
    update(b, block_by_block(b), FirstOrderOptions(update="sgd"))
    found = kinds(b, "train_step")
    for one, group in enumerate(("block_02", "block_01", "block_00")):
        of_block = [place for place, line in enumerate(found) if line.endswith(group)]
        assert len(of_block) > 1
        assert max(of_block) < min(
            [p for p, line in enumerate(found) if line.endswith(f"block_0{1 - one}")], default=len(found)
        )


@pytest.mark.parametrize(("rule", "stored"), [("sgd", 1), ("adamw", 3)])
def test_every_piece_is_stored_once_with_its_state(rule: Any, stored: int, builder: Callable[..., PlanBuilder]) -> None:
    b = builder()
    update(b, block_by_block(b), FirstOrderOptions(update=rule))
    names = [b.draft.values[i.state].name for i in b.draft.sections["train_step"] if isinstance(i, Store)]
    assert len(names) == len(set(names)) == 3 * 14 * stored


@pytest.mark.parametrize("training", [{"accumulation": 2}, {"clip_norm": 1.0}, {"accumulation": 2, "clip_norm": 1.0}])
def test_sums_are_made_in_one_section_and_applied_in_the_other(
    training: dict[str, Any], builder: Callable[..., PlanBuilder]
) -> None:
    b = builder(**training)
    update(b, block_by_block(b), FirstOrderOptions(update="sgd"))
    assert list(b.draft.sections) == ["micro_step", "apply_step"]
    assert not any(isinstance(i, Store) for i in b.draft.sections["micro_step"])
    assert sum(isinstance(i, Store) for i in b.draft.sections["apply_step"]) == 3 * 14
    sums = [value for value in b.draft.values if value.lifetime == "step"]
    assert len(sums) == 3 * 14
    clips = any(graph.name == "clip_factor" for graph in b.draft.graphs)
    assert clips is ("clip_norm" in training)
