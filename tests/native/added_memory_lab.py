# SPDX-License-Identifier: Apache-2.0
"""Child process: an app that answers and trains in turns, with a limit on what each call adds to what the app holds.

    LD_PRELOAD=counted_trims.so python -m tests.native.added_memory_lab BUNDLE STATE TOKENS

Prints what the calls reported, and how often each gave freed memory of the whole process back to the system.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke.bundle.reader import read_bundle
from bespoke.core import library
from bespoke.core.answers import Generation
from bespoke.core.handle import Handle, Place, Request

SINCE_THE_CALL = 2  # bespoke_options.limit_counts
FEW_STEPS = Request(run_steps=2, new_run=True)


def main(bundle: Path, state: Path, tokens: int) -> None:
    trims = ctypes.c_long.in_dll(ctypes.CDLL(None), "trims")

    def counted(work: Callable[[], Any]) -> dict[str, Any]:
        before = trims.value
        report = work()
        return {"trims": trims.value - before, "memory": report.get("memory") if isinstance(report, dict) else None}

    with read_bundle(bundle) as opened:
        place = Place(bundle, state, opened.manifest_sha256)
    core = Handle(library.load(), place, memory_mb=200.0, limit_counts=SINCE_THE_CALL, threads=1)
    for index in range(4):
        core.add_example(json.dumps({"tokens": list(range(index, index + 9))}), None, "train")

    def train() -> dict[str, Any]:
        return core.train(FEW_STEPS, None, None, None)

    said = {"warm": counted(train), "trained": counted(train)}
    conversation = core.open_conversation(Generation(max_tokens=4))
    conversation.feed(json.dumps([3 + index % 100 for index in range(tokens)]))
    said["first token"] = counted(conversation.next)
    said["next token"] = counted(conversation.next)
    said["trained after an answer"] = counted(train)
    said["evaluated"] = counted(lambda: core.evaluate("train", None))
    conversation.close()
    core.close()
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
