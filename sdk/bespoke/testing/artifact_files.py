# SPDX-License-Identifier: Apache-2.0
"""Checks the file that a target writes for a graph: plain, the same bytes in any folder. Refusals name graph and operator."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bespoke.bundle.file_names import file_name_problem
from bespoke.config import Settings
from bespoke.contracts import Artifact, Baked, Target, Unsupported
from bespoke.graph.trace import Graph
from bespoke.testing.options import Fail

__all__ = ["Lowering"]


class Lowering:
    """Compiles each graph into two folders and compares the files. `artifacts`: those of the first folder, by key."""

    def __init__(self, target: Target, options: Settings, fail: Fail, folders: Sequence[Path]) -> None:
        self.artifacts: dict[str, Artifact] = {}
        self._target, self._options, self._fail, self._folders = target, options, fail, folders

    def lower(self, graph: Graph, baked: Baked | None = None) -> Artifact | Unsupported:
        """Returns the artifact of the first folder, or the target's refusal."""
        key = (graph if baked is None else baked).key
        artifacts = []
        for folder in self._folders:
            before = {path.name for path in folder.iterdir()}
            try:
                artifact = self._target.lower(graph, folder, self._options, baked)
            except Unsupported as refusal:
                self._check_refusal(graph, refusal)
                return refusal
            except Exception as error:
                raise self._fail(
                    f"{type(error).__name__} while compiling graph '{graph.name}': {str(error)[:300]}",
                    "an artifact, or bespoke.contracts.Unsupported",
                    "Raise Unsupported naming graph, operator and reason",
                ) from error
            new = {path.name for path in folder.iterdir()} - before
            self._check_artifact(key, graph, artifact, folder, new)
            artifacts.append(artifact)
        first, second = (artifact.path for artifact in artifacts)
        if first.name != second.name or first.read_bytes() != second.read_bytes():
            raise self._fail(
                f"two artifacts of graph '{graph.name}' that differ",
                "the same name and bytes in any folder",
                "Leave out times, paths and everything that follows the order of hashes",
            )
        self._check_content(graph, first)
        self.artifacts[key] = artifacts[0]
        return artifacts[0]

    def _check_refusal(self, graph: Graph, refusal: Unsupported) -> None:
        operators = {str(node.target) for node in graph.module.graph.nodes if node.op == "call_function"}
        names = {
            part
            for operator in operators
            for part in (operator, operator.split(".")[-2] if "." in operator else operator)
        }
        if graph.name not in str(refusal) or not any(name in str(refusal) for name in names):
            raise self._fail(
                f"'{refusal}'",
                f"an Unsupported that names graph '{graph.name}' and the operator it is about",
                "Write Unsupported(f\"Graph '{graph.name}', operator {operator}\", got=..., expected=..., next_step=...)",
            )

    def _check_artifact(self, key: str, graph: Graph, artifact: Any, folder: Path, new: set[str]) -> None:
        sizes = (artifact.workspace_bytes, artifact.engine_bytes) if isinstance(artifact, Artifact) else (None,)
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise self._fail(
                f"{artifact!r} from lower",
                "Artifact(path, workspace_bytes, engine_bytes=0)",
                "Give the bytes a call takes in addition to its operands; graph.workspace_bytes is the estimate",
            )
        path = artifact.path
        if path.parent != folder or path.is_symlink() or not path.is_file():
            raise self._fail(
                f"the artifact {path}", f"a plain file in {folder}", "Write into the folder that lower is given"
            )
        if file_name_problem(path.name):
            raise self._fail(
                f"the file name '{path.name}'", "letters, digits and _.@+=-", "Use graph.name and graph.key"
            )
        if new - {path.name} or (path.name not in new and key not in self.artifacts):
            others = ", ".join(sorted(new - {path.name})) or f"the file '{path.name}' of another graph"
            raise self._fail(
                f"{others} next to the artifact of graph '{graph.name}'",
                "one new file for each key",
                "Put graph.key, or baked.key, into the file's name, and intermediate files into a temporary folder",
            )

    def _check_content(self, graph: Graph, path: Path) -> None:
        data = path.read_bytes()
        parts = {path.name: data}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                parts |= {name: archive.read(name) for name in archive.namelist()}
        for name, part in parts.items():
            pickled = (
                part[:1] == b"\x80" and part[1:2] in (b"\2", b"\3", b"\4", b"\5") and part.rstrip(b"\n").endswith(b".")
            )
            if pickled or name.endswith((".pkl", ".pickle")):
                raise self._fail(
                    f"a pickle ('{name}') in the artifact of graph '{graph.name}'",
                    "data that cannot run code when read",
                    "Leave it out, or write it as JSON or safetensors",
                )
            for folder in self._folders:
                if str(folder).encode() in part:
                    raise self._fail(
                        f"the path of the build folder in '{name}'",
                        "nothing of the machine that built it",
                        "Strip paths",
                    )
