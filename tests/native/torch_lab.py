# SPDX-License-Identifier: Apache-2.0
"""The core with torch as its engine, for tests: in this process, or in one of its own that says each step that is done:

python -m tests.native.torch_lab BUNDLE STATE METHOD MOST_STEPS
"""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke.core.library import CBundle, CCall, COptions, CTraining, OnProgress, load, struct, text
from bespoke.core.torch_engine import TorchEngine

STEP = 2  # BESPOKE_PHASE_STEP


def train(
    bundle: Path,
    state: Path,
    engine: TorchEngine,
    method: str,
    most_steps: int = 0,
    on_step: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """One call of bespoke_train; its report, or the core's error."""

    def progress(_: Any, found: Any) -> int:
        if on_step is not None and found.contents.phase == STEP:
            on_step(found.contents.step)
        return 0

    call = struct(CCall, progress=OnProgress(progress))
    return _asked(bundle, state, engine, "bespoke_train", struct(CTraining, method=method, most_steps=most_steps), call)


def verify(bundle: Path, state: Path, engine: TorchEngine) -> dict[str, Any]:
    """One call of bespoke_verify: the golden vectors, or the core's error."""
    return _asked(bundle, state, engine, "bespoke_verify", struct(CCall))


def _asked(bundle: Path, state: Path, engine: TorchEngine, name: str, *arguments: Any) -> dict[str, Any]:
    library, model = load(), c.c_void_p()
    options = struct(COptions, memory_mb=-1.0, engine=c.addressof(engine.table))
    library.call("bespoke_open", struct(CBundle, path=str(bundle)), text(str(state)), options, None, c.byref(model))
    try:
        report: dict[str, Any] = library.ask(name, model, *arguments)
    finally:
        library.plain("bespoke_release", model)
    return report


if __name__ == "__main__":
    train(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        TorchEngine(),
        sys.argv[3],
        int(sys.argv[4]),
        lambda step: print(step, flush=True),
    )
