# SPDX-License-Identifier: Apache-2.0
"""Artifacts of one target: compiled when a plan first uses their graphs, measured, and recorded in the manifest.

A target that bakes weights compiles once the weights are converted, once for each key. Until then its workspaces are estimates."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bespoke.bundle.target_records import ArtifactRecord, FeatureRecord, TargetRecord
from bespoke.compiler.baking import BakedKey, baked_keys, random_weights
from bespoke.compiler.lower import lower
from bespoke.compiler.request import BuildListener, TargetChoice
from bespoke.contracts import Artifact
from bespoke.graph.trace import Graph
from bespoke.plan.costs import Workspace
from bespoke.plan.instructions import Plan

__all__ = ["Artifacts"]


class Artifacts:
    """Artifacts of one target.

    `folder` is created for the first artifact. For a target without artifacts, workspaces are estimated from the graphs.
    """

    def __init__(self, target: TargetChoice, folder: Path, progress: BuildListener) -> None:
        self._target = target
        self.folder = folder
        self._progress = progress
        self._artifacts: dict[str, Artifact] = {}  # by key of the graph
        self._baked: dict[BakedKey, Artifact] = {}
        self.workspaces: dict[str, Workspace] = {}

    def compile(self, graphs: Sequence[Graph]) -> dict[str, Workspace]:
        """Compiles the graphs that have no artifact yet. Returns the workspaces of all graphs so far, by key."""
        new = [graph for graph in graphs if graph.key not in self.workspaces]
        target = self._target.plugin
        if not target.compiles or self.bakes:
            self.workspaces |= {graph.key: Workspace(target.costs.workspace_bytes(graph)) for graph in new}
            return self.workspaces
        self.folder.mkdir(parents=True, exist_ok=True)
        for done, graph in enumerate(new):
            self._progress(f"target {self._target.name}", done, len(new))
            artifact = lower(target, self._target.options, graph, self.folder)
            self._artifacts[graph.key] = artifact
            self.workspaces[graph.key] = Workspace(artifact.workspace_bytes, artifact.engine_bytes)
        return self.workspaces

    @property
    def bakes(self) -> bool:
        return self._target.plugin.bakes(self._target.options)

    def bake(
        self, plans: Iterable[Plan], graphs: Mapping[str, Graph], weights: Mapping[str, Path], hollow: bool = False
    ) -> None:
        """Compiles each key that plans call once. The workspace of a graph is the largest of its keys.

        Args:
            plans: the plans whose calls are compiled.
            graphs: all graphs of the plans, by key.
            weights: files of the converted weights, by group.
            hollow: whether this is an estimate, whose weights were not read. The compiler then gets random weights, because zeros
                would make smaller artifacts. Only the first of several artifacts of equal size is compiled.
        """
        target = self._target.plugin
        self.folder.mkdir(parents=True, exist_ok=True)
        options = self._target.options
        plans, baking = list(plans), {key for key, graph in graphs.items() if target.bakes(options, graph)}
        keys = baked_keys(plans, graphs, baking)
        sizes: dict[str, list[Workspace]] = {}
        compiled: dict[Hashable, Artifact] = {}
        for done, key in enumerate(keys):
            self._progress(f"target {self._target.name}", done, len(keys))
            baked = key.baked(weights) if key.records else None
            like: Hashable = key
            if hollow and baked is not None:
                like = (key.graph, *(array.shape for array in baked.operands.values()))
            first = compiled.get(like)
            if first is None:
                given = random_weights(baked) if hollow and baked is not None else baked
                artifact = compiled[like] = lower(target, options, key.graph, self.folder, given)
            else:
                artifact = replace(first, path=self.folder / f"{done}-{first.path.name}")
                os.link(first.path, artifact.path)
            self._baked[key] = artifact
            sizes.setdefault(key.graph.key, []).append(Workspace(artifact.workspace_bytes, artifact.engine_bytes))
        kept = max(
            (sum(self._baked[key].kept_bytes for key in baked_keys([plan], graphs, baking)) for plan in plans),
            default=0,
        )
        for graph, workspaces in sizes.items():
            workspace, engine = map(max, zip(*workspaces, strict=True))
            self.workspaces[graph] = Workspace(workspace, engine + kept)

    @property
    def cache_bytes(self) -> int:
        """Bytes that the engine will write into its cache folder, once for the same weights."""
        by_weights: dict[Hashable, int] = {}
        for key, artifact in self._baked.items():
            weights = frozenset((record.weight, record.rows, record.columns) for record in key.records)
            by_weights[weights] = max(artifact.cache_bytes, by_weights.get(weights, 0))
        return sum(by_weights.values()) + sum(artifact.cache_bytes for artifact in self._artifacts.values())

    def record(self, graphs: Sequence[Graph]) -> TargetRecord:
        """The manifest record for these graphs; deletes artifacts that no plan uses."""
        for key in self._artifacts.keys() - {graph.key for graph in graphs}:
            self._artifacts.pop(key).path.unlink()
            del self.workspaces[key]
        unbaked = [
            (BakedKey(graph, (), ()), self._artifacts[graph.key]) for graph in graphs if graph.key in self._artifacts
        ]
        artifacts = [
            ArtifactRecord(
                graph=key.graph.key,
                operands=key.operands,
                baked=key.records,
                numbers=dict(key.numbers),
                delegates=artifact.delegates,
                file=f"graphs/{self._target.name}/{artifact.path.name}",
                workspace_bytes=artifact.workspace_bytes,
                engine_bytes=artifact.engine_bytes,
            )
            for key, artifact in (*unbaked, *self._baked.items())
        ]
        features = self._features([key for key, _ in unbaked] + list(self._baked))
        options = self._target.options.model_dump()
        return TargetRecord(
            name=self._target.name, options=options, artifacts=tuple(artifacts), features=tuple(features)
        )

    def _features(self, keys: Iterable[BakedKey]) -> list[FeatureRecord]:
        """Features of the artifacts that differ from the graph's tensor: each dtype and shape once, in order."""
        target = self._target.plugin
        tensors = {
            (spec.dtype, spec.shape): spec
            for key in keys
            for spec in (*(spec for spec in key.graph.inputs if spec.name in key.operands), *key.graph.outputs)
        }
        described = [(tensors[key], target.feature(tensors[key], self._target.options)) for key in sorted(tensors)]
        return [
            FeatureRecord(
                tensor_dtype=tensor.dtype,
                tensor_shape=tensor.shape,
                dtype=feature.dtype,
                shape=feature.shape,
                view=feature.view,
            )
            for tensor, feature in described
            if feature is not None
        ]
