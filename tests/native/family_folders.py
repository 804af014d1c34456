# SPDX-License-Identifier: Apache-2.0
"""A small random model of each family, its bundle for the core, and adapters that peft has written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bespoke import Lora, Personalizer, Training
from tests.support.bundles import made_once
from tests.support.models import EACH_FAMILY, dequantized_reference, tiny_model

CONTEXT, VOCABULARY = 160, 131
CLEAR = 1e-3  # a difference of the two best logits that rounding does not turn round


@pytest.fixture(scope="module", params=EACH_FAMILY)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/, bundle/ for the core, and adapters/ 0 and 1: random ones that peft has written."""
    return made_once(
        tmp_path_factory, f"sessions-{family}", lambda place: make(tiny_model(family, place / "model"), place)
    )


def make(model: Path, place: Path) -> None:
    import peft

    training = Training(sequence_lengths=(16,), batch_size=1, steps=3, commit_seconds=1e-6, learning_rate=1e-2)
    lora = Lora(rank=4, alpha=8.0)
    Personalizer(model, "mesp", "executorch", context=CONTEXT, lora=lora, training=training, data=None).build(
        place / "bundle"
    )
    for number in (0, 1):
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=list(lora.targets))
        adapted = peft.get_peft_model(dequantized_reference(model), config)
        generator = torch.Generator().manual_seed(number)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.data = 0.15 * torch.randn(parameter.shape, generator=generator)
        adapted.save_pretrained(str(place / "adapters" / str(number)))
