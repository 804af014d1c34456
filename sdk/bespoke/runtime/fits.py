# SPDX-License-Identifier: Apache-2.0
"""What stands in two places is the same: a method's settings and its plans, plans and each other, plans and the bundle.

A plan alone may be sound and still be run with a batch, a state or weights of other sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NoReturn

from bespoke.bundle.manifest import Manifest, MethodRecord
from bespoke.errors import PlanError
from bespoke.plan.arena import aligned
from bespoke.plan.kinds import MAX_REGION_BYTES
from bespoke.runtime.code import EmitCode, GroupCode, PlanCode, ValuePlace

BOUND_ALWAYS = ("learning_rate", "step", "batch_tokens", "position")
TABLES = ("embedding.table", "head.table")  # of the vocabulary


def check_method(method: MethodRecord, plans: Mapping[str, PlanCode], manifest: Manifest) -> None:
    """`plans` by their files. Raises PlanError naming file and field."""
    _Checker(method, manifest).check(plans)


class _Checker:
    def __init__(self, method: MethodRecord, manifest: Manifest) -> None:
        self.method, self.manifest = method, manifest
        self.subject = f"method '{method.name}'"
        self.shapes: dict[str, str] = {}
        self.seen: set[str] = set()
        self.totals: dict[str, int] = {}
        self.groups = {record.group for record in manifest.weights}

    def check(self, plans: Mapping[str, PlanCode]) -> None:
        asked = sorted(self.method.training.sequence_lengths)
        there = sorted(plan.sequence_length for plan in plans.values())
        if asked != there:
            self._refuse("training.sequence_lengths", str(asked), f"{there}, which it has plans for")
        lengths = {record.file: record.sequence_length for record in self.method.plans}
        for file, plan in plans.items():
            self.subject = file
            self._check_plan(plan, lengths[file])
            for number, value in enumerate(plan.values):
                if value.kind == "named":
                    self._check_named(value, str(value.where), f"value {number}, '{value.where}'")
            self._check_code(plan)

    def _check_plan(self, plan: PlanCode, length: int) -> None:
        training = self.method.training
        if plan.method != self.method.name:
            self._refuse("method", f"'{plan.method}'", f"'{self.method.name}', whose plan it is")
        self._same("sequence_length", plan.sequence_length, length, "the manifest")
        self._same("batch_size", plan.batch_size, training.batch_size, "training.batch_size")
        if self.method.replayable and not plan.replayable:
            self._refuse("replayable", "false", "true, as the manifest says")
        needed = "micro_step" if training.accumulates else "train_step"
        if needed not in plan.sections:
            clips = " and clip_norm" if training.clip_norm is not None else ""
            self._refuse("sections", f"no {needed}", f"what training with accumulation {training.accumulation}{clips} runs")

    def _check_named(self, value: ValuePlace, name: str, at: str) -> None:
        if value.role == "scalar" and name not in BOUND_ALWAYS and name not in self.method.scalars:
            self._refuse(at, "a scalar that nobody binds", "one of the method's scalars")
        if value.role in ("scalar", "batch"):
            return
        shape = f"{value.dtype} {list(value.shape)}"
        known = self.shapes.setdefault(name, shape)
        if known != shape:
            self._refuse(at, shape, f"{known}, as in another plan of the method")
        if value.role == "weight":
            group = name.split(".", 1)[0]
            if group not in self.groups:
                self._refuse(at, f"no weight group '{group}' in the bundle", self._known_groups())
            if name.startswith(TABLES) and name.removeprefix(TABLES[0]).removeprefix(TABLES[1])[:1] in ("", "."):
                self._same(f"{at}, rows", value.shape[0], self.manifest.model.config.vocab_size, "vocab_size of the model")
        elif name not in self.seen:
            self.seen.add(name)
            self.totals[value.lifetime] = self.totals.get(value.lifetime, 0) + aligned(value.nbytes)
            if self.totals[value.lifetime] > MAX_REGION_BYTES:
                self._refuse(at, f"more than {MAX_REGION_BYTES} bytes of its lifetime", "fewer")

    def _check_code(self, plan: PlanCode) -> None:
        for section, code in plan.sections.items():
            for instruction in code:
                if isinstance(instruction, GroupCode) and instruction.group not in self.groups:
                    what = f"load of '{instruction.group}'"
                    self._refuse(what, "no weight group of that name in the bundle", self._known_groups())
                if isinstance(instruction, EmitCode) and section == "decode" and instruction.name == "logits":
                    count = math.prod(plan.values[instruction.source[0]].shape)
                    self._same("logits of decode", count, self.manifest.model.config.vocab_size, "vocab_size of the model")

    def _known_groups(self) -> str:
        return f"one of {', '.join(sorted(self.groups))}"

    def _same(self, what: str, got: int, expected: int, of: str) -> None:
        if got != expected:
            self._refuse(what, str(got), f"{expected}, as {of} says")

    def _refuse(self, what: str, got: str, expected: str) -> NoReturn:
        raise PlanError(
            f"{self.subject}: {what}", got=got, expected=expected, next_step="Get the bundle again from where it was built"
        )


__all__ = ["check_method"]
