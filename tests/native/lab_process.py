# SPDX-License-Identifier: Apache-2.0
"""What is shared with a program that is asked over its stdin and answers over its stdout: an answer, and its end.

A client of the C API imports it that runs on the standard library alone (`tests/sharing/c_api.py`), so nothing else is
imported at the top.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bespoke.errors import BespokeError


def end(process: subprocess.Popen[Any]) -> int:
    """Closes both pipes, so that the program ends, and waits for it; its exit status."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    return process.wait()


def answer_of(process: subprocess.Popen[Any]) -> dict[str, Any]:
    """The next line. EOFError where the process died of what it was asked."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise EOFError(f"the lab ended with {process.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def error_of(answer: dict[str, Any]) -> BespokeError:
    """The Python error of the name and with the parts of an answer."""
    import bespoke.errors

    kind = getattr(bespoke.errors, answer["error"], None)
    assert kind is not None, answer
    error: BespokeError = kind(
        answer["subject"], got=answer["got"], expected=answer["expected"], next_step=answer["next_step"]
    )
    return error
