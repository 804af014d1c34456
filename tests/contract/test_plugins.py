# SPDX-License-Identifier: Apache-2.0
"""One table over all plugins: every one of them keeps the contract that authors are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from bespoke import plugins
from bespoke.errors import PluginError
from bespoke.testing import check_optimizer, check_target
from bespoke.testing.run import STEPS, check_run
from tests.support.checks import few_of


@dataclass(frozen=True)
class Method:
    """An optimizer, and what it is to be: a method that estimates asks for more and smaller steps."""

    name: str
    exact: bool
    options: dict[str, Any] = field(default_factory=dict)
    steps: int = 30
    learning_rate: float = 1e-2
    falls_by: float = 0.5

    def __str__(self) -> str:
        kind = "trailing" if self.options.get("dual_forwarding") else self.options.get("preferences")
        return f"{self.name}, {kind}" if kind else self.name


METHODS = [
    Method("mebp", exact=True, options={"update": "sgd"}, learning_rate=0.3),
    Method("mesp", exact=True, options={"update": "adamw", "weight_decay": 0.01}),
    Method("mebp", exact=True, options={"update": "sgd", "preferences": "simpo"}, learning_rate=0.3),
    Method("mesp", exact=True, options={"preferences": "simpo"}),
    Method("mezo", exact=False, options={"distribution": "rademacher"}, steps=40, learning_rate=3e-4, falls_by=0.1),
    Method("momentum_fa", exact=True, options={"momentum": 0.5}, learning_rate=0.1),
    Method("windowed", exact=True, learning_rate=1e-2),
    Method("fzoo", exact=False, options={"queries": 4}, steps=40, learning_rate=1e-5, falls_by=0.1),
    Method(
        "hizoo",
        exact=False,
        options={"epsilon": 1e-2, "smoothing": 1e-3},
        steps=40,
        learning_rate=3e-4,
        falls_by=0.05,
    ),
    Method(
        "prge",
        exact=False,
        options={"queries": 2, "epsilon": 1e-3, "distribution": "rademacher"},
        steps=40,
        learning_rate=3e-4,
        falls_by=0.1,
    ),
    Method(
        "prge",
        exact=False,
        options={"queries": 2, "epsilon": 1e-3, "dual_forwarding": True},
        steps=40,
        learning_rate=3e-4,
        falls_by=0.1,
    ),
    Method("zgr", exact=False, steps=40, learning_rate=3e-4, falls_by=0.1),
    Method("mesp", exact=True, options={"federated_directions": 4}),
    Method("simpo", exact=False, options={"update": "sgd"}, learning_rate=0.05),
    Method("zo_signsgd", exact=False, steps=40, learning_rate=3e-3, falls_by=0.1),
]
FEW = ("mesp",)  # a whole suite takes most of a minute
WITHOUT_RUN = {"simpo"}  # its steps read arrays, which examples cannot hold yet
REPLAYABLE = {"fzoo", "hizoo", "mezo", "prge", "zgr", "zo_signsgd"}


@pytest.mark.parametrize("method", few_of(METHODS, [method for method in METHODS if str(method) in FEW][:1]), ids=str)
def test_optimizer_keeps_the_contract(method: Method) -> None:
    optimizer = plugins.get("optimizer", method.name)
    report = check_optimizer(
        optimizer,
        optimizer.Options(**method.options),
        steps=method.steps,
        learning_rate=method.learning_rate,
        loss_falls_by=method.falls_by,
    )
    assert report.replayable == (method.name in REPLAYABLE)
    assert report.accumulates == (method.name not in REPLAYABLE)
    assert (report.gradient_error is not None) == method.exact
    assert 0 < report.peak_bytes <= report.estimated_peak_bytes
    assert report.run_steps == (0 if method.name in WITHOUT_RUN else STEPS)


def killed_runs() -> list[Any]:
    """One that is replayable; the others with full counts."""
    methods = [one for one in METHODS if str(one) not in (*FEW, *WITHOUT_RUN)]
    return [pytest.param(one, marks=() if one.name == "fzoo" else pytest.mark.slow) for one in methods]


@pytest.mark.parametrize("method", killed_runs(), ids=str)
def test_a_run_by_the_core_is_whole_after_a_kill_behind_its_slot(method: Method) -> None:
    """The methods whose whole suite is slow."""
    optimizer = plugins.get("optimizer", method.name)

    def fail(got: str, expected: str, next_step: str) -> PluginError:
        return PluginError(f"optimizer '{method.name}'", got=got, expected=expected, next_step=next_step)

    assert check_run(optimizer, optimizer.Options(**method.options), fail, learning_rate=method.learning_rate) == STEPS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["listing", "executorch", "mlx"])
def test_target_keeps_the_contract(name: str) -> None:
    report = check_target(plugins.get("target", name))
    assert report.opened == report.lowered > 60
    assert report.error <= 1e-5
    assert report.run_steps == STEPS


@pytest.mark.parametrize(
    "name", few_of(["torch", "cuda"], ["torch"])
)  # a run in Triton's interpreter takes ten minutes
def test_a_target_without_artifacts_keeps_it_too(name: str) -> None:
    target = plugins.get("target", name)
    assert not target.compiles
    report = check_target(target)
    assert report.lowered == 0
    assert report.run_steps == STEPS


def test_every_installed_plugin_is_in_the_table() -> None:
    found = {name for entry in plugins.installed() for name in entry.provides}
    targets = {f"target {name}" for name in ("coreml", "cuda", "executorch", "listing", "mlx", "torch")}
    assert found == {f"optimizer {method.name}" for method in METHODS} | targets
