# SPDX-License-Identifier: Apache-2.0
"""A process that has the device core as an app has it: the library by its C API, any number of handles on one state.

Run as a program it takes one JSON line an action; it needs nothing but the standard library and the core.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.native.lab_process import end
from tests.sharing import outside
from tests.support.c_structs import Bundle, Error, made, parts_of, text


class CModel:
    """One process with one handle open; `open_again` opens and `close_again` closes a second one on the same state."""

    def __init__(self, build: Path, bundle: Path, state: Path, environment: Mapping[str, str] | None = None) -> None:
        self.state = state
        program = [
            sys.executable,
            "-S",
            str(Path(__file__)),
            str(build / "libbespoke_core.so"),
            str(bundle),
            str(state),
        ]
        self.process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2]), **(environment or {})},
        )

    def act(self, what: str, handle: int = 0) -> Any:
        """EOFError where the process has died; what the core refuses is returned as {"error": kind, ...}."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps([what, handle]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise EOFError(f"the process ended with {self.process.wait()}") from error
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"the process ended with {self.process.wait()}")
        return json.loads(line)

    def good(self, what: str, handle: int = 0) -> Any:
        answer = self.act(what, handle)
        assert not isinstance(answer, dict) or "error" not in answer, answer
        return answer

    def train(self, handle: int = 0) -> Any:
        """A run to its end: the report."""
        return self.good("train", handle)

    def open_again(self) -> None:
        self.good("open", 1)

    def close_again(self) -> None:
        self.good("close", 1)

    def locks(self) -> set[tuple[str, str, str]]:
        return outside.locks(self.state.resolve(), self.process.pid)

    def __enter__(self) -> Self:
        self.good("open", 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self.process)


class _Library:
    def __init__(self, path: str, bundle: str, state: str) -> None:
        self.core = ctypes.CDLL(path)
        self.core.bespoke_release.argtypes = self.core.bespoke_free.argtypes = [ctypes.c_void_p]
        self.paths = bundle.encode(), state.encode()
        self.handles = [ctypes.c_void_p(), ctypes.c_void_p()]

    def act(self, what: str, number: int) -> Any:
        handle, report, error = self.handles[number], ctypes.c_void_p(), ctypes.POINTER(Error)()
        if what == "close":
            self.core.bespoke_release(handle)
            return None
        if what == "open":
            bundle, state = self.paths
            at = made(Bundle, path=bundle)
            code = self.core.bespoke_open(at, text(state), None, None, ctypes.byref(handle), ctypes.byref(error))
        elif what == "train":
            code = self.core.bespoke_train(handle, None, None, ctypes.byref(report), ctypes.byref(error))
        else:
            split = text(what.removesuffix("_split").encode())
            code = self.core.bespoke_evaluate(
                handle, split, text(None), None, ctypes.byref(report), ctypes.byref(error)
            )
        if code:
            fields = parts_of(error)
            return {"error": fields.pop("kind"), **fields}
        return json.loads(ctypes.string_at(report)) if report else None


def main() -> None:
    library = _Library(*sys.argv[1:4])
    for line in sys.stdin:
        print(json.dumps(library.act(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
