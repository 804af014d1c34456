# SPDX-License-Identifier: Apache-2.0
"""Golden vectors follow what a method promises and states, and the contract suite holds it to both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bespoke import plugins
from bespoke.bundle.reader import read_bundle
from bespoke.config import Settings
from bespoke.errors import BespokeError, PluginError
from bespoke.golden.document import GradientSource
from bespoke.golden.promises import GoldenMethod, check_promise, gradient_source, trained_pieces, update_rule
from bespoke.golden.prover import verify_bundle
from bespoke.methods import CurvatureOptions, FirstOrderOptions, PreferenceOptions, ZerothOrderOptions
from bespoke.testing.rig import Case, planned
from bespoke.testing.update_rule import check_update_rule
from tests.support.bundles import made_once
from tests.support.checks import few_rows_of
from tests.unit.golden import outsiders
from tests.unit.golden.bundles import build
from tests.unit.plugins.installing import install

SGD, ADAMW = FirstOrderOptions(update="sgd"), FirstOrderOptions(beta1=0.8)
CLIPPED = {"accumulation": 2, "clip_norm": 0.5}


# ---- what methods state ------------------------------------------------------------------------------------------------


def method(plugin: Any, options: Settings, **training: Any) -> tuple[GoldenMethod, Case]:
    case = Case.of("plain", 7, 2, **training)
    return GoldenMethod(plugin.name, plugin.promises, options, case.training, [planned(plugin, options, case)]), case


def stated(plugin: Any, options: Settings, **training: Any) -> tuple[FirstOrderOptions | None, GradientSource | None]:
    m, case = method(plugin, options, **training)
    pieces = [f"{group}.{name}" for group in case.model.blocks for name in case.model.adapter_shapes(group)]
    check_promise(m)
    return update_rule(m), gradient_source(m, trained_pieces(m, pieces))


@pytest.mark.parametrize(
    ("plugin", "options"),
    few_rows_of(
        [
            (plugins.get("optimizer", "mebp"), PreferenceOptions),
            (plugins.get("optimizer", "mesp"), PreferenceOptions),
            (outsiders.Sketched(), outsiders.Sketched.Options),
            (outsiders.LoraFA(), FirstOrderOptions),
        ],
        (1, 2),
    ),
    ids=lambda value: getattr(value, "name", ""),
)
def test_options_of_the_library_state_its_rule_also_with_further_options(plugin: Any, options: type[Any]) -> None:
    statements = [
        stated(plugin, options(update="sgd")),
        stated(plugin, options(beta1=0.8)),
        stated(plugin, options(update="sgd"), **CLIPPED),
        stated(plugin, options(beta1=0.8), accumulation=2),
    ]
    assert [rule for rule, _ in statements] == [SGD, ADAMW, SGD, ADAMW]
    kinds = [gradient and (gradient.kind, gradient.suffix) for _, gradient in statements]
    assert kinds == [("difference", ""), ("moment", ".m"), ("accumulator", ".gradient"), ("accumulator", ".gradient")]


def test_only_the_pieces_that_a_plan_stores_are_trained() -> None:
    m, case = method(outsiders.LoraFA(), SGD)
    pieces = [f"{group}.{name}" for group in case.model.blocks for name in case.model.adapter_shapes(group)]
    assert trained_pieces(m, pieces) == [name for name in pieces if name.endswith("lora_B")]


@pytest.mark.parametrize("training", [{}, CLIPPED], ids=["alone", "clipped"])
def test_a_rule_of_its_own_leaves_gradients_only_where_they_are_summed(training: Any) -> None:
    rule, gradient = stated(outsiders.HeavyBall(), outsiders.HeavyBall.Options(), **training)
    assert rule is None
    assert (gradient is not None) == bool(training)


@pytest.mark.parametrize(
    ("plugin", "options", "words"),
    [
        (outsiders.Misnamed(), SGD, "step 1 of '.*' off by 1 of its length"),
        (outsiders.OtherRule(), SGD, "step 1 of '.*' off by"),
        (outsiders.OtherRule(), FirstOrderOptions(), "without the state 'block_00.down_proj.lora_A.m'"),
        (outsiders.OtherScalar(), SGD, "no value for the scalar 'epsilon'"),
        (outsiders.Mixed(), SGD, "step 1 of '.*lora_B' off by 1 of its length"),
        (outsiders.HalfClipped(), SGD, "step 1 of '.*' off by .*accumulation 2"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_method_that_takes_another_step_than_it_states_is_found_out(plugin: Any, options: Any, words: str) -> None:
    def fail(got: str, expected: str, next_step: str) -> PluginError:
        return PluginError(f"optimizer '{plugin.name}'", got=got, expected=expected, next_step=next_step)

    with pytest.raises(BespokeError, match=words):
        check_update_rule(plugin, options, fail)


@pytest.mark.parametrize("own", [outsiders.Exact(), outsiders.HeavyBall()], ids=lambda plugin: plugin.name)
def test_a_plan_that_cannot_be_what_is_promised_is_refused(own: Any) -> None:
    case = Case.of("plain", 7, 2)
    plan = planned(own, own.Options(), case)
    for options in (ZerothOrderOptions(queries=2), own.Options()):
        with pytest.raises(
            PluginError, match=rf"'{own.name}', promises = 'two_sided.*not replayable and records 0 values"
        ):
            check_promise(GoldenMethod(own.name, "two_sided_loss_difference", options, case.training, [plan]))


def test_an_estimate_of_a_loss_of_arrays_promises_nothing() -> None:
    m, _ = method(plugins.get("optimizer", "simpo"), plugins.get("optimizer", "simpo").Options())
    check_promise(m)
    with pytest.raises(
        PluginError, match=r"'two_sided_loss.*read the arrays rejected_mask, rejected_targets, rejected_tokens"
    ):
        check_promise(GoldenMethod(m.name, "two_sided_loss_difference", m.options, m.training, m.plans))


def test_a_plan_that_records_fewer_numbers_than_queries_is_refused() -> None:
    m, _ = method(plugins.get("optimizer", "mezo"), ZerothOrderOptions(queries=2))
    check_promise(m)
    with pytest.raises(PluginError, match=r"replayable and records 2 values.*each of 3 queries"):
        check_promise(GoldenMethod(m.name, m.promises, ZerothOrderOptions(queries=3), m.training, m.plans))


def test_a_plan_without_a_curvature_scales_by_none() -> None:
    m, _ = method(plugins.get("optimizer", "mezo"), ZerothOrderOptions())
    with pytest.raises(
        PluginError, match=r"replayable and records 1 values.*a recorded slope and a recorded curvature"
    ):
        check_promise(GoldenMethod(m.name, "curvature_scaled_difference", CurvatureOptions(), m.training, m.plans))


# ---- a bundle of methods from outside --------------------------------------------------------------------------------------

METHODS = {
    "sketched": {},
    "shaded": {"queries": 2, "learning_rate": 1e-4},
    "lora_fa": {"update": "sgd", "clip_norm": 0.5},
    "heavy_ball": {"accumulation": 2, "clip_norm": 0.5, "learning_rate": 1e-3},
}
SITE = {"golden_outsiders": "from tests.unit.golden.outsiders import register_optimizers  # noqa: F401\n"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            install(folder / "site", "outsiders", dict.fromkeys(METHODS, "golden_outsiders"), SITE)
            patch.syspath_prepend(folder / "site")
            build(folder, "llama", METHODS)

    return made_once(tmp_path_factory, "promises", make) / "bundle"


@pytest.fixture(scope="module")
def done(bundle: Path) -> set[tuple[str | None, str]]:
    with read_bundle(bundle) as opened:
        report = verify_bundle(opened)
    assert all(check.worst < 1 for check in report.checks)
    return {(check.method, check.what) for check in report.checks}


def what(done: set[tuple[str | None, str]], name: str) -> set[str]:
    return {what for method, what in done if method == name}


ALWAYS = {"evaluation loss", "learning rates of the schedule"}
THREE_STEPS = {f"loss of step {step}" for step in (1, 2, 3)} | {f"updates after step {step}" for step in (1, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sketched", "lora_fa"])
def test_an_option_more_or_a_piece_less_leaves_the_checks_of_a_method_in_place(name: str, done: Any) -> None:
    assert what(done, name) == ALWAYS | THREE_STEPS | {"gradients"}


@pytest.mark.slow
def test_an_option_more_leaves_the_checks_of_estimates_in_place(done: Any) -> None:
    recorded = {f"recorded values of step {step}" for step in (1, 2, 3)}
    assert what(done, "shaded") == ALWAYS | THREE_STEPS | recorded | {"replay of step 1"}


@pytest.mark.slow
def test_of_a_rule_of_its_own_the_gradients_and_the_first_loss_are_known(done: Any) -> None:
    assert what(done, "heavy_ball") == ALWAYS | {"loss of step 1", "gradients"}
