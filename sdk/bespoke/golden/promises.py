# SPDX-License-Identifier: Apache-2.0
"""What a method states about its step without running it: its promise, its update rule, and where its plans leave gradients.

A method of exact gradients states its update rule by options derived from `FirstOrderOptions`. Golden vectors and the contract
suite verify that statement. With other options the rule is its own, and only its gradients are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from bespoke.config import Settings, Training
from bespoke.contracts import Promise
from bespoke.errors import PluginError
from bespoke.golden.document import GradientSource
from bespoke.methods.update import FirstOrderOptions
from bespoke.methods.zeroth_order import CurvatureOptions, NormalizedOptions, ZerothOrderOptions
from bespoke.plan.instructions import Named, Plan, Store
from bespoke.plan.replay import recorded_values
from bespoke.plan.values import arrays_of

__all__ = [
    "GoldenMethod",
    "check_promise",
    "gradient_source",
    "promised_numbers",
    "stored_pieces",
    "trained_pieces",
    "update_rule",
]

DIFFERENCE_RATE = 2.0**20  # so large that p - rate * g is the gradient to the last digit
MOMENT = ".m"  # AdamW's first moment of a piece


@dataclass(frozen=True)
class GoldenMethod:
    """A method and its plans. One that promises nothing is run: by `functions`, its graphs by key, and `scalars` of its options."""

    name: str
    promises: Promise | None
    options: Settings
    training: Training
    plans: Sequence[Plan]
    scalars: Mapping[str, float] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., tuple[torch.Tensor, ...]]] = field(default_factory=dict)


def trained_pieces(m: GoldenMethod, pieces: Iterable[str]) -> list[str]:
    """The pieces that every plan of the method stores, in the order of `pieces`."""
    stored = [stored_pieces(plan) for plan in m.plans]
    return [name for name in pieces if all(name in names for names in stored)]


def check_promise(m: GoldenMethod) -> None:
    """Raises PluginError for plans that cannot keep the method's promise, because golden vectors of them would be wrong."""
    arrays = sorted({name for plan in m.plans for name in arrays_of(plan)})
    if arrays and m.promises not in (None, "exact_gradients"):
        raise PluginError(
            f"optimizer '{m.name}', promises = '{m.promises}'",
            got=f"plans that read the arrays {', '.join(arrays)}",
            expected="a loss of tokens, targets and mask alone: that is what this promise is about",
            next_step="Set promises = None",
        )
    if m.promises is None:
        return
    if m.promises == "exact_gradients":
        _check_moments(m)
        return
    count, each = promised_numbers(m.options)
    for plan in m.plans:
        recorded = [plan.values[value].shape for value in recorded_values(plan.sections.get("train_step", []))]
        if not count or not plan.replayable or recorded[:count] != [[]] * count:
            kind = "replayable" if plan.replayable else "not replayable"
            raise PluginError(
                f"optimizer '{m.name}', promises = '{m.promises}'",
                got=f"a plan for sequence length {plan.sequence_length} that is {kind} and records {len(recorded)} values",
                expected=f"stores that follow from {each}",
                next_step="See the options of bespoke.methods for all of the promise, or set promises = None",
            )


def promised_numbers(options: Settings) -> tuple[int, str]:
    """Returns how many numbers a method of estimates records at least, and words for them. 0: it is no method of estimates."""
    if isinstance(options, CurvatureOptions):
        return 2, "a recorded slope and a recorded curvature"
    queries = options.queries if isinstance(options, ZerothOrderOptions | NormalizedOptions) else 0
    return queries, f"one recorded number for each of {queries} queries"


def update_rule(m: GoldenMethod) -> FirstOrderOptions | None:
    """Returns the update rule that a method of exact gradients states, without its further options. None: a rule of its own.

    Golden vectors clip and move the pieces that every plan stores, so plans that store different pieces have a rule of their own.
    """
    if m.promises != "exact_gradients" or not isinstance(m.options, FirstOrderOptions):
        return None
    if len({frozenset(stored_pieces(plan)) for plan in m.plans}) > 1:
        return None
    return FirstOrderOptions(**{name: getattr(m.options, name) for name in FirstOrderOptions.model_fields})


def gradient_source(m: GoldenMethod, trained: Sequence[str]) -> GradientSource | None:
    """Returns where a runtime finds the gradients of the `trained` pieces after a step. None: the plans do not keep them."""
    if trained and all(_sums(plan).issuperset(trained) for plan in m.plans):
        return GradientSource(kind="accumulator", suffix=".gradient", divisor=1.0)
    rule = update_rule(m)
    if rule is None or not trained:
        return None
    if rule.update == "adamw":
        return GradientSource(kind="moment", suffix=MOMENT, divisor=1.0 - rule.beta1)
    return GradientSource(kind="difference", suffix="", divisor=DIFFERENCE_RATE)


def _check_moments(m: GoldenMethod) -> None:
    """Golden vectors find the gradients of a method that states AdamW in its first moments."""
    rule = update_rule(m)
    if rule is None or rule.update != "adamw":
        return
    for plan in m.plans:
        states = {_name_in(plan, number) for number, value in enumerate(plan.values) if value.role == "optimizer"}
        lacking = sorted(piece for piece in stored_pieces(plan) if f"{piece}{MOMENT}" not in states)
        if lacking:
            raise PluginError(
                f"optimizer '{m.name}', promises = '{m.promises}'",
                got=f"a plan for sequence length {plan.sequence_length} without the state '{lacking[0]}{MOMENT}'",
                expected="AdamW as bespoke.methods.update writes it: options derived from FirstOrderOptions state that rule",
                next_step="Give (adapter, gradients) to update, or derive Options from Settings for a rule of your own",
            )


def stored_pieces(plan: Plan) -> set[str]:
    """Names of the pieces of the adapter that a step stores."""
    return {
        _name_in(plan, instruction.state) or ""
        for code in plan.sections.values()
        for instruction in code
        if isinstance(instruction, Store) and plan.values[instruction.state].role == "adapter"
    }


def _sums(plan: Plan) -> set[str]:
    """Pieces whose gradients are summed over the micro-batches of a step. Sums of a federated measurement are of no step."""
    if "micro_step" not in plan.sections:
        return set()
    names = {_name_in(plan, number) or "" for number, value in enumerate(plan.values) if value.lifetime == "step"}
    return {name.removesuffix(".gradient") for name in names if name.endswith(".gradient")}


def _name_in(plan: Plan, value: int) -> str | None:
    place = plan.values[value].place
    return place.name if isinstance(place, Named) else None
