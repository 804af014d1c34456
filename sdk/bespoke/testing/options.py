# SPDX-License-Identifier: Apache-2.0
"""What both contracts ask of a plugin before it does anything: its attributes and its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from bespoke.config import Settings
from bespoke.contracts import Optimizer, Target, problem_of
from bespoke.errors import PluginError

Fail = Callable[[str, str, str], PluginError]


def checked_options(
    plugin: Optimizer | Target, kind: Literal["optimizer", "target"], given: Settings | None, fail: Fail
) -> Settings:
    """`given`, or the defaults, of a plugin that discovery takes; else `fail` makes the error from got, expected and next step."""
    problem = problem_of(plugin, kind, given)
    if problem is not None:
        raise fail(*problem)
    return plugin.Options() if given is None else given
