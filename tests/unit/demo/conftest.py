# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of the sample's model, without the model."""

from __future__ import annotations

import pytest
from sample_apps.desktop.pretrain import Pretraining, make_tokenizer
from tokenizers import Tokenizer


@pytest.fixture(scope="session")
def everyday_tokenizer() -> Tokenizer:
    return make_tokenizer(Pretraining())
