# SPDX-License-Identifier: Apache-2.0
"""Child process: answers of the device core, a prompt and an answer at each turn.

    python -m tests.benchmarks.our_answer '{"bundle": FOLDER, "state": FOLDER, "vocab_size": 151936}'

Reports seconds to the first token, tokens and seconds after it, and the core's memory, which is all in its own process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.answers import ANSWER_TOKENS, Footprint, prompt
from tests.benchmarks.footprint import Phases


def main(settings: dict[str, Any]) -> None:
    from bespoke import PersonalModel

    phases = Phases()
    turn = 0
    with PersonalModel.open(settings["bundle"], settings["state"], engine="executorch") as model:
        while phases.enter("turn"):
            turn += 1
            conversation = model.conversation(max_tokens=ANSWER_TOKENS)
            with conversation, Footprint(core_of(os.getpid())) as seen:
                began = time.perf_counter()
                pieces = iter(conversation.feed(prompt(turn, settings["vocab_size"])))
                next(pieces)
                first = time.perf_counter()
                more = sum(piece.token is not None for piece in pieces)
                ended = time.perf_counter()
            phases.report({"prefill": first - began, "decode": ended - first, "decoded": more, **seen.bytes()})


def core_of(process: int) -> int:
    """Its one child, which any of its threads may have started."""
    children = [
        child for task in Path(f"/proc/{process}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    (core,) = children
    return int(core)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
