# SPDX-License-Identifier: Apache-2.0
"""Federated learning by directions: what a device measures along one, and the step that all devices take along it.

A round has a seed, a number and some directions. Direction j is

    h_j = c z_j + c' G_j      z_j: Rademacher noise of query j      G_j = V w_j: guidance, zero where the round brings none

with the round's own coefficients c and c'. Devices send what the loss changes along h_j, or z_j . g, the projection of an exact
gradient g. The server combines these numbers, and every device takes the step

    theta <- theta - c z_j;   theta <- theta - c' G_j      for each direction in the round's order, with the combined c and c'

from the same adapter. All devices must come to the same bits. So both products are exact in float32: z_j is -1 or 1, and an element
of G_j is a whole number below 2^7 times a scale of at most 5 significant bits, so that a coefficient of at most 12 leaves room.
Only the subtraction rounds, the same with and without fused multiply-add (`bespoke.rules.federation` rounds the coefficients).

V is an orthonormal basis of m directions, columns of INT4 codes: nibble - 8, two to a byte, the low nibble first. A block
brings the codes of its pieces one after another, each from a byte of its own, [bytes, m], and a scale for each piece, [pieces].
w_j is `signs(m, j)`, or 1 for column j mod m and 0 for the others (`probe`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch

from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Value

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec

__all__ = ["MAX_COLUMNS", "Guidance", "directions_of", "federated_apply", "federated_project", "moved"]

MAX_COLUMNS = 16  # with codes from -7 to 7, so that a sum of them is below 2^7


class Guidance(NamedTuple):
    """How a method is guided: by a basis of `columns` columns, and whether each direction probes one of them. 0: not guided."""

    columns: int = 0
    probe: bool = False


def directions_of(
    b: StepBuilder, model: ModelSpec, group: str, guidance: Guidance
) -> Iterator[tuple[str, Value, Value, Value | None]]:
    """(name, theta, z, G) of each piece of a block, for the direction of the round. One z and one G live at a time."""
    pieces = b.adapter(group)
    query = b.scalar("direction")
    codes = scales = weights = None
    if guidance.columns:
        sizes = [packed_bytes(theta) for theta in pieces.values()]
        codes = b.receive(f"guidance.{group}.codes", (sum(sizes), guidance.columns), "uint8")
        scales = b.receive(f"guidance.{group}.scales", (len(pieces),), "float32")
        columns = guidance.columns
        weights = b.call(one_of, query, columns=columns) if guidance.probe else b.signs(columns, query)
    start = 0
    for number, (name, theta) in enumerate(pieces.items()):
        z = b.noise(theta, query, "rademacher")
        g = None
        if codes is not None and scales is not None:
            stop = start + packed_bytes(theta)
            scale = scales.rows(number, number + 1)
            g = b.call(guided, codes.rows(start, stop), scale, weights, shape=theta.shape)
            start = stop
        yield name, theta, z, g


def packed_bytes(theta: Value) -> int:
    """Bytes of the codes of a piece in one column."""
    return -(-math.prod(theta.shape) // 2)


def one_of(direction: torch.Tensor, *, columns: int) -> torch.Tensor:
    """1 for the column of the direction's number, 0 for the others."""
    column: torch.Tensor = torch.arange(columns) == direction % columns
    return column.to(torch.float32)


def guided(codes: torch.Tensor, scale: torch.Tensor, weights: torch.Tensor, *, shape: tuple[int, ...]) -> torch.Tensor:
    """G = V w of a piece. codes: uint8 [bytes, m]; scale: [1]; weights: [m], whole numbers."""
    pairs = codes.to(weights.dtype)
    high = torch.floor(pairs / 16)
    low = pairs - 16 * high
    sums = torch.stack([((half - 8) * weights).sum(1) for half in (low, high)], 1).reshape(-1)
    return (sums[: math.prod(shape)] * scale).reshape(shape)


def moved(
    theta: torch.Tensor,
    z: torch.Tensor,
    g: torch.Tensor | None,
    c: torch.Tensor,
    c_g: torch.Tensor,
    epsilon: torch.Tensor,
    *,
    sign: int,
) -> torch.Tensor:
    """theta + sign epsilon (c z + c' G)."""
    h = c * z if g is None else c * z + c_g * g
    return theta + sign * (epsilon * h)


def stepped(theta: torch.Tensor, z: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """theta - c z, one of the two terms of a step."""
    return theta - c * z


def dot(gradient: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (gradient * z).sum()


def federated_apply(b: StepBuilder, model: ModelSpec, guidance: Guidance) -> None:
    """Writes section `federated_apply`: the step along one direction, theta - c z - c' G."""
    b.begin_section("federated_apply")
    for group in model.blocks:
        for _, theta, z, g in directions_of(b, model, group, guidance):
            new = b.call(stepped, theta, z, b.scalar("coefficient"))
            if g is not None:
                new = b.call(stepped, new, g, b.scalar("guidance_coefficient"))
            b.store(theta, new)


def federated_project(b: StepBuilder, model: ModelSpec) -> None:
    """Writes section `federated_project`: sends z . g of one direction, with g from the accumulators of `federated_measure`."""
    b.begin_section("federated_project")
    projection = b.zeros(())
    for group in model.blocks:
        for _, theta, z, _ in directions_of(b, model, group, Guidance()):
            b.call(dot, b.accumulator(theta), z, add_to=projection)
    b.send(projection)
