# SPDX-License-Identifier: Apache-2.0
"""Runs a spec where there is no Core ML: in the interpreter of `bespoke.testing`, which reads the file that a device would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from bespoke.testing.mil import Interpreter, read_spec
from bespoke_plugins.targets.coreml.features import Feature, from_feature, to_feature


def open_spec(path: Path) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The spec as a function of the graph's operands."""
    interpreter = Interpreter(read_spec(path))
    inputs, outputs = (
        [Feature.described(one.name, one.type.shape, one.type.dtype, one.description) for one in side]
        for side in (interpreter.spec.inputs, interpreter.spec.outputs)
    )

    def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = {feature.name: to_feature(feature, operand) for feature, operand in zip(inputs, operands, strict=True)}
        made = interpreter.run(given)
        return tuple(from_feature(feature, made[feature.name]) for feature in outputs)

    return run
