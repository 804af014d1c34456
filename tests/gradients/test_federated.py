# SPDX-License-Identifier: Apache-2.0
"""Rounds of federated learning: what a device measures, against direct losses and gradients of transformers and peft, and the step
along a direction, against its formula."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from bespoke import plugins
from bespoke.config import Training
from bespoke.methods.federated import Guidance, federated_apply, federated_project
from bespoke.ops.dtypes import Tensors
from bespoke.rules.federation import COEFFICIENT_BITS, SCALE_BITS, packed, rounded
from bespoke.rules.noise import noise
from tests.gradients.eager import EagerBuilder, doubles
from tests.gradients.exact_reference import GRADIENT_TOLERANCE, TILES, ExactReference, direction
from tests.gradients.harness import Base, Bases, random_adapter, random_batch, spec
from tests.support.checks import few_rows_of

RANK, SEED, ROUND, NUMBER = 3, 5, 7, 2
EPSILON = 1e-3
NO_BLOCK = 65535  # of the counter of numbers that belong to no piece


@dataclass(frozen=True)
class Way:
    """How directions of a round are made: of z and of m guided columns, as CooperLLM writes it or rescaled by sqrt(d)."""

    m: int
    alpha: float
    literal: bool = False
    probe: bool = False

    def coefficients(self, d: int) -> tuple[float, float]:
        if self.probe:
            return 0.0, rounded(1.0)
        scale = 1 if self.literal else math.sqrt(d)
        return rounded(scale * math.sqrt(self.alpha / d)), rounded(scale * math.sqrt((1 - self.alpha) / max(1, self.m)))


WAYS = [
    Way(0, 1.0),
    Way(4, 0.5),
    Way(4, 0.5, literal=True),
    Way(8, 0.25),
    Way(1, 0.0),
    Way(4, 0.0, probe=True),
    Way(16, 0.9, literal=True),
]


def orthonormal(adapter: Tensors, m: int) -> Tensors:
    """m orthonormal columns over all pieces, by piece: [m, ...]."""
    size = sum(piece.numel() for piece in adapter.values())
    columns = torch.linalg.qr(torch.randn(size, max(1, m), generator=torch.Generator().manual_seed(m)).double())[0].T[
        :m
    ]
    cut = columns.split([piece.numel() for piece in adapter.values()], 1)
    return {name: part.reshape(m, *adapter[name].shape) for name, part in zip(adapter, cut, strict=True)}


def received(base: Base, adapter: Tensors, basis: Tensors) -> dict[str, torch.Tensor]:
    """The files of a round's guidance."""
    files = {}
    for group in spec(base, RANK).blocks:
        codes, scales = packed({name: basis[name].numpy() for name in adapter if name.startswith(f"{group}.")})
        files[f"guidance.{group}.codes"], files[f"guidance.{group}.scales"] = map(torch.from_numpy, (codes, scales))
    return files


def unpacked(base: Base, adapter: Tensors, files: dict[str, torch.Tensor], m: int) -> Tensors:
    """V as the codes have it, read byte by byte."""
    basis = {}
    for group in spec(base, RANK).blocks:
        start, codes = 0, files[f"guidance.{group}.codes"].numpy()
        for number, name in enumerate(name for name in adapter if name.startswith(f"{group}.")):
            size = adapter[name].numel()
            piece = np.empty((m, size))
            for element, column in itertools.product(range(size), range(m)):
                byte = int(codes[start + element // 2, column])
                piece[column, element] = (byte >> 4 if element % 2 else byte & 15) - 8
            piece *= float(files[f"guidance.{group}.scales"][number])
            basis[name] = torch.from_numpy(piece).reshape(m, *adapter[name].shape)
            start += -(-size // 2)
    return basis


def weights(way: Way) -> torch.Tensor:
    """w: by how much each column counts."""
    if way.probe:
        return torch.eye(way.m, dtype=torch.float64)[NUMBER % way.m]
    counter = {"seed": SEED, "step": ROUND, "query": NUMBER, "block": NO_BLOCK, "tensor": 0}
    return torch.from_numpy(noise((way.m,), **counter, distribution="rademacher")).double()  # type: ignore[arg-type]


def builder(
    base: Base, adapter: Tensors, way: Way, files: dict[str, torch.Tensor], c: tuple[float, float]
) -> EagerBuilder:
    scalars = {
        "epsilon": EPSILON,
        "direction": float(NUMBER),
        "coefficient": c[0],
        "guidance_coefficient": c[1],
    }
    batch = random_batch(base.config, 33)
    b = EagerBuilder(
        base, spec(base, RANK), Training(batch_size=3), batch, adapter, scalars, TILES, seed=SEED, step=ROUND
    )
    b.received = files
    return b


@pytest.mark.parametrize(
    ("name", "way"), few_rows_of([(name, way) for name in ("qwen2", "gemma3_text") for way in WAYS], (1, 2))
)
def test_a_measurement_and_its_step_are_those_of_a_direct_computation(name: str, way: Way, bases: Bases) -> None:
    base = bases(name)
    adapter = doubles(random_adapter(spec(base, RANK)))
    basis = orthonormal(adapter, way.m)
    files = received(base, adapter, basis) if way.m else {}
    c = way.coefficients(sum(piece.numel() for piece in adapter.values()))

    plugin = plugins.get("optimizer", "zgr")
    options = plugin.Options(guidance_columns=way.m, probe=way.probe)
    b = builder(base, adapter, way, files, c)
    guidance = plugin.federated_measure(b, b.model, options)
    assert b.sent is not None

    z = direction(base, RANK, NUMBER, "rademacher", seed=SEED, step=ROUND)
    g = {piece: torch.zeros_like(value) for piece, value in adapter.items()}
    if way.m:
        read = unpacked(base, adapter, files, way.m)
        g = {piece: torch.tensordot(weights(way), columns, 1) for piece, columns in read.items()}
    h = {piece: c[0] * z[piece] + c[1] * g[piece] for piece in adapter}
    losses = []
    reference = ExactReference(base, spec(base, RANK), random_adapter(spec(base, RANK)))
    for sign in (+1, -1):
        reference.set({piece: value + sign * EPSILON * h[piece] for piece, value in adapter.items()})
        with torch.no_grad():
            losses.append(float(reference.loss(random_batch(base.config, 33))))
    assert float(b.sent) == pytest.approx((losses[0] - losses[1]) / (2 * EPSILON), rel=1e-9)

    b = builder(base, adapter, way, files, (c[0] * 2.0**-7, c[1] * 2.0**-7))
    federated_apply(b, b.model, guidance)
    for piece, value in adapter.items():
        torch.testing.assert_close(b.stored[piece], value - 2.0**-7 * h[piece], rtol=1e-12, atol=1e-12)


def test_projections_are_those_of_pefts_gradient(bases: Bases) -> None:
    base = bases("qwen2")
    adapter = doubles(random_adapter(spec(base, RANK)))
    plugin = plugins.get("optimizer", "mesp")
    b = builder(base, adapter, WAYS[0], {}, (1.0, 0.0))
    b.begin_section("federated_measure")
    plugin.train_step(b, b.model, plugin.Options(federated_directions=8))
    assert b.stored == {}
    federated_project(b, b.model)
    _, gradients = ExactReference(base, spec(base, RANK), random_adapter(spec(base, RANK))).gradients(
        random_batch(base.config, 33)
    )
    z = direction(base, RANK, NUMBER, "rademacher", seed=SEED, step=ROUND)
    expected = sum(float((torch.from_numpy(gradients[piece]) * z[piece]).sum()) for piece in adapter)
    assert b.sent is not None
    assert float(b.sent) == pytest.approx(expected, rel=GRADIENT_TOLERANCE)


def test_products_of_a_step_are_exact_in_float32() -> None:
    rng = np.random.default_rng(3)
    for m in (1, 4, 16):
        columns = {"a": rng.standard_normal((m, 7, 9)) * 10.0 ** rng.integers(-6, 3), "b": rng.standard_normal((m, 33))}
        codes, scales = packed(columns)
        assert codes.shape == (-(-63 // 2) + -(-33 // 2), m)
        sums = rng.integers(-7 * m, 7 * m, 500)
        for scale in scales:
            coefficient = np.float32(rounded(float(rng.standard_normal())))
            exact = [float(coefficient) * (float(scale) * float(total)) for total in sums]
            assert [float(coefficient * (scale * np.float32(total))) for total in sums] == exact


@pytest.mark.parametrize("bits", [COEFFICIENT_BITS, SCALE_BITS])
def test_a_number_is_rounded_to_so_many_bits(bits: int) -> None:
    for number in (*np.random.default_rng(0).standard_normal(200) * 1e-3, 0.0, 1.0, -3.0, 2.0**-120):
        near = rounded(float(number), bits)
        assert abs(near - number) <= abs(number) * 2.0**-bits
        assert near == 0 or (math.frexp(near)[0] * 2**bits).is_integer()


def test_guidance_with_nothing_in_it_is_zero() -> None:
    codes, scales = packed({"a": np.zeros((2, 3, 3))})
    assert set(codes.reshape(-1).tolist()) == {0x88}
    assert scales.tolist() == [0.0]


def test_a_round_without_guidance_is_measured_along_z_alone(bases: Bases) -> None:
    base = bases("qwen2")
    adapter = doubles(random_adapter(spec(base, RANK)))
    plugin, sent = plugins.get("optimizer", "zgr"), []
    for columns in (0, 4):
        b = builder(base, adapter, WAYS[0], {}, (1.0, 0.5))
        guidance = plugin.federated_measure(b, b.model, plugin.Options(guidance_columns=columns))
        assert guidance == Guidance(columns, False)
        sent.append(float(b.sent))  # type: ignore[arg-type]
    assert sent[0] == sent[1]
