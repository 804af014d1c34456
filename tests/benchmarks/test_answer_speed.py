# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of prefill and decode, and memory, of the device core and of llama.cpp, taking turns: the same Q4_0 weights,
a thread for each core, random tokens. llama.cpp is compiled for this processor (`make llama`). Needs a machine left alone.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.answers import ANSWER_TOKENS, CONTEXT, PROMPT_TOKENS
from tests.benchmarks.core_build import BUNDLE_SOURCES, sources_digest
from tests.benchmarks.core_bundles import BUNDLES, model_folder
from tests.benchmarks.figures import Cell, this_machine, write_table
from tests.benchmarks.paced import PacedPython, paired_ratio, take_turns

MODELS = ("Qwen2.5-0.5B", "Qwen2.5-1.5B")
ROUNDS = 5
THREADS = len(os.sched_getaffinity(0))
OURS, PEER, MEMORY = "device core", "llama.cpp", "memory"
MOST_ANONYMOUS = 15_000_000  # beside the KV cache: the budget that the bundle is built for
OUR_KV, THEIR_KV = 4, 2  # bytes of a number in the KV cache
HEADER = (
    "model",
    "engine",
    "prefill, tokens a second",
    "decode, tokens a second",
    "share of the memory's bandwidth",
    "KV cache, MB",
    "anonymous memory, MB",
    "pages of files, MB",
)
_ASKED = os.environ.get("BESPOKE_BENCHMARK_MODELS", "").split(",")


@pytest.mark.benchmark
def test_answers_compared_with_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp", reason="run: make llama")
    rows: list[list[Cell]] = []
    notes: list[str] = []
    problems: list[str] = []
    for name in MODELS:
        if _ASKED != [""] and name not in _ASKED:
            continue
        bundle, base = bundle_and_base(name)
        reports = in_turns(bundle, base, tmp_path / name)
        bandwidth = statistics.median(report["gigabytes_a_second"] for report in reports[MEMORY])
        config = json.loads((bundle / "manifest.json").read_text())["model"]["config"]
        weight_bytes = sum(
            file.stat().st_size for file in (bundle / "weights").iterdir() if file.name != "rope.safetensors"
        )
        prefill, decode = {}, {}
        for engine, number_bytes in ((OURS, OUR_KV), (PEER, THEIR_KV)):
            prefill[engine] = [PROMPT_TOKENS / report["prefill"] for report in reports[engine]]
            decode[engine] = [report["decoded"] / report["decode"] for report in reports[engine]]
            cache = kv_bytes(config, number_bytes)
            anonymous = max(report["anonymous"] for report in reports[engine])
            share = statistics.median(decode[engine]) * weight_bytes / 1e9 / bandwidth
            rows.append(
                [
                    name,
                    engine,
                    statistics.median(prefill[engine]),
                    statistics.median(decode[engine]),
                    f"{share:.0%}",
                    f"{cache / 1e6:.1f} (fp{8 * number_bytes})",
                    anonymous / 1e6,
                    max(report["files"] for report in reports[engine]) / 1e6,
                ]
            )
            print(rows[-1], flush=True)
            written = cache * (PROMPT_TOKENS + ANSWER_TOKENS) / CONTEXT  # rows that nobody wrote have no pages
            if engine == OURS and anonymous > written + MOST_ANONYMOUS:
                problems.append(f"{name}: {(anonymous - written) / 1e6:.1f} MB beside the KV cache")
        ratios = [paired_ratio(rates[OURS], rates[PEER]) for rates in (prefill, decode)]
        notes.append(
            f"{name}: prefill {ratios[0]:.2f} and decode {ratios[1]:.2f} times llama.cpp's (medians of the ratios within rounds), "
            f"weights of {weight_bytes / 1e6:.0f} MB, {bandwidth:.1f} GB/s read in the same rounds."
        )
    if _ASKED != [""]:
        monkeypatch.setenv("BESPOKE_FIGURES", "print")
    write_table(
        "answer_speed",
        HEADER,
        rows,
        f"Prompts of {PROMPT_TOKENS} tokens, context {CONTEXT}, {THREADS} threads, published configurations with random weights. "
        f"The core's bundle is built for the KV cache and {MOST_ANONYMOUS / 1e6:.0f} MB. Medians of {ROUNDS} rounds. "
        f"{' '.join(notes)} Share: the weights' bytes times the tokens a second, against the rate at which torch sums a gigabyte. "
        "llama.cpp is compiled for this processor, has its own settings, and repacks weights into anonymous memory where that "
        "makes it faster.",
        machine=this_machine(THREADS),
    )
    assert not problems, "\n".join(problems)


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


def in_turns(bundle: Path, base: Path, state: Path) -> dict[str, list[dict[str, Any]]]:
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
