# SPDX-License-Identifier: Apache-2.0
"""Runs a compiled graph in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch

from bespoke_plugins.targets.mlx.records import read

Array = Any  # mx.array


def open_program(path: Path) -> Callable[..., tuple[torch.Tensor, ...]] | None:
    """The file as a function of its operands, or None if it is for a device that this machine lacks.

    Raises Unsupported for a file of another version or with records that the target does not write.
    """
    if read(path.read_bytes()).device == "gpu" and not mx.metal.is_available():
        return None
    function = mx.import_function(str(path))

    def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = function(*[mx.array(operand.contiguous().numpy()) for operand in operands])
        mx.eval(results)
        return tuple(torch.from_numpy(np.array(result)) for result in results)

    return run
