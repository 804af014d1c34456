# SPDX-License-Identifier: Apache-2.0
"""The contract suite finds estimates that are not what FZOO and HiZOO promise, also where only the second step shows it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bespoke import plugins
from bespoke.errors import PluginError
from bespoke.graph import StepBuilder
from bespoke.testing.estimates import check_estimates
from bespoke.testing.rig import Case, planned


class FromElsewhere(type(plugins.get("optimizer", "fzoo"))):  # type: ignore[misc]
    """Compares with a point a step away."""

    def perturbed_adapter(self, b: StepBuilder, group: str, options: Any) -> Any:
        return {name: [copies[1], *copies[1:]] for name, copies in super().perturbed_adapter(b, group, options).items()}


class Unscaled(type(plugins.get("optimizer", "hizoo"))):  # type: ignore[misc]
    """Measures along z, whatever h has become: right in the first step alone."""

    def perturbed_adapter(self, b: StepBuilder, group: str) -> Any:
        return {
            name: [theta, *b.call(straight, theta, b.noise(theta), b.scalar("epsilon"))]
            for name, theta in b.adapter(group).items()
        }


def straight(theta: torch.Tensor, z: torch.Tensor, epsilon: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return theta + epsilon * z, theta - epsilon * z


@pytest.mark.parametrize(
    ("broken", "options", "words"),
    [
        (FromElsewhere, {"queries": 2}, "recorded as number 0 of step 1.*bespoke.methods.NormalizedOptions"),
        (
            Unscaled,
            {"epsilon": 1e-2, "smoothing": 1e-2},
            "recorded as number 0 of step 2.*bespoke.methods.CurvatureOptions",
        ),
    ],
)
def test_other_estimates_are_held_to_their_promises_too(broken: Any, options: dict[str, Any], words: str) -> None:
    case = Case.of("plain", 7, 2)
    plan = planned(broken(), broken.Options(**options), case)
    with pytest.raises(PluginError, match=words):
        check_estimates(broken(), broken.Options(**options), case, plan, found)


def found(got: str, expected: str, next_step: str) -> PluginError:
    return PluginError("it", got=got, expected=expected, next_step=next_step)
