# SPDX-License-Identifier: Apache-2.0
"""The core's code that writes PEFT folders and reads adapters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from bespoke.config import Lora
from bespoke.model.architecture import ModelConfig
from tests.native.format_lab import CoreReader

NAME = "owner/model"


CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
LARGEST = 1e4  # a number that an adapter may have


class Code:
    def __init__(self, reader: CoreReader) -> None:
        self.reader = reader

    def write(self, folder: Path, pieces: Mapping[str, np.ndarray], config: ModelConfig, lora: Lora, base: str) -> None:
        self.reader.ask("write_peft", save(dict(pieces)), folder=str(folder), **_model(config, lora, base))

    def read(
        self, folder: Path, config: ModelConfig, lora: Lora, base: str, trust_base: bool = False
    ) -> dict[str, np.ndarray]:
        found = self.reader.ask("read_adapter", folder=str(folder), trust_base=trust_base, **_model(config, lora, base))
        shapes = config.adapter_shapes(lora)
        arrays = {name: np.frombuffer(bytes.fromhex(digits), ">f4").astype("<f4") for name, digits in found.items()}
        return {name: array.reshape(shapes[name]) for name, array in arrays.items()}


def _model(config: ModelConfig, lora: Lora, base: str) -> dict[str, Any]:
    return {
        "name": NAME,
        "base": base,
        "decoder_path": config.decoder_path,
        "rank": lora.rank,
        "alpha": lora.alpha,
        "linears": list(lora.targets),
        "shapes": config.adapter_shapes(lora),
    }


@pytest.fixture(scope="module")
def code(request: pytest.FixtureRequest) -> Iterator[Code]:
    with CoreReader(request.getfixturevalue("native_build") / "tests" / "format_lab") as reader:
        yield Code(reader)
