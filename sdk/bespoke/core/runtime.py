# SPDX-License-Identifier: Apache-2.0
"""The core as a runtime of PersonalModel: whether it can be chosen, requests to it, and its reports as the SDK's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from bespoke.core.answer_child import AnsweringChild, ChildSession
from bespoke.core.answers import Generation
from bespoke.core.child import Orders, run
from bespoke.core.finding import find
from bespoke.core.handle import Place, Request
from bespoke.core.process import Child
from bespoke.errors import ConfigError, MissingDependency
from bespoke.rules.report import STAGES, Evaluation, JudgedStep, Listener, MemoryReport, RuntimeName, TrainReport

__all__ = ["TARGET", "CoreRuntime", "RuntimeName", "chosen_runtime", "limit_megabytes"]

TARGET = "executorch"  # whose artifacts the core runs where no other engine is named


def chosen_runtime(asked: str | None, targets: Sequence[str], engine: str | None = None) -> RuntimeName:
    """`asked`, or by default the core where it can run a bundle for these targets. Raises where what was asked for cannot.

    engine: the target whose artifacts the core is to run; naming one asks for the core
    """
    if asked not in (None, "core", "torch"):
        raise ConfigError(
            "runtime", got=repr(asked), expected="'core' or 'torch'", next_step="Name one of them, or none"
        )
    if engine is not None and asked == "torch":
        raise ConfigError(
            f"engine '{engine}'",
            got="the runtime 'torch'",
            expected="the runtime 'core', whose engines have names",
            next_step="Leave out one of the two",
        )
    wanted = engine or TARGET
    if engine is None and (asked == "torch" or (asked is None and wanted not in targets)):
        return "torch"
    core = find()
    if asked is None and engine is None:
        return "core" if core.path is not None else "torch"
    if wanted not in targets:
        raise ConfigError(
            "runtime 'core'" if engine is None else f"engine '{engine}'",
            got=f"a bundle for {', '.join(targets)}",
            expected=f"a bundle for the target '{wanted}'",
            next_step=f"Build it with targets='{wanted}', or train it with the runtime 'torch'",
        )
    if core.path is None:
        raise MissingDependency(
            "runtime 'core'",
            got=core.reason,
            expected="a core that runs here",
            next_step=core.next_step,
        )
    return "core"


class CoreRuntime:
    """Requests to the core, in processes of its own, for one bundle and one user's state."""

    def __init__(self, place: Place, memory_bytes: int | None, engine: str | None = None) -> None:
        """engine: whose artifacts the core runs, from a library of that name; None: its own"""
        self._memory_bytes = memory_bytes
        self._share = 1.0
        self._running: Orders | None = None
        self._request = {
            "bundle": str(place.bundle.absolute()),
            "state": str(place.state.absolute()),
            "pin_sha256": place.pin_sha256,
            "public_key": None if place.public_key is None else place.public_key.hex(),
            "threads": _threads(),
            "engine": None if engine == TARGET else engine,
        }
        self._answering = AnsweringChild(self._started)

    def close(self) -> None:
        """Ends its sessions."""
        self._answering.close()

    def train(
        self, asked: Request, seconds: float | None, on_progress: Listener | None, stop: Callable[[], bool] | None
    ) -> TrainReport:
        return train_report(self._ask(_training(asked, seconds), on_progress, stop))

    def training(self, asked: Request, seconds: float | None) -> dict[str, Any]:
        """The whole request of `train`, for who starts the process and listens to it."""
        return self._whole(_training(asked, seconds), self._memory_bytes)

    def evaluate(self, split: str, examples: Sequence[str] | None = None) -> Evaluation:
        """Of the user's examples of a split, or of these, each a JSON text."""
        given = {} if examples is None else {"examples": [json.loads(example) for example in examples]}
        return evaluation(self._ask({"verb": "evaluate", "split": split, **given}))

    def verify(self) -> dict[str, Any]:
        """{"golden": whether there are any, "files", "checks": [...], "seconds", "texts_skipped"}."""
        return self._ask({"verb": "verify"})

    def open_session(self, generation: Generation) -> ChildSession:
        session = self._answering.open(generation)
        self._answering.tell(_pace(self._share))
        return session

    def judge(self, what: str, prompt: str, answers: str) -> Any:
        """ "score" or "classify": what the core found."""
        return self._answering.judge(what, prompt, answers)

    def set_limit(self, memory_bytes: int | None) -> None:
        """From now on, also of a call that runs, which keeps within what the system allows it."""
        self._memory_bytes = memory_bytes
        self._tell({"do": "limit", "memory_mb": limit_megabytes(memory_bytes)})

    def set_pace(self, share: float) -> None:
        self._share = share
        self._tell(_pace(share))

    def _tell(self, change: Mapping[str, Any]) -> None:
        if (running := self._running) is not None:
            running.put(change)
        self._answering.tell(change)

    def _started(self) -> Child:
        """A process that answers, under the limit of now."""
        limit = self._memory_bytes
        return Child(self._whole({"verb": "answer"}, limit), limit)

    def _whole(self, more: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
        return {**self._request, "memory_mb": limit_megabytes(limit), **more}

    def _ask(
        self, more: dict[str, Any], on_progress: Listener | None = None, stop: Callable[[], bool] | None = None
    ) -> dict[str, Any]:
        orders = Orders()
        if self._share < 1:
            orders.put(_pace(self._share))
        self._running, limit = orders, self._memory_bytes
        try:
            return run(self._whole(more, limit), limit, on_progress, stop, orders)
        finally:
            self._running = None


def _training(asked: Request, seconds: float | None) -> dict[str, Any]:
    return {
        "verb": "train",
        "method": asked.method,
        "steps": asked.steps or 0,
        "seed": asked.seed,
        "deadline_seconds": seconds or 0.0,
        "settings": dict(asked.settings or {}),
    }


def _pace(share: float) -> dict[str, Any]:
    return {"do": "pace", "share": share}


def limit_megabytes(size: int | None) -> float:
    """A limit in bytes as the core takes it, to which 0 is the bundle's budget."""
    return -1.0 if size is None else max(1, size) / 1e6


def _threads() -> int:
    """As many as torch would be given by the same variable; 0: as many as there are processors."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdigit() else 0


_OF_THE_PARENT = ("enforced_by",)  # what the core cannot know: the parent enforces its limit


def fields_of_the_core(report: type) -> tuple[str, ...]:
    """What the core fills of a report or record: bindings/schema/*.inc and *.schema.json are written from it."""
    return tuple(item.name for item in fields(report) if item.name not in _OF_THE_PARENT)


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
        "judgements": tuple(JudgedStep(one["step"], _number(one["loss"], "inf")) for one in taken["judgements"]),
        "memory_columns": {name: tuple(column) for name, column in taken["memory_columns"].items()},
    }
    return TrainReport(**{**taken, **converted})


def evaluation(found: Mapping[str, Any]) -> Evaluation:
    taken = _taken(Evaluation, found)
    means = {"loss": _number(taken["loss"]), "accuracy": _number(taken["accuracy"])}
    return Evaluation(**{**taken, **means, "perplexity": _number(taken["perplexity"], "inf")})


def _taken(report: type, found: Mapping[str, Any]) -> dict[str, Any]:
    """What the core filled of a report, by the names of its fields."""
    return {name: found[name] for name in fields_of_the_core(report)}


def _number(value: float | None, otherwise: str = "nan") -> float:
    return float(otherwise) if value is None else float(value)
