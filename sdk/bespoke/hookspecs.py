# SPDX-License-Identifier: Apache-2.0
"""Hooks that register plugins. Each is called once, when its plugin is needed. `bespoke.contracts` has the contracts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pluggy

hookspec = pluggy.HookspecMarker("bespoke")
hookimpl = pluggy.HookimplMarker("bespoke")


@hookspec
def register_optimizers(register: Callable[[Any], None]) -> None:
    """Calls `register(optimizer)` for every optimizer the plugin provides."""


@hookspec
def register_targets(register: Callable[[Any], None]) -> None:
    """Calls `register(target)` for every target the plugin provides."""


@hookspec
def register_commands(register: Callable[[Any], None]) -> None:
    """Calls `register(command)` for every click command to add to `bespoke`."""
