# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of prefill and decode, and memory, of the device core and of llama.cpp, taking turns: the same int4 weights,
a thread for each core, random tokens. Processors with AMX and those with AVX-512 alone have tables of their own. Another table
holds both to AVX2. Needs `make llama` and a machine left alone.
"""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.answer_turns import (
    INT8,
    LLAMA_AVX2,
    MEMORY,
    MOST_ANONYMOUS,
    OUR_KV,
    OURS,
    PEER,
    PEER_ADAPTED,
    ROUNDS,
    THREADS,
    answers_in_turns,
    bundles_base_and_adapter,
    kv_bytes,
)
from tests.benchmarks.answers import ANSWER_TOKENS, CONTEXT, PROMPTS
from tests.benchmarks.core_bundles import PRETRAINED
from tests.benchmarks.figures import Cell, this_machine, write_table
from tests.benchmarks.paced import paired_ratio
from tests.benchmarks.step_turns import table_of_processor

MODELS = (PRETRAINED, "Qwen2.5-0.5B", "Qwen2.5-1.5B")
TABLE = "answer_speed"
HEADER = (
    "model",
    "tokens of the prompt",
    "engine",
    "prefill, tokens a second",
    "times llama.cpp",
    "with the adapter",
    "decode, tokens a second",
    "times llama.cpp in decode",
    "with the adapter, in decode",
    "share of the memory's bandwidth",
    "anonymous memory, MB",
    "pages of files, MB",
)
INT8_NOTE = f" {INT8}: XNNPACK's products of int8, with weights that it packs again into a file."
_ASKED = os.environ.get("BESPOKE_BENCHMARK_MODELS", "").split(",")


@pytest.mark.benchmark
@pytest.mark.parametrize("avx2_only", [False, True], ids=["all instructions", "AVX2"])
def test_answers_compared_with_llama_cpp(avx2_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp", reason="run: make llama")
    table = f"{TABLE}_avx2" if avx2_only else table_of_processor(TABLE)
    if avx2_only and table == table_of_processor(TABLE):
        pytest.skip("this processor has no more than AVX2")
    if avx2_only and not LLAMA_AVX2.is_dir():
        pytest.skip("run: make llama")
    rows: list[list[Cell]] = []
    notes: list[str] = []
    problems: list[str] = []
    for name in MODELS:
        if _ASKED != [""] and name not in _ASKED:
            continue
        reports = answers_in_turns(name, tmp_path / name, avx2_only=avx2_only)
        bandwidth = statistics.median(report["gigabytes_a_second"] for report in reports[MEMORY])
        weights = weight_bytes(name)
        for number, prompt in enumerate(PROMPTS):
            for engine in reports:
                if engine != MEMORY:
                    rows.append(
                        [
                            name,
                            prompt,
                            engine,
                            *speeds(reports, engine, number, weights / 1e9 / bandwidth),
                            *memory(reports[engine]),
                        ]
                    )
                    print(rows[-1], flush=True)
        notes.append(f"{name}: weights of {weights / 1e6:.0f} MB, {bandwidth:.1f} GB/s read in the same rounds.")
        beside_cache = max(report["anonymous"] for report in reports[OURS]) - written_cache_bytes(name)
        if beside_cache > MOST_ANONYMOUS:
            problems.append(f"{name}: {beside_cache / 1e6:.1f} MB beside the KV cache")
    if _ASKED != [""]:
        monkeypatch.setenv("BESPOKE_FIGURES", "print")
    held = "; both are held to AVX2" if avx2_only else ", without AMX where a row does not name it"
    write_table(
        table,
        HEADER,
        rows,
        f"Answers of {ANSWER_TOKENS} tokens, context {CONTEXT}, {THREADS} threads{held}. {PRETRAINED} has its own weights, the "
        "others have random ones in the published configurations. The core's bundle is built for the KV cache in fp32 and "
        f"{MOST_ANONYMOUS / 1e6:.0f} MB; llama.cpp's cache is fp16. Medians of {ROUNDS} rounds; times llama.cpp: of the ratios "
        f"within rounds. {' '.join(notes)} Share: the weights' bytes times the tokens a second, against the rate at which torch "
        "sums a gigabyte. llama.cpp is compiled for this processor, has its own settings, and repacks weights into anonymous "
        "memory where that makes it faster. The adapter is the bundle's initial one, in fp32 for both; the core reads it for "
        f"every answer.{'' if avx2_only else INT8_NOTE}",
        machine=this_machine(THREADS),
    )
    assert not problems, "\n".join(problems)


def speeds(reports: dict[str, list[dict[str, Any]]], engine: str, number: int, gigabytes: float) -> list[Cell]:
    """Prefill and decode, each with its ratios to llama.cpp's, and the share that `gigabytes` a token are of what can be read."""
    cells: list[Cell] = []
    for rate in (prefill_rate, decode_rate):
        ours, *theirs = (
            [rate(report["answers"][number], PROMPTS[number]) for report in reports[one]]
            for one in (engine, PEER, PEER_ADAPTED)
        )
        median = statistics.median(ours)
        cells += [median, *(None if engine in (PEER, PEER_ADAPTED) else paired_ratio(ours, peer) for peer in theirs)]
    return [*cells, f"{median * gigabytes:.0%}"]


def prefill_rate(answer: dict[str, float], prompt: int) -> float:
    return prompt / answer["prefill"]


def decode_rate(answer: dict[str, float], prompt: int) -> float:
    return answer["decoded"] / answer["decode"]


def memory(reports: list[dict[str, Any]]) -> list[Cell]:
    return [max(report[what] for report in reports) / 1e6 for what in ("anonymous", "files")]


def weight_bytes(name: str) -> int:
    weights = bundles_base_and_adapter(name)[0][OURS] / "weights"
    return sum(file.stat().st_size for file in weights.iterdir() if file.name != "rope.safetensors")


def written_cache_bytes(name: str) -> int:
    """Rows of the KV cache that nobody wrote have no pages."""
    config = json.loads((bundles_base_and_adapter(name)[0][OURS] / "manifest.json").read_text())["model"]["config"]
    return kv_bytes(config, OUR_KV) * (max(PROMPTS) + ANSWER_TOKENS) // CONTEXT
