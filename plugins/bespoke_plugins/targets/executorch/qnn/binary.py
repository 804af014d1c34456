# SPDX-License-Identifier: Apache-2.0
"""Compiles a region with the vendor's compiler: ExecuTorch's header and a context binary for one SoC, in fp16 with fp32 operands.

Each region is compiled in its own process (compiler.py). The vendor numbers tensors and operators through the life of a process and
writes the numbers into the binary. The same region must give the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Job:
    """A region, the shapes of its operands and the SoC."""

    module: torch.fx.GraphModule
    shapes: tuple[tuple[int, ...], ...]
    soc: str


@dataclass(frozen=True)
class Binary:
    """A compiled region.

    `settings`: the delegate's settings. `inputs` and `outputs`: positions among the region's, in the order of its arguments.
    """

    data: bytes
    settings: tuple[tuple[str, bytes], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Refused(Exception):
    """The vendor's compiler refused a part of the region."""


def compile_here(job: Job) -> Binary:
    """Compiles in this process. Raises Refused."""
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
        to_edge_transform_and_lower_to_qnn,
    )

    options = generate_htp_compiler_spec(use_fp16=True)
    specs = generate_qnn_executorch_compiler_spec(soc_model=QcomChipset[job.soc], backend_options=options)
    lowered = to_edge_transform_and_lower_to_qnn(job.module, tuple(torch.zeros(shape) for shape in job.shapes), specs)
    return _delegate(lowered.exported_program())


def _delegate(program: Any) -> Binary:
    """The one delegate for the whole region."""
    nodes = program.graph_module.graph.nodes
    calls = [node for node in nodes if node.op == "call_function" and "getitem" not in str(node.target)]
    outside = [str(node.target) for node in calls if "executorch_call_delegate" not in str(node.target)]
    if len(calls) != 1 or outside:
        raise Refused(f"{len(calls) - len(outside)} delegates and, outside of them, {', '.join(outside) or 'nothing'}")
    (call,) = calls
    lowered = getattr(program.graph_module, call.args[0].target)
    given = list(program.graph_signature.user_inputs)
    returned = [node.args[1] for node in program.graph_module.graph.output_node().args[0]]
    if sorted(returned) != list(range(len(returned))):
        raise Refused(f"results {returned} of the delegate as {len(returned)} results of the region")
    return Binary(
        bytes(lowered.processed_bytes),
        tuple((spec.key, bytes(spec.value)) for spec in lowered.compile_specs),
        tuple(given.index(operand.name) for operand in call.args[1:]),
        tuple(returned.index(number) for number in range(len(returned))),
    )
