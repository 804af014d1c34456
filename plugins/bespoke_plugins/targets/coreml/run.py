# SPDX-License-Identifier: Apache-2.0
"""Runs a spec without Core ML, in the interpreter of `mil`. It reads the same file as a device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from bespoke_plugins.targets.coreml.features import Feature, from_feature, to_feature
from bespoke_plugins.targets.coreml.mil import Interpreter, read_spec


def open_spec(path: Path) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The spec as a function of the graph's operands."""
    interpreter = Interpreter(read_spec(path))
    inputs, outputs = (
        [Feature.described(each.name, each.type.shape, each.type.dtype, each.description) for each in features]
        for features in (interpreter.spec.inputs, interpreter.spec.outputs)
    )

    def run(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = {feature.name: to_feature(feature, operand) for feature, operand in zip(inputs, operands, strict=True)}
        results = interpreter.run(given)
        return tuple(from_feature(feature, results[feature.name]) for feature in outputs)

    return run
