# SPDX-License-Identifier: Apache-2.0
"""Adapter folders against peft itself: it loads what we write, we read what it writes, and neither changes a bit."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file as save_torch
from transformers import AutoModelForCausalLM

from bespoke.config import LINEARS, Linear, Lora
from bespoke.errors import AdapterError
from bespoke.model.architecture import ModelConfig
from bespoke.model.families import read_config
from tests.native.adapter_codes import CONFIG, LARGEST, WEIGHTS, Code, code
from tests.support.models import TINY_FAMILIES, tiny_model
from tests.unit.model.multimodal import tiny_multimodal

__all__ = ["code"]

BASE = "0123456789abcdef" * 4
LORA = Lora(rank=3, alpha=6.0)


def random_pieces(config: ModelConfig, lora: Lora = LORA, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.Generator(np.random.Philox(seed))
    shapes = config.adapter_shapes(lora)
    return {name: generator.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def export(
    code: Code, folder: Path, config: ModelConfig, lora: Lora = LORA, pieces: dict[str, np.ndarray] | None = None
) -> Path:
    code.write(folder, pieces or random_pieces(config, lora), config, lora, BASE)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelConfig]:
    folder = tiny_model("qwen3", tmp_path_factory.mktemp("model"))
    return folder, read_config(folder)


def loads_in_peft(original: Any, folder: Path, config: ModelConfig, pieces: dict[str, np.ndarray], lora: Lora) -> None:
    weights = {name: parameter.detach().clone() for name, parameter in original.named_parameters()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # peft warns of keys that it misses
        warnings.simplefilter("ignore", FutureWarning)
        adapted = PeftModel.from_pretrained(original, folder)
    adapters = {name: module for name, module in adapted.named_modules() if hasattr(module, "lora_A")}
    assert len(adapters) == len(lora.targets) * config.num_layers
    decoder = adapted.get_base_model().get_submodule(config.decoder_path)
    for index, layer in enumerate(decoder.layers):
        for linear in lora.targets:
            module = getattr(layer.self_attn, linear, None) or getattr(layer.mlp, linear)
            a, b = (pieces[f"block_{index:02d}.{linear}.lora_{letter}"] for letter in "AB")
            np.testing.assert_array_equal(module.lora_A["default"].weight.detach().numpy(), a)
            np.testing.assert_array_equal(module.lora_B["default"].weight.detach().numpy(), b)
            delta = module.get_delta_weight("default").detach().numpy()
            np.testing.assert_allclose(delta, lora.scale * (b.astype(np.float64) @ a), rtol=1e-5, atol=1e-5)
    for name, parameter in adapted.get_base_model().named_parameters():
        if "lora" not in name:
            assert torch.equal(parameter, weights[name.replace(".base_layer", "")])


@pytest.mark.parametrize(
    ("family", "linears"),
    [
        *((family, LINEARS) for family in TINY_FAMILIES),
        ("llama", ("q_proj", "v_proj")),
        ("gemma3_text", ("o_proj", "down_proj")),
    ],
)
def test_peft_loads_our_adapter_onto_the_original_model(
    code: Code, family: str, linears: tuple[Linear, ...], tmp_path: Path
) -> None:
    folder = tiny_model(family, tmp_path / "model")
    config, lora = read_config(folder), Lora(rank=3, alpha=6.0, targets=linears)
    pieces = random_pieces(config, lora)
    export(code, tmp_path / "adapter", config, lora, pieces)
    loads_in_peft(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "adapter", config, pieces, lora)


def test_peft_loads_our_adapter_onto_the_text_part_of_a_model_with_images(code: Code, tmp_path: Path) -> None:
    original = tiny_multimodal(tmp_path / "model")
    config, lora = read_config(tmp_path / "model"), Lora(rank=2, alpha=3.0)
    pieces = random_pieces(config, lora)
    export(code, tmp_path / "adapter", config, lora, pieces)
    loads_in_peft(original, tmp_path / "adapter", config, pieces, lora)
    back = code.read(tmp_path / "adapter", config, lora, BASE)
    assert all(np.array_equal(back[name], pieces[name]) for name in pieces)


@pytest.mark.parametrize("alpha", [16.0, 2.5])
@pytest.mark.parametrize("rank", [1, 8])
def test_an_adapter_comes_back_without_loss(
    code: Code, rank: int, alpha: float, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    lora = Lora(rank=rank, alpha=alpha)
    pieces = random_pieces(model[1], lora)
    pieces["block_00.q_proj.lora_A"][0, :4] = [-0.0, 1e-42, -LARGEST, np.finfo(np.float32).tiny]
    export(code, tmp_path / "a", model[1], lora, pieces)
    back = code.read(tmp_path / "a", model[1], lora, BASE)
    assert set(back) == set(pieces)
    for name, values in pieces.items():
        assert back[name].tobytes() == values.tobytes()


def test_what_peft_itself_saved_is_read_where_its_base_is_trusted(
    code: Code, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    folder, config = model
    settings = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(folder), settings)
    adapted.save_pretrained(tmp_path)
    with pytest.raises(AdapterError, match="trust_base=1"):
        code.read(tmp_path, config, Lora(rank=4, alpha=8.0), BASE)
    pieces = code.read(tmp_path, config, Lora(rank=4, alpha=8.0), BASE, trust_base=True)
    layer = adapted.get_base_model().model.layers[2]
    expected = layer.mlp.down_proj.lora_B["default"].weight.detach().numpy()
    np.testing.assert_array_equal(pieces["block_02.down_proj.lora_B"], expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_adapter_in_half_precision_is_read_as_torch_reads_it(
    code: Code, dtype: torch.dtype, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    folder = export(code, tmp_path / "a", model[1])
    halves = {name: tensor.to(dtype) for name, tensor in load_torch(folder / WEIGHTS).items()}
    first = halves[min(halves)]
    first.view(torch.int16).flatten()[:4] = torch.tensor(
        [1, 1023, 1024, -(2**15)], dtype=torch.int16
    )  # subnormals, least, -0
    save_torch(halves, folder / WEIGHTS, {"bespoke_base_sha256": BASE})
    for name, values in code.read(folder, model[1], LORA, BASE).items():
        key = next(key for key in halves if f"layers.{int(name[6:8])}." in key and f".{name[9:]}.weight" in key)
        assert values.tobytes() == halves[key].to(torch.float32).numpy().tobytes()


def test_a_folder_of_links_as_the_hub_caches_it_is_read(
    code: Code, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    folder = export(code, tmp_path / "a", model[1])
    for name in (CONFIG, WEIGHTS):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
    assert code.read(folder, model[1], LORA, BASE)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_what_is_no_plain_file_is_refused_at_once(
    code: Code, name: str, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    folder = export(code, tmp_path / "a", model[1])
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(AdapterError, match="no plain file"):
        code.read(folder, model[1], LORA, BASE)


def test_a_config_of_any_size_is_refused_before_it_is_read(
    code: Code, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    folder = export(code, tmp_path / "a", model[1])
    with (folder / CONFIG).open("ab") as file:
        file.truncate(2**40)
    with pytest.raises(AdapterError, match="more than 1000000 bytes"):
        code.read(folder, model[1], LORA, BASE)


def test_what_a_killed_export_left_is_removed_by_the_next(
    code: Code, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    for name in (".a.abcdefgh.partial", ".a.abcdefg_.old", ".ab.abcdefgh.partial", ".a.ABCDEFGH.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / CONFIG).write_text("left")
    (tmp_path / ".a.12345678.partial").symlink_to(tmp_path)
    export(
        code, tmp_path / "a", model[1]
    )  # the old folder had no other in its place: it is put back first, and replaced
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".a.12345678.partial",
        ".a.ABCDEFGH.partial",
        ".ab.abcdefgh.partial",
        "a",
    ]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_link_or_a_file_in_the_place_is_left_alone(
    code: Code, kind: str, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    (tmp_path / "held").mkdir()
    if kind == "link":
        (tmp_path / "a").symlink_to(tmp_path / "held")
    else:
        (tmp_path / "a").write_text("mine")
    with pytest.raises(AdapterError, match=f"got a {kind}"):
        export(code, tmp_path / "a", model[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "held"]


def test_an_adapter_of_another_base_is_refused_by_hash_even_with_trust(
    code: Code, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    export(code, tmp_path / "a", model[1])
    for trust in (False, True):
        with pytest.raises(AdapterError) as caught:
            code.read(tmp_path / "a", model[1], LORA, "f" * 64, trust_base=trust)
        assert BASE[:12] in caught.value.got
        assert "f" * 12 in caught.value.expected


def test_two_exports_give_the_same_bytes_and_the_second_replaces_the_first(
    code: Code, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    export(code, tmp_path / "a", model[1], pieces=random_pieces(model[1], seed=1))
    for name in "ab":
        export(code, tmp_path / name, model[1])
    for file in (CONFIG, WEIGHTS):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_folder_with_other_files_is_left_alone(code: Code, model: tuple[Path, ModelConfig], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(AdapterError, match="other files"):
        export(code, tmp_path, model[1])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_pieces_of_another_shape_are_not_exported(code: Code, model: tuple[Path, ModelConfig], tmp_path: Path) -> None:
    pieces = random_pieces(model[1])
    with pytest.raises(AdapterError, match="1 more missing"):
        export(code, tmp_path / "a", model[1], pieces={name: pieces[name] for name in list(pieces)[2:]})
    with pytest.raises(AdapterError, match="lora_A"):
        export(code, tmp_path / "a", model[1], Lora(rank=4, alpha=6.0), pieces)
    whole = pieces | {"block_01.o_proj.lora_B": pieces["block_01.o_proj.lora_B"].astype(np.int32)}
    with pytest.raises(AdapterError, match="int32"):
        export(code, tmp_path / "a", model[1], pieces=whole)
    assert not (tmp_path / "a").exists()


_OTHER_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "rank": ({"r": 4}, "r 4"),
    "a text for a number": ({"lora_alpha": "12"}, "lora_alpha '12'"),
    "a truth for a number": ({"r": True}, "r True"),
    "half a rank": ({"r": 2.5}, "r 2.5"),
    "modules": ({"target_modules": ["q_proj", "v_proj"]}, "target_modules"),
    "bias": ({"bias": "all"}, "bias"),
    "dora": ({"use_dora": True}, "use_dora"),
    "a configuration of a variant": ({"kasa_config": {"beta": 1.0}}, "kasa_config"),
    "another base": ({"init_lora_weights": "PiSSA_niter_16"}, "init_lora_weights PiSSA_niter_16"),
    "an unknown start": ({"init_lora_weights": "tomorrow"}, "init_lora_weights tomorrow"),
    "an unknown variant": ({"use_something_new": True}, "use_something_new"),
    "another method": ({"peft_type": "IA3"}, "peft_type"),
    "rank by a pattern": ({"rank_pattern": {"[qk]_proj": 2}}, "rank_pattern"),
    "alpha by a pattern": ({"alpha_pattern": {"q_proj|k_proj": 2}}, "alpha_pattern"),
    "two alphas for a module": ({"alpha_pattern": {"q_proj": 2, "self_attn.q_proj": 3}}, "alpha_pattern"),
    "a list for an object": ({"rank_pattern": ["q_proj"]}, "rank_pattern"),
    "whole modules": ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    "some layers": ({"layers_to_transform": [0]}, "layers_to_transform"),
    "layers elsewhere": ({"layers_to_transform": [0], "layers_pattern": "blocks"}, "layers_pattern"),
    "some modules left out": ({"exclude_modules": ["q_proj"]}, "exclude_modules"),
    "a pattern of modules left out": ({"exclude_modules": ".*q_proj"}, "exclude_modules"),
    "repeated layers": ({"layer_replication": [[0, 2]]}, "layer_replication"),
}


@pytest.mark.parametrize("case", _OTHER_SETTINGS)
def test_settings_that_mean_another_adapter_are_refused_by_name(
    code: Code, case: str, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    change, named = _OTHER_SETTINGS[case]
    folder = export(code, tmp_path / "a", model[1])
    raw = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    (folder / CONFIG).write_text(json.dumps(raw | change), encoding="utf-8")
    with pytest.raises(AdapterError) as caught:
        code.read(folder, model[1], LORA, BASE)
    assert named in caught.value.got
    assert CONFIG in caught.value.subject


@pytest.mark.parametrize("targets", [["o_proj", "q_proj"], "all-linear", r".*\.(q|o)_proj"])
def test_an_adapter_of_other_linears_is_refused_by_name(
    code: Code, targets: str | list[str], model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    """Also where its settings leave it to the model which they are: then its tensors say it."""
    folder = export(code, tmp_path / "a", model[1], Lora(rank=3, alpha=6.0, targets=("q_proj", "o_proj")))
    raw = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    (folder / CONFIG).write_text(json.dumps(raw | {"target_modules": targets}), encoding="utf-8")
    with pytest.raises(AdapterError) as caught:
        code.read(folder, model[1], Lora(rank=3, alpha=6.0, targets=("q_proj", "v_proj")), BASE)
    assert "q_proj, v_proj" in caught.value.expected
    assert "o_proj" in caught.value.got


def test_tensors_that_do_not_belong_to_the_model_are_refused_by_name(
    code: Code, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    folder = export(code, tmp_path / "a", model[1])
    held = load_file(folder / WEIGHTS)
    first = min(held)
    metadata = {"bespoke_base_sha256": BASE}

    def refused(tensors: dict[str, np.ndarray], named: str) -> None:
        save_file(tensors, folder / WEIGHTS, metadata)
        with pytest.raises(AdapterError, match=named):
            code.read(folder, model[1], LORA, BASE)

    refused({name: values for name, values in held.items() if name != first}, "no base_model")
    refused(held | {"base_model.model.lm_head.lora_A.weight": held[first]}, "an unknown base_model.model.lm_head")
    refused(held | {first: held[first][:, :5].copy()}, r"shape \[3, 5\]")
    refused(
        {name: values for name, values in held.items() if name[:-13] != first[:-13]}, "no base_model.*1 more missing"
    )
    refused({}, "no base_model")
    refused(held | {first: np.full_like(held[first], np.nan)}, "NaN")
    refused(held | {first: held[first].astype(np.int32)}, "dtype '?I32")
    save_file(held, folder / WEIGHTS, metadata)
    code.read(folder, model[1], LORA, BASE)


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
def test_a_damaged_or_missing_file_is_an_error_and_never_a_crash(
    code: Code, file: str, model: tuple[Path, ModelConfig], tmp_path: Path
) -> None:
    folder = export(code, tmp_path / "a", model[1])
    whole = (folder / file).read_bytes()
    for cut in (0, 7, 9, len(whole) // 2, len(whole) - 3):
        (folder / file).write_bytes(whole[:cut])
        with pytest.raises(AdapterError):
            code.read(folder, model[1], LORA, BASE)
    for at in range(0, min(len(whole), 2000), 3):
        (folder / file).write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with contextlib.suppress(AdapterError):
            code.read(folder, model[1], LORA, BASE)
    (folder / file).unlink()
    with pytest.raises(AdapterError, match=file):
        code.read(folder, model[1], LORA, BASE)
