# SPDX-License-Identifier: Apache-2.0
"""Turns the developer's arguments into a build request: finds plugins by name, checks options and settings, reports all problems at
once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from pydantic import BaseModel, ValidationError

from bespoke import arguments, plugins
from bespoke.compiler.request import BuildArguments, BuildRequest, Method, TargetChoice
from bespoke.config import Budget, Federation, Lora, Settings, Training, config_problems
from bespoke.errors import BespokeError, ConfigError, MissingDependency, shown
from bespoke.plan.kinds import MAX_DECODE_ROWS
from bespoke.remedies import setting

if TYPE_CHECKING:
    from bespoke.contracts import Optimizer, Target

__all__ = ["Named", "resolve"]

Named = str | Sequence[str] | Mapping[str, Mapping[str, Any]]
"""One or several names, or name -> options."""


def resolve(optimizers: Named, targets: Named, given: BuildArguments) -> BuildRequest:
    """Returns the build request.

    Raises ConfigError with all problems, and MissingDependency for a plugin whose package is not installed.

    Args:
        optimizers: the methods, by name.
        targets: the targets, by name.
        given: the other fields of the request.
    """
    problems = _wrong_kinds(given)
    if problems:  # wrong types come before wrong values
        raise ConfigError.from_problems(problems)
    train_on, training = given.train_on, given.training
    methods: list[Method] = []
    chosen: list[TargetChoice] = []
    if not isinstance(train_on, str) or train_on not in arguments.TRAIN_ON:
        *others, last = map(repr, arguments.TRAIN_ON)
        choices = f"{', '.join(others)} or {last}"
        problems.append(ConfigError(setting("train_on"), got=shown(train_on), expected=choices, next_step="Choose one"))
    for name, values in _by_name("optimizers", optimizers, problems, may_be_none=True):
        plugin = _plugin("optimizer", name, problems)
        if plugin is None:
            continue
        shared = {key: value for key, value in values.items() if key in Training.model_fields}
        own = {key: value for key, value in values.items() if key not in shared}
        options = _settings(f"optimizers.{name}", plugin.Options, own, problems, Training.model_fields)
        overridden = {**training.model_dump(), **_method_defaults(options, training), **shared}
        own_training = _settings(f"optimizers.{name}", Training, overridden, problems)
        if isinstance(options, Settings) and isinstance(own_training, Training):
            methods.append(Method(name, plugin, options, own_training))
    for name, values in _by_name("targets", targets, problems):
        target = _plugin("target", name, problems)
        if target is not None:
            options = _settings(f"targets.{name}", target.Options, dict(values), problems)
            if isinstance(options, Settings):
                chosen.append(TargetChoice(name, target, options))
    methods = [_knowing_rounding(method, chosen) for method in methods]
    problems += _refusals(methods, chosen)
    lengths = {method.training.sequence_lengths for method in methods}
    if len(lengths) > 1:
        problems.append(
            ConfigError(
                setting("training.sequence_lengths"),
                got=f"{len(lengths)} different lists",
                expected="one list for all methods",
                next_step="Set " + setting("sequence_lengths") + " in Training only: tokens are cut to them once",
            )
        )
    request = BuildRequest(**vars(given), methods=tuple(methods), targets=tuple(chosen))
    if request.context is not None and request.context < request.sequence_lengths[-1]:
        problems.append(
            ConfigError(
                setting("context"),
                got=shown(request.context),
                expected=f"at least {request.sequence_lengths[-1]}, the longest of " + setting("sequence_lengths"),
                next_step="Raise it, or leave out longer sequences",
            )
        )
    most = min(MAX_DECODE_ROWS, request.context or MAX_DECODE_ROWS) - 1
    if not 0 <= request.draft_tokens <= most:
        problems.append(
            ConfigError(
                setting("draft_tokens"),
                got=shown(request.draft_tokens),
                expected=f"0 to {most}",
                next_step="Change " + setting("draft_tokens"),
            )
        )
    if problems:
        raise ConfigError.from_problems(problems)
    return request


def _refusals(methods: Sequence[Method], targets: Sequence[TargetChoice]) -> list[ConfigError]:
    """Errors of the methods that a target refuses."""
    refusals = [
        (method, target.plugin.refuses(target.options, method.plugin, method.options))
        for target in targets
        for method in methods
    ]
    return [
        ConfigError(f"optimizers.{method.name}", **problem._asdict())
        for method, problem in refusals
        if problem is not None
    ]


def _knowing_rounding(method: Method, targets: Sequence[TargetChoice]) -> Method:
    """The method with `loss_rounding` at least the largest rounding of the targets, unless the developer set it."""
    default = getattr(method.options, "loss_rounding", None)
    if default is None or "loss_rounding" in method.options.model_fields_set:
        return method
    largest = max([default, *(target.plugin.rounding(target.options) for target in targets)])
    return replace(method, options=method.options.model_copy(update={"loss_rounding": largest}))


def _method_defaults(options: Any, training: Training) -> dict[str, Any]:
    """The method's own defaults for the training fields that the developer left open."""
    defaults: Mapping[str, Any] = getattr(options, "training_defaults", {})
    return {name: value for name, value in defaults.items() if name not in training.model_fields_set}


# The types of arguments and their names in an error.
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "model": ((str, Path), "a folder, a GGUF file or a hub id"),
    "data": ((str, Path, type(None)), "a file, 'auto' or None"),
    "tokenizer": ((str, Path, type(None)), "a folder, a hub id or None"),
    "data_format": ((str, type(None)), "the name of a format or None"),
    "fields": ((dict, type(None)), "{what it is: the column that holds it} or None"),
    "encoding": ((str, type(None)), "the name of a text encoding or None"),
    "lora": (Lora, "Lora(...)"),
    "training": (Training, "Training(...)"),
    "budget": (Budget, "Budget(...)"),
    "rehearsal": (bool, "True or False"),
    "text": (bool, "True or False"),
    "context": ((int, type(None)), "a number of tokens or None"),
    "draft_tokens": (int, "a number of tokens"),
    "licence": ((str, type(None)), "text or None"),
    "federation": ((Federation, type(None)), "Federation(...) or None"),
    "template_date": ((str, type(None)), "text or None"),
    "signing_key": ((bytes, type(None)), "the bytes of a PEM file or None"),
}


def _wrong_kinds(given: BuildArguments) -> list[ConfigError]:
    problems = [
        ConfigError(setting(name), got=shown(getattr(given, name)), expected=words, next_step="Change " + setting(name))
        for name, (kinds, words) in _KINDS.items()
        if not isinstance(getattr(given, name), kinds)
    ]
    wrong = {problem.subject for problem in problems}
    for name in _KINDS:
        try:
            if name not in wrong:
                _check_text(name, getattr(given, name))
        except ConfigError as problem:
            problems.append(problem)
    return problems


def _check_text(name: str, value: Any) -> None:
    """Raises ConfigError for a path that no system accepts and for a text that no manifest can hold."""
    if name in ("model", "tokenizer", "data") and value:
        arguments.path(name, value, _KINDS[name][1])
    for text in [*value, *value.values()] if isinstance(value, Mapping) else [value]:
        try:
            if isinstance(text, str):
                text.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                setting(name), got=shown(text), expected="text that UTF-8 can hold", next_step="Change " + setting(name)
            ) from None


def _by_name(
    subject: str, named: Any, problems: list[ConfigError], *, may_be_none: bool = False
) -> list[tuple[str, Mapping[str, Any]]]:
    if isinstance(named, str):
        return [(named, {})]
    empty = isinstance(named, Sequence | Mapping) and not named
    if empty and may_be_none:
        return []
    pairs: list[tuple[Any, Any]] = []
    if isinstance(named, Mapping):
        pairs = [(name, {} if values is None else values) for name, values in named.items()]
    elif isinstance(named, Sequence):
        pairs = [(name, {}) for name in named]
    names = [name for name, _ in pairs]
    named_well = all(isinstance(name, str) and isinstance(values, Mapping) for name, values in pairs)
    if not pairs or not named_well or len(set(names)) < len(names):
        problems.append(
            ConfigError(
                setting(subject),
                got="none" if empty else shown(named),
                expected="at least one name" if empty else "a name, several different ones, or name -> options",
                next_step="Name one in " + setting(subject),
            )
        )
        return []
    return pairs


@overload
def _plugin(kind: Literal["optimizer"], name: str, problems: list[ConfigError]) -> Optimizer | None: ...
@overload
def _plugin(kind: Literal["target"], name: str, problems: list[ConfigError]) -> Target | None: ...
def _plugin(kind: Literal["optimizer", "target"], name: str, problems: list[ConfigError]) -> Optimizer | Target | None:
    try:
        return plugins.get(kind, name)
    except MissingDependency:
        raise  # no setting can fix it
    except BespokeError as error:
        problems.append(ConfigError(error.subject, got=error.got, expected=error.expected, next_step=error.next_step))
        return None


def _settings(
    subject: str,
    kind: type[BaseModel],
    values: dict[str, Any],
    problems: list[ConfigError],
    more_fields: Collection[str] = (),
) -> BaseModel | None:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems += config_problems(subject, error, kind, more_fields)
        return None
