# SPDX-License-Identifier: Apache-2.0
"""Child process: llama.cpp with the base that `bespoke.export_base` wrote answers a prompt of each length at each turn.

    python -m tests.benchmarks.llama_cpp_answer '{"base": FILE, "adapter": null, "threads": 2, "vocab_size": 151936}'

With a file for "adapter" it answers with that, too. Needs llama-cpp-python, which compiles llama.cpp for this processor (`make
llama`). Settings are llama.cpp's own. Reports as our_answer; of the memory what was there before the model was loaded, Python's,
is taken off.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any

import numpy as np
from tests.benchmarks.answers import ANSWER_TOKENS, CONTEXT, PROMPTS, Footprint, prompt
from tests.benchmarks.footprint import Phases


def main(settings: dict[str, Any]) -> None:
    import llama_cpp

    phases = Phases()
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    idle = Footprint(os.getpid())
    idle.read()
    model = llama_cpp.llama_model_load_from_file(settings["base"].encode(), llama_cpp.llama_model_default_params())
    asked = llama_cpp.llama_context_default_params()
    asked.n_ctx, asked.n_threads, asked.n_threads_batch = CONTEXT, settings["threads"], settings["threads"]
    context = llama_cpp.llama_init_from_model(model, asked)
    assert model, "llama.cpp did not load the model"
    assert context, "llama.cpp made no context"
    if settings["adapter"]:
        adapter = llama_cpp.llama_adapter_lora_init(model, settings["adapter"].encode())
        assert adapter, "llama.cpp did not load the adapter"
        adapters, scales = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(adapter), (ctypes.c_float * 1)(1.0)
        assert llama_cpp.llama_set_adapters_lora(context, adapters, 1, scales) == 0
    vocab_size = settings["vocab_size"]

    def after(tokens: list[int]) -> int:
        """The likeliest token."""
        given = (llama_cpp.llama_token * len(tokens))(*tokens)
        assert llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(given, len(tokens))) == 0
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), shape=(vocab_size,))
        return int(logits.argmax())

    turn = 0
    while phases.enter("turn"):
        turn += 1
        answers = []
        with Footprint(os.getpid()) as seen:
            for count in PROMPTS:
                llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
                began = time.perf_counter()
                token = after(prompt(turn, count, vocab_size))
                first = time.perf_counter()
                for _ in range(ANSWER_TOKENS - 1):
                    token = after([token])
                ended = time.perf_counter()
                answers.append({"prefill": first - began, "decode": ended - first, "decoded": ANSWER_TOKENS - 1})
        phases.report({"answers": answers, **seen.bytes(idle)})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
