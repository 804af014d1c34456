# SPDX-License-Identifier: Apache-2.0
"""The device that torch computes on: a GPU if the bundle was built for one and the machine has one, else the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bespoke.errors import BundleError

if TYPE_CHECKING:
    import torch

__all__ = ["GPU_TARGET", "device_for", "no_gpu"]

GPU_TARGET = "cuda"


def device_for(targets: Sequence[str]) -> torch.device:
    """The device for a bundle with these targets. BundleError if the GPU is its only target and the machine has none."""
    import torch

    if GPU_TARGET in targets and torch.cuda.is_available():
        return torch.device("cuda")
    if list(targets) == [GPU_TARGET]:
        raise no_gpu()
    return torch.device("cpu")


def no_gpu() -> BundleError:
    """The error for a bundle that runs only on a GPU, on a machine without one."""
    import torch

    return BundleError(
        "bundle",
        got=f"the target '{GPU_TARGET}' alone, and no GPU that torch {torch.__version__} can use",
        expected="a GPU, or a target that runs without one",
        next_step="Open it on a machine with a GPU, or name another target in addition when it is built",
    )
