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
from tests.models import reference_dequantize


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


@settings(max_examples=150, deadline=None)
@given(weights())
def test_decoding_gives_what_a_second_quantizer_gives_bit_for_bit(weight: np.ndarray) -> None:
    codes, scales = quantize("w", weight)
    expected = reference_dequantize(torch.from_numpy(weight)).numpy()
    np.testing.assert_array_equal(dequantize(codes, scales, weight.shape[1]), expected)


@settings(max_examples=100, deadline=None)
@given(weights())
def test_codes_and_scales_obey_the_rules_number_by_number(weight: np.ndarray) -> None:
    codes, scales = quantize("w", weight)
    rows, columns = weight.shape
    assert codes.dtype == np.uint8
    assert codes.shape == (rows, codes_width(columns)) == (rows, 16 * groups_of(columns))
    assert scales.dtype == np.float16
    assert scales.shape == (rows, groups_of(columns))
    for row in range(rows):
        for column in range(32 * groups_of(columns)):
            byte = int(codes[row, column // 2])
            code = byte & 15 if column % 2 == 0 else byte >> 4
            group = weight[row, column // 32 * 32 : column // 32 * 32 + 32]
            scale = np.float16(np.float32(np.abs(group).max()) / np.float32(7))
            assert scales[row, column // 32] == scale
            if column >= columns or scale == 0:
                assert code == 8
            else:
                exact = float(weight[row, column]) / float(scale)
                assert code == 8 + min(7, max(-8, round(float(np.float32(exact)))))  # round() is half to even


def test_rows_quantized_a_few_at_a_time_give_the_same_bytes() -> None:
    weight = np.random.default_rng(0).standard_normal((50, 172)).astype(np.float32)
    codes, scales = quantize("w", weight)
    parts = [quantize("w", weight[a : a + 7]) for a in range(0, 50, 7)]
    np.testing.assert_array_equal(codes, np.concatenate([part[0] for part in parts]))
    np.testing.assert_array_equal(scales, np.concatenate([part[1] for part in parts]))


def test_error_of_a_weight_is_at_most_half_a_step_and_a_little_for_the_rounded_scale() -> None:
    weight = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
    codes, scales = quantize("w", weight)
    error = np.abs(dequantize(codes, scales, 96) - weight).reshape(64, 3, 32)
    assert (error <= scales.astype(np.float32)[:, :, None] * 0.504).all()


@pytest.mark.parametrize(("value", "named"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity"), (5e5, "5")])
def test_a_weight_that_int4_cannot_hold_is_refused_with_the_name_of_its_tensor(value: float, named: str) -> None:
    weight = np.ones((3, 40), np.float32)
    weight[1, 35] = value
    with pytest.raises(ModelError) as caught:
        quantize("model.layers.3.mlp.down_proj.weight", weight)
    assert "model.layers.3.mlp.down_proj.weight" in caught.value.subject
    assert named in caught.value.got
