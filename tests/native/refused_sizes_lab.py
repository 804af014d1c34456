# SPDX-License-Identifier: Apache-2.0
"""Child process: gives each text of the C API a size that is refused, and prints by how much the process grew meanwhile.

python -m tests.native.refused_sizes_lab BUNDLE STATE BYTES
"""

from __future__ import annotations

import ctypes as c
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke.bundle.reader import read_bundle
from bespoke.core import library
from bespoke.core.answers import Generation
from bespoke.core.handle import Handle, Place
from bespoke.core.library import CCall, CExample, CGeneration, CText, CTraining, struct, text
from bespoke.errors import BespokeError

CHAT = b'[{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]'


def main(bundle: Path, state: Path, size: int) -> None:
    with read_bundle(bundle) as opened:
        place = Place(bundle, state, opened.manifest_sha256)
    core = library.load()
    model = Handle(core, place)
    ones = b"1," * (size // 2) + b"1"
    given = {"list": b"[" + ones + b"]", "object": b'{"tokens": [' + ones + b"]}", "text": b"x" * size}
    texts = {kind: text(value) for kind, value in given.items()}
    one, call = text(b"[[1], [2]]"), struct(CCall)
    ask = core.ask

    def open_session(handle: Any, stop_texts: CText) -> None:
        session, fields = c.c_void_p(), {**Generation().fields(), "stop_texts": ""}
        wanted = struct(CGeneration, **fields)
        wanted.stop_texts = stop_texts
        core.call("bespoke_session_open", handle, c.byref(wanted), c.byref(session))
        core.call("bespoke_session_feed", session, texts["list"])

    def add(handle: Any, **fields: CText) -> None:
        example = struct(CExample)
        for name, value in fields.items():
            setattr(example, name, value)
        ask("bespoke_add_example", handle, c.byref(example), None)

    def train(handle: Any) -> None:
        training = struct(CTraining)
        training.settings = texts["object"]
        ask("bespoke_train", handle, c.byref(training), c.byref(call))

    calls: dict[str, Callable[[Any], object]] = {
        "add_example": lambda handle: add(handle, json=texts["object"]),
        "add_example, id": lambda handle: add(handle, json=text(b'{"tokens": [1, 2]}'), id=texts["text"]),
        "correct, answer": lambda handle: ask("bespoke_correct", handle, texts["list"], text(b"x"), None),
        "correct, better": lambda handle: ask("bespoke_correct", handle, text(CHAT), texts["text"], None),
        "feed": lambda handle: open_session(handle, text(b"[]")),
        "stop_texts": lambda handle: open_session(handle, texts["list"]),
        "score, prompt": lambda handle: ask("bespoke_score", handle, texts["list"], one, c.byref(call)),
        "score, answers": lambda handle: ask("bespoke_score", handle, text(b"[1]"), texts["list"], c.byref(call)),
        "classify": lambda handle: ask("bespoke_classify", handle, text(b"[1]"), texts["list"], c.byref(call)),
        "forget": lambda handle: ask("bespoke_forget_example", handle, texts["text"], None),
        "train, settings": train,
    }
    grown = {}
    with model._open() as handle:
        for name, refused in calls.items():
            Path("/proc/self/clear_refs").write_text("5")  # the highest reading begins again
            before = kilobytes("VmRSS")
            try:
                refused(handle)
            except BespokeError as error:
                grown[name] = {"bytes": 1024 * (kilobytes("VmHWM") - before), "error": str(error)}
    print(json.dumps(grown))


def kilobytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
