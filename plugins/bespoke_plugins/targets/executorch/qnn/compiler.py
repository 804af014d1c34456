# SPDX-License-Identifier: Apache-2.0
"""A process that has imported the vendor's compiler, and compiles each job in a fork of its own. What it prints is dropped, and
where a signal ends it only that job is lost.

Answers carry no name: each is of the job that was sent last. So one job is under way at a time, and where nobody waits for its
answer any more (Ctrl-C, an alarm) the process ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from functools import cache
from typing import IO, Any

from bespoke_plugins.targets.executorch.qnn.binary import Job, Refused, compile_here

HEADER = 8  # bytes of the length in front of a message


class Ended(Refused):
    """The process was not there any more: a new one may take the same job."""


def compiled(job: Job) -> Any:
    """The Binary of a Job, or the Refused that was raised: by the process that there is, or by a new one where that has ended."""
    made = Compiler.instance().run(job)
    return Compiler.instance().run(job) if isinstance(made, Ended) else made


class Compiler:
    """`run(job)` gives the Binary of a Job, or the Refused that was raised. Of any thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # a fork has none of the threads
        )
        atexit.register(self._process.kill)
        self._alone = threading.Lock()

    @staticmethod
    @cache
    def instance() -> Compiler:
        return Compiler()

    def run(self, job: Job) -> Any:
        message = pickle.dumps(job)
        with self._alone:
            try:
                answer = self._asked(message)
            except BaseException:
                self.end()
                raise
        if answer:
            return pickle.loads(answer)
        self.instance.cache_clear()  # the next job has a new one
        return Ended(f"the process of the vendor's compiler, which ended with status {self._process.wait()}")

    def _asked(self, message: bytes) -> bytes:
        """Empty where the process has ended."""
        given, results = self._process.stdin, self._process.stdout
        assert given is not None
        assert results is not None
        with contextlib.suppress(BrokenPipeError):  # the answer that is missing says so
            _send(given, message)
        return _received(results)

    def end(self) -> None:
        """The next job has a new one."""
        self._process.kill()
        self._process.wait()
        self.instance.cache_clear()


def _send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(HEADER, "little") + message)
    stream.flush()


def _received(stream: IO[bytes]) -> bytes:
    length = stream.read(HEADER)
    return stream.read(int.from_bytes(length, "little")) if length else b""


def _serve(given: IO[bytes], results: IO[bytes]) -> None:
    import executorch.backends.qualcomm.utils.utils  # noqa: F401  (once, and not in each fork, as what follows)
    from executorch.backends.qualcomm.utils.qnn_sdk_setup import disable_mkldnn_on_amd

    disable_mkldnn_on_amd()  # asks the processor, for a second
    while message := _received(given):
        _send(results, _compiled_in_a_fork(message))


def _compiled_in_a_fork(message: bytes) -> bytes:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result: Any = compile_here(pickle.loads(message))
        except Exception as problem:
            result = (
                problem if isinstance(problem, Refused) else Refused(f"{type(problem).__name__}: {str(problem)[:300]}")
            )
        with os.fdopen(write, "wb") as pipe:
            pipe.write(pickle.dumps(result))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        made = pipe.read()
    _, status = os.waitpid(child, 0)
    return made or pickle.dumps(Refused(f"the vendor's compiler, which ended with status {status}"))


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _serve(sys.stdin.buffer, answers)
