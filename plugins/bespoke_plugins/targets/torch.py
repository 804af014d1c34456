# SPDX-License-Identifier: Apache-2.0
"""Target `torch`: the torch runtime on the processor, the reference. It runs the graphs that every bundle carries, so nothing is
compiled."""

from __future__ import annotations

from collections.abc import Callable

from bespoke.contracts import TORCH_COSTS, Settings, Target, hookimpl


class TorchOptions(Settings):
    """There is nothing to set."""


class Torch:
    """torch itself."""

    name = "torch"
    Options = TorchOptions
    costs = TORCH_COSTS


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(Torch())
