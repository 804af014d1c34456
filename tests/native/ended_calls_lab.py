# SPDX-License-Identifier: Apache-2.0
"""Ends one verb of the C API at each place at which it may end, one after the other, with late_clock.c preloaded.

    LD_PRELOAD=late_clock.so python -m tests.native.ended_calls_lab VERB BUNDLE OTHER_BUNDLE FOLDER

Prints how many of the calls were ended, and what was wrong after each, as JSON.
"""

from __future__ import annotations

import ctypes as c
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke.core import library
from bespoke.errors import BespokeError, Cancelled

SECRET = "because it was tired"
FIRST = 40  # each of the first places is taken, then one of STRIDE
STRIDE = 7


class Lab:
    def __init__(self, bundle: Path, other: Path, folder: Path) -> None:
        self.core, self.bundle, self.other, self.folder = library.load(), bundle, other, folder
        self.clock = c.CDLL(os.environ["LD_PRELOAD"])
        self.clock.looks_taken.restype = c.c_long
        self.model = c.c_void_p()
        self.state = folder / "state"

    def call(self) -> Any:
        return c.pointer(library.struct(library.CCall, deadline_seconds=3600.0))

    def open(self, bundle: Path | None = None, call: Any = None) -> None:
        place = library.struct(library.CBundle, path=str(bundle or self.bundle))
        self.core.call("bespoke_open", place, library.text(str(self.state)), None, call, c.byref(self.model))

    def close(self) -> None:
        self.core.call("bespoke_close", self.model, -1.0)
        self.model = c.c_void_p()

    def example(self, text: str, id: str) -> Any:
        return library.struct(library.CExample, json=json.dumps({"text": text}), id=id)

    def made(self) -> None:
        """A state with two examples, two adapters and an exported adapter."""
        self.open()
        for id, words in (("goes", f"{SECRET} of sitting there"), ("stays", "the cat sat on a mat")):
            self.core.ask("bespoke_add_example", self.model, self.example(words, id), None)
        self.export(None, self.folder / "adapter")
        for _ in range(2):
            self.take(None)
        self.close()
        shutil.copytree(self.state, self.folder / "kept")

    def again(self) -> None:
        shutil.rmtree(self.state)
        shutil.copytree(self.folder / "kept", self.state)

    def export(self, call: Any, folder: Path) -> None:
        where, format = library.text(str(folder)), library.text("peft")
        self.core.call("bespoke_export_adapter", self.model, where, format, 1, call)

    def take(self, call: Any) -> None:
        folder, version = library.text(str(self.folder / "adapter")), c.c_int64()
        self.core.call("bespoke_import_adapter", self.model, folder, 1, call, c.byref(version))

    def seen(self) -> Any:
        """What the state holds, as its verbs say."""
        examples = self.core.ask("bespoke_list_examples", self.model, library.text(""), 0)
        return [
            [example["id"] for example in examples],
            [version["id"] for version in self.core.ask("bespoke_list_versions", self.model)],
            self.core.ask("bespoke_current_run", self.model),
        ]

    def verbs(self) -> dict[str, Callable[[Any], None]]:
        core = self.core
        several = [self.example("a mat", "new"), self.example("a cat", "newer")]
        pointers = (c.POINTER(library.CExample) * 2)(*map(c.pointer, several))
        return {
            "add": lambda call: core.ask("bespoke_add_example", self.model, several[0], call),
            "add_examples": lambda call: core.ask("bespoke_add_examples", self.model, pointers, 2, call),
            "forget": lambda call: core.ask("bespoke_forget_example", self.model, library.text("goes"), call),
            "rollback": lambda call: core.ask("bespoke_rollback", self.model, call),
            "reset": lambda call: core.call("bespoke_reset", self.model, call),
            "abandon": lambda call: core.call("bespoke_abandon_run", self.model, call, None),
            "export": lambda call: self.export(call, self.folder / "out"),
            "import": self.take,
            "open": lambda call: self.open(call=call),
            "reset_for_new_base": self.reset_for_new_base,
            "install": self.install,
        }

    def reset_for_new_base(self, call: Any) -> None:
        place = library.struct(library.CBundle, path=str(self.other))
        self.core.call("bespoke_reset_for_new_base", place, library.text(str(self.state)), None, call)

    def install(self, call: Any) -> None:
        archives = (library.CText * 2)(*(library.text(str(path)) for path in sorted(self.folder.glob("*.zip"))))
        self.core.call("bespoke_install", archives, 2, library.text(str(self.folder / "installed")), None, call)


def run(lab: Lab, verb: str) -> dict[str, Any]:
    lab.made()
    needs_model = verb not in ("open", "reset_for_new_base", "install")
    call_it, ended, wrong = lab.verbs()[verb], 0, []
    place = 0
    while True:
        lab.again()
        lab.open()
        before = lab.seen()
        if not needs_model:
            lab.close()

        call = lab.call()
        lab.clock.late_from(place)
        try:
            call_it(call)
            was_ended = False
        except Cancelled:
            was_ended = True
        except BespokeError as error:
            wrong.append(f"{place}: {error}")
            was_ended = True
        looks = lab.clock.looks_taken()
        lab.clock.late_from(-1)
        if not was_ended and looks <= place:
            break  # it has run to its end, and looked nowhere later

        ended += was_ended
        wrong += [f"{place}: {problem}" for problem in problems(lab, verb, before, was_ended)]
        if lab.model:
            lab.close()
        place += 1 if place < FIRST else STRIDE
    if lab.model:
        lab.close()
    return {"places": place, "ended": ended, "wrong": wrong}


def problems(lab: Lab, verb: str, before: Any, was_ended: bool) -> list[str]:
    """What is not as it should be after a call."""
    out = {"export": lab.folder / "out", "install": lab.folder / "installed"}.get(verb)
    if out is not None:
        there = out.exists()
        if there:
            shutil.rmtree(out)
        leftovers = [path.name for path in lab.folder.iterdir() if "partial" in path.name]
        return [f"{out} is there: {there}, left: {leftovers}"] if there is was_ended or leftovers else []
    if not was_ended:
        return []
    if verb == "forget":
        gone = "goes" not in lab.seen()[0]
        if lab.model:
            lab.close()
        lab.open()
        found = [path.name for path in lab.state.iterdir() if path.is_file() and SECRET.encode() in path.read_bytes()]
        after = lab.seen()
        if gone:
            return [f"words are left in {found}"] if found else []
        return [f"{before} became {after}"] if after != before else []
    if lab.model:
        now = lab.seen()
        if now != before:
            return [f"{before} became {now}"]
        lab.close()
    lab.open()
    after = lab.seen()
    return [f"{before} became {after}"] if after != before else []


def main() -> None:
    verb, bundle, other, folder = sys.argv[1:]
    print(json.dumps(run(Lab(Path(bundle), Path(other), Path(folder)), verb)))


if __name__ == "__main__":
    main()
