# SPDX-License-Identifier: Apache-2.0
"""A bundle's golden vectors, computed from the weight files that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bespoke.bundle.writer import BundleWriter
from bespoke.compiler.planner import Planned
from bespoke.compiler.plans import Key
from bespoke.compiler.request import BuildListener, BuildRequest
from bespoke.compiler.text import TextRules
from bespoke.compiler.weight_files import initial_adapter
from bespoke.format.tensors import write_arrays
from bespoke.golden.make import longest_golden, make_golden
from bespoke.golden.promises import GoldenMethod
from bespoke.model.spec import ModelSpec

if TYPE_CHECKING:
    from bespoke.graph.trace import Graph

__all__ = ["write_golden"]


def write_golden(
    request: BuildRequest,
    folder: Path,
    model: ModelSpec,
    planned: dict[Key, Planned],
    weights: Mapping[str, Path],
    graphs: list[Graph],
    text: TextRules,
    writer: BundleWriter,
    progress: BuildListener,
    hollow: bool,
) -> str:
    """Write the golden vectors; returns the file's name. `hollow`: computes nothing, the file has its largest size."""
    methods = [
        GoldenMethod(
            method.name,
            method.plugin.promises,
            method.options,
            method.training,
            [method_plan.plan for key, method_plan in planned.items() if key.method == method.name],
            method.scalars,
            {graph.key: graph.module for graph in graphs},
        )
        for method in request.methods
    ]
    if hollow:
        golden = longest_golden(model, methods, request.sequence_lengths[0], text.tokenizer)
    else:
        golden = make_golden(
            folder,
            model,
            weights,
            initial_adapter(model, request.training.seed),
            methods,
            request.sequence_lengths[0],
            text.tokenizer,
            lambda done, total: progress("golden", done, total),
            max(target.plugin.rounding(target.options) for target in request.targets),
        )
    name = "golden/golden.safetensors"
    write_arrays(writer.path_for(name), golden.arrays())
    return name
