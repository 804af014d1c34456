# SPDX-License-Identifier: Apache-2.0
"""Answers of the device core and of llama.cpp from the same int4 weights, in turns, and the rate at which memory is read.

llama.cpp answers without the adapter, which the core always reads, and with it.

llama.cpp is compiled for this processor without AMX, whose path it ends in with an illegal instruction on virtual machines, and for
AVX2 alone: `make llama`.
"""

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
from tests.benchmarks.step_turns import AVX2_ONLY, MASK
from tests.conftest import REPOSITORY
from tests.support.processor import processor_flags

ROUNDS = 3
THREADS = len(os.sched_getaffinity(0))
OURS, WITH_AMX, INT8 = "device core", "device core, AMX", "device core, `xnnpack_qb4w`"
PEER, PEER_ADAPTED, MEMORY = "llama.cpp", "llama.cpp with the adapter", "memory"
LLAMA_AVX2 = REPOSITORY / ".cache" / "llama_avx2"  # packages
MOST_ANONYMOUS = 15_000_000  # beside the KV cache: the budget that the bundle is built for
OUR_KV, THEIR_KV = 4, 2  # bytes of a number in the KV cache


def bundles_base_and_adapter(name: str) -> tuple[dict[str, Path], Path, Path]:
    """Bundles that only answer, by the name of their runner, and for llama.cpp their base and initial adapter; kept.

    The core's own is built for the KV cache and MOST_ANONYMOUS.
    """
    import bespoke
    from bespoke import Budget, Personalizer
    from bespoke.model.families import read_config

    digest = sources_digest(*BUNDLE_SOURCES, "tests/benchmarks/answer_turns.py")  # which makes what is kept
    folder = BUNDLES / f"{name}_answers_{digest}"
    if not folder.is_dir():
        for old in BUNDLES.glob(f"{name}_answers_*"):
            shutil.rmtree(old)
        partial = folder.with_suffix(".partial")
        model = model_folder(name)
        cache = kv_bytes(read_config(model).model_dump(), OUR_KV)
        budget = Budget(memory_mb=(cache + MOST_ANONYMOUS) / 1e6)
        ways: dict[str, dict[str, Any]] = {
            "bundle": {"targets": "executorch", "budget": budget},
            "int8": {"targets": {"executorch": {"products": "xnnpack_qb4w"}}},
        }
        for way, settings in ways.items():
            Personalizer(model, [], context=CONTEXT, text=False, data=None, **settings).build(partial / way)
        bespoke.export_base(partial / "bundle", partial / "base")
        with bespoke.PersonalModel.open(partial / "bundle", partial / "state", engine="executorch") as opened:
            opened.export_adapter(partial / "adapter", "gguf", base=True)
        shutil.rmtree(partial / "state")
        partial.rename(folder)
    bundles = {OURS: folder / "bundle", INT8: folder / "int8"}
    return bundles, folder / "base" / "base.gguf", folder / "adapter" / "adapter.gguf"


def answers_in_turns(name: str, state: Path, *, avx2_only: bool = False) -> dict[str, list[dict[str, Any]]]:
    """What each of them reported, round by round. Where there is AMX, the core answers with and without it."""
    bundles, base, adapter = bundles_base_and_adapter(name)
    vocab_size = json.loads((bundles[OURS] / "manifest.json").read_text())["text"]["vocab_size"]
    plain = AVX2_ONLY if avx2_only else {MASK: "amx"}
    ways = [(OURS, OURS, plain)]
    if not avx2_only:  # nothing holds XNNPACK to AVX2
        ways.append((INT8, INT8, plain))
        if "amx_bf16" in processor_flags():
            ways.append((WITH_AMX, OURS, {}))
    theirs = {"base": str(base), "threads": THREADS, "vocab_size": vocab_size}
    packages = {"PYTHONPATH": str(LLAMA_AVX2)} if avx2_only else {}
    runners = [
        PacedPython(MEMORY, "tests.benchmarks.read_rate", {}, THREADS),
        *(
            PacedPython(
                runner,
                "tests.benchmarks.our_answer",
                {"bundle": str(bundles[bundle]), "state": str(state / str(number)), "vocab_size": vocab_size},
                THREADS,
                **environment,
            )
            for number, (runner, bundle, environment) in enumerate(ways)
        ),
        *(
            PacedPython(runner, "tests.benchmarks.llama_cpp_answer", theirs | {"adapter": file}, THREADS, **packages)
            for runner, file in ((PEER, None), (PEER_ADAPTED, str(adapter)))
        ),
    ]
    take_turns(runners, ROUNDS)
    return {runner.name: runner.reports[-ROUNDS:] for runner in runners}


def kv_bytes(config: dict[str, Any], number_bytes: int) -> int:
    """Keys and values of the whole context."""
    width = config["num_kv_heads"] * config["head_dim"]
    return int(2 * config["num_layers"] * CONTEXT * width * number_bytes)
