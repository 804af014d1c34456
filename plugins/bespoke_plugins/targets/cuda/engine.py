# SPDX-License-Identifier: Apache-2.0
"""torch's engine of the core on a GPU: Triton's kernels replace the int4 operators, values are in the device's memory, and weights
are copied there one group ahead."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from bespoke.core.engine_table import Artifact
from bespoke.core.torch_engine import TorchEngine, memory_may_lack, view_of
from bespoke_plugins.targets.cuda.ahead import Ahead, Group
from bespoke_plugins.targets.cuda.products import OPERATORS

__all__ = ["CudaEngine"]


class CudaEngine(TorchEngine):
    """The engine. `device`: "cuda", or "cpu" under Triton's interpreter, where the device's memory counts as the process's."""

    name = "cuda"

    def __init__(self, *, tf32: bool, device: str) -> None:
        super().__init__(device, own_memory=True)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # creates CUDA's context now, so that no call counts its memory
        self.runtime = "gpu" if self._device.type == "cuda" else "gpu_interpreter"
        self._tf32 = tf32
        self._ahead = Ahead(self._device, lambda group: view_of(group.address, (group.size,), torch.uint8))
        self._groups: set[int] = set()  # handles of mapped groups

    def open(self, artifact: Artifact) -> int:
        handle = super().open(artifact)
        module, *_ = self._programs[handle]
        assert isinstance(module, GraphModule)
        for node in module.graph.nodes:
            if node.op == "call_function" and getattr(node.target, "namespace", "") == "bespoke":
                node.target = OPERATORS[node.target._opname]
                node.update_kwarg("tf32", self._tf32)
        module.recompile()
        return handle

    # ---- memory of the device ------------------------------------------------------------------------------------------------

    def map_weights(self, address: int, size: int) -> int:
        with memory_may_lack():
            handle = self._keep(self._ahead.take(Group(address, size)))
        self._groups.add(handle)
        return handle

    def unmap_weights(self, memory: int) -> None:
        super().unmap_weights(memory)
        self._groups.discard(memory)
        if not self._groups:  # the bundle may be closed next, and nothing may read it then
            self._ahead.wait()
        self._give_back()

    def release(self, memory: int) -> None:
        super().release(memory)
        self._give_back()

    def _give_back(self) -> None:
        """Frees all memory between two calls: others use the device too, and a Jetson's memory is the system's."""
        if self._memory:
            return
        self._ahead.drop()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
