# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as a reader of what we export: its server, out of the wheel xllamacpp, asked for tokens and probabilities.

Its KV cache is float32 here; products of Q4_0 round the activations to eight bits, which nothing turns off.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


class LlamaCpp:
    """A model of a GGUF file, with at most one adapter."""

    def __init__(self, base: Path, adapter: Path | None = None, *, context: int = 256) -> None:
        import xllamacpp

        settings = xllamacpp.CommonParams()
        settings.model.path = str(base)
        settings.n_ctx, settings.n_parallel, settings.n_gpu_layers, settings.verbosity = context, 1, 0, 0
        settings.warmup = settings.fit_params = False
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        if adapter is not None:
            settings.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
        self._server = xllamacpp.Server(settings)
        # What it draws: the server tells no probabilities with half a character or an end. They are those before this bias.
        self._letter = self.tokens("a")[-1]

    def log_probabilities(self, tokens: Sequence[int], vocab_size: int) -> np.ndarray:
        """float64 [V] of what follows these tokens."""
        draw = {"n_predict": 1, "n_probs": vocab_size, "logit_bias": [[self._letter, 1e3]]}
        answer = self._ask("/completion", prompt=list(tokens), cache_prompt=False, **draw)
        found = np.full(vocab_size, -np.inf)
        for one in answer["completion_probabilities"][0]["top_logprobs"]:
            found[one["id"]] = one["logprob"]
        return found

    def tokens(self, text: str) -> list[int]:
        """Tokens of content, without recognising special tokens in it and without one before it."""
        found: list[int] = self._ask("/tokenize", content=text, add_special=False, parse_special=False)["tokens"]
        return found

    def _ask(self, path: str, **question: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(self._server.listening_address + path, json.dumps(question).encode(), headers)
        with urllib.request.urlopen(asked) as answer:
            return json.load(answer)
