# SPDX-License-Identifier: Apache-2.0
"""Target `cuda`: graphs as `.pt2` archives, run by the torch runtime on CUDA where there is one (Jetson), on the CPU otherwise.

The archive is laid out as torch.export's own, so torch reads it; it holds the graph and nothing else, no weights and no pickle,
and we read only the graph from it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke.contracts import TORCH_COSTS, Artifact, Graph, Settings, Target, hookimpl
from bespoke.graph.export import program_bytes
from bespoke.ops.load_program import load_program

MODEL = "models/model.json"
EPOCH = (1980, 1, 1, 0, 0, 0)  # a zip wants a time; one for all, so that two builds give the same bytes


class CudaOptions(Settings):
    """There is nothing to set."""


class Cuda:
    """torch itself as the engine."""

    name = "cuda"
    Options = CudaOptions
    costs = TORCH_COSTS

    def lower(self, graph: Graph, folder: Path, options: CudaOptions) -> Artifact:
        path = folder / f"{graph.name}-{graph.key[:16]}.pt2"
        files = {
            "archive_format": b"pt2",
            "archive_version": b"0",
            "byteorder": b"little",
            ".data/version": b"6\n",
            "data/weights/model_weights_config.json": b'{"config": {}}',
            "data/constants/model_constants_config.json": b'{"config": {}}',
            "data/sample_inputs/model.pt": b"",  # torch puts a pickle here, and takes nothing for none
            MODEL: program_bytes(graph.export(), graph.name),
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name, data in files.items():
                archive.writestr(zipfile.ZipInfo(f"{path.stem}/{name}", EPOCH), data)
        path.write_bytes(buffer.getvalue())
        return Artifact(path, graph.workspace_bytes)

    def open(self, path: Path, options: CudaOptions) -> Callable[..., tuple[Any, ...]]:
        with zipfile.ZipFile(path) as archive:
            return load_program(archive.read(f"{path.stem}/{MODEL}"), path.name)


@hookimpl
def register_targets(register: Callable[[Target], None]) -> None:
    register(Cuda())
