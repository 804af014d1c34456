# SPDX-License-Identifier: Apache-2.0
"""Frozen weights, mapped group by group. They are clean file pages that the system may reclaim at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from bespoke.reference.buffers import as_tensor


class Weights:
    """The tensors of the loaded groups. `map_group` maps a group. On other devices, `load` copies it and `free` drops it."""

    def __init__(self, map_group: Callable[[str], Mapping[str, np.ndarray]], device: torch.device) -> None:
        self._map_group = map_group
        self._device = device
        self._mapped: dict[str, Mapping[str, torch.Tensor]] = {}
        self._on_device: dict[str, dict[str, torch.Tensor]] = {}

    def load(self, group: str) -> None:
        if group not in self._mapped:
            arrays = self._map_group(group)
            self._mapped[group] = {f"{group}.{name}": as_tensor(array) for name, array in arrays.items()}
        if self._device.type != "cpu" and group not in self._on_device:
            self._on_device[group] = {name: t.to(self._device) for name, t in self._mapped[group].items()}

    def free(self, group: str) -> None:
        self._on_device.pop(group, None)

    def tensor(self, name: str) -> torch.Tensor | None:
        """The tensor with this name, None if its group has none."""
        group = name.split(".", 1)[0]
        loaded = self._mapped if self._device.type == "cpu" else self._on_device
        return loaded[group].get(name)
