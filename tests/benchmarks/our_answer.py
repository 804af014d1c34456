# SPDX-License-Identifier: Apache-2.0
"""Child process: the device core answers a prompt of each length at each turn.

    python -m tests.benchmarks.our_answer '{"bundle": FOLDER, "state": FOLDER, "vocab_size": 151936}'

Reports seconds to the first token and the tokens and seconds after it, for each length of `PROMPTS`, and the core's memory, which
is all in its own process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.answers import ANSWER_TOKENS, PROMPTS, Footprint, prompt
from tests.benchmarks.footprint import Phases


def main(settings: dict[str, Any]) -> None:
    from bespoke import PersonalModel

    phases = Phases()
    turn = 0
    with PersonalModel.open(settings["bundle"], settings["state"], engine="executorch") as model:
        while phases.enter("turn"):
            turn += 1
            answers = []
            conversations = [model.conversation(max_tokens=ANSWER_TOKENS) for _ in PROMPTS]  # the first starts the core
            with Footprint(core_of(os.getpid())) as seen:
                for count, conversation in zip(PROMPTS, conversations, strict=True):
                    with conversation:
                        began = time.perf_counter()
                        pieces = iter(conversation.feed(prompt(turn, count, settings["vocab_size"])))
                        next(pieces)
                        first = time.perf_counter()
                        more = sum(piece.token is not None for piece in pieces)
                        ended = time.perf_counter()
                    answers.append({"prefill": first - began, "decode": ended - first, "decoded": more})
            phases.report({"answers": answers, **seen.bytes()})


def core_of(process: int) -> int:
    """Its one child, which any of its threads may have started."""
    children = [
        child for task in Path(f"/proc/{process}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    (core,) = children
    return int(core)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
