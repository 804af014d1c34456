# SPDX-License-Identifier: Apache-2.0
"""Child process: an app that asks a model for tokens. app_heap.c, preloaded, gives it a large heap.

    python -m tests.benchmarks.app_heap BUNDLE FOLDER TOKENS

Two models take turns, a token each: the limit of one counts what a call adds to the app, that of the other counts all of the
process. Prints the milliseconds of each one's tokens.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

from bespoke.bundle.reader import read_bundle
from bespoke.core import library
from bespoke.core.answers import Generation
from bespoke.core.handle import Handle, Place
from bespoke.core.library import CCall, CGeneration, CPiece, struct, text

LIMITS = {"whole process": 0, "added by the call": 2}  # bespoke_options.limit_counts
ANSWER = 20  # tokens


def main(bundle: Path, folder: Path, tokens: int) -> None:
    core = library.load()
    with read_bundle(bundle) as opened:
        pin = opened.manifest_sha256
    models = {
        name: Handle(core, Place(bundle, folder / f"state-{kind}", pin), threads=1, memory_mb=2000.0, limit_counts=kind)
        for name, kind in LIMITS.items()
    }
    call, piece = struct(CCall), ctypes.POINTER(CPiece)()
    seconds: dict[str, list[float]] = {name: [] for name in models}
    while len(seconds["whole process"]) < tokens:
        sessions = {name: opened_session(core, model) for name, model in models.items()}
        for place in range(ANSWER):
            for name, session in sessions.items():
                began = time.perf_counter()
                core.call("bespoke_session_next", session, ctypes.byref(call), ctypes.byref(piece))
                if place:  # the first one reads the prompt
                    seconds[name].append(time.perf_counter() - began)
        for session in sessions.values():
            core.plain("bespoke_session_close", session)
    print(json.dumps({name: [1000 * one for one in all_of] for name, all_of in seconds.items()}))


def opened_session(core: library.Library, model: Handle) -> Any:
    session = ctypes.c_void_p()
    given = struct(CGeneration, **{**Generation(max_tokens=ANSWER).fields(), "stop_texts": "[]"})
    with model._open() as opened:
        core.call("bespoke_session_open", opened, ctypes.byref(given), ctypes.byref(session))
    core.call("bespoke_session_feed", session, text("[3, 4, 5]"))
    return session


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
