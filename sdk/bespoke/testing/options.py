# SPDX-License-Identifier: Apache-2.0
"""Checks of a plugin's attributes and options, shared by both contract suites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from bespoke.config import Settings
from bespoke.contracts import Optimizer, Target
from bespoke.errors import PluginError
from bespoke.methods.preferences import PreferenceOptions
from bespoke.plugin_check import problem_of

Fail = Callable[[str, str, str], PluginError]


def option_sets(optimizer: Optimizer) -> list[Settings]:
    """The default options, and those that make a method learn from pairs of answers, if it can: its steps call other graphs."""
    options = optimizer.Options()
    if not isinstance(options, PreferenceOptions):
        return [options]
    return [options, options.model_copy(update={"preferences": "simpo"})]


def checked_options(
    plugin: Optimizer | Target, kind: Literal["optimizer", "target"], given: Settings | None, fail: Fail
) -> Settings:
    """Returns `given`, or the default options. Raises `fail(got, expected, next_step)` for a plugin that discovery refuses."""
    problem = problem_of(plugin, kind, given)
    if problem is not None:
        raise fail(*problem)
    return plugin.Options() if given is None else given
