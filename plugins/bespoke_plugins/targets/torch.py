# SPDX-License-Identifier: Apache-2.0
"""Target `torch`: torch on the processor, the reference. It runs the graphs in every bundle, so it compiles nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bespoke.contracts import TORCH_COSTS, Settings, Target, hookimpl


class Torch(Target):
    """The target `torch`."""

    name = "torch"
    costs = TORCH_COSTS

    def engine(self, options: Settings) -> Callable[[], Any]:
        from bespoke.core.torch_engine import TorchEngine

        return TorchEngine


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(Torch())
