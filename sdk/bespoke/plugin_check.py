# SPDX-License-Identifier: Apache-2.0
"""Checks a plugin before it does anything: its kind, name, options and costs. Discovery and the contract suites share this."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

from bespoke.bundle.file_names import file_name_problem
from bespoke.config import Settings, settings_from
from bespoke.contracts import PROMISED_OPTIONS, Costs, Problem, Promise, Target
from bespoke.errors import ConfigError, shown

__all__ = ["problem_of"]

Kind = Literal["optimizer", "target"]

_OPTIMIZER = ("name", "promises", "Options", "train_step")


def problem_of(plugin: Any, kind: Kind, options: Settings | None = None) -> Problem | None:
    """Returns what is wrong with a plugin, or None.

    Args:
        plugin: what a package registered, or what an author hands to a contract suite.
        kind: what it should be.
        options: the options to check; None: the defaults.
    """
    problem = _target_problem(plugin) if kind == "target" else _optimizer_problem(plugin)
    if problem is not None:
        return problem

    name = plugin.name
    if not isinstance(name, str) or file_name_problem(name) or "/" in name:
        return Problem(f"name = {shown(name)}", "letters, digits and _.@+=-, which name a file too", "Change the name")
    own = _costs_problem(plugin) if kind == "target" else _promise_problem(plugin)
    return _options_problem(plugin.Options, f"{kind}s.{name}", options) or own


def _target_problem(plugin: Any) -> Problem | None:
    if not isinstance(plugin, Target):
        instead = f"the class {plugin.__name__}" if isinstance(plugin, type) else f"a {type(plugin).__name__}"
        return Problem(
            instead,
            "an instance of a class derived from bespoke.contracts.Target",
            "Write 'class MyTarget(Target)' and register MyTarget()",
        )
    missing = [name for name in ("name", "costs") if not hasattr(plugin, name)]
    if missing:
        return Problem(f"no attribute {', '.join(missing)}", "name and costs", "See bespoke.contracts.Target")
    if plugin.compiles != (type(plugin).open is not Target.open):
        return Problem("one of lower and open", "both, or neither for a target without artifacts", "Add the other")
    hooks = [name for name, hook in vars(Target).items() if callable(hook) and name[0].islower()]
    return _not_callable(plugin, "target", hooks)


def _optimizer_problem(plugin: Any) -> Problem | None:
    missing = [name for name in _OPTIMIZER if not hasattr(plugin, name)]
    if missing:
        wanted = f"{', '.join(_OPTIMIZER[:-1])} and {_OPTIMIZER[-1]}"
        return Problem(f"no attribute {', '.join(missing)}", wanted, "See bespoke.contracts.Optimizer")
    return _not_callable(plugin, "optimizer", ["train_step"])


def _not_callable(plugin: Any, kind: Kind, names: list[str]) -> Problem | None:
    for name in names:
        if not callable(getattr(plugin, name)):
            value = shown(getattr(plugin, name))
            return Problem(f"{name} = {value}", "a method", f"See bespoke.contracts.{kind.title()}")
    return None


def _options_problem(options_class: Any, subject: str, given: Settings | None) -> Problem | None:
    if not (isinstance(options_class, type) and issubclass(options_class, Settings)):
        return Problem(
            f"Options = {shown(options_class)}", "a subclass of bespoke.contracts.Settings", "Derive it from Settings"
        )
    try:
        options = settings_from(options_class, subject, {}) if given is None else given
    except ConfigError as error:
        return Problem(f"options without a default: {error}", "a default for every option", "Give the field a default")
    try:
        settings_from(options_class, subject, {"no_such_option": 1})
    except ConfigError:
        pass
    else:
        return Problem(
            "an unknown option taken in silence", "a ConfigError that names it", "Keep extra='forbid' of Settings"
        )
    try:
        json.dumps(options.model_dump())
    except TypeError as error:
        return Problem(f"options that JSON cannot hold: {error}", "numbers, texts and lists", "Change the field")
    return None


def _promise_problem(plugin: Any) -> Problem | None:
    promise, known = plugin.promises, get_args(Promise)
    if promise is not None and promise not in known:
        words = f"{', '.join(map(repr, known))} or None"
        return Problem(
            f"promises = {shown(promise)}", words, "Set promises = None if golden vectors are to hold it to nothing"
        )
    options = PROMISED_OPTIONS.get(promise or "")
    if options is not None and not (isinstance(plugin.Options, type) and issubclass(plugin.Options, options)):
        return Problem(
            f"promises = '{promise}' with Options = {shown(plugin.Options)}",
            f"Options derived from bespoke.methods.{options.__name__}",
            "Derive them: their fields say what the differences are; or set promises = None",
        )
    return None


def _costs_problem(plugin: Any) -> Problem | None:
    costs = plugin.costs
    taken = isinstance(costs, Costs) and min(costs.constant_bytes, costs.record_bytes) >= 0
    if taken and min(vars(costs.speed).values()) > 0:
        return None
    return Problem(
        f"costs = {shown(costs)}",
        "bespoke.contracts.Costs of bytes from 0 up and speeds above 0",
        "Measure what the runtime takes when it runs nothing; TORCH_COSTS are those of the engine torch",
    )
