# SPDX-License-Identifier: Apache-2.0
"""int4: against a second quantizer written in torch, and against the rules themselves, number by number."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bespoke.errors import ModelError
from bespoke.model.quantize import codes_width, dequantize, groups_of, quantize
from tests.support.models import reference_dequantize


@st.composite
def weights(draw: st.DrawFn) -> np.ndarray:
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 100))
    generator = np.random.Generator(np.random.Philox(draw(st.integers(0, 2**32))))
    values = generator.standard_normal((rows, columns)).astype(np.float32)
    values *= np.float32(10.0 ** draw(st.integers(-9, 5)))
    if draw(st.booleans()):  # halves of a step, where rounding to even shows
        step = np.float32(np.float16(np.abs(values).max() / 7))
        values = np.rint(values / max(step, np.float32(1e-30)) * 2) / 2 * step
    if draw(st.booleans()):
        values[:, : columns // 2] = 0
    return values.astype(np.float32)


def counts_of(columns: int) -> np.ndarray:
    """Powers of two, of a wide range as activations have it."""
    powers = np.random.Generator(np.random.Philox(columns)).integers(-30, 1, columns)
    return np.ldexp(np.float32(1), powers).astype(np.float32)


@pytest.mark.parametrize("weighted", [False, True])
@settings(max_examples=150, deadline=None)
@given(weights())
def test_decoding_gives_what_a_second_quantizer_gives_bit_for_bit(weighted: bool, weight: np.ndarray) -> None:
    counts = counts_of(weight.shape[1]) if weighted else None
    codes, scales = quantize("w", weight, counts)
    expected = reference_dequantize(
        torch.from_numpy(weight), None if counts is None else torch.from_numpy(counts)
    ).numpy()
    np.testing.assert_array_equal(dequantize(codes, scales, weight.shape[1]), expected)


def errors(group: np.ndarray, counts: np.ndarray, scale: float) -> float:
    """The weighted squared error of a group with the nearest codes of this scale."""
    codes = np.clip(np.rint(group / scale), -8, 7) if scale else np.zeros(32)
    return float((counts * (group - codes * scale) ** 2).sum())


@pytest.mark.parametrize("weighted", [False, True])
@settings(max_examples=60, deadline=None)
@given(weights())
def test_codes_and_scales_obey_the_rules_number_by_number(weighted: bool, weight: np.ndarray) -> None:
    """In float64: the codes are the nearest of their scale, and no scale of the rule is better by more than rounding to fp16."""
    rows, columns = weight.shape
    counts = counts_of(columns) if weighted else np.ones(columns, np.float32)
    codes, scales = quantize("w", weight, counts if weighted else None)
    assert codes.dtype == np.uint8
    assert codes.shape == (rows, codes_width(columns)) == (rows, 16 * groups_of(columns))
    assert scales.dtype == np.float16
    assert scales.shape == (rows, groups_of(columns))
    for row, number in np.ndindex(*scales.shape):
        part = slice(32 * number, min(columns, 32 * number + 32))
        group, v = np.zeros(32), np.ones(32)
        group[: part.stop - part.start], v[: part.stop - part.start] = weight[row, part], counts[part]
        scale = float(scales[row, number])
        assert str(scale) != "-0.0"
        for place in range(32):
            byte = int(codes[row, 16 * number + place // 2])
            code = byte & 15 if place % 2 == 0 else byte >> 4
            if 32 * number + place >= columns or scale == 0:
                assert code == 8
            else:
                exact = float(group[place]) / scale
                assert code == 8 + min(7, max(-8, round(float(np.float32(exact)))))  # round() is half to even
        largest = max(group.max(), -group.min())
        if largest < 1e-3:  # the scale is a subnormal number of fp16, or 0
            continue
        best = np.inf
        signed = group.max() if group.max() > -group.min() else group.min()
        for step in (8, 7.3, 8.7):
            q = np.clip(np.rint(group * -step / signed), -8, 7)
            best = min(best, float((v * (group - q * (v * group * q).sum() / (v * q * q).sum()) ** 2).sum()))
        assert errors(group, v, scale) <= best + 2e-3 * (v * group**2).sum()


def test_a_weight_that_meets_a_large_activation_is_kept_at_the_cost_of_the_others() -> None:
    generator = np.random.Generator(np.random.Philox(3))
    weight = generator.standard_normal((200, 32)).astype(np.float32)
    counts = np.full(32, 2.0**-20, np.float32)
    counts[5] = 1
    plain, weighted = (dequantize(*quantize("w", weight, one), 32) - weight for one in (None, counts))
    assert np.square(weighted[:, 5]).mean() <= 0.5 * np.square(plain[:, 5]).mean()
    assert np.square(weighted).mean() >= np.square(plain).mean()


# ---- weights that lie on a grid of this form already ---------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_a_q4_0_file_come_back_code_by_code(weighted: bool) -> None:
    """By the owner's own quantizer and its reader."""
    import gguf

    kind = gguf.GGMLQuantizationType.Q4_0
    weight = np.random.Generator(np.random.Philox(4)).standard_normal((60, 320)).astype(np.float32)
    weight[7, 32:64] = 0
    blocks = gguf.quants.quantize(weight, kind).reshape(60, 10, 18)
    decoded = gguf.quants.dequantize(blocks.reshape(60, -1), kind)
    codes, scales = quantize("w", decoded, counts_of(320) if weighted else None)
    np.testing.assert_array_equal(scales, np.ascontiguousarray(blocks[:, :, :2]).view(np.float16)[:, :, 0])
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(60, 10, 32)
    expected = np.concatenate([blocks[:, :, 2:] & 15, blocks[:, :, 2:] >> 4], -1)
    some = scales != 0  # the codes of a group without a scale mean 0 anyway
    np.testing.assert_array_equal(nibbles[some], expected[some])
    assert (scales < 0).mean() > 0.3


@pytest.mark.parametrize("most", [7, 8])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_of_any_symmetric_grid_of_int4_come_back_as_the_same_numbers(weighted: bool, most: int) -> None:
    """GPTQ's, and those of bundles of before: whose largest code is 7, or -8."""
    generator = np.random.Generator(np.random.Philox(5))
    codes = generator.integers(-7, 8, (80, 6, 32)).astype(np.float32)
    codes[:, :, 3] = -8 if most == 8 else 7 * generator.choice([-1, 1], (80, 6))
    scales = (generator.uniform(1e-3, 0.1, (80, 6)) * generator.choice([-1, 1], (80, 6))).astype(np.float16)
    weight = (codes * scales.astype(np.float32)[..., None]).reshape(80, -1)
    decoded = dequantize(*quantize("w", weight, counts_of(192) if weighted else None), 192)
    np.testing.assert_array_equal(decoded, weight)


def test_rows_quantized_a_few_at_a_time_give_the_same_bytes() -> None:
    weight = np.random.default_rng(0).standard_normal((50, 172)).astype(np.float32)
    codes, scales = quantize("w", weight)
    parts = [quantize("w", weight[a : a + 7]) for a in range(0, 50, 7)]
    np.testing.assert_array_equal(codes, np.concatenate([part[0] for part in parts]))
    np.testing.assert_array_equal(scales, np.concatenate([part[1] for part in parts]))


def test_the_error_of_a_weight_within_the_codes_is_at_most_half_a_step() -> None:
    weight = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
    codes, scales = quantize("w", weight)
    decoded = dequantize(codes, scales, 96)
    error, steps = np.abs(decoded - weight).reshape(64, 3, 32), np.abs(scales.astype(np.float32))[:, :, None]
    clipped = np.abs(weight).reshape(64, 3, 32) > 7 * steps  # what lies beyond the last code
    assert (error <= steps * np.where(clipped, 1.75, 0.504)).all()
    assert clipped.mean() < 0.1


@pytest.mark.parametrize(("value", "named"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity"), (6e5, "6")])
def test_a_weight_that_int4_cannot_hold_is_refused_with_the_name_of_its_tensor(value: float, named: str) -> None:
    weight = np.ones((3, 40), np.float32)
    weight[1, 35] = value
    with pytest.raises(ModelError) as caught:
        quantize("model.layers.3.mlp.down_proj.weight", weight)
    assert "model.layers.3.mlp.down_proj.weight" in caught.value.subject
    assert named in caught.value.got
