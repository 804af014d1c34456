# SPDX-License-Identifier: Apache-2.0
"""Child process: how fast this processor multiplies matrices of 2048 x 2048 with torch: the yardstick for steps.

    python -m tests.benchmarks.matmul_rate '{"dtype": "float32"}'      paced: each turn is a few products

With "bfloat16" torch takes the bf16 instructions of the processor: AMX where there is AMX.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tests.benchmarks.footprint import Phases

SIZE, PRODUCTS = 2048, 6


def main(settings: dict[str, Any]) -> None:
    import torch

    phases = Phases()
    a, b = (torch.randn(SIZE, SIZE).to(getattr(torch, settings["dtype"])) for _ in range(2))
    while phases.enter("turn"):
        rates = []
        for _ in range(PRODUCTS):
            began = time.perf_counter()
            torch.mm(a, b)
            rates.append(2 * SIZE**3 / (time.perf_counter() - began) / 1e9)
        phases.report({"gflops": sorted(rates)[PRODUCTS // 2]})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
