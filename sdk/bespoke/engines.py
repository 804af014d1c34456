# SPDX-License-Identifier: Apache-2.0
"""Which engine computes in this process: that of a bundle's GPU target where it finds one, else torch on the processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from bespoke.bundle.manifest import Manifest
from bespoke.config import settings_from
from bespoke.reference.device import GPU_TARGET, no_gpu

if TYPE_CHECKING:
    from bespoke.core.torch_engine import TorchEngine

__all__ = ["engine_of", "require_engine"]


def engine_of(manifest: Manifest) -> TorchEngine:
    """A new engine for a bundle. BundleError where it was built for a GPU alone and there is none."""
    from bespoke.core.torch_engine import TorchEngine

    engine = _of_the_gpu(manifest)
    if engine is None:
        require_engine(manifest)
        return TorchEngine()
    return cast(TorchEngine, engine())


def require_engine(manifest: Manifest) -> None:
    """The error of `engine_of` when a bundle is opened. Only a bundle that needs a GPU imports torch for it."""
    if [target.name for target in manifest.targets] == [GPU_TARGET] and _of_the_gpu(manifest) is None:
        raise no_gpu()


def _of_the_gpu(manifest: Manifest) -> Callable[[], Any] | None:
    options = {record.name: record.options for record in manifest.targets}
    if GPU_TARGET not in options:
        return None
    from bespoke import plugins  # here: contracts of plugins import torch
    from bespoke.contracts import EngineTarget

    target = plugins.get("target", GPU_TARGET)
    if not isinstance(target, EngineTarget):
        return None
    return target.engine(settings_from(target.Options, f"targets.{GPU_TARGET}", options[GPU_TARGET]))
