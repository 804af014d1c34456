# SPDX-License-Identifier: Apache-2.0
"""Compiles a graph for a target. If the target cannot, the error names the installed targets that can."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bespoke import plugins
from bespoke.config import Settings
from bespoke.contracts import Artifact, Baked, Target
from bespoke.errors import BespokeError, Unsupported
from bespoke.graph.trace import Graph


def lower(target: Target, options: Settings, graph: Graph, folder: Path, baked: Baked | None = None) -> Artifact:
    """Returns the artifact of `graph`. Raises Unsupported naming graph, operator, reason and the targets that can."""
    try:
        return target.lower(graph, folder, options, baked)
    except Unsupported as error:
        able = ", ".join(targets_that_can(graph, besides=target.name)) or "none of the installed ones"
        raise Unsupported(
            error.subject,
            got=error.got,
            expected=error.expected,
            next_step=error.next_step + f". Targets that can compile this graph: {able}",
        ) from error


def targets_that_can(graph: Graph, besides: str) -> list[str]:
    """Names of the installed targets that compile the graph with their default options."""
    able = []
    for name in sorted(p.split(" ", 1)[1] for i in plugins.installed() for p in i.provides if p.startswith("target ")):
        if name == besides:
            continue
        try:
            target = plugins.get("target", name)
            if not target.compiles:
                continue
            with tempfile.TemporaryDirectory() as folder:
                target.lower(graph, Path(folder), target.Options())
        except BespokeError:
            continue
        able.append(name)
    return able
