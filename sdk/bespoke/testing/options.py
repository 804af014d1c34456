# SPDX-License-Identifier: Apache-2.0
"""What both contracts ask of a plugin before it does anything: its attributes and its options."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from bespoke.config import Settings, settings_from
from bespoke.errors import ConfigError, PluginError

Fail = Callable[[str, str, str], PluginError]


def checked_options(plugin: Any, contract: str, needed: Sequence[str], given: Settings | None, fail: Fail) -> Settings:
    """`given`, or the defaults. A name, options whose defaults are complete, and an error for an option that there is none of.

    `contract` is "Optimizer" or "Target", `needed` its attributes, `fail` makes the error from got, expected and next step.
    """
    missing = [name for name in needed if not hasattr(plugin, name)]
    if missing:
        expected = f"{', '.join(needed[:-1])} and {needed[-1]}"
        raise fail(f"no attribute {', '.join(missing)}", expected, f"See bespoke.contracts.{contract}")
    kind, subject = plugin.Options, f"{contract.lower()}s.{plugin.name}"
    if not (isinstance(kind, type) and issubclass(kind, Settings)):
        raise fail(f"Options = {kind!r}", "a subclass of bespoke.contracts.Settings", "Derive it from Settings")
    options = settings_from(kind, subject, {}) if given is None else given
    try:
        settings_from(kind, subject, {"no_such_option": 1})
    except ConfigError:
        pass
    else:
        raise fail("an unknown option taken in silence", "a ConfigError that names it", "Keep extra='forbid' of Settings")
    try:
        json.dumps(options.model_dump())
    except TypeError as error:
        raise fail(f"options that JSON cannot hold: {error}", "numbers, texts and lists", "Change the field") from None
    return options
