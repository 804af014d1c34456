# SPDX-License-Identifier: Apache-2.0
"""Each method has a learning rate of its own, unless the developer names one."""

from __future__ import annotations

from typing import Any

import pytest

from bespoke import Personalizer, Training, plugins


def rates(optimizers: Any, training: Training | None = None) -> dict[str, float]:
    methods = Personalizer("m", optimizers, training=training).request.methods
    return {method.name: method.training.learning_rate for method in methods}


def test_each_method_has_a_rate_of_its_own() -> None:
    found = rates({"mesp": {}, "mebp": {"update": "sgd"}, "mezo": {}})
    assert found == {"mesp": 2e-4, "mebp": 1e-2, "mezo": 5e-5}
    assert rates({"prge": {}, "hizoo": {}, "fzoo": {"epsilon": 1e-2}}) == {"prge": 5e-5, "hizoo": 5e-5, "fzoo": 1e-5}
    assert rates(["mezo"], Training(steps=7)) == {"mezo": 5e-5}  # another field of Training names no rate


def test_a_rate_that_the_developer_names_is_every_methods() -> None:
    """Also where it is the one that stands there by default."""
    for rate in (2e-4, 7e-3):
        assert set(
            rates({"mesp": {}, "mebp": {"update": "sgd"}, "mezo": {}}, Training(learning_rate=rate)).values()
        ) == {rate}


def floor(targets: Any, **options: Any) -> float:
    (method,) = Personalizer("m", {"fzoo": {"epsilon": 3e-2, **options}}, targets).request.methods
    assert method.scalars["option.loss_rounding"] == method.options.loss_rounding  # type: ignore[attr-defined]
    return method.scalars["option.loss_rounding"]


def test_a_spread_of_losses_is_never_taken_for_less_than_what_the_targets_round() -> None:
    fp16, fp32 = {"coreml": {"precision": "fp16"}}, {"coreml": {"precision": "fp32"}}
    coarse = plugins.get("target", "coreml").rounding(plugins.get("target", "coreml").Options(precision="fp16"))
    assert coarse > 1e-6
    assert (floor("torch"), floor(fp32), floor(fp16), floor({"torch": {}, **fp16})) == (1e-6, 1e-6, coarse, coarse)
    assert floor(fp16, loss_rounding=1e-5) == 1e-5  # measured by who builds


@pytest.mark.parametrize("training", [None, Training(learning_rate=2e-4)])
def test_a_rate_among_a_methods_options_wins(training: Training | None) -> None:
    assert rates({"mezo": {"learning_rate": 3e-4}, "mesp": {}}, training) == {"mezo": 3e-4, "mesp": 2e-4}
