# SPDX-License-Identifier: Apache-2.0
"""Adapters as peft and mlx-lm write them: imported, each gives the loss that its own library finds, or it is refused by name.

Losses of peft and mlx-lm are of transformers' or mlx-lm's model with the bundle's decoded weights.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.errors import AdapterError
from tests.support.bundles import made_once
from tests.support.models import dequantized_reference, tiny_model
from tests.unit.adapter.kinds import ASKED, EVERY, ROWS, Kind, kinds, loss_of, made_by_peft
from tests.unit.adapter.other_engines import for_mlx_lm

pytestmark = pytest.mark.xdist_group("kinds of adapters")
RANK, ALPHA = 8, 16.0
TOLERANCE = 1e-3  # nats; float32 on both sides gives 1e-6
KINDS = kinds()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/ and bundle/."""

    def make(folder: Path) -> None:
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
        model = tiny_model("llama", folder / "model", num_hidden_layers=2, **sizes)
        training = Training(sequence_lengths=(16,), batch_size=2, steps=6, learning_rate=1e-2, seed=1)
        Personalizer(
            model, "mesp", "torch", context=64, lora=Lora(rank=RANK, alpha=ALPHA), training=training, data=None
        ).build(folder / "bundle")

    return made_once(tmp_path_factory, "kinds-of-adapters", make)


@pytest.fixture
def model(place: Path, tmp_path: Path) -> Iterator[PersonalModel]:
    with PersonalModel.open(place / "bundle", tmp_path / "state") as opened:
        yield opened


@pytest.mark.parametrize("name", KINDS)
def test_an_adapter_of_peft_gives_the_loss_that_it_has_in_peft_or_is_refused_by_name(
    name: str, place: Path, model: PersonalModel, tmp_path: Path
) -> None:
    kind = KINDS[name]
    theirs = made_by_peft(place / "model", kind, tmp_path / "adapter")
    base = model.evaluate(ASKED).loss
    if kind.refused is None:
        assert abs(theirs - base) > 20 * TOLERANCE  # an adapter with an effect
        model.import_adapter(tmp_path / "adapter", trust_base=True)
        assert model.evaluate(ASKED).loss == pytest.approx(theirs, abs=TOLERANCE)
        return
    with pytest.raises(AdapterError) as caught:
        model.import_adapter(tmp_path / "adapter", trust_base=True)
    assert kind.refused in caught.value.got
    assert model.evaluate(ASKED).loss == base


def test_pissa_is_taken_once_peft_has_made_it_one_of_the_original_weights(
    place: Path, model: PersonalModel, tmp_path: Path
) -> None:
    """What the error for it says: twice the rank, minus what the adapter was before training."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=EVERY, init_lora_weights="pissa", task_type="CAUSAL_LM")
    adapted = get_peft_model(dequantized_reference(place / "model"), config).eval()
    adapted.peft_config[
        "default"
    ].init_lora_weights = True  # as peft's examples do before they save what it begins with
    adapted.save_pretrained(str(tmp_path / "before"))
    adapted.peft_config["default"].init_lora_weights = "pissa"
    with torch.no_grad():
        for parameter in (p for p in adapted.parameters() if p.requires_grad):
            parameter += 0.03 * torch.randn(parameter.shape)
    theirs = loss_of(adapted)
    adapted.save_pretrained(
        str(tmp_path / "adapter"), path_initial_model_for_weight_conversion=str(tmp_path / "before")
    )
    model.import_adapter(tmp_path / "adapter", trust_base=True)
    assert model.evaluate(ASKED).loss == pytest.approx(theirs, abs=TOLERANCE)


def test_training_goes_on_from_an_adapter_of_a_lower_rank_on_fewer_linears_with_the_bundles_whole_rank(
    place: Path, model: PersonalModel, tmp_path: Path
) -> None:
    small = Kind({"r": 3, "lora_alpha": 9, "target_modules": ["q_proj", "down_proj"]})
    made_by_peft(place / "model", small, tmp_path / "adapter")
    model.import_adapter(tmp_path / "adapter", trust_base=True)
    before = load_file(model.export_adapter(tmp_path / "before") / "adapter_model.safetensors")
    start = model.evaluate(ASKED).loss
    for index in range(12):
        model.examples.add(
            {"tokens": [40 + (index + at) % 6 for at in range(12)], "mask": [0] + [1] * 11}, id=str(index)
        )
    model.examples.add(ASKED[0], id="asked")
    report = model.train(run_steps=6)
    assert report.steps == 6
    assert report.accepted, report.why_refused
    after = load_file(model.export_adapter(tmp_path / "after") / "adapter_model.safetensors")
    assert model.evaluate(ASKED).loss != start
    key = "base_model.model.model.layers.1.{}.lora_{}.weight"
    for linear in ("self_attn.q_proj", "mlp.up_proj"):  # one that the adapter has, one that it has not
        used = 3 if "q_proj" in linear else 0
        a, b = (before[key.format(linear, letter)] for letter in "AB")
        assert not b[:, used:].any()
        assert np.abs(a[used:]).min(axis=1).all()  # else neither would ever move
        moved = after[key.format(linear, "B")][:, used:]
        assert (np.abs(moved).max(axis=0) > 1e-4).all()


def test_our_own_adapter_for_mlx_comes_back_without_loss_and_only_onto_its_base(
    place: Path, model: PersonalModel, tmp_path: Path
) -> None:
    made_by_peft(place / "model", KINDS["as the bundle"], tmp_path / "adapter")
    model.import_adapter(tmp_path / "adapter", trust_base=True)
    exported = model.export_adapter(tmp_path / "mlx", format="mlx")
    ours = load_file(model.export_adapter(tmp_path / "first") / "adapter_model.safetensors")
    with PersonalModel.open(place / "bundle", tmp_path / "other") as other:
        other.import_adapter(exported)  # it says its base
        back = load_file(other.export_adapter(tmp_path / "second") / "adapter_model.safetensors")
        assert back.keys() == ours.keys()
        assert all(back[name].tobytes() == ours[name].tobytes() for name in ours)
        assert other.evaluate(ASKED) == model.evaluate(ASKED)
        file = exported / "adapters.safetensors"
        save_file(load_file(file), file, {"bespoke_base_sha256": "f" * 64})
        with pytest.raises(AdapterError, match="trained on base ffffffffffff"):
            other.import_adapter(exported, trust_base=True)


def trained_by_mlx_lm(place: Path, folder: Path, **settings: Any) -> float:
    """Trains and saves `folder` as `mlx_lm.lora` does, on the decoded weights; the loss that mlx-lm finds with it."""
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optimizers
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
    from mlx_lm.utils import load_model, save_config

    original = folder.with_name("decoded")
    shutil.copytree(place / "model", original)
    dequantized_reference(place / "model").save_pretrained(str(original))
    copy = for_mlx_lm(original, folder.with_name("for-mlx"))
    config = {"fine_tune_type": "lora", "num_layers": 2, "model": str(original), "seed": 0, **settings}
    trained, _ = load_model(copy)
    trained.freeze()
    mx.random.seed(0)
    linear_to_lora_layers(
        trained, config["num_layers"], config["lora_parameters"], use_dora=config["fine_tune_type"] == "dora"
    )

    def loss(network: Any) -> Any:
        tokens = mx.array(ROWS)
        return nn.losses.cross_entropy(network(tokens[:, :-1]).astype(mx.float32), tokens[:, 1:]).mean()

    step, optimizer = nn.value_and_grad(trained, loss), optimizers.Adam(learning_rate=1e-2)
    for _ in range(4):
        _, gradients = step(trained)
        optimizer.update(trained, gradients)
        mx.eval(trained.parameters(), optimizer.state)
    folder.mkdir()
    save_config(config, folder / "adapter_config.json")
    mx.save_safetensors(str(folder / "adapters.safetensors"), dict(tree_flatten(trained.trainable_parameters())))
    fresh, _ = load_model(copy)
    return float(loss(load_adapters(fresh, str(folder))))


def numbers_of_mlx(rank: int, scale: float = 20.0, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "scale": scale, "dropout": 0.0, **more}


MLX: dict[str, tuple[dict[str, Any], str | None]] = {
    "all linears": ({"lora_parameters": numbers_of_mlx(8)}, None),
    "a lower rank on two linears of the last block": (
        {"num_layers": 1, "lora_parameters": numbers_of_mlx(2, 10.0, keys=["self_attn.q_proj", "mlp.up_proj"])},
        None,
    ),
    "a higher rank": ({"lora_parameters": numbers_of_mlx(9)}, "lora_parameters.rank 9"),
    "dora": ({"fine_tune_type": "dora", "lora_parameters": numbers_of_mlx(8)}, "fine_tune_type 'dora'"),
}


@pytest.mark.parametrize("name", MLX)
def test_an_adapter_of_mlx_lm_gives_the_loss_that_it_has_there_or_is_refused_by_name(
    name: str, place: Path, model: PersonalModel, tmp_path: Path
) -> None:
    settings, refused = MLX[name]
    theirs = trained_by_mlx_lm(place, tmp_path / "adapter", **settings)
    base = model.evaluate(ASKED).loss
    assert abs(theirs - base) > 20 * TOLERANCE
    with pytest.raises(AdapterError, match="no hash of the base" if refused is None else "."):
        model.import_adapter(tmp_path / "adapter")
    if refused is None:
        model.import_adapter(tmp_path / "adapter", trust_base=True)
        assert model.evaluate(ASKED).loss == pytest.approx(theirs, abs=TOLERANCE)
        return
    with pytest.raises(AdapterError) as caught:
        model.import_adapter(tmp_path / "adapter", trust_base=True)
    assert refused in caught.value.got


def changed(folder: Path, **fields: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"fine_tune_type": "full"}, "fine_tune_type 'full'"),
        ({"num_layers": 1}, "num_layers 1"),
        ({"num_layers": "all"}, "num_layers 'all'"),
        ({"lora_parameters": None}, "lora_parameters"),
        ({"lora_parameters": {"rank": 8, "scale": None}}, "lora_parameters.scale"),
        ({"lora_parameters": {"rank": True, "scale": 1.0}}, "lora_parameters.rank True"),
        ({"lora_parameters": {"rank": 8, "scale": 1.0, "keys": ["self_attn.q_proj"]}}, "lora_parameters.keys"),
        ({"lora_parameters": {"rank": 8, "scale": 1e300}}, "infinity"),
    ],
)
def test_settings_of_mlx_that_do_not_belong_to_the_tensors_are_refused_by_name(
    fields: dict[str, Any], named: str, model: PersonalModel, tmp_path: Path
) -> None:
    folder = model.export_adapter(tmp_path / "adapter", base=True, format="mlx")
    file = folder / "adapters.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(file).items()}, file)
    changed(folder, **fields)
    with pytest.raises(AdapterError) as caught:
        model.import_adapter(folder, trust_base=True)
    assert named in caught.value.got
