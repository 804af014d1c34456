# SPDX-License-Identifier: Apache-2.0
"""Child process: opens a bundle and trains a few steps in the torch runtime. Idle is: imports done, no model open.

python -m tests.benchmarks.our_step '{"bundle": ..., "state": ..., "sequence_length": 256, "steps": 5}'
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import time
from typing import Any

from tests.benchmarks.footprint import Phases


def main(settings: dict[str, Any]) -> None:
    import numpy as np
    import torch

    import bespoke.ops.load_program
    import bespoke.personal_model
    from bespoke.system.guard import KernelPeak

    phases = Phases()
    phases.idle()
    phases.enter("train")
    length, batch = settings["sequence_length"], settings.get("batch_size", 1)
    drawn = np.random.default_rng(0)
    ends: list[tuple[float, float]] = []  # clock and processor time at the end of each step
    with bespoke.personal_model.PersonalModel.open(
        settings["bundle"], settings["state"], memory_mb=settings.get("memory_mb")
    ) as model:
        vocabulary = model._bundle.manifest.text.vocab_size
        trained = sum(array.size for array in model._bundle.initial_adapter().values())
        for number in range(batch):  # below five, none is kept for validation
            tokens = drawn.integers(0, vocabulary, length + 1).tolist()
            model.examples.add({"tokens": tokens, "mask": [0] + [1] * length}, id=str(number))
        report = model.train(
            run_steps=settings["steps"],
            method=settings.get("method"),
            on_step=lambda step, loss: ends.append((time.perf_counter(), time.process_time())),
        )
    phases.report(
        {
            "losses": report.losses,
            "trained": trained,
            "step_seconds": [after[0] - before[0] for before, after in itertools.pairwise(ends)],
            "cpu_seconds_a_step": (ends[-1][1] - ends[0][1]) / max(1, len(ends) - 1),
            "memory": dataclasses.asdict(report.memory),
            "step_peak_bytes": report.step_peak_bytes,
            "kernel_mark": KernelPeak().available,
            "threads": torch.get_num_threads(),
        }
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
