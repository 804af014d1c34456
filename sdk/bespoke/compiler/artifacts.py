# SPDX-License-Identifier: Apache-2.0
"""Artifacts of one target: compiled as plans come to use their graphs, measured, and recorded in the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bespoke.bundle.manifest import ArtifactRecord, TargetRecord
from bespoke.compiler.lower import lower
from bespoke.compiler.request import Progress, TargetChoice
from bespoke.contracts import Artifact, CompilingTarget
from bespoke.graph.trace import Graph
from bespoke.plan.costs import Workspace

__all__ = ["Artifacts"]


class Artifacts:
    """Artifacts of one target. Called with graphs, it compiles those that it has not met, and gives the workspaces of all.

    `folder` is made for the first artifact. Of a target that compiles nothing, workspaces are those read off the graphs.
    """

    def __init__(self, target: TargetChoice, folder: Path, progress: Progress) -> None:
        self._target = target
        self.folder = folder
        self._progress = progress
        self._artifacts: dict[str, Artifact] = {}
        self.workspaces: dict[str, Workspace] = {}

    def __call__(self, graphs: Sequence[Graph]) -> dict[str, Workspace]:
        new = [graph for graph in graphs if graph.key not in self.workspaces]
        target = self._target.plugin
        if not isinstance(target, CompilingTarget):
            self.workspaces |= {graph.key: Workspace(target.costs.workspace_bytes(graph)) for graph in new}
            return self.workspaces
        self.folder.mkdir(parents=True, exist_ok=True)
        for done, graph in enumerate(new):
            self._progress(f"target {self._target.name}", done, len(new))
            artifact = lower(target, self._target.options, graph, self.folder)
            self._artifacts[graph.key] = artifact
            self.workspaces[graph.key] = Workspace(artifact.workspace_bytes, artifact.engine_bytes)
        return self.workspaces

    def record(self, graphs: Sequence[Graph]) -> TargetRecord:
        """Of these graphs; artifacts that no plan came to use are removed."""
        for key in self._artifacts.keys() - {graph.key for graph in graphs}:
            self._artifacts.pop(key).path.unlink()
            del self.workspaces[key]
        artifacts = [
            ArtifactRecord(
                graph=graph.key, operands=tuple(spec.name for spec in graph.inputs), baked=(),
                file=f"graphs/{self._target.name}/{self._artifacts[graph.key].path.name}",
                workspace_bytes=self._artifacts[graph.key].workspace_bytes,
                engine_bytes=self._artifacts[graph.key].engine_bytes,
            )
            for graph in graphs
            if graph.key in self._artifacts
        ]  # fmt: skip
        return TargetRecord(name=self._target.name, options=self._target.options.model_dump(), artifacts=tuple(artifacts))
