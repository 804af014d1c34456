# SPDX-License-Identifier: Apache-2.0
"""What tests/state_reader says about a state: run as a program, since no process that has a state open may read its files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READER = Path(__file__).with_name("state_reader")


def read_state(state: Path, bundle: Path | None = None, forgotten: Sequence[str] = ()) -> dict[str, Any]:
    """Its JSON report: counts, "digest", "digests", "left", "broken"."""
    command = [sys.executable, "-I", "-S", str(READER), str(state), "--json"]
    command += [] if bundle is None else ["--bundle", str(bundle)]
    command += ["--forgotten", *forgotten] if forgotten else []
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == "", done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if found["broken"] else 0), done
    return found


def broken_promises(state: Path, bundle: Path | None = None, forgotten: Sequence[str] = ()) -> set[str]:
    return {one["promise"] for one in read_state(state, bundle, forgotten)["broken"]}
