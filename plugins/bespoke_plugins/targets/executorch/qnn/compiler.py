# SPDX-License-Identifier: Apache-2.0
"""A process that imports the vendor's compiler once and compiles each job in a fork. Its output is dropped. A signal that ends a
fork loses only that job.

Answers carry no name: each belongs to the job sent last. So one job runs at a time. If nobody waits for its answer any more
(Ctrl-C, an alarm), the process ends.
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

HEADER = 8  # bytes of the length before a message


class Ended(Refused):
    """The process had ended. A new process may take the same job."""


def compiled(job: Job) -> Any:
    """The Binary of a Job or the Refused that was raised. Starts a new process if the old one has ended."""
    answer = Compiler.instance().run(job)
    return Compiler.instance().run(job) if isinstance(answer, Ended) else answer


class Compiler:
    """The process. Any thread may call `run(job)`, which returns the Binary of a Job or the Refused that was raised."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # threads do not survive a fork
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
        self.instance.cache_clear()  # the next job starts a new process
        return Ended(f"the process of the vendor's compiler, which ended with status {self._process.wait()}")

    def _asked(self, message: bytes) -> bytes:
        """The answer; empty if the process has ended."""
        given, results = self._process.stdin, self._process.stdout
        assert given is not None
        assert results is not None
        with contextlib.suppress(BrokenPipeError):  # the missing answer reports it
            _send(given, message)
        return _received(results)

    def end(self) -> None:
        """Ends the process. The next job starts a new one."""
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

    disable_mkldnn_on_amd()  # queries the processor, which takes a second
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
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return answer or pickle.dumps(Refused(f"the vendor's compiler, which ended with status {status}"))


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _serve(sys.stdin.buffer, answers)
