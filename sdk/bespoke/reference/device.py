# SPDX-License-Identifier: Apache-2.0
"""Where torch computes: on a GPU if the bundle was built for one and it is there, else on the processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bespoke.errors import BundleError

if TYPE_CHECKING:
    import torch

__all__ = ["GPU_TARGET", "device_for", "require_device"]

GPU_TARGET = "cuda"


def device_for(targets: Sequence[str]) -> torch.device:
    """The device for a bundle that was built for these targets. BundleError if it was built for a GPU alone and there is none."""
    import torch

    if GPU_TARGET in targets and torch.cuda.is_available():
        return torch.device("cuda")
    if list(targets) == [GPU_TARGET]:
        raise BundleError(
            "bundle", got=f"the target '{GPU_TARGET}' alone, and no GPU that torch {torch.__version__} can use",
            expected="a GPU, or a target that runs without one",
            next_step="Open it on a machine with a GPU, or name another target in addition when it is built",
        )  # fmt: skip
    return torch.device("cpu")


def require_device(targets: Sequence[str]) -> None:
    """The error of `device_for` when a bundle is opened. Only a bundle that needs a GPU imports torch for it."""
    if list(targets) == [GPU_TARGET]:
        device_for(targets)
