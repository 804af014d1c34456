# SPDX-License-Identifier: Apache-2.0
"""Checks that plans fit together: with the settings of their method, with each other, and with the bundle. They also check that a
plan has the sections that will be run: those for training and evaluation, or those for answers.

A plan may be valid on its own and still be run with a batch, a state or weights of other sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NoReturn

from bespoke.bundle.manifest import Manifest
from bespoke.bundle.plan_records import MethodRecord, PlanRecord
from bespoke.errors import PlanError
from bespoke.plan.arena import aligned
from bespoke.plan.instructions import SectionName
from bespoke.plan.kinds import FEDERATED, FEDERATED_SCALARS, GENERATION, MAX_REGION_BYTES
from bespoke.reference.code import EmitCode, GroupCode, PlanCode, ValuePlace

BOUND_ALWAYS = ("learning_rate", "step", "batch_tokens", "position", *FEDERATED_SCALARS)
TABLES = ("embedding.table", "head.table")  # tables with a row for each token of the vocabulary
Sections = tuple[SectionName, ...]
ANSWERING: Sections = ("prefill", "decode")
MAY_ANSWER: Sections = (*ANSWERING, "decode_rows")
TRAINING: Sections = ("train_step", "micro_step", "apply_step", "finish", "evaluate_step", *FEDERATED)


def check_method(method: MethodRecord, plans: Mapping[str, PlanCode], manifest: Manifest) -> None:
    """Raises PlanError, naming file and field, if a method's plans do not fit. `plans` has them by file."""
    _MethodChecker(method, manifest).check(plans)


def check_generation(record: PlanRecord, plan: PlanCode, manifest: Manifest) -> None:
    """Raises PlanError, naming file and field, if the plan for answers does not fit."""
    checker = _Checker(manifest, record.file, {})
    checker.check_plan(plan, record, GENERATION, MAY_ANSWER)
    if plan.batch_size != 1:
        checker.refuse("batch_size", str(plan.batch_size), "1, as an answer is one row")
    checker.need(plan, ANSWERING, "prefill and decode, which an answer runs")
    checker.check_parts(plan)


IN_ALL_OR_NONE: Sections = ("finish", "federated_measure", "federated_project")  # of a method's plans


class _Checker:
    """The checks of any plan. `scalars` are bound by name in addition to BOUND_ALWAYS."""

    def __init__(self, manifest: Manifest, subject: str, scalars: Mapping[str, float]) -> None:
        self.manifest, self.subject, self.scalars = manifest, subject, scalars
        self.shapes: dict[str, str] = {}
        self.seen: set[str] = set()
        self.totals: dict[str, int] = {}
        self.groups = {record.group for record in manifest.weights}

    def check_plan(self, plan: PlanCode, record: PlanRecord, method: str, known: Sections) -> None:
        """Checks a plan against its record. `known` are the sections that it may have."""
        if plan.method != method:
            self.refuse("method", f"'{plan.method}'", f"'{method}', whose plan it is")
        self.same("sequence_length", plan.sequence_length, record.sequence_length, "the manifest")
        for section in plan.sections:
            if section not in known:
                self.refuse("sections", section, f"no others than {', '.join(known)}")

    def need(self, plan: PlanCode, sections: Sections, why: str) -> None:
        """Refuses a plan that lacks one of the sections."""
        for section in sections:
            if section not in plan.sections:
                self.refuse("sections", f"no {section}", why)

    def check_parts(self, plan: PlanCode) -> None:
        """Checks the named values and the instructions of a plan."""
        for number, value in enumerate(plan.values):
            if value.kind == "named":
                self._check_named(value, str(value.where), f"value {number}, '{value.where}'")
        self._check_code(plan)

    def _check_named(self, value: ValuePlace, name: str, at: str) -> None:
        if value.role == "scalar" and name not in BOUND_ALWAYS and name not in self.scalars:
            self.refuse(at, "a scalar that nobody binds", "one of the method's scalars")
        if value.role in ("scalar", "batch"):
            return
        shape = f"{value.dtype} {list(value.shape)}"
        known = self.shapes.setdefault(name, shape)
        if known != shape:
            self.refuse(at, shape, f"{known}, as in another plan of the method")
        if value.role == "weight":
            group = name.split(".", 1)[0]
            if group not in self.groups:
                self.refuse(at, f"no weight group '{group}' in the bundle", self._known_groups())
            if name.startswith(TABLES) and name.removeprefix(TABLES[0]).removeprefix(TABLES[1])[:1] in ("", "."):
                self.same(
                    f"{at}, rows", value.shape[0], self.manifest.model.config.vocab_size, "vocab_size of the model"
                )
        elif name not in self.seen:
            self.seen.add(name)
            self.totals[value.lifetime] = self.totals.get(value.lifetime, 0) + aligned(value.nbytes)
            if self.totals[value.lifetime] > MAX_REGION_BYTES:
                self.refuse(at, f"more than {MAX_REGION_BYTES} bytes of its lifetime", "fewer")

    def _check_code(self, plan: PlanCode) -> None:
        for section, code in plan.sections.items():
            for instruction in code:
                if isinstance(instruction, GroupCode) and instruction.group not in self.groups:
                    what = f"load of '{instruction.group}'"
                    self.refuse(what, "no weight group of that name in the bundle", self._known_groups())
                if isinstance(instruction, EmitCode) and instruction.name == "logits":
                    self._check_logits(section, plan.values[instruction.source[0]].shape)

    def _check_logits(self, section: SectionName, shape: tuple[int, ...]) -> None:
        """Refuses logits of an answer that are not one for each token of the vocabulary."""
        if section in ("decode", "decode_rows"):
            count = shape[0] if section == "decode_rows" else math.prod(shape)
            vocabulary = self.manifest.model.config.vocab_size
            self.same(f"logits of {section}", count, vocabulary, "vocab_size of the model")

    def _known_groups(self) -> str:
        return f"one of {', '.join(sorted(self.groups))}"

    def same(self, what: str, got: int, expected: int, source: str) -> None:
        """Refuses a number that differs from the one in `source`."""
        if got != expected:
            self.refuse(what, str(got), f"{expected}, as {source} says")

    def refuse(self, what: str, got: str, expected: str) -> NoReturn:
        raise PlanError(
            f"{self.subject}: {what}",
            got=got,
            expected=expected,
            next_step="Get the bundle again from where it was built",
        )


class _MethodChecker(_Checker):
    """The checks of all plans of a method together."""

    def __init__(self, method: MethodRecord, manifest: Manifest) -> None:
        super().__init__(manifest, f"method '{method.name}'", method.scalars)
        self.method = method

    def check(self, plans: Mapping[str, PlanCode]) -> None:
        training = self.method.training
        lengths = sorted(training.sequence_lengths)
        planned = sorted(plan.sequence_length for plan in plans.values())
        if lengths != planned:
            self.refuse("training.sequence_lengths", str(lengths), f"{planned}, which it has plans for")

        needed: Sections = (training.step_section,)
        clips = " and clip_norm" if training.clip_norm is not None else ""
        # Before format 1.2, every plan of a method could answer.
        known = TRAINING if self.manifest.generation is not None else TRAINING + ANSWERING

        records = {record.file: record for record in self.method.plans}
        for file, plan in plans.items():
            self.subject = file
            self.check_plan(plan, records[file], self.method.name, known)
            self.same("batch_size", plan.batch_size, training.batch_size, "training.batch_size")
            self.need(plan, needed, f"what training with accumulation {training.accumulation}{clips} runs")
            if self.method.replayable and not plan.replayable:
                self.refuse("replayable", "false", "true, as the manifest says")
            self.check_parts(plan)
            for section in IN_ALL_OR_NONE:
                if (section in plan.sections) != (section in next(iter(plans.values())).sections):
                    expected = "it in all or none: one run may be stepped by all of them"
                    self.refuse("sections", f"{section} in some plans of the method", expected)


__all__ = ["check_generation", "check_method"]
