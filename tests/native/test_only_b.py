# SPDX-License-Identifier: Apache-2.0
"""Bundles whose adapters train B alone (LoRA-FA): both runtimes prove them and train alike; A is in no file of a state, leaves with
an exported adapter, and an adapter with another A stays outside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.numpy import load_file, save_file

from bespoke import Lora, Personalizer, PersonalModel, Training, pack
from bespoke.bundle.reader import read_bundle
from bespoke.core import finding, library
from bespoke.core.handle import Handle, Place
from bespoke.errors import AdapterError, BundleError, StateError
from bespoke.golden.prover import verify_bundle
from tests.native.lora_targets import ASKED, comes_back_and_is_the_same_in_peft
from tests.native.parity import bundle_of, compare, examples, replay
from tests.support.bundles import made_once
from tests.support.models import dequantized_reference, masked_loss, tiny_model
from tests.support.oracle import trained_alike
from tests.unit.golden.bundles import changed, rewrite_manifest, tensors

SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
METHODS: dict[str, dict[str, Any]] = {
    "mesp": {"learning_rate": 5e-3, "accumulation": 2},
    "mebp": {"learning_rate": 5e-3},
    "mezo": {"epsilon": 1e-2, "queries": 2, "learning_rate": 1e-3},
    "prge": {"queries": 2, "learning_rate": 1e-3},
    "fzoo": {"queries": 4, "learning_rate": 1e-5},
    "hizoo": {"epsilon": 1e-2, "smoothing": 1e-3, "learning_rate": 1e-3},
}
EXACT = ("mesp", "mebp")

pytestmark = [
    pytest.mark.skipif(finding.find().path is None, reason="the device core is not installed"),
    pytest.mark.xdist_group("only_b"),
    pytest.mark.slow,  # a bundle of six methods; tests/gradients has the same for the reference
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model` and `bundle`, built once; read them, do not change them."""

    def make(folder: Path) -> None:
        model = tiny_model("llama", folder / "model", **SIZES)
        training = Training(sequence_lengths=(12,), batch_size=2, steps=10, seed=1)
        bundle_of(model, folder / "bundle", METHODS, training, Lora(rank=3, alpha=6.0, train="B"))

    return made_once(tmp_path_factory, "only_b", make)


def test_both_runtimes_prove_such_a_bundle_for_every_method(folder: Path, tmp_path: Path) -> None:
    with read_bundle(folder / "bundle") as bundle:
        assert bundle.manifest.lora.train == "B"
        expected = verify_bundle(bundle)
    with PersonalModel.open(folder / "bundle", tmp_path, engine="executorch") as model:
        report = model._engine.verify()  # type: ignore[attr-defined]
    assert [(c["what"], c["method"], c["compared"]) for c in report["checks"]] == [
        (c.what, c.method, c.compared) for c in expected.checks
    ]
    done = {(check.method, check.what) for check in expected.checks}
    assert {(name, "gradients") for name in EXACT} <= done
    assert {(name, "replay of step 1") for name in METHODS if name not in EXACT} <= done
    assert all(check["worst"] < 1 for check in report["checks"])


def test_both_engines_train_the_same_b(folder: Path, tmp_path: Path) -> None:
    compare(folder / "bundle", tmp_path, "adamw", EXACT)
    replay(folder / "bundle", tmp_path)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in EXACT])
def test_both_engines_take_the_same_steps_by_forward_passes_alone(method: str, folder: Path, tmp_path: Path) -> None:
    losses = {}
    for engine in ("executorch", "torch"):
        with PersonalModel.open(folder / "bundle", tmp_path / engine, engine=engine) as model:
            examples(model)
            losses[engine] = model.train(run_steps=4, method=method, seed=3).losses
    assert losses["executorch"] == pytest.approx(losses["torch"], rel=1e-4)
    assert len(set(losses["executorch"])) == 4


def test_a_state_holds_b_alone_and_an_exported_adapter_both(folder: Path, tmp_path: Path) -> None:
    with PersonalModel.open(folder / "bundle", tmp_path / "state", engine="executorch") as model:
        examples(model)
        before = model.evaluate(ASKED).loss
        report = model.train(run_steps=5, method="mesp")
        assert (report.accepted, report.trains) == (True, "B")
        assert "method mesp, B alone" in str(report)
        ours = model.evaluate(ASKED).loss
        adapter = model.export_adapter(tmp_path / "adapter")
    assert abs(ours - before) > 1e-3
    kept = [name for file in (tmp_path / "state").glob("*.safetensors") for name in load_file(file)]
    assert kept
    assert not [name for name in kept if "lora_A" in name]
    comes_back_and_is_the_same_in_peft(folder, adapter, ours, tmp_path)


@pytest.mark.parametrize("engine", ["executorch", "torch"])
def test_an_adapter_whose_update_trails_is_exported_with_the_last_update(
    engine: str, folder: Path, tmp_path: Path
) -> None:
    """The state's own B is that of the run's start."""
    place = tmp_path / "trailing"
    place.mkdir()
    (place / "model").symlink_to(folder / "model")
    methods = {"prge": {"queries": 2, "learning_rate": 1e-3, "dual_forwarding": True}}
    training = Training(sequence_lengths=(12,), batch_size=2, steps=6, seed=1)
    bundle = bundle_of(folder / "model", place / "bundle", methods, training, Lora(rank=3, alpha=6.0, train="B"))
    with PersonalModel.open(bundle, tmp_path / "state", engine=engine) as model:
        model.examples.add({"tokens": [5] * 13, "mask": [1] * 13})  # it gets better everywhere: no luck to the gate
        report = model.train(run_steps=6, seed=3)
        assert report.accepted, report.why_refused
        ours = model.evaluate(ASKED).loss
        adapter = model.export_adapter(tmp_path / "adapter")
    wanted = trained_alike(bundle, tmp_path / "state").adapter
    exported = load_file(adapter / "adapter_model.safetensors")
    for piece in (name for name in wanted if name.endswith("lora_B")):
        (theirs,) = (tensor for name, tensor in exported.items() if as_in_peft(piece) in name)
        np.testing.assert_allclose(theirs, wanted[piece], rtol=0, atol=1e-6)
        assert np.abs(theirs).max() > 1e-3  # it began at zero
    comes_back_and_is_the_same_in_peft(place, adapter, ours, tmp_path)


def as_in_peft(piece: str) -> str:
    """block_01.q_proj.lora_B -> the part of peft's name that no other piece has."""
    block, linear, factor = piece.split(".")
    group = "mlp" if linear in ("gate_proj", "up_proj", "down_proj") else "self_attn"
    return f"layers.{int(block.removeprefix('block_'))}.{group}.{linear}.{factor}"


def test_the_adapter_travels_with_the_method_and_not_with_the_weights(folder: Path, tmp_path: Path) -> None:
    weights, method = (set(ZipFile(file).namelist()) for file in pack(folder / "bundle", tmp_path))
    assert "adapter/initial.safetensors" in method - weights
    assert "weights/block_00.safetensors" in weights - method


def test_an_adapter_with_another_a_is_refused(folder: Path, tmp_path: Path) -> None:
    with PersonalModel.open(folder / "bundle", tmp_path / "state") as model:
        adapter = model.export_adapter(tmp_path / "adapter", base=True)
        tensors = load_file(adapter / "adapter_model.safetensors")
        (piece, *_) = (name for name in tensors if "v_proj.lora_A" in name)
        tensors[piece][0, 0] += 1e-3
        save_file(tensors, adapter / "adapter_model.safetensors")
        with pytest.raises(AdapterError) as caught:
            model.import_adapter(adapter, trust_base=True)
    assert caught.value.subject.endswith("piece block_00.v_proj.lora_A")
    assert (caught.value.got, caught.value.expected) == (
        "another A than the bundle's",
        "the bundle's own: it trains B alone (lora.train)",
    )
    assert 'Lora(train="both")' in caught.value.next_step


def test_an_adapter_of_another_alpha_and_a_lower_rank_is_taken_with_the_bundles_own_a(
    folder: Path, tmp_path: Path
) -> None:
    with PersonalModel.open(folder / "bundle", tmp_path / "state") as model:
        adapter = model.export_adapter(tmp_path / "adapter", base=True)
        file, config = adapter / "adapter_model.safetensors", adapter / "adapter_config.json"
        numbers = np.random.default_rng(1)
        tensors = {
            name: values[:2].copy()
            if "lora_A" in name
            else 0.3 * numbers.standard_normal((len(values), 2), dtype=np.float32)
            for name, values in load_file(file).items()
        }
        save_file(tensors, file)
        config.write_text(json.dumps({**json.loads(config.read_text()), "r": 2, "lora_alpha": 1}))
        before = model.evaluate(ASKED).loss
        model.import_adapter(adapter, trust_base=True)
        ours = model.evaluate(ASKED).loss
    assert abs(ours - before) > 1e-2
    theirs = PeftModel.from_pretrained(dequantized_reference(folder / "model", dtype=torch.float64), adapter).double()
    ids = torch.tensor([row["tokens"] for row in ASKED])
    with torch.no_grad():
        assert float(masked_loss(theirs, ids[:, :-1], ids[:, 1:], torch.ones(2, 12))) == pytest.approx(ours, rel=1e-5)


def test_a_state_of_both_factors_is_refused(folder: Path, tmp_path: Path) -> None:
    lora, training = Lora(rank=3, alpha=6.0), Training(sequence_lengths=(12,))
    both = Personalizer(folder / "model", "mezo", "torch", lora=lora, training=training, data=None).build(
        tmp_path / "both"
    )
    with PersonalModel.open(both, tmp_path / "state"):
        pass
    with pytest.raises(StateError, match="other names or shapes"):
        PersonalModel.open(folder / "bundle", tmp_path / "state")


@pytest.mark.parametrize(
    ("train", "file", "got"),
    [
        ("both", "adapter/initial.safetensors", "initial"),
        ("B", "weights/block_00.safetensors", "block_00"),
        ("B", None, "no group"),
    ],
)
def test_both_readers_hold_the_weight_group_of_a_to_what_is_trained(
    train: str, file: str | None, got: str, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "bundle", tmp_path / "b")
    content = json.loads((tmp_path / "b" / "manifest.json").read_bytes())
    content["lora"]["train"] = train
    others = [record for record in content["weights"] if record["group"] != "adapter"]
    content["weights"] = others + ([{"group": "adapter", "file": file}] if file else [])
    rewrite_manifest(tmp_path / "b", content)
    with pytest.raises(BundleError) as ours:
        read_bundle(tmp_path / "b")
    pin = sha256((tmp_path / "b" / "manifest.json").read_bytes()).hexdigest()
    with pytest.raises(BundleError) as theirs:
        Handle(library.load(), Place(tmp_path / "b", tmp_path / "state", pin))
    for error in (ours.value, theirs.value):
        assert error.subject.endswith("manifest.json: weights")
        assert got in error.got
        assert error.expected.endswith("as lora.train says")


def test_a_plan_that_reads_an_a_of_another_shape_is_refused(folder: Path, tmp_path: Path) -> None:
    def of_another_width(arrays: dict[str, np.ndarray]) -> None:
        arrays["block_01.v_proj.lora_A"] = arrays["block_01.v_proj.lora_A"][:, :16].copy()

    change: Callable[[Path], None] = tensors(of_another_width)
    bundle = changed(folder / "bundle", tmp_path / "b", "adapter/initial.safetensors", change)
    with read_bundle(bundle) as opened, pytest.raises(BundleError):
        verify_bundle(opened)
    with PersonalModel.open(bundle, tmp_path / "state", engine="executorch") as model, pytest.raises(BundleError):
        model._engine.verify()  # type: ignore[attr-defined]
