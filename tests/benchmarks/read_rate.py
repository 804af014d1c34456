# SPDX-License-Identifier: Apache-2.0
"""Child process: how fast all threads together read memory: the yardstick for decoding, which reads every weight for each token.

python -m tests.benchmarks.read_rate '{}'      paced: each turn reads a gigabyte a few times
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tests.benchmarks.footprint import Phases

BYTES, TIMES = 2**30, 5


def main(settings: dict[str, Any]) -> None:
    import torch

    phases = Phases()
    numbers = torch.ones(BYTES // 4)
    while phases.enter("turn"):
        rates = []
        for _ in range(TIMES):
            began = time.perf_counter()
            numbers.sum()
            rates.append(BYTES / (time.perf_counter() - began) / 1e9)
        phases.report({"gigabytes_a_second": sorted(rates)[TIMES // 2]})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
