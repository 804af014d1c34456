# SPDX-License-Identifier: Apache-2.0
"""Reads a plan from bytes that may be hostile: size, nesting, schema, version, then every rule that `verify` knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from bespoke.config import expected_of
from bespoke.errors import BundleVersionError, PlanError
from bespoke.format.json_strict import check_strict, loads_strict, shown_json
from bespoke.plan.instructions import MAX_PLAN_BYTES, PLAN_VERSION, Plan
from bespoke.plan.verify import Signature, verify


def read_plan(data: bytes, subject: str, graphs: Iterable[Signature]) -> Plan:
    """The plan, verified against the signatures of the bundle's graphs. Raises PlanError or BundleVersionError."""
    limits: dict[str, Any] = {"subject": subject, "error": PlanError, "max_bytes": MAX_PLAN_BYTES, "max_depth": 12}
    check_strict(data, **limits)
    try:
        plan = Plan.model_validate_json(data)
    except ValidationError as error:
        document = loads_strict(data, **limits)
        _refuse_other_version(document.get("version") if isinstance(document, dict) else None, subject)
        first = error.errors()[0]
        raise PlanError(
            f"{subject}, {'.'.join(str(part) for part in first['loc'])}",
            got=shown_json(first.get("input"), 200),
            expected=expected_of(first),
            next_step="Build the bundle again; the file is damaged or was written by another program",
        ) from None
    _refuse_other_version(plan.version, subject)
    verify(plan, subject, {graph.key: graph for graph in graphs})
    return plan


def _refuse_other_version(version: object, subject: str) -> None:
    """A value that is no version at all is left to the schema."""
    if not isinstance(version, list) or len(version) != 2 or version == list(PLAN_VERSION):
        return
    major, minor = PLAN_VERSION
    if version[0] != major or not isinstance(version[1], int) or not 0 <= version[1] <= minor:
        raise BundleVersionError(
            subject,
            got=f"plan version {shown_json(version)}",
            expected=f"{major}.0 to {major}.{minor}",
            next_step="Update bespoke, or build the bundle again",
        )
