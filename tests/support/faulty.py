# SPDX-License-Identifier: Apache-2.0
"""Processes that fail or die at a call of our choice: what faults.c is told, and the children it is tried in."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from typing import Any

from bespoke.errors import BespokeError

KILL_BEFORE, KILL_AFTER, KILL_TORN, FAIL, FAIL_FROM = range(5)
NEVER = 10**9


def in_child(work: Callable[[], Any]) -> tuple[Any, bool]:
    """What `work` returned in a forked process, as JSON says it; whether it was killed before."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = {"value": work()}
        except BespokeError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        except BaseException as error:
            answer = {"error": f"unexpected {type(error).__name__}", "text": repr(error)}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return (json.loads(text) if text else None), os.WIFSIGNALED(status)


def faults() -> Any:
    library = ctypes.CDLL(None)
    library.faults_arm.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_int]
    library.faults_count.restype = ctypes.c_long
    library.faults_log.restype = ctypes.c_char_p
    return library
