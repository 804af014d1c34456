# SPDX-License-Identifier: Apache-2.0
"""Makes every model and bundle that the benchmarks of the device core use, so that a quiet machine is needed for measuring only.

python -m tests.benchmarks.prepare_core [MODEL...]      16 GB of disk under .cache/benchmarks for all of them
"""

from __future__ import annotations

import sys

from tests.benchmarks import dial_bundles, memory_cases, speed_cases


def main(models: list[str]) -> None:
    for case in memory_cases.CASES:
        if not models or case.model in models:
            for made in memory_cases.bundles_of(case):
                print(made.wanted.name, made.choices, flush=True)
    for speed in speed_cases.CASES:
        if not models or speed.model in models:
            for made in speed_cases.bundles_of(speed):
                print(made.wanted.name, made.choices, flush=True)
    if not models or speed_cases.CASES[0].model in models:
        bundles, refusals = dial_bundles.bundles_that_fit()
        for made in bundles.values():
            print(made.wanted.name, made.choices, flush=True)
        print(*refusals.values(), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
