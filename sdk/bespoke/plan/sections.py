# SPDX-License-Identifier: Apache-2.0
"""The sections that a plan has together, and what follows from one section for another."""

from __future__ import annotations

from bespoke.plan.instructions import Emit, Plan, SectionName
from bespoke.plan.kinds import MAX_DECODE_ROWS
from bespoke.plan.values import refuse


def check_sections(plan: Plan, where: str) -> None:
    """Raises PlanError where a section is missing that others need."""
    sections = set(plan.sections)
    names = ", ".join(plan.sections)
    if not {"train_step", "micro_step", "prefill"} & sections:
        expected = "train_step, or micro_step and apply_step, or prefill and decode"
        refuse(where, "sections", names or "none", expected)
    for one, other in (("micro_step", "apply_step"), ("federated_measure", "federated_apply")):
        if (one in sections) != (other in sections):
            refuse(where, "sections", names, f"{one} and {other} together")
    if "federated_project" in sections and "federated_measure" not in sections:
        refuse(where, "sections", names, "federated_project with federated_measure")


def sends(plan: Plan, section: SectionName) -> bool:
    """Whether the section sends a measurement: federated_project, or federated_measure where there is none."""
    return section == ("federated_project" if "federated_project" in plan.sections else "federated_measure")


def decode_rows(plan: Plan) -> int | None:
    """The number of tokens that section `decode_rows` takes at once: that of the columns of its first logits."""
    for emit in plan.sections.get("decode_rows", ()):
        if isinstance(emit, Emit) and emit.name == "logits" and 0 <= emit.source < len(plan.values):
            shape = plan.values[emit.source].shape
            return shape[1] if len(shape) == 2 and 2 <= shape[1] <= MAX_DECODE_ROWS else None
    return None
