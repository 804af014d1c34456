# SPDX-License-Identifier: Apache-2.0
"""Rotary tables against transformers' own rotary modules, for every kind and for the published settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke.errors import ModelError
from bespoke.model.architecture import RopeConfig
from bespoke.model.families import read_config
from bespoke.model.rope import rope_frequencies, rope_tables
from tests.support.full_size import PUBLISHED
from tests.support.models import tiny_config

POSITIONS = 2048
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "default, theta 1e4": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}),
    "Qwen2.5": ("qwen2", {"head_dim": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}}),
    "Qwen3": ("qwen3", {"head_dim": 128, "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}}),
    "linear": ("llama", {"head_dim": 64, "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "Llama 3.2": ("llama3", {"head_dim": 64, "rope_parameters": _LLAMA3}),
    "Llama 3, all bands": ("llama3", {}),
    "odd head": ("qwen3", {"head_dim": 20}),
}


@pytest.mark.parametrize("case", _CASES)
def test_tables_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    family, overrides = _CASES[case]
    config = tiny_config(family, **overrides)
    config.save_pretrained(tmp_path)
    ours = read_config(tmp_path)
    _same_tables(ours.rope, ours.head_dim, _rotary(config), None)


@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 8.0}])
def test_gemma_has_a_table_of_its_own_for_sliding_layers(scaling: dict[str, Any] | None, tmp_path: Path) -> None:
    config = tiny_config("gemma3_text", head_dim=256, **({"rope_scaling": scaling} if scaling else {}))
    config.save_pretrained(tmp_path)
    ours = read_config(tmp_path)
    assert ours.rope_local is not None
    assert (ours.rope.theta, ours.rope_local.theta) == (1e6, 1e4)
    assert ours.rope.kind == ("linear" if scaling else "default")
    _same_tables(ours.rope, 256, _rotary(config), "full_attention")
    _same_tables(ours.rope_local, 256, _rotary(config), "sliding_attention")


def test_a_kind_without_its_factor_is_refused() -> None:
    rope = RopeConfig(
        kind="linear",
        theta=1e4,
        factor=None,
        low_freq_factor=None,
        high_freq_factor=None,
        original_max_positions=None,
    )
    with pytest.raises(ModelError, match="no factor"):
        rope_tables(rope, 8, 4)


def test_published_llama_scaling_divides_the_slowest_frequency_by_its_factor() -> None:
    scaling = PUBLISHED["Llama-3.2-1B"]["rope_scaling"]
    rope = RopeConfig(
        kind="llama3",
        theta=500_000.0,
        factor=scaling["factor"],
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_positions=8192,
    )
    plain = rope.model_copy(update={"kind": "default"})
    ratio = rope_frequencies(plain, 64) / rope_frequencies(rope, 64)
    assert ratio[0] == 1.0
    assert ratio[-1] == 32.0
    assert (np.diff(ratio) >= -1e-6).all()


def _rotary(config: Any) -> Any:
    import transformers.models as models

    kind = config.model_type.removesuffix("_text")
    module = getattr(getattr(models, kind), f"modeling_{kind}")
    return getattr(module, f"{kind.capitalize()}RotaryEmbedding")(config)


def _same_tables(rope: RopeConfig, head_dim: int, rotary: Any, layer_type: str | None) -> None:
    theirs = getattr(rotary, f"{layer_type}_inv_freq" if layer_type else "inv_freq").numpy()
    ours = rope_frequencies(rope, head_dim)
    assert ours.dtype == np.float32
    # torch's vectorized fp32 power may err by a unit in the last place; ours is rounded once from float64. Scaling
    # repeats that error in other last places, hence two units there.
    ulps = np.abs(ours.view(np.int32) - theirs.view(np.int32))
    assert ulps.max() <= (1 if rope.kind == "default" else 2)
    assert (ulps > 0).sum() <= 1 + len(ulps) // 10

    extra = (layer_type,) if layer_type else ()
    cos, sin = rotary(torch.zeros(1), torch.arange(POSITIONS)[None], *extra)
    half = head_dim // 2
    drift = np.arange(POSITIONS)[:, None] * np.abs(ours.astype(np.float64) - theirs)  # what that unit does to angles
    angle = np.abs(np.arange(POSITIONS)[:, None] * ours)
    bound = 1.2e-7 + np.where(drift > 0, drift + np.spacing(angle.astype(np.float32)), 0)
    for table, expected in zip(rope_tables(rope, head_dim, POSITIONS), (cos, sin), strict=True):
        assert table.shape == (POSITIONS, half)
        assert table.dtype == np.float32
        assert (np.abs(table - expected[0, :, :half].numpy()) <= bound).all()
