# SPDX-License-Identifier: Apache-2.0
"""A region of a graph, compiled: what may go wrong said in our words, and a signature that follows from the content."""

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

TRIED = 32  # rows, columns and depth of a product that any compiler for NPUs takes
SIGNATURE = slice(4, 12)  # of the header: by it the runtime tells contexts apart; ExecuTorch writes the time


def compile_region(region: Region, soc: str, name: str) -> Binary:
    """Raises ConfigError for an SoC that ExecuTorch does not know, Unsupported where the NPU refuses an operator, MissingDependency
    where there is no SDK."""
    load_qnn()
    _check_soc(soc)
    shapes = tuple(tuple(node.meta["val"].shape) for node in region.inputs)
    made = compiled(Job(region.module, shapes, soc))
    if isinstance(made, Refused):
        operators = sorted({str(node.target) for node in region.nodes})
        raise Unsupported(
            f"Graph '{name}', operators {', '.join(operators)}",
            got=str(made),
            expected="one delegate that takes every operator",
            next_step="Leave out delegate = 'qnn'",
        )
    signed = bytearray(made.data)
    signed[SIGNATURE] = hashlib.sha256(made.data[SIGNATURE.stop :]).digest()[:8]
    return replace(made, data=bytes(signed))


def check_compiler(soc: str) -> None:
    """Raises MissingDependency where there is no SDK or one that compiles nothing, ConfigError for an SoC that ExecuTorch does not
    know: the SDK's libraries may all be there, and be of another version than ExecuTorch is made for."""
    load_qnn()
    _check_soc(soc)
    made = compiled(Job(_product(), ((TRIED, TRIED),), soc))
    if isinstance(made, Refused):
        Compiler.instance().end()  # it has the environment with which it was started
        raise MissingDependency(
            f"Qualcomm's SDK at QNN_SDK_ROOT={os.environ['QNN_SDK_ROOT']!r}",
            got=f"no program of one product for {soc}: {str(made).rstrip('.')}",
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
