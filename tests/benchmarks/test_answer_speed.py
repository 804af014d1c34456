# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of prefill and decode, and memory, of the device core and of llama.cpp, taking turns: the same Q4_0 weights,
a thread for each core, random tokens. llama.cpp is compiled for this processor (`make llama`). Needs a machine left alone.
"""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path

import pytest
from tests.benchmarks.answer_turns import (
    MEMORY,
    MOST_ANONYMOUS,
    OUR_KV,
    OURS,
    PEER,
    ROUNDS,
    THEIR_KV,
    THREADS,
    answers_in_turns,
    bundle_and_base,
    kv_bytes,
)
from tests.benchmarks.answers import ANSWER_TOKENS, CONTEXT, PROMPT_TOKENS
from tests.benchmarks.figures import Cell, this_machine, write_table
from tests.benchmarks.paced import paired_ratio

MODELS = ("Qwen2.5-0.5B", "Qwen2.5-1.5B")
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
        reports = answers_in_turns(bundle, base, tmp_path / name)
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
