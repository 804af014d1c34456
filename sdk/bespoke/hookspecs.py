# SPDX-License-Identifier: Apache-2.0
"""Hooks of plugins. They only discover: each is called once, when its plugin is needed. `bespoke.contracts` does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pluggy

hookspec = pluggy.HookspecMarker("bespoke")
hookimpl = pluggy.HookimplMarker("bespoke")


@hookspec
def register_optimizers(register: Callable[[Any], None]) -> None:
    """Call `register(optimizer)` for every optimizer the plugin provides."""


@hookspec
def register_targets(register: Callable[[Any], None]) -> None:
    """Call `register(target)` for every target the plugin provides."""


@hookspec
def register_commands(register: Callable[[Any], None]) -> None:
    """Call `register(command)` for every click command to add to `bespoke`."""
