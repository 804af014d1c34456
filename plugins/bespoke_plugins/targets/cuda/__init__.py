# SPDX-License-Identifier: Apache-2.0
"""Target `cuda`: an NVIDIA GPU, a Jetson's too. Torch runs the graphs that every bundle carries and Triton kernels compute the
products of int4 weights. Nothing is compiled at build, so any machine builds the bundle.

On the processor it runs only under TRITON_INTERPRET=1, in Triton's interpreter, which is slow and for tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from bespoke.contracts import TORCH_COSTS, Costs, Settings, Target, hookimpl
from bespoke.errors import ConfigError, MissingDependency

__all__ = ["Cuda", "CudaOptions"]


class CudaOptions(Settings):
    """Options of `cuda`. `tf32`: products of factors of 11 bits on tensor cores, faster and less exact than fp32."""

    tf32: bool = False


class Cuda(Target):
    """torch and Triton on a GPU."""

    name = "cuda"
    Options = CudaOptions
    # The process's memory is torch's; it was not measured on a GPU. A CUDA context exists before a call begins and does not count.
    # The device holds a group's weights while the plan does, and also the next group's.
    costs = Costs(TORCH_COSTS.constant_bytes, TORCH_COSTS.record_bytes, copies_weights=True)

    def engine(self, options: CudaOptions) -> Callable[[], Any] | None:
        import torch

        interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        if not interpreted and not torch.cuda.is_available():
            return None
        try:
            import triton  # noqa: F401
        except ModuleNotFoundError as error:
            if error.name != "triton":
                raise
            raise MissingDependency(
                f"target '{self.name}'",
                got=f"torch {torch.__version__} without triton",
                expected="triton, in which its kernels are written",
                next_step="Install triton for this platform, or a build of torch for CUDA, which brings it",
            ) from None
        from bespoke_plugins.targets.cuda import kernels
        from bespoke_plugins.targets.cuda.engine import CudaEngine

        if bool(kernels.INTERPRETED.value) != interpreted:
            raise ConfigError(
                f"target '{self.name}', TRITON_INTERPRET",
                got=f"{os.environ.get('TRITON_INTERPRET')!r} after Triton was imported "
                f"{'without' if interpreted else 'with'} its interpreter",
                expected="the value that Triton was imported with: its kernels stay what they were made then",
                next_step="Set it before anything imports Triton, or start another process",
            )
        return lambda: CudaEngine(tf32=options.tf32, device="cpu" if interpreted else "cuda")


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(Cuda())
