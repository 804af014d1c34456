# SPDX-License-Identifier: Apache-2.0
"""The end of a program that is asked over its stdin and answers over its stdout."""

from __future__ import annotations

import subprocess
from typing import Any


def end(process: subprocess.Popen[Any]) -> int:
    """Closes both pipes, so that the program ends, and waits for it; its exit status."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    return process.wait()
