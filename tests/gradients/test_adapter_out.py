# SPDX-License-Identifier: Apache-2.0
"""An adapter trained here and loaded by peft onto the model that its folder describes: the same loss, token by token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.numpy import load_file

from bespoke import PersonalModel
from tests.support.bundles import shakespeare as shakespeare_examples
from tests.support.bundles import stories_bundle
from tests.support.models import dequantized_reference

TOLERANCE = 1e-4  # nats
STEPS = 50
RATE = 1e-3  # at three times as much the general texts get worse, and the gate refuses

__all__ = ["stories_bundle"]

pytestmark = pytest.mark.xdist_group("adapter_out")  # one process trains


@pytest.fixture(scope="module")
def trained(stories_bundle: Path, data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder whose accepted adapter has taken 50 steps of AdamW."""
    state = tmp_path_factory.mktemp("trained")
    with PersonalModel.open(stories_bundle, state) as model:
        for number, example in enumerate(shakespeare_examples(data_folder, 20)):
            model.examples.add(example, id=str(number))
        report = model.train(run_steps=STEPS, learning_rate=RATE)
        assert (report.steps, report.accepted) == (STEPS, True)
        assert report.validation_loss is not None
        assert report.validation_loss_before is not None
        assert report.validation_loss < report.validation_loss_before - 0.1
    return state


def peft_token_losses(stories: Path, adapter: Path, tokens: list[int]) -> np.ndarray:
    """Loss of each token but the first, in float64: [n - 1]."""
    model = PeftModel.from_pretrained(dequantized_reference(stories, dtype=torch.float64), adapter).double()
    ids = torch.tensor([tokens])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0]
    return torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none").numpy()


def test_exported_adapter_gives_the_same_token_losses_in_peft(
    stories: Path, stories_bundle: Path, trained: Path, shakespeare: list[int], tmp_path: Path
) -> None:
    tokens = [1, *shakespeare[5000:5031]]
    with PersonalModel.open(stories_bundle, trained) as model:
        ours = [
            model.evaluate([{"tokens": tokens, "mask": [int(place == asked) for place in range(len(tokens))]}]).loss
            for asked in range(1, len(tokens))
        ]
        folder = model.export_adapter(tmp_path / "adapter")
    theirs = peft_token_losses(stories, folder, tokens)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)
    assert np.ptp(theirs) > 1  # and the tokens differ


def test_adapters_come_back_without_loss(stories_bundle: Path, trained: Path, tmp_path: Path) -> None:
    example = [{"text": "What light through yonder window breaks?"}]
    with PersonalModel.open(stories_bundle, trained) as model:
        folder = model.export_adapter(tmp_path / "adapter")
        loss = model.evaluate(example).loss
    with PersonalModel.open(stories_bundle, tmp_path / "other") as other:
        assert other.evaluate(example).loss != loss
        other.import_adapter(folder)
        assert other.evaluate(example).loss == loss
        again = other.export_adapter(tmp_path / "again")
    first, second = (load_file(path / "adapter_model.safetensors") for path in (folder, again))
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values.view(np.uint32), second[name].view(np.uint32))
