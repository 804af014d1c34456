# SPDX-License-Identifier: Apache-2.0
"""Settings of a run: those it was started with, or the bundle's with what is overridden. Checked alike for every runtime, before
anything is done; bindings/native/src/train/training.cpp checks them once more, for those who call the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bespoke.bundle.manifest import MethodRecord
from bespoke.bundle.reader import Bundle
from bespoke.config import Training, settings_from
from bespoke.errors import ConfigError, StateError
from bespoke.format.json_strict import shown_json
from bespoke.state.records import Run


def settings_of_run(
    bundle: Bundle, current: Run | None, steps: int | None, method: str | None, seed: int | None, overrides: Mapping[str, Any]
) -> tuple[MethodRecord, Training]:
    """Method and settings of the run that a call would go on with, which is `current` unless another method is asked for, or start.

    Raises ConfigError, with everything that is wrong; changes nothing.
    """
    given = {name: value for name, value in (("steps", steps), ("seed", seed)) if value is not None}
    if current is not None and method in (None, current.method):
        kept = stored_training(current, method_of(bundle, current.method)).model_dump()
        settings_from(Training, "train", {**kept, **overrides, **given})
        if settings_from(Training, "train", {**kept, **overrides}) != Training(**kept) or seed not in (None, current.seed):
            other = [*overrides, *(["seed"] if seed is not None else [])]
            raise ConfigError(
                f"run {current.id}",
                got=f"other settings ({', '.join(other)}) for an unfinished run",
                expected="the settings it was started with",
                next_step="Continue it without them, or call abandon_run() and train again",
            )
        return method_of(bundle, current.method), Training(**kept)
    record = method_of(bundle, method)
    training = settings_from(Training, "train", {**record.training.model_dump(), **overrides, **given})
    assert isinstance(training, Training)
    training = training.model_copy(update={"seed": record.training.seed})  # the run keeps its own seed, apart from its settings
    _refuse_what_is_compiled(record.training, training)
    return record, training


def method_of(bundle: Bundle, name: str | None) -> MethodRecord:
    """The named method, by default the first of the bundle."""
    methods = {method.name: method for method in bundle.manifest.methods}
    if name is None:
        return bundle.manifest.methods[0]
    if name not in methods:
        raise ConfigError(
            f"method '{name}'",
            got="no method of that name in the bundle",
            expected=f"one of {', '.join(methods)}",
            next_step="Name one of them, or build the bundle with it",
        )
    return methods[name]


def stored_training(run: Run, record: MethodRecord) -> Training:
    """The settings that the run was started with. StateError where they are none, or none that the bundle's plans can run."""

    def damaged(got: str, expected: str) -> StateError:
        subject = f"settings of run {run.id}"
        return StateError(subject, got=got, expected=expected, next_step="The state is damaged; abandon the run")

    kept = run.settings.get("training") if isinstance(run.settings, dict) else None
    if not isinstance(kept, dict):
        raise damaged("no training settings", "those it was started with")
    if run.seed < 0:
        raise damaged(f"seed {run.seed}", "0 or more")
    try:
        training = settings_from(Training, "training", kept)
        assert isinstance(training, Training)
        _refuse_what_is_compiled(record.training, training)
    except ConfigError as error:
        raise damaged(f"{error.subject} {error.got}", error.expected) from None
    return training


def _refuse_what_is_compiled(built: Training, asked: Training) -> None:
    """Batch size, lengths and accumulation or not are in the plans."""
    for name in ("batch_size", "sequence_lengths", "clip_norm", "packing"):
        if getattr(built, name) != getattr(asked, name):
            raise ConfigError(
                f"train.{name}", got=shown_json(getattr(asked, name)),
                expected=f"{shown_json(getattr(built, name))}, which the bundle was built for",
                next_step="Build a bundle with the other value",
            )  # fmt: skip
    if built.accumulates != asked.accumulates:
        raise ConfigError(
            "train.accumulation", got=str(asked.accumulation),
            expected=f"{built.accumulation}, or another number above 1 if that is",
            next_step="Build the bundle with accumulation",
        )  # fmt: skip
