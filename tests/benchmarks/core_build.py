# SPDX-License-Identifier: Apache-2.0
"""Child process: builds one bundle for the device core. Prints one JSON object: the seconds of each stage, or the smallest budget.

    python -m tests.benchmarks.core_build '{"model": FOLDER, "bundle": FOLDER, "shared": FOLDER, "method": "mesp",
        "options": {"update": "sgd"}, "length": 256, "memory_mb": 64.0, "general_rows": 0, "batch_size": 1, "factors": "both"}'

The SDK builds as for anyone. What is the same in all bundles of a model is made once and kept in `shared`: converted weights (hard
links, so that bundles also share the pages that the system caches), compiled graphs and golden vectors. For that the three
functions that make them are wrapped here, from outside; the names of what is kept hold what it is made from.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.conftest import REPOSITORY

WEIGHT_SOURCES = ("sdk/bespoke/model/*.py", "sdk/bespoke/format/tensors.py")
TARGET_SOURCES = ("plugins/bespoke_plugins/targets/**/*.py", "sdk/bespoke/ops/*.py", "sdk/bespoke/graph/trace.py")
GOLDEN_SOURCES = (
    *WEIGHT_SOURCES,
    "sdk/bespoke/golden/*.py",
    "sdk/bespoke/methods/*.py",
    "sdk/bespoke/rules/noise.py",
    "plugins/bespoke_plugins/optimizers/*.py",
)
# All that decides what a plan is and what it is run by.
BUNDLE_SOURCES = (
    *WEIGHT_SOURCES,
    *TARGET_SOURCES,
    "plugins/bespoke_plugins/optimizers/*.py",
    "sdk/bespoke/*.py",
    *(f"sdk/bespoke/{part}/*.py" for part in ("format", "plan", "bundle", "graph", "methods", "compiler")),
)


def main(settings: dict[str, Any]) -> None:
    import bespoke.compiler.artifacts as artifacts
    import bespoke.compiler.golden_file as golden_file
    import bespoke.compiler.weight_files as weight_files
    from bespoke import Budget, Lora, Personalizer, Training
    from bespoke.errors import PlanDoesNotFit

    shared = Path(settings["shared"])
    personalizer = Personalizer(
        settings["model"],
        {settings["method"]: settings["options"]},
        "executorch",
        lora=Lora(rank=8, train=settings["factors"]),
        context=settings["length"],  # training is measured: the plan for answers is not to decide what fits
        training=Training(sequence_lengths=(settings["length"],), batch_size=settings["batch_size"]),
        budget=Budget(memory_mb=settings["memory_mb"]),
        data=general_data(settings) if settings["general_rows"] else None,
    )
    stages = Stages()
    with (
        patch.object(weight_files, "convert", kept_weights(weight_files.convert, shared)),
        patch.object(artifacts, "lower", kept_artifacts(artifacts.lower, shared)),
        patch.object(golden_file, "make_golden", kept_golden(golden_file.make_golden, shared)),
    ):
        try:
            personalizer.build(settings["bundle"], stages)
        except PlanDoesNotFit as refused:
            found = re.search(r"memory_mb=([0-9.]+)", refused.next_step)
            print(json.dumps({"smallest_mb": float(found[1]) if found else None, "words": str(refused)}))
            return
    print(json.dumps({"seconds": stages.seconds()}))


def general_data(settings: dict[str, Any]) -> Path:
    """Rows of random tokens, of which a build holds out one in ten."""
    vocabulary = json.loads((Path(settings["model"]) / "config.json").read_text())["vocab_size"]
    drawn = np.random.default_rng(1).integers(0, vocabulary, (10 * settings["general_rows"], settings["length"] + 1))
    path = Path(settings["shared"]) / f"general_{settings['general_rows']}_{settings['length']}.jsonl"
    path.write_text("".join(json.dumps({"tokens": row}) + "\n" for row in drawn.tolist()))
    return path


def sources_digest(*patterns: str) -> str:
    """Digest of the repository's files with these names."""
    digest = hashlib.sha256()
    for file in sorted({file for pattern in patterns for file in REPOSITORY.glob(pattern)}):
        digest.update(f"{file.relative_to(REPOSITORY)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def kept_weights(convert: Callable[..., dict[str, Path]], shared: Path) -> Callable[..., dict[str, Path]]:
    def converted(weights: Any, config: Any, out: Any, *, context: int, **more: Any) -> dict[str, Path]:
        named = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:8]
        kept = shared / f"weights_{named}_{context}_{sources_digest(*WEIGHT_SOURCES)}"
        if not kept.is_dir():
            partial = Path(f"{kept}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            files = convert(weights, config, partial, context=context, **more)
            (partial / "groups.json").write_text(json.dumps(list(files)))
            partial.rename(kept)
        Path(out).mkdir(parents=True, exist_ok=True)
        files = {group: Path(out) / f"{group}.safetensors" for group in json.loads((kept / "groups.json").read_text())}
        for group, file in files.items():
            os.link(kept / f"{group}.safetensors", file)
        return files

    return converted


def kept_artifacts(lower: Callable[..., Any], shared: Path) -> Callable[..., Any]:
    def lowered(target: Any, options: Any, graph: Any, folder: Path) -> Any:
        from bespoke.contracts import Artifact

        made_by = hashlib.sha256(f"{target.name} {options.model_dump_json()}".encode()).hexdigest()[:8]
        kept = shared / f"artifacts_{sources_digest(*TARGET_SOURCES)}" / f"{graph.key}_{made_by}"
        if not kept.is_dir():
            partial = Path(f"{kept}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            made = lower(target, options, graph, partial)
            record = {
                "file": made.path.name,
                "workspace_bytes": made.workspace_bytes,
                "engine_bytes": made.engine_bytes,
            }
            (partial / "artifact.json").write_text(json.dumps(record))
            partial.rename(kept)
        record = json.loads((kept / "artifact.json").read_text())
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept / record["file"], Path(folder) / record["file"])
        return Artifact(Path(folder) / record["file"], record["workspace_bytes"], record["engine_bytes"])

    return lowered


def kept_golden(make_golden: Callable[..., Any], shared: Path) -> Callable[..., Any]:
    """They depend on the model, the methods and their settings; not on choices of a plan, and not on lengths above their own of 16
    tokens."""

    def made(folder: Any, model: Any, files: Any, initial: Any, methods: Any, *rest: Any, **named: Any) -> Any:
        from safetensors.numpy import load_file, save_file

        what = [(m.name, m.options.model_dump(), m.training.model_dump(exclude={"sequence_lengths"})) for m in methods]
        key = hashlib.sha256(repr((model.config, model.lora, what)).encode()).hexdigest()[:16]
        kept = shared / f"golden_{key}_{sources_digest(*GOLDEN_SOURCES)}.safetensors"
        if not kept.is_file():
            arrays = make_golden(folder, model, files, initial, methods, *rest, **named).arrays()
            partial = Path(f"{kept}.partial")
            save_file({name: array.copy() for name, array in arrays.items()}, partial)
            partial.rename(kept)
        return SimpleNamespace(arrays=lambda: load_file(kept))

    return made


class Stages:
    """Seconds that a build spends in each stage, as its progress tells."""

    def __init__(self) -> None:
        self._began: list[tuple[str, float]] = []

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self._began or self._began[-1][0] != stage:
            self._began.append((stage, time.monotonic()))

    def seconds(self) -> dict[str, float]:
        moments = [*(moment for _, moment in self._began), time.monotonic()]
        taken: dict[str, float] = {}
        for number, (stage, _) in enumerate(self._began):
            taken[stage] = round(taken.get(stage, 0.0) + moments[number + 1] - moments[number], 2)
        return taken


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
