# SPDX-License-Identifier: Apache-2.0
"""Time of a token for an app in Kotlin, through JNI, against one in C: the same answers, with a small and a large heap."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.kotlin.maven import BINDING, mvn
from tests.kotlin.prepare import build_native, compile_client, write_pages
from tests.support.faults_library import compile_preloaded

from bespoke import Personalizer, Training

HERE = Path(__file__).parent
HEAPS = (0, 400_000_000)  # bytes
ROUNDS = 9
TOKENS = {"stories260K": 2000, "SmolLM2-135M-Instruct": 120}
CHAT_MODEL = "SmolLM2-135M-Instruct"
MOST = 1.1  # of the chat model; the other's tokens are so short that they show the time that is added to each
PROMPT = "Once upon a time there was a dog. "


def clients(folder: Path) -> dict[str, list[str]]:
    """The command of each, without bundle, state, prompt and tokens. In C the prompt is JSON."""
    program = compile_client(HERE / "token_times.c", folder)
    build_native(folder)
    write_pages(BINDING)
    mvn("test-compile", "dependency:build-classpath@ships", "dependency:build-classpath@tests", "-pl", "core")
    target = BINDING / "core" / "target"
    jars = [(target / name).read_text().strip() for name in ("classpath", "test-classpath")]
    classes = os.pathsep.join([str(target / "classes"), str(target / "test-classes"), *jars])
    java = ["java", f"-Djava.library.path={folder / 'native'}", "-cp", classes, "dev.bespoke.TokenTimes"]
    return {"C": [str(program)], "Kotlin": java}


def milliseconds(command: Sequence[str], bundle: Path, state: Path, prompt: str, tokens: int, heap: Path) -> float:
    """The median of a token's time."""
    done = subprocess.run(
        [*command, bundle, state, prompt, str(tokens)], capture_output=True, text=True, check=True, env=preloaded(heap)
    )
    return statistics.median(int(line) for line in done.stdout.split()) / 1e6


def preloaded(heap: Path) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(heap)}


@pytest.mark.benchmark
def test_tokens_through_jni_take_as_long_as_in_c(
    stories: Path, smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heap = compile_preloaded(HERE / "app_heap.c", tmp_path)
    commands = clients(tmp_path)
    training = Training(sequence_lengths=(64,), steps=4)
    rows: list[list[Cell]] = []
    ratios: dict[str, list[float]] = {name: [] for name in TOKENS}
    for (name, tokens), model in zip(TOKENS.items(), (stories, smollm2), strict=True):
        bundle = tmp_path / f"{name}.bundle"
        Personalizer(model, "mesp", "executorch", context=128, training=training, data=None).build(bundle)
        prompts = {"C": json.dumps(PROMPT), "Kotlin": PROMPT}
        for heap_bytes in HEAPS:
            monkeypatch.setenv("BESPOKE_HEAP_BYTES", str(heap_bytes))
            times: dict[str, list[float]] = {client: [] for client in commands}
            for _ in range(ROUNDS):
                for client, command in commands.items():
                    state = tmp_path / f"{name}-{client}"
                    times[client].append(milliseconds(command, bundle, state, prompts[client], tokens, heap))
            ratio = statistics.median(k / c for k, c in zip(times["Kotlin"], times["C"], strict=True))
            ratios[name].append(ratio)
            medians = [statistics.median(times[client]) for client in commands]
            rows.append([name, heap_bytes // 10**6, *medians, ratio])
    write_table(
        "tokens_by_jni",
        ("model", "heap of the app, MB", "in C, ms", "in Kotlin, ms", "ratio"),
        rows,
        f"A token of a greedy answer, one thread: medians of {ROUNDS} processes of each, in turns. Half of the heap is free, "
        "in holes of two pages. In Kotlin a token is a piece of a flow, on a JVM, and comes from another thread.",
    )
    assert max(ratios[CHAT_MODEL]) <= MOST, ratios
