# SPDX-License-Identifier: Apache-2.0
"""The block-by-block reference against transformers and peft in one piece; what goes into a golden file, and that it is the same
every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke.bundle.reader import read_bundle
from bespoke.compiler.weight_files import initial_adapter
from bespoke.config import Lora, Training
from bespoke.data.text import Tokenizer
from bespoke.format.tensors import write_arrays
from bespoke.golden.document import MAX_ELEMENTS, PieceGolden, places
from bespoke.golden.make import make_golden
from bespoke.golden.promises import GoldenMethod
from bespoke.golden.reference import Lane, Reference
from bespoke.golden.texts import golden_texts
from bespoke.golden.weights import BundleWeights
from bespoke.methods.update import FirstOrderOptions
from bespoke.model.convert import convert
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from bespoke.ops.load_program import load_program
from bespoke.plan.instructions import Plan
from bespoke.plan.read import read_plan
from tests.support.models import TINY_FAMILIES, masked_loss, peft_reference, tiny_model
from tests.unit.golden.bundles import LENGTH


def converted(folder: Path, family: str) -> tuple[Path, ModelSpec, dict[str, Path]]:
    model = tiny_model(family, folder / "model", dtype="bfloat16" if family.startswith("gemma") else "float32")
    config = read_config(model)
    (folder / "weights").mkdir()
    return model, ModelSpec(config, Lora(rank=3, alpha=6.0)), convert(model, config, folder / "weights", context=64)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_block_by_block_is_the_whole_model(tmp_path: Path, family: str) -> None:
    folder, model, files = converted(tmp_path, family)
    numbers = np.random.default_rng(3)
    pieces = {
        f"{group}.{name}": (0.1 * numbers.standard_normal(shape)).astype(np.float32)
        for group in model.blocks
        for name, shape in model.adapter_shapes(group).items()
    }

    def adapter(block: int) -> dict[str, torch.Tensor]:
        group = model.blocks[block]
        return {name: torch.from_numpy(pieces[f"{group}.{name}"]) for name in model.adapter_shapes(group)}

    tokens = torch.from_numpy(numbers.integers(0, model.config.vocab_size, (2, 14)))
    mask = torch.from_numpy((numbers.random((2, 13)) < 0.7).astype(np.float32))
    lanes = [Lane(adapter, dtype, gradient=True) for dtype in (torch.float64, torch.float32)]
    Reference(folder, model, BundleWeights(files)).run(lanes, tokens[:, :-1], tokens[:, 1:], mask)

    whole, parameters = peft_reference(folder, pieces, rank=3, alpha=6.0, dtype=torch.float64)
    loss = masked_loss(whole, tokens[:, :-1], tokens[:, 1:], mask)
    loss.backward()
    for lane, tolerance in zip(lanes, (1e-12, 1e-5), strict=True):
        assert lane.mean_loss == pytest.approx(loss.item(), rel=tolerance)
        assert lane.gradients.keys() == parameters.keys()
        for name, parameter in parameters.items():
            reference = parameter.grad.double()
            assert torch.linalg.norm(lane.gradients[name].double() - reference) <= tolerance * torch.linalg.norm(
                reference
            ), name


def test_golden_vectors_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    folder, model, files = converted(tmp_path, "qwen2")
    initial = initial_adapter(model, 0)
    methods = [GoldenMethod("own", "exact_gradients", FirstOrderOptions(), Training(sequence_lengths=(9,)), [])]
    made = []
    for number in range(2):
        path = tmp_path / f"{number}.safetensors"
        write_arrays(path, make_golden(folder, model, files, initial, methods, 9, None).arrays())
        made.append(path.read_bytes())
    assert made[0] == made[1]


def test_golden_vectors_are_the_same_bytes_with_any_number_of_threads(tmp_path: Path) -> None:
    """Uses a shape for which torch's sums differ with 1, 2 and 7 threads."""
    folder = tiny_model(
        "llama", tmp_path / "model", num_hidden_layers=1, hidden_size=128, intermediate_size=512, vocab_size=4000
    )
    config = read_config(folder)
    methods = [GoldenMethod("own", "exact_gradients", FirstOrderOptions(), Training(sequence_lengths=(13,)), [])]
    model, files = ModelSpec(config, Lora()), convert(folder, config, tmp_path / "weights", context=64)
    before, made = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 7):
            torch.set_num_threads(threads)
            path = tmp_path / f"{threads}.safetensors"
            write_arrays(path, make_golden(folder, model, files, initial_adapter(model, 0), methods, 13, None).arrays())
            made.append(path.read_bytes())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert made[0] == made[1] == made[2]


def test_of_a_method_that_promises_nothing_the_first_loss_is_what_torch_computes(bundle: Path) -> None:
    folder = bundle.with_name("model")
    model = ModelSpec(read_config(folder), Lora(rank=3, alpha=6.0))
    plan, files, functions = of(bundle)
    sgd, training = FirstOrderOptions(update="sgd"), Training(sequence_lengths=(LENGTH,), batch_size=plan.batch_size)
    golden = make_golden(
        folder,
        model,
        files,
        initial_adapter(model, 0),
        [
            GoldenMethod("own", None, sgd, training, [plan], functions=functions),
            GoldenMethod("exact", "exact_gradients", sgd, training, [plan]),
        ],
        LENGTH,
        None,
    )
    own, exact = golden.document.methods
    assert (own.recorded, own.moved, own.gradient) == ([], [], None)
    assert [loss.value for loss in own.losses] == pytest.approx([exact.losses[0].value], rel=1e-5)
    assert len(exact.losses) == 3
    assert exact.gradient is not None
    assert golden.document.loss.value == pytest.approx(exact.losses[0].value)
    assert golden.document.texts == []


def of(bundle: Path) -> tuple[Plan, dict[str, Path], dict[str, Any]]:
    """Plan of its first method, weight files by group, graphs by key."""
    with read_bundle(bundle) as opened:
        record, manifest = opened.manifest.methods[0].plans[0], opened.manifest
        plan = read_plan(opened.read(record.file), record.file, manifest.graphs)
        files = {weights.group: bundle / weights.file for weights in manifest.weights}
        return plan, files, {graph.key: load_program(opened.read(graph.file), graph.file) for graph in manifest.graphs}


def test_tolerances_are_never_below_the_floor(bundle: Path) -> None:
    from bespoke.bundle.reader import read_bundle
    from bespoke.golden.document import read_golden

    with read_bundle(bundle) as opened:
        shapes = {name: array.shape for name, array in opened.mapped(opened.manifest.adapter).items()}
        golden = read_golden(
            opened.mapped("golden/golden.safetensors"), "golden", shapes, opened.manifest.text.vocab_size
        )
    for piece in golden.document.pieces:
        assert piece.gradient is not None
        assert piece.gradient.norm.tolerance >= 1e-5 * piece.gradient.norm.value
        assert piece.gradient.tolerance >= 1e-5 * float(np.linalg.norm(golden.gradients[piece.name])) * (1 - 1e-6)
        assert piece.gradient.tolerance < 1e-3 * piece.gradient.norm.value
    for method in golden.document.methods:
        assert all(loss.tolerance >= 1e-5 * loss.value for loss in method.losses)


def test_places_are_all_elements_of_a_small_tensor_and_counted_ones_of_a_large() -> None:
    piece = PieceGolden(name="block_02.q_proj.lora_A", block=2, tensor=1, gradient=None)
    assert places(piece, 4096, 0).tolist() == list(range(4096))
    large = places(piece, 100_000, 0)
    assert len(large) == MAX_ELEMENTS
    assert 0 <= large.min() < large.max() < 100_000
    assert (large == places(piece, 100_000, 0)).all()
    assert (large != places(piece.model_copy(update={"block": 3}), 100_000, 0)).any()


def test_texts_are_many_distinct_and_tokenized_as_content(bundle: Path) -> None:
    tokenizer = Tokenizer.open(bundle.parent / "model")
    texts = golden_texts(tokenizer, 0)
    assert len({text.text for text in texts}) == len(texts) == 500
    plain = tokenizer._outer  # the package itself is the oracle where no special token is in sight
    for text in texts:
        if "<s>" not in text.text and "</s>" not in text.text:
            plain.encode_special_tokens = False
            assert text.ids == plain.encode(text.text, add_special_tokens=False).ids
        assert not set(text.ids) & {0, 1}  # <s> and </s> cannot be forged
