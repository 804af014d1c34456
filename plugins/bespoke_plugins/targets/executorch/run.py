# SPDX-License-Identifier: Apache-2.0
"""Runs a program in this process with ExecuTorch's Python runtime and the operators of the device core."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bespoke.core.library import load
from bespoke.errors import MissingDependency
from bespoke_plugins.targets.executorch.vendor import load_executorch


def open_program(path: Path) -> Callable[..., tuple[Any, ...]] | None:
    """The program as a function of its operands, or None if the device core is not installed."""
    load_executorch()
    if not _operators():
        return None
    from executorch.extension.pybindings import portable_lib

    data = path.read_bytes()
    module = portable_lib._load_for_executorch_from_buffer(data)

    def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        assert data  # kept alive with the module, which reads it in place
        return tuple(module.run_method("forward", tuple(operand.contiguous() for operand in operands)))

    return run


@cache
def _operators() -> bool:
    """Loads our operators into ExecuTorch's registry. It uses the process's one copy of the core, because a second registration
    would end the process."""
    from executorch.extension.pybindings import portable_lib  # noqa: F401  (its libraries come first)

    try:
        library = load().path
    except MissingDependency:
        return False
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return True
