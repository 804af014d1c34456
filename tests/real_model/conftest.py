# SPDX-License-Identifier: Apache-2.0
"""Pretrained models out of GGUF files, bundles of them, and the bundles' weights in transformers.

SmolLM2-135M-Instruct is fetched. Gemma 3 270M is not, because of its terms: BESPOKE_GEMMA3 names the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from bespoke import Lora, Personalizer, Training
from tests.real_model.decoded import decoded_model
from tests.support.models import QUANTIZED_LINEARS

RANK, ALPHA = 8, 16
QUESTION, ANSWER = "Where do I work?", "You work at the harbour library in Bergen."


@dataclass
class RealModel:
    name: str
    gguf: Path
    folder: Path
    """Where bundle and adapters lie."""
    ends: frozenset[int]
    chats: bool

    @property
    def bundle(self) -> Path:
        return self.folder / "bundle"

    @cached_property
    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.gguf.parent, gguf_file=self.gguf.name)

    @cached_property
    def network(self) -> Any:
        """In float32, eager."""
        return decoded_model(self.gguf, self.bundle)

    def tokens(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def prompt(self, question: str) -> list[int]:
        """As a chat model is asked; a base model gets the text alone."""
        if not self.chats:
            return [self.tokenizer.bos_token_id, *self.tokens(question)]
        chat = [{"role": "user", "content": question}]
        return self.tokens(self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))

    def row(self) -> tuple[list[int], int]:
        """Tokens of one conversation, and the length of its prompt."""
        prompt = self.prompt(QUESTION)
        end = self.tokenizer.convert_tokens_to_ids("<|im_end|>") if self.chats else self.tokenizer.eos_token_id
        return [*prompt, *self.tokens(ANSWER), end], len(prompt)

    def example(self) -> dict[str, Any]:
        """That row as an example."""
        tokens, prompt = self.row()
        return {"tokens": tokens, "mask": [int(place >= prompt) for place in range(len(tokens))]}

    @contextmanager
    def in_peft(self, network: Any = None) -> Iterator[Any]:
        """With an adapter as peft makes it, on every linear; `network` is as it was when the context ends."""
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(QUANTIZED_LINEARS), lora_dropout=0.0)
        adapted = get_peft_model(network or self.network, config)
        yield adapted
        adapted.unload()


@pytest.fixture(scope="session", params=["SmolLM2", "Gemma 3"])
def real_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RealModel:
    folder = tmp_path_factory.mktemp("real")
    if request.param == "SmolLM2":
        model = RealModel("SmolLM2", request.getfixturevalue("smollm2"), folder, frozenset({0, 2}), chats=True)
    elif "BESPOKE_GEMMA3" in os.environ:
        model = RealModel("Gemma 3", Path(os.environ["BESPOKE_GEMMA3"]), folder, frozenset({1, 106}), chats=False)
    else:
        pytest.skip("BESPOKE_GEMMA3, the GGUF file of Gemma 3 270M, is not set")
    training = Training(sequence_lengths=(64,), learning_rate=2e-4, steps=20, general_share=0.0, commit_seconds=1e-6)
    lora = Lora(rank=RANK, alpha=ALPHA)
    settings = {"lora": lora, "training": training, "rehearsal": False}
    Personalizer(model.gguf, "mesp", "executorch", context=256, **settings).build(model.bundle)
    return model
