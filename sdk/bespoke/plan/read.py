# SPDX-License-Identifier: Apache-2.0
"""Reads a plan from bytes that may be hostile: size, nesting, schema, version, then every rule that `verify` knows."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from bespoke.bundle.json_strict import loads_strict
from bespoke.errors import BundleVersionError, PlanError
from bespoke.plan.instructions import MAX_PLAN_BYTES, PLAN_VERSION, Plan
from bespoke.plan.verify import Signature, verify


def read_plan(data: bytes, subject: str, graphs: Iterable[Signature]) -> Plan:
    """The plan, verified against the signatures of the bundle's graphs. Raises PlanError or BundleVersionError."""
    document = loads_strict(data, subject=subject, error=PlanError, max_bytes=MAX_PLAN_BYTES, max_depth=12)
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, list) and len(version) == 2 and version != list(PLAN_VERSION):
        major, minor = PLAN_VERSION
        if version[0] != major or not isinstance(version[1], int) or version[1] > minor:
            raise BundleVersionError(
                subject,
                got=f"plan version {version}",
                expected=f"{major}.0 to {major}.{minor}",
                next_step="Update bespoke, or build the bundle again",
            )
    try:
        plan = Plan.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        raise PlanError(
            f"{subject}, {'.'.join(str(part) for part in first['loc'])}",
            got=repr(first.get("input"))[:200],
            expected=first["msg"],
            next_step="Build the bundle again; the file is damaged or was written by another program",
        ) from None
    verify(plan, subject, {graph.key: graph for graph in graphs})
    return plan
