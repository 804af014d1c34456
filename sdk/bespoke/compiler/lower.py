# SPDX-License-Identifier: Apache-2.0
"""Asks a target to compile a graph; where it cannot, says which of the installed ones can."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bespoke import plugins
from bespoke.config import Settings
from bespoke.contracts import Artifact, Baked, CompilingTarget
from bespoke.errors import BespokeError, Unsupported
from bespoke.graph.trace import Graph


def lower(
    target: CompilingTarget, options: Settings, graph: Graph, folder: Path, baked: Baked | None = None
) -> Artifact:
    """The artifact of `graph`. Raises Unsupported naming graph, operator, reason and the targets that can."""
    try:
        if baked is None:
            return target.lower(graph, folder, options)
        return target.lower(graph, folder, options, baked)  # type: ignore[call-arg]  # of a BakingTarget
    except Unsupported as error:
        able = ", ".join(targets_that_can(graph, besides=target.name)) or "none of the installed ones"
        raise Unsupported(
            error.subject,
            got=error.got,
            expected=error.expected,
            next_step=f"{error.next_step}. Targets that can compile this graph: {able}",
        ) from error


def targets_that_can(graph: Graph, besides: str) -> list[str]:
    """Installed targets that compile the graph with their default options."""
    able = []
    for name in sorted(p.split(" ", 1)[1] for i in plugins.installed() for p in i.provides if p.startswith("target ")):
        if name == besides:
            continue
        try:
            target = plugins.get("target", name)
            if not isinstance(target, CompilingTarget):
                continue
            with tempfile.TemporaryDirectory() as folder:
                target.lower(graph, Path(folder), target.Options())
        except BespokeError:
            continue
        able.append(name)
    return able
