# SPDX-License-Identifier: Apache-2.0
"""The core as a runtime of PersonalModel: whether it can be chosen, requests to it, and its reports as the SDK's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bespoke.core.child import run
from bespoke.core.finding import find
from bespoke.errors import ConfigError, MissingDependency
from bespoke.rules.report import STAGES, Evaluation, MemoryReport, RuntimeName, TrainReport

__all__ = ["TARGET", "CoreRuntime", "RuntimeName", "chosen_runtime"]

TARGET = "executorch"  # whose artifacts the core runs


def chosen_runtime(asked: str | None, targets: Sequence[str]) -> RuntimeName:
    """`asked`, or by default the core where it can run a bundle for these targets. Raises where what was asked for cannot."""
    if asked not in (None, "core", "torch"):
        raise ConfigError("runtime", got=repr(asked), expected="'core' or 'torch'", next_step="Name one of them, or none")
    if asked == "torch" or (asked is None and TARGET not in targets):
        return "torch"
    core = find()
    if asked is None:
        return "core" if core.path is not None else "torch"
    if TARGET not in targets:
        raise ConfigError(
            "runtime 'core'", got=f"a bundle for {', '.join(targets)}", expected=f"a bundle for the target '{TARGET}'",
            next_step=f"Build it with targets='{TARGET}', or train it with the runtime 'torch'",
        )  # fmt: skip
    if core.path is None:
        raise MissingDependency(
            "runtime 'core'", got=core.reason, expected="a core that runs here",
            next_step=f"{core.next_step}. Or use the runtime 'torch'",
        )  # fmt: skip
    return "core"


class CoreRuntime:
    """Requests to the core for one bundle and one user's state."""

    def __init__(
        self, bundle: Path, state: Path, manifest_sha256: str, public_key: bytes | None, memory_bytes: int | None
    ) -> None:
        self._memory_bytes = memory_bytes
        self._request = {
            "bundle": str(bundle.absolute()),
            "state": str(state.absolute()),
            "pin_sha256": manifest_sha256,  # what was opened here is what is trained there
            "public_key": None if public_key is None else public_key.hex(),
            "memory_mb": -1.0 if memory_bytes is None else memory_bytes / 1e6,
            "threads": _threads(),
        }

    def train(
        self, steps: int | None, seconds: float | None, method: str | None, seed: int | None, stop: Callable[[], bool] | None,
        on_step: Callable[[int, float], None] | None, overrides: Mapping[str, Any],
    ) -> TrainReport:  # fmt: skip
        asked = {"verb": "train", "method": method, "steps": steps or 0, "seed": seed, "deadline_seconds": seconds or 0.0}
        return train_report(self._ask({**asked, "settings": dict(overrides)}, on_step, stop))

    def evaluate(self, split: str) -> Evaluation:
        found = _taken(Evaluation, self._ask({"verb": "evaluate", "split": split}))
        means = {"loss": _number(found["loss"]), "accuracy": _number(found["accuracy"])}
        return Evaluation(**{**found, **means, "perplexity": _number(found["perplexity"], "inf")})

    def verify(self) -> dict[str, Any]:
        """{"golden": whether there are any, "files", "checks": [...], "seconds", "texts_skipped"}."""
        return self._ask({"verb": "verify"})

    def _ask(
        self, more: dict[str, Any], on_step: Callable[[int, float], None] | None = None, stop: Callable[[], bool] | None = None
    ) -> dict[str, Any]:
        return run({**self._request, **more}, self._memory_bytes, on_step, stop)


def _threads() -> int:
    """As many as torch would be given by the same variable; 0: as many as there are processors."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdigit() else 0


# What the core calls otherwise, and what it cannot know: the parent enforces its limit.
_OTHER_NAMES = {"memory_columns": "memory_columns_over_time"}
_OF_THE_PARENT = ("enforced_by",)


def fields_of_the_core(report: type) -> dict[str, str]:
    """Field of a report -> its name in what the core reports: bindings/schema/*.inc are written from it."""
    return {item.name: _OTHER_NAMES.get(item.name, item.name) for item in fields(report) if item.name not in _OF_THE_PARENT}


def train_report(found: Mapping[str, Any]) -> TrainReport:
    """The core's report as the SDK's; a number that is not finite is null in JSON."""
    taken = _taken(TrainReport, found)
    stages = taken["seconds_by_stage"]
    converted = {
        "losses": tuple(_number(loss) for loss in taken["losses"]),
        "step_peak_bytes": tuple(taken["step_peak_bytes"]),
        "step_seconds": tuple(taken["step_seconds"]),
        "memory": MemoryReport(**_taken(MemoryReport, taken["memory"]), enforced_by=found["enforced_by"]),
        "seconds_by_stage": {stage: stages.get(stage, 0.0) for stage in STAGES},
        "memory_columns": {name: tuple(column) for name, column in taken["memory_columns"].items()},
    }
    return TrainReport(**{**taken, **converted})


def _taken(report: type, found: Mapping[str, Any]) -> dict[str, Any]:
    """What the core filled of a report, by the names of its fields."""
    return {field: found[name] for field, name in fields_of_the_core(report).items()}


def _number(value: float | None, otherwise: str = "nan") -> float:
    return float(otherwise) if value is None else float(value)
