# SPDX-License-Identifier: Apache-2.0
"""Run as a program with faults.c preloaded: uses a state again and again in forked processes, in each of which one call fails.

    python -m tests.sharing.fault_lab BUNDLE STATE PLACE MODE ERRNO MOST

Prints a JSON line for each: which call it was, how it ended, the example that was reported as kept, and what a process without
faults finds then.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from bespoke import PersonalModel
from tests.support.faulty import NEVER, faults, in_child
from tests.unit.personal_model.tiny import numbers


def main() -> None:
    bundle, state, place = map(Path, sys.argv[1:4])
    mode, error, most = map(int, sys.argv[4:])
    library = faults()

    def use(call: int) -> Any:
        kept: list[str] = []
        library.faults_arm(call, mode, error)
        with PersonalModel.open(bundle, state, engine="torch") as model:
            model.examples.list()
            kept.append(model.examples.add(numbers(call % 50), id=f"while call {call} failed").id)
            model.export_adapter(place / "adapter")
        return kept

    def look() -> Any:
        with PersonalModel.open(bundle, state, engine="torch") as model:
            model.export_adapter(place / "adapter")
            return [info.id for info in model.examples.list()]

    def counted() -> int:
        use(NEVER)
        return int(library.faults_count())

    total, _ = in_child(counted)
    calls = total["value"]
    for call in sorted({round(part * (calls - 1) / max(1, most - 1)) for part in range(min(most, calls))}):
        answer, killed = in_child(lambda call=call: use(call))  # type: ignore[misc]
        after, _ = in_child(look)
        print(json.dumps({"call": call, "of": calls, "answer": answer, "killed": killed, "after": after}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
