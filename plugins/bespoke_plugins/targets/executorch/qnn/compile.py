# SPDX-License-Identifier: Apache-2.0
"""Compiles a region of a graph, with our own error texts and a signature computed from the content."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

import torch

from bespoke.errors import ConfigError, MissingDependency, Unsupported
from bespoke_plugins.targets.executorch.qnn.binary import Binary, Job, Refused
from bespoke_plugins.targets.executorch.qnn.compiler import Compiler, compiled
from bespoke_plugins.targets.executorch.qnn.region import Region
from bespoke_plugins.targets.executorch.qnn.sdk import EXPECTED, NEXT_STEP, load_qnn

TRIED = 32  # rows, columns and depth of a trial product that every compiler for NPUs takes
SIGNATURE = slice(4, 12)  # bytes of the header that identify a context to the runtime; ExecuTorch writes the time there


def compile_region(region: Region, soc: str, name: str) -> Binary:
    """The region's binary.

    Raises ConfigError for an SoC that ExecuTorch does not know, Unsupported if the NPU refuses an operator, and MissingDependency
    without an SDK.
    """
    load_qnn()
    _check_soc(soc)
    shapes = tuple(tuple(node.meta["val"].shape) for node in region.inputs)
    binary = compiled(Job(region.module, shapes, soc))
    if isinstance(binary, Refused):
        operators = sorted({str(node.target) for node in region.nodes})
        raise Unsupported(
            f"Graph '{name}', operators {', '.join(operators)}",
            got=str(binary),
            expected="one delegate that takes every operator",
            next_step="Leave out delegate = 'qnn'",
        )

    signed = bytearray(binary.data)
    signed[SIGNATURE] = hashlib.sha256(binary.data[SIGNATURE.stop :]).digest()[:8]
    return replace(binary, data=bytes(signed))


def check_compiler(soc: str) -> None:
    """Raises MissingDependency without an SDK that compiles a product, and ConfigError for an SoC that ExecuTorch does not know.

    It compiles a product because the SDK's libraries may be complete and still have a version that ExecuTorch does not support.
    """
    load_qnn()
    _check_soc(soc)
    binary = compiled(Job(_product(), ((TRIED, TRIED),), soc))
    if isinstance(binary, Refused):
        Compiler.instance().end()  # it keeps the environment from its start
        raise MissingDependency(
            f"Qualcomm's SDK at QNN_SDK_ROOT={os.environ['QNN_SDK_ROOT']!r}",
            got=f"no program of one product for {soc}: {str(binary).rstrip('.')}",
            expected=f"{EXPECTED}, in LD_LIBRARY_PATH too",
            next_step=NEXT_STEP,
        )


def _product() -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    x, weight = graph.placeholder("x0"), graph.get_attr("weight")
    graph.output((graph.call_function(torch.ops.aten.mm.default, (x, weight)),))
    return torch.fx.GraphModule({"weight": torch.eye(TRIED)}, graph)


def _check_soc(soc: str) -> None:
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset

    if soc not in QcomChipset.__members__:
        raise ConfigError(
            "Target 'executorch', option soc",
            got=repr(soc),
            expected=f"one of {', '.join(QcomChipset.__members__)}",
            next_step="Name the SoC of the phone",
        )
