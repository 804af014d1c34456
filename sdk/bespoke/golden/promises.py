# SPDX-License-Identifier: Apache-2.0
"""Facts about a method without running it: its promise, and its update rule and gradients as its plans show them.

An exact method promises its gradients, not its update rule. Whether that is `bespoke.methods.update`'s is read off the plan: the
library writes its update for the same pieces, and the plan must compute its stores by the same calls. Graphs are compared by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from bespoke.config import Settings, Training
from bespoke.contracts import Promise
from bespoke.errors import PluginError
from bespoke.golden.document import GradientSource
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.trace import OF_THIS_PROCESS, Tracer
from bespoke.graph.value import Value
from bespoke.methods.update import FirstOrderOptions, update
from bespoke.methods.zeroth_order import CurvatureOptions, NormalizedOptions, ZerothOrderOptions
from bespoke.model.spec import ModelSpec
from bespoke.plan.access import writes
from bespoke.plan.instructions import Call, Instruction, Named, Operand, Plan, Store, Zero
from bespoke.plan.replay import recorded_values
from bespoke.plan.values import arrays_of

__all__ = ["GoldenMethod", "Stepped", "check_promise", "promised_numbers", "stepped", "stored_pieces", "trained_pieces"]

DIFFERENCE_RATE = 2.0**20  # so large that p - rate * g is the gradient to the last digit


@dataclass(frozen=True)
class GoldenMethod:
    """A method and its plans. `functions` (graphs by key) and `scalars` (of its options) run a method that promises nothing."""

    name: str
    promises: Promise | None
    options: Settings
    training: Training
    plans: Sequence[Plan]
    scalars: Mapping[str, float] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., tuple[torch.Tensor, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stepped:
    """A method of exact gradients: its update rule if it is the library's, and where its plans keep gradients, if they do."""

    rule: FirstOrderOptions | None
    gradient: GradientSource | None


def trained_pieces(m: GoldenMethod, pieces: Iterable[str]) -> list[str]:
    """The pieces that every plan of the method stores, in the order of `pieces`."""
    stored = [stored_pieces(plan) for plan in m.plans]
    return [name for name in pieces if all(name in names for names in stored)]


def check_promise(m: GoldenMethod) -> None:
    """Refuses plans that cannot be what the method promises: golden vectors would be wrong, and none would be silent."""
    arrays = sorted({name for plan in m.plans for name in arrays_of(plan)})
    if arrays and m.promises is not None:
        raise PluginError(
            f"optimizer '{m.name}', promises = '{m.promises}'",
            got=f"plans that read the arrays {', '.join(arrays)}",
            expected="a loss of tokens, targets and mask alone: that is what all promises are about",
            next_step="Set promises = None",
        )
    if m.promises in (None, "exact_gradients"):
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
    """How many numbers a method of estimates records at least, and in words. None where the options are of no such method."""
    if isinstance(options, CurvatureOptions):
        return 2, "a recorded slope and a recorded curvature"
    queries = options.queries if isinstance(options, ZerothOrderOptions | NormalizedOptions) else 0
    return queries, f"one recorded number for each of {queries} queries"


def stepped(m: GoldenMethod, model: ModelSpec, trained: Sequence[str]) -> Stepped:
    """The update rule and the gradients of plans that compute exact gradients of the `trained` pieces."""
    rule = _library_rule(m, model, trained)
    if trained and all(_sums(plan).issuperset(trained) for plan in m.plans):
        return Stepped(rule, GradientSource(kind="accumulator", suffix=".gradient", divisor=1.0))
    if rule is None:
        return Stepped(None, None)
    if rule.update == "adamw":
        return Stepped(rule, GradientSource(kind="moment", suffix=".m", divisor=1.0 - rule.beta1))
    return Stepped(rule, GradientSource(kind="difference", suffix="", divisor=DIFFERENCE_RATE))


def stored_pieces(plan: Plan) -> set[str]:
    """Names of the pieces of the adapter that a step stores."""
    return {
        _name_in(plan, instruction.state) or ""
        for code in plan.sections.values()
        for instruction in code
        if isinstance(instruction, Store) and plan.values[instruction.state].role == "adapter"
    }


def _sums(plan: Plan) -> set[str]:
    """Pieces whose gradients the micro-batches of a step are summed into."""
    names = {_name_in(plan, number) or "" for number, value in enumerate(plan.values) if value.lifetime == "step"}
    return {name.removesuffix(".gradient") for name in names if name.endswith(".gradient")}


def _name_in(plan: Plan, value: int) -> str | None:
    place = plan.values[value].place
    return place.name if isinstance(place, Named) else None


# ---- the library's update ------------------------------------------------------------------------------------------------


def _library_rule(m: GoldenMethod, model: ModelSpec, trained: Sequence[str]) -> FirstOrderOptions | None:
    """The rule of `bespoke.methods.update` that the method's options name, if all of its plans store what that writes."""
    if not isinstance(m.options, FirstOrderOptions) or not trained:
        return None
    rule = FirstOrderOptions(**{name: getattr(m.options, name) for name in FirstOrderOptions.model_fields})
    ours = _as_the_library_writes(rule, m.training, model, trained)
    for plan in m.plans:
        theirs = _Stores(plan.sections.values(), [graph.key for graph in plan.graphs], partial(_name_in, plan))
        if stored_pieces(plan) != set(trained) or not _Comparison(ours, theirs).holds():
            return None
    return rule


def _as_the_library_writes(
    rule: FirstOrderOptions, training: Training, model: ModelSpec, trained: Sequence[str]
) -> _Stores:
    b = PlanBuilder(model, training, 1, 1, Tracer(traced=OF_THIS_PROCESS))
    holes: set[int] = set()
    wanted = frozenset(trained)

    def gradients(group: str) -> tuple[dict[str, Value], dict[str, Value]]:
        adapter = {name: piece for name, piece in b.adapter(group).items() if f"{group}.{name}" in wanted}
        zeros = {name: b.zeros(piece.shape) for name, piece in adapter.items()}
        holes.update(value.id for value in zeros.values())
        return adapter, {**zeros}

    update(b, (gradients(group) for group in model.blocks), rule)
    found_by_name = ("state", "call", "step")
    return _Stores(
        b.draft.sections.values(),
        [graph.key for graph in b.draft.graphs],
        lambda value: b.draft.values[value].name if b.draft.values[value].lifetime in found_by_name else None,
        holes,
    )


@dataclass(frozen=True)
class _Written:
    """How an instruction writes a value: as result number `result` of a graph, or as zeros."""

    key: str
    result: int
    how: str
    rows: tuple[int, ...]
    operands: tuple[Operand, ...]


class _Stores:
    """The stores of a step by name, and the instructions that compute every value without a name. `holes` match any gradient."""

    def __init__(
        self,
        sections: Iterable[Sequence[Instruction]],
        keys: Sequence[str],
        name: Callable[[int], str | None],
        holes: Iterable[int] = (),
    ) -> None:
        self.name = name
        self.holes = frozenset(holes)
        self.sources: dict[str, Operand] = {}
        self.writers: dict[int, list[_Written]] = {}
        for instruction in (instruction for code in sections for instruction in code):
            if isinstance(instruction, Store):
                self.sources[name(instruction.state) or ""] = instruction.source
            elif isinstance(instruction, Call):
                operands = tuple(instruction.operands)
                for number, result in enumerate(instruction.results):
                    written = _Written(keys[instruction.graph], number, result.how, tuple(result.to[1:]), operands)
                    self.writers.setdefault(result.to[0], []).append(written)
            else:
                what = "zero" if isinstance(instruction, Zero) else instruction.op
                for operand in writes(instruction):
                    self.writers.setdefault(operand[0], []).append(_Written(what, 0, "make", (), ()))


@dataclass
class _Comparison:
    """Compares the stores of a plan with those that the library writes."""

    ours: _Stores
    theirs: _Stores
    known: dict[tuple[int, int], bool] = field(default_factory=dict)

    def holds(self) -> bool:
        theirs = self.theirs.sources
        return all(name in theirs and self.values(source, theirs[name]) for name, source in self.ours.sources.items())

    def values(self, ours: Operand, theirs: Operand) -> bool:
        if ours[0] in self.ours.holes:
            return self.theirs.name(theirs[0]) is None
        if ours[1:] != theirs[1:]:
            return False
        pair = (ours[0], theirs[0])
        if pair not in self.known:
            names = (self.ours.name(ours[0]), self.theirs.name(theirs[0]))
            self.known[pair] = names[0] == names[1] if any(names) else self._written_alike(*pair)
        return self.known[pair]

    def _written_alike(self, ours: int, theirs: int) -> bool:
        """Whether the same instructions write both, in any order: terms of a sum may come in another one."""
        left = list(self.theirs.writers.get(theirs, []))
        for mine in self.ours.writers.get(ours, []):
            match = next((number for number, theirs in enumerate(left) if self._alike(mine, theirs)), None)
            if match is None:
                return False
            del left[match]
        return not left

    def _alike(self, mine: _Written, theirs: _Written) -> bool:
        same = (mine.key, mine.result, mine.how, mine.rows) == (theirs.key, theirs.result, theirs.how, theirs.rows)
        return (
            same
            and len(mine.operands) == len(theirs.operands)
            and all(map(self.values, mine.operands, theirs.operands))
        )
