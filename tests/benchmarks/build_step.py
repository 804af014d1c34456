# SPDX-License-Identifier: Apache-2.0
"""Child process: builds one bundle. Idle is: nothing imported yet.

python -m tests.benchmarks.build_step '{"model": ..., "bundle": ..., "optimizers": {"mesp": {}}, "training": {...}}'
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.benchmarks.footprint import Phases


def main(settings: dict[str, Any]) -> None:
    import resource

    from bespoke import Budget, Personalizer, Training

    phases = Phases()
    phases.enter("build")
    training = Training(**settings["training"])
    personalizer = Personalizer(
        settings["model"],
        settings["optimizers"],
        "torch",
        context=max(training.sequence_lengths),  # training is measured: the plan for answers is not to decide what fits
        training=training,
        budget=Budget(memory_mb=settings.get("memory_mb")),
        data=None,
    )
    personalizer.build(settings["bundle"], lambda stage, done, total: print(stage, done, total) if not done else None)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    phases.report({"cpu_seconds": usage.ru_utime + usage.ru_stime})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
