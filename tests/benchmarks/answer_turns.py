# SPDX-License-Identifier: Apache-2.0
"""Answers of the device core and of llama.cpp from the same Q4_0 weights, in turns, and the rate at which memory is read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from tests.benchmarks.answers import CONTEXT
from tests.benchmarks.core_build import BUNDLE_SOURCES, sources_digest
from tests.benchmarks.core_bundles import BUNDLES, model_folder
from tests.benchmarks.paced import PacedPython, take_turns

ROUNDS = 5
THREADS = len(os.sched_getaffinity(0))
OURS, PEER, MEMORY = "device core", "llama.cpp", "memory"
MOST_ANONYMOUS = 15_000_000  # beside the KV cache: the budget that the bundle is built for
OUR_KV, THEIR_KV = 4, 2  # bytes of a number in the KV cache


def bundle_and_base(name: str) -> tuple[Path, Path]:
    """A bundle that only answers, within the KV cache and MOST_ANONYMOUS, and its base for llama.cpp; kept."""
    import bespoke
    from bespoke import Budget, Personalizer
    from bespoke.model.families import read_config

    folder = BUNDLES / f"{name}_answers_{sources_digest(*BUNDLE_SOURCES)}"
    if not folder.is_dir():
        for old in BUNDLES.glob(f"{name}_answers_*"):
            shutil.rmtree(old)
        partial = folder.with_suffix(".partial")
        model = model_folder(name)
        cache = kv_bytes(read_config(model).model_dump(), OUR_KV)
        budget = Budget(memory_mb=(cache + MOST_ANONYMOUS) / 1e6)
        answers = Personalizer(model, [], "executorch", context=CONTEXT, text=False, data=None, budget=budget)
        answers.build(partial / "bundle")
        bespoke.export_base(partial / "bundle", partial / "base")
        partial.rename(folder)
    return folder / "bundle", folder / "base" / "base.gguf"


def answers_in_turns(bundle: Path, base: Path, state: Path) -> dict[str, list[dict[str, Any]]]:
    """What each of them reported, round by round."""
    vocab_size = json.loads((bundle / "manifest.json").read_text())["text"]["vocab_size"]
    ours = {"bundle": str(bundle), "state": str(state), "vocab_size": vocab_size}
    theirs = {"base": str(base), "threads": THREADS, "vocab_size": vocab_size}
    runners = [
        PacedPython(MEMORY, "tests.benchmarks.read_rate", {}, THREADS),
        PacedPython(OURS, "tests.benchmarks.our_answer", ours, THREADS),
        PacedPython(PEER, "tests.benchmarks.llama_cpp_answer", theirs, THREADS),
    ]
    take_turns(runners, ROUNDS)
    return {runner.name: runner.reports[-ROUNDS:] for runner in runners}


def kv_bytes(config: dict[str, Any], number_bytes: int) -> int:
    """Keys and values of the whole context."""
    width = config["num_kv_heads"] * config["head_dim"]
    return int(2 * config["num_layers"] * CONTEXT * width * number_bytes)
