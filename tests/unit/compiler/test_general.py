# SPDX-License-Identifier: Apache-2.0
"""The general set of a bundle that was given no data: what it is, that it is always the same, that it judges and never trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.compiler.general import hollow_samples
from bespoke.config import JUDGED_POSITIONS
from bespoke.data.rows import TokenRows
from bespoke.errors import DataError
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from tests.support.bundles import stories_bundle
from tests.support.models import dequantized_reference, tiny_model

__all__ = ["stories_bundle"]

pytestmark = pytest.mark.xdist_group("general")  # one process builds the bundle
SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}


def general(bundle: Path) -> TokenRows:
    with read_bundle(bundle) as opened:
        data = opened.manifest.data
        assert data.train is None
        assert data.valid is not None
        return TokenRows.from_arrays(
            {name: np.array(part) for name, part in opened.mapped(data.valid).items()}, data.valid
        )


def build(model: Path, out: Path, **more: Any) -> Path:
    training = Training(sequence_lengths=(32,), batch_size=2, steps=4, general_share=1.0, learning_rate=1e-2)
    return Personalizer(model, "mesp", "torch", lora=Lora(rank=2), training=training, **more).build(out)


@pytest.fixture(scope="module")
def token_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("qwen3", tmp_path_factory.mktemp("model") / "qwen3", **{**SIZES, "head_dim": 8})


@pytest.fixture(scope="module")
def token_bundle(token_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(token_model, tmp_path_factory.mktemp("tokens") / "bundle")


def test_a_model_with_a_tokenizer_gets_the_texts_that_ship_with_the_sdk(stories_bundle: Path, stories: Path) -> None:
    from tokenizers import Tokenizer

    rows = general(stories_bundle)
    words = Tokenizer.from_file(str(stories / "tokenizer.json")).decode(rows.rows(0).tokens.tolist())
    assert words.strip().startswith("One morning a little girl woke up early")
    positions = len(rows.tokens) - len(rows)
    assert JUDGED_POSITIONS / 4 < positions <= JUDGED_POSITIONS / 2
    assert len(rows.to_bytes()) < 20_000


def test_a_model_without_a_tokenizer_gets_what_it_writes_itself(token_bundle: Path, token_model: Path) -> None:
    """The loss of true samples is the entropy of the model's own predictions, up to chance. The oracle is transformers."""
    rows = general(token_bundle)
    tokens = torch.from_numpy(np.stack([rows.rows(i).tokens for i in range(len(rows))]).astype(np.int64))
    assert not rows.mask.reshape(tokens.shape)[:, 0].any()
    with torch.no_grad():
        logs = torch.log_softmax(dequantized_reference(token_model)(input_ids=tokens[:, :-1]).logits.double(), -1)
    losses = -logs.gather(2, tokens[:, 1:, None])[..., 0]
    entropy = -(logs.exp() * logs).sum(-1)
    apart = (losses - entropy).flatten()
    assert abs(float(apart.mean())) < 4 * float(apart.std()) / len(apart) ** 0.5
    assert float(entropy.mean()) < np.log(131) - 0.3  # else any tokens would have passed
    assert len(torch.unique(tokens[:, 0])) > 16


def test_what_the_set_takes_is_known_without_drawing_it(token_model: Path, token_bundle: Path) -> None:
    model = ModelSpec(read_config(token_model), Lora(rank=2))
    assert len(hollow_samples(model, 32).to_bytes()) == len(general(token_bundle).to_bytes())


def test_the_same_model_gives_the_same_set_with_other_threads(
    token_model: Path, token_bundle: Path, tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        again = build(token_model, tmp_path / "again")
    finally:
        torch.set_num_threads(before)
    assert general(again).to_bytes() == general(token_bundle).to_bytes()


def test_it_judges_and_is_never_trained_on(token_bundle: Path, tmp_path: Path) -> None:
    """Even where all batches are to be general ones."""
    rows = general(token_bundle)
    with PersonalModel.open(token_bundle, tmp_path / "state") as model:
        with pytest.raises(DataError, match="no example of the user to train on, and no general text"):
            model.train(run_steps=1)
        examples = [[1, 2, 3, 4, 5, 6, 7 + number] for number in range(6)]
        for number, tokens in enumerate(examples):
            model.examples.add({"tokens": tokens}, id=str(number))
        report = model.train(run_steps=3)
        assert report.tokens == 3 * 2 * 6  # tokens of the user's rows of 6 positions, two rows a step
        base = model.evaluate([{"tokens": rows.rows(i).tokens.tolist()} for i in range(len(rows))])
    assert report.general_loss is not None
    assert report.general_loss != report.general_loss_before
    if not report.accepted:
        assert base.loss == pytest.approx(report.general_loss_before, abs=1e-6)


def test_none_asks_for_no_set(token_model: Path, tmp_path: Path) -> None:
    with read_bundle(build(token_model, tmp_path / "bundle", data=None)) as bundle:
        assert (bundle.manifest.data.train, bundle.manifest.data.valid) == (None, None)
