# SPDX-License-Identifier: Apache-2.0
"""A region of a graph, compiled: what may go wrong said in our words, and a signature that follows from the content."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from bespoke.errors import ConfigError, Unsupported
from bespoke_plugins.targets.executorch.qnn.binary import Binary, Job, Refused
from bespoke_plugins.targets.executorch.qnn.compiler import Compiler
from bespoke_plugins.targets.executorch.qnn.region import Region
from bespoke_plugins.targets.executorch.qnn.sdk import load_qnn

SIGNATURE = slice(4, 12)  # of the header: by it the runtime tells contexts apart; ExecuTorch writes the time


def compile_region(region: Region, soc: str, name: str) -> Binary:
    """Raises ConfigError for an SoC that ExecuTorch does not know, Unsupported where the NPU refuses an operator, MissingDependency
    where there is no SDK."""
    load_qnn()
    _check_soc(soc)
    shapes = tuple(tuple(node.meta["val"].shape) for node in region.inputs)
    made = Compiler.instance().run(Job(region.module, shapes, soc))
    if isinstance(made, Refused):
        operators = sorted({str(node.target) for node in region.nodes})
        raise Unsupported(
            f"Graph '{name}', operators {', '.join(operators)}", got=str(made), expected="one delegate that takes every operator",
            next_step="Leave out delegate = 'qnn'",
        )  # fmt: skip
    signed = bytearray(made.data)
    signed[SIGNATURE] = hashlib.sha256(made.data[SIGNATURE.stop :]).digest()[:8]
    return replace(made, data=bytes(signed))


def _check_soc(soc: str) -> None:
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset

    if soc not in QcomChipset.__members__:
        raise ConfigError(
            "Target 'executorch', option soc", got=repr(soc), expected=f"one of {', '.join(QcomChipset.__members__)}",
            next_step="Name the SoC of the phone",
        )  # fmt: skip
