# SPDX-License-Identifier: Apache-2.0
"""A bundle for the stress and the same one of another base. Token ids of text are its bytes, so that a judge can read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bespoke import Lora, Personalizer, Training
from tests.support.bundles import made_once
from tests.support.models import tiny_model
from tests.unit.personal_model.tiny import changed, other_base

BEGIN, END = 256, 257  # special tokens, after the 256 bytes
NAMES = ("one", "other")


@pytest.fixture(scope="session")
def two_bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle of each of NAMES; read them, do not change them."""
    return made_once(tmp_path_factory, "stress", build)


def build(folder: Path) -> None:
    sizes: dict[str, Any] = {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_attention_heads": 4,
    }
    ids: dict[str, Any] = {"vocab_size": END + 1, "bos_token_id": BEGIN, "eos_token_id": END}
    model = tiny_model("llama", folder / "model", **sizes, **ids)
    byte_tokenizer().save(str(model / "tokenizer.json"))
    methods = {
        "mesp": {"learning_rate": 1e-2},
        "mezo": {"learning_rate": 1e-3, "epsilon": 1e-2},
    }  # slots, and a journal
    training = Training(
        sequence_lengths=(32,), batch_size=2, steps=8, seed=1, commit_seconds=1e-6, write_mb_per_second=1e9
    )
    settings: dict[str, Any] = {"context": 64, "lora": Lora(rank=2, alpha=8.0), "training": training, "data": None}
    Personalizer(model, methods, "executorch", **settings).build(folder / "one")
    changed(folder / "one", folder / "other", other_base)


def byte_tokenizer() -> Any:
    """Byte-level without merges, each byte's id the byte itself."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's letters of the bytes
    others = [byte for byte in range(256) if byte not in printable]
    letters = {
        **{byte: chr(byte) for byte in printable},
        **{byte: chr(256 + place) for place, byte in enumerate(others)},
    }
    vocabulary = {letters[byte]: byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
