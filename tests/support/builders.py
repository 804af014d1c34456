# SPDX-License-Identifier: Apache-2.0
"""A tiny model's description and a builder for it, which need no weights. Import the fixtures where they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bespoke.config import Lora, Training
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.trace import Tracer
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from tests.support.models import tiny_config


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    folder = tmp_path_factory.mktemp("llama")
    tiny_config("llama").save_pretrained(folder)
    return ModelSpec(read_config(folder), Lora(rank=2))


@pytest.fixture
def builder(llama: ModelSpec) -> Callable[..., PlanBuilder]:
    """A builder at sequence length 5, batch 2; keywords are fields of Training."""

    def make(choices: dict[str, Any] | None = None, **training: Any) -> PlanBuilder:
        return PlanBuilder(llama, Training(batch_size=2, **training), 5, 16, Tracer(), choices)

    return make
