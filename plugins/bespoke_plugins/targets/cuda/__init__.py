# SPDX-License-Identifier: Apache-2.0
"""Target `cuda`: the torch runtime on an NVIDIA GPU, including a Jetson's. It runs the graphs that every bundle carries:
nothing is compiled, and any machine builds the bundle. Without a GPU, a bundle that was built for `cuda` alone does not open."""

from __future__ import annotations

from collections.abc import Callable

from bespoke.contracts import TORCH_COSTS, Settings, Target, hookimpl


class CudaOptions(Settings):
    """There is nothing to set."""


class Cuda:
    """torch on a GPU."""

    name = "cuda"
    Options = CudaOptions
    costs = TORCH_COSTS  # of the process, as on the processor; memory of the GPU is not counted


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(Cuda())
