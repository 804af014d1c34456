# SPDX-License-Identifier: Apache-2.0
"""Checkpoints against the safetensors package, which reads them with torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bespoke.errors import ModelError
from bespoke.model.checkpoint import INDEX, SINGLE, Checkpoint
from tests.support.models import tiny_model


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sharded", [False, True])
def test_every_tensor_is_read_as_safetensors_reads_it(dtype: str, sharded: bool, tmp_path: Path) -> None:
    tiny_model("qwen2", tmp_path, dtype=dtype, sharded=sharded)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert (len(files) > 3) == sharded
    expected = {name: tensor for file in files for name, tensor in load_file(file).items()}
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.names() == sorted(expected)
    for name, tensor in expected.items():
        assert checkpoint.dtype(name) == dtype
        assert checkpoint.shape(name) == tuple(tensor.shape)
        np.testing.assert_array_equal(checkpoint.vector(name), tensor.to(torch.float32).numpy())


def test_rows_are_cut_out_of_the_middle(tmp_path: Path) -> None:
    table = torch.arange(60, dtype=torch.bfloat16).view(12, 5)
    save_file({"a": torch.ones(3), "table": table}, tmp_path / SINGLE)
    checkpoint = Checkpoint.open(tmp_path)
    np.testing.assert_array_equal(checkpoint.rows("table", 3, 7), table[3:7].float().numpy())
    assert checkpoint.rows("table", 4, 4).shape == (0, 5)
    chunks = list(checkpoint.chunks("table", bytes_at_once=100))
    assert [(start, len(rows)) for start, rows in chunks] == [(0, 5), (5, 5), (10, 2)]
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in chunks]), table.float().numpy())
    with pytest.raises(ModelError, match="rows within 0 to 12"):
        checkpoint.rows("table", 8, 13)


def test_special_bfloat16_numbers_survive(tmp_path: Path) -> None:
    values = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 3.0e38, 1e-40], dtype=torch.bfloat16)
    save_file({"x": values}, tmp_path / SINGLE)
    np.testing.assert_array_equal(Checkpoint.open(tmp_path).vector("x"), values.float().numpy())


def test_a_missing_tensor_is_named_with_its_file_and_its_like(tmp_path: Path) -> None:
    tiny_model("llama", tmp_path)
    with pytest.raises(ModelError) as caught:
        Checkpoint.open(tmp_path).rows("model.layers.9.mlp.up_proj.weight", 0, 1)
    assert "model.layers.9.mlp.up_proj.weight" in caught.value.subject
    assert SINGLE in caught.value.got
    assert "model.layers.0.mlp.up_proj.weight" in caught.value.got


def test_a_pickle_checkpoint_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(ModelError) as caught:
        Checkpoint.open(tmp_path)
    assert "pytorch_model.bin" in caught.value.got
    assert "safetensors" in caught.value.next_step


def test_a_quantized_checkpoint_is_refused(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(2, 2, dtype=torch.int8)}, tmp_path / SINGLE)
    with pytest.raises(ModelError, match="I8"):
        Checkpoint.open(tmp_path).rows("w", 0, 1)


def test_an_index_that_names_what_no_file_holds_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3)}, tmp_path / "one.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}
    (tmp_path / INDEX).write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ModelError, match="tensor b"):
        Checkpoint.open(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "../one.safetensors"}}), encoding="utf-8")
    with pytest.raises(ModelError, match="within the folder"):
        Checkpoint.open(tmp_path)


def test_a_file_cut_or_flipped_in_its_header_is_an_error_and_never_a_crash(tmp_path: Path) -> None:
    save_file({"a": torch.ones(3, 4), "b": torch.ones(5, dtype=torch.float16)}, tmp_path / SINGLE)
    path = tmp_path / SINGLE
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for cut in [0, 4, 8, header - 1, header, len(whole) - 1]:
        path.write_bytes(whole[:cut])
        with pytest.raises(ModelError):
            Checkpoint.open(tmp_path)
    for at in range(header):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            checkpoint = Checkpoint.open(tmp_path)
            for name in checkpoint.names():
                assert checkpoint.vector(name).dtype == np.float32
        except ModelError:
            pass
