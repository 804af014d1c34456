# SPDX-License-Identifier: Apache-2.0
"""Finds Qualcomm's SDK, which its users install themselves, before ExecuTorch would download one."""

from __future__ import annotations

import os
from pathlib import Path

from bespoke.contracts import quiet_imports
from bespoke.errors import MissingDependency

LIBRARIES = "lib/x86_64-linux-clang"
EXPECTED = "Qualcomm's AI Engine Direct SDK (QAIRT 2.37), on Linux x86-64"
NEXT_STEP = f"Install it from Qualcomm, set QNN_SDK_ROOT to its folder and LD_LIBRARY_PATH to its {LIBRARIES}"


def load_qnn() -> None:
    """Raises MissingDependency unless QNN_SDK_ROOT names a folder with the compiler's libraries."""
    root = os.environ.get("QNN_SDK_ROOT", "")
    if not root or not (Path(root) / LIBRARIES / "libQnnHtp.so").is_file():
        raise MissingDependency(
            "Target 'executorch' with delegate = 'qnn'",
            got=f"QNN_SDK_ROOT={root!r}, a folder without {LIBRARIES}/libQnnHtp.so" if root else "no QNN_SDK_ROOT",
            expected=EXPECTED,
            next_step=NEXT_STEP,
        )
    try:
        with quiet_imports("executorch", "root"):
            import executorch.backends.qualcomm.utils.utils  # noqa: F401
    except ImportError as problem:
        raise MissingDependency(
            "Target 'executorch' with delegate = 'qnn'",
            got=str(problem),
            expected="ExecuTorch 1.5 with its QNN backend",
            next_step="Install bespoke[executorch] on Linux x86-64",
        ) from None
