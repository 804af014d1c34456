# SPDX-License-Identifier: Apache-2.0
"""Chooses the engine that computes for a bundle. Only this module does.

The engine `torch` computes in this process. An engine of the device core computes in a process of its own: the one that is compiled
into the core, or one that comes as a library. On a GPU, torch computes with the engine of the bundle's GPU target.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from bespoke.bundle.manifest import Manifest
from bespoke.bundle.reader import Bundle
from bespoke.config import settings_from
from bespoke.core.engine import Engine
from bespoke.core.finding import find
from bespoke.core.handle import Place
from bespoke.core.in_process import InProcess, Torch
from bespoke.core.own_process import BUILT_IN, OwnProcess
from bespoke.errors import ConfigError
from bespoke.reference.device import GPU_TARGET, no_gpu
from bespoke.remedies import setting

if TYPE_CHECKING:
    from bespoke.core.torch_engine import TorchEngine

__all__ = ["TORCH", "engine_for", "engine_name", "provers"]

TORCH = "torch"


def engine_for(engine: str | None, bundle: Bundle, place: Place, memory_bytes: int | None) -> Engine:
    """Returns the engine for an open bundle. It starts and imports nothing before its first call.

    Raises ConfigError for an engine that the bundle was not compiled for, MissingDependency without a core that runs, BundleError
    for a bundle that needs a GPU where there is none.
    """
    name = engine_name(engine, bundle.manifest)
    _require_gpu(bundle.manifest)
    if name == TORCH:
        return InProcess(place, memory_bytes, partial(_import_torch, bundle))
    return OwnProcess(place, memory_bytes, name)


def engine_name(engine: str | None, manifest: Manifest) -> str:
    """Returns the name of the engine. For None: `BUILT_IN` where the bundle was compiled for it and the core runs, else `torch`."""
    targets = [target.name for target in manifest.targets]
    if engine == TORCH or (engine is None and BUILT_IN not in targets):
        return TORCH
    if engine is not None and engine not in targets:
        raise ConfigError(
            setting("engine", engine),
            got=f"a bundle for {', '.join(targets)}",
            expected="'torch', or a target that the bundle was compiled for",
            next_step="Build it with " + setting("targets", engine) + ", or use " + setting("engine", TORCH),
        )
    core = find()
    if engine is None:
        return TORCH if core.path is None else BUILT_IN
    core.required(setting("engine", engine))
    return engine


def provers(engine: str | None, manifest: Manifest) -> list[str]:
    """Returns the engines to compare with golden vectors: `engine`, or for None each that this machine has."""
    name = engine_name(engine, manifest)
    if engine is None and name != TORCH and find_spec("torch"):
        return [TORCH, name]
    return [name]


def _import_torch(bundle: Bundle) -> Torch:
    from bespoke.core.torch_engine import TorchEngine
    from bespoke.reference.machine import threads_of
    from bespoke.reference.torch_settings import computing

    on_the_gpu = _gpu_engine(bundle.manifest)
    if on_the_gpu is None:
        _require_gpu(bundle.manifest)  # the GPU may be gone since the bundle was opened
    engine = TorchEngine() if on_the_gpu is None else cast("TorchEngine", on_the_gpu())
    return Torch(engine, partial(computing, threads_of(bundle)))


def _require_gpu(manifest: Manifest) -> None:
    """Raises BundleError for a bundle that needs a GPU where there is none. Only such a bundle imports torch for this."""
    if [target.name for target in manifest.targets] == [GPU_TARGET] and _gpu_engine(manifest) is None:
        raise no_gpu()


def _gpu_engine(manifest: Manifest) -> Callable[[], Any] | None:
    """Returns what makes the engine of the bundle's GPU target. None: the bundle has no such target, or this machine no GPU."""
    options = {record.name: record.options for record in manifest.targets}
    if GPU_TARGET not in options:
        return None
    from bespoke import plugins  # here: contracts of plugins import torch

    target = plugins.get("target", GPU_TARGET)
    return target.engine(settings_from(target.Options, f"targets.{GPU_TARGET}", options[GPU_TARGET]))
