# SPDX-License-Identifier: Apache-2.0
"""Compiles a graph for a target. If the target cannot, the error names the installed targets that can.

A graph without weights is compiled once in a process: an estimate and the builds after it need the same artifacts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

from bespoke import plugins
from bespoke.config import Settings
from bespoke.contracts import Artifact, Baked, Target
from bespoke.errors import BespokeError, Unsupported
from bespoke.graph.trace import Graph

MOST_COMPILED = 1000  # artifacts that are kept, of some 10 KB each: a bundle has some hundred
_compiled: dict[Hashable, tuple[Artifact, bytes]] = {}


def lower(target: Target, options: Settings, graph: Graph, folder: Path, baked: Baked | None = None) -> Artifact:
    """Returns the artifact of `graph`. Raises Unsupported naming graph, operator, reason and the targets that can."""
    if baked is not None:
        return _lower(target, options, graph, folder, baked)
    key = type(target), options.model_dump_json(), graph.key, graph.name
    if key not in _compiled:
        artifact = _lower(target, options, graph, folder, None)
        if len(_compiled) >= MOST_COMPILED:
            del _compiled[next(iter(_compiled))]
        _compiled[key] = artifact, artifact.path.read_bytes()
        return artifact
    artifact, data = _compiled[key]
    path = folder / artifact.path.name
    path.write_bytes(data)
    return replace(artifact, path=path)


def _lower(target: Target, options: Settings, graph: Graph, folder: Path, baked: Baked | None) -> Artifact:
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
