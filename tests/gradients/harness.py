# SPDX-License-Identifier: Apache-2.0
"""A method planned and run on converted weights without a bundle, and the peft model that it is held against.

Everything between plugin and interpreter is the real thing: tracing, builder, passes, verification, arena, int4 operators. Only
the exported files are left out, because writing them for hundreds of cases would take minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from bespoke import plugins
from bespoke.compiler.activations import column_counts
from bespoke.compiler.request import Method
from bespoke.config import LINEARS, Linear, Lora, Training
from bespoke.data.text import Tokenizer
from bespoke.format.tensors import map_tensors
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.trace import Tracer
from bespoke.methods.sections import decode, evaluate_step, prefill
from bespoke.model.architecture import ModelConfig
from bespoke.model.checkpoint import Checkpoint
from bespoke.model.convert import convert
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from bespoke.plan.compile import compile_plan, with_liveness
from bespoke.plan.costs import Costs
from bespoke.plan.instructions import Plan
from bespoke.plan.kinds import ADAPTER_GROUP
from bespoke.plan.verify import verify
from bespoke.reference.buffers import Buffers
from bespoke.reference.code import plan_code
from bespoke.reference.interpreter import Bindings, Interpreter, Outcome
from bespoke.reference.weights import Weights
from bespoke.testing.tiny import TokenBatch
from tests.support.models import masked_loss, peft_reference

SCALE = 0.75  # alpha / rank: not 1, so that a forgotten scale shows
COSTS = Costs(constant_bytes=0)
Arrays = dict[str, np.ndarray]


# ---- inputs ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Base:
    """A model folder and its int4 form, mapped."""

    name: str
    folder: Path
    config: ModelConfig
    groups: Mapping[str, Mapping[str, np.ndarray]]

    @classmethod
    def convert(cls, name: str, folder: Path, out: Path, *, context: int = 256) -> Base:
        config = read_config(folder)
        tokenizer = Tokenizer.open(folder) if (folder / "tokenizer.json").is_file() else None
        counts = column_counts(folder, ModelSpec(config, Lora()), Checkpoint.open(folder), tokenizer)  # as a build does
        files = convert(folder, config, out, context=context, counts=counts)
        return cls(name, folder, config, {group: map_tensors(path) for group, path in files.items()})


def random_batch(
    config: ModelConfig, length: int, *, rows: int = 3, seed: int = 0, text: Sequence[int] | None = None
) -> TokenBatch:
    """Random tokens, or pieces of a tokenized text; gaps in the mask of every row but the last, which is masked wholly."""
    generator = np.random.Generator(np.random.Philox(key=[seed, length]))
    tokens, targets = (torch.from_numpy(generator.integers(0, config.vocab_size, (rows, length))) for _ in range(2))
    if text is not None:
        starts = generator.integers(0, len(text) - length, rows).tolist()
        pieces = torch.tensor([text[start : start + length + 1] for start in starts])
        tokens, targets = pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()
    mask = (generator.random((rows, length)) < 0.6).astype(np.float32)
    mask[0, -1], mask[-1] = 1, 0
    return TokenBatch(tokens, targets, torch.from_numpy(mask))


def random_adapter(model: ModelSpec, *, seed: int = 0, b_scale: float = 0.1) -> Arrays:
    """A as at the start of a run, B random: with B = 0 every gradient of A would be 0."""
    generator = np.random.Generator(np.random.Philox(key=[seed, model.lora.rank]))
    pieces = {}
    for group in model.blocks:
        for name, shape in model.adapter_shapes(group).items():
            scale = (3 * shape[1]) ** -0.5 if name.endswith("lora_A") else b_scale
            pieces[f"{group}.{name}"] = (scale * generator.standard_normal(shape)).astype(np.float32)
    return pieces


# ---- the method, planned -----------------------------------------------------------------------------------------------------


class ForcedBuilder(PlanBuilder):
    """Takes `forced` tile sizes, even those that no candidate list has: tiny models need tiny tiles."""

    forced: Mapping[str, int]

    def choose(self, name: str, candidates: Sequence[Any]) -> Any:
        super().choose(name, candidates)
        return self.forced.get(name, self._chosen.get(name, candidates[0]))


@dataclass(frozen=True)
class Tiles:
    """Which tile sizes a plan has: `smallest` or `largest` of the plan's candidates, or forced ones."""

    which: str = "smallest"
    forced: tuple[tuple[str, int], ...] = ()


TINY_TILES = Tiles(forced=(("query_tile", 5), ("row_tile", 7), ("mlp_slice", 32), ("head_chunk", 17)))
LARGEST = Tiles("largest")  # with it everything is kept
SOME_KEPT = Tiles(forced=(*TINY_TILES.forced, ("kept_attention", 1), ("kept_products", 2)))


def planned(
    model: ModelSpec,
    method: Any,
    length: int,
    training: Training,
    tracer: Tracer,
    *,
    tiles: Tiles | None = None,
    options: Mapping[str, Any] | None = None,
    context: int = 256,
    answers: bool = False,
) -> Plan:
    """The verified plan of a method's training step (`method`: a name or a plugin); with the SDK's own sections if it
    `answers`, of which a bundle keeps `prefill` and `decode` in a plan apart."""
    tiles = tiles or Tiles()
    plugin = plugins.get("optimizer", method) if isinstance(method, str) else method

    def record(choices: dict[str, Any]) -> PlanBuilder:
        b = ForcedBuilder(model, training, length, context, tracer, choices, plugin.Options)
        b.forced = dict(tiles.forced)
        plugin.train_step(b, model, plugin.Options(**(options or {})))
        if answers:
            for section in (evaluate_step, prefill, decode):
                section(b, model)
        return b

    builder = record({})
    if tiles.which == "largest":
        builder = record({name: candidates[-1] for name, candidates in builder.candidates.items()})
    plan = compile_plan(
        builder.draft,
        with_liveness(builder.draft),
        COSTS,
        method=plugin.name,
        sequence_length=length,
        batch_size=training.batch_size,
        choices={},
    )
    verify(plan, plugin.name, tracer.graphs)
    return plan


class Rig:
    """One method at one sequence length, ready to run."""

    def __init__(
        self,
        base: Base,
        model: ModelSpec,
        plan: Plan,
        tracer: Tracer,
        scalars: Mapping[str, float] | None = None,
        adapter: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.base, self.model, self.plan = base, model, plan
        self.buffers = Buffers([plan_code(plan)], torch.device("cpu"))
        self.scalars = dict(scalars or {})
        functions = [tracer.graphs[graph.key].module for graph in plan.graphs]
        device = torch.device("cpu")
        groups = {**base.groups, ADAPTER_GROUP: adapter or {}}
        self.interpreter = Interpreter(
            plan_code(plan), functions, Weights(groups.__getitem__, device), self.buffers, device
        )

    def run(
        self,
        section: Any,
        batch: TokenBatch | None,
        *,
        step: int = 1,
        lr: float = 0.0,
        tokens: float | None = None,
        seed: int = 0,
    ) -> Outcome:
        """One section. `tokens` counts the unmasked tokens of the whole step, by default those of the batch."""
        count = tokens if tokens is not None else batch.trained if batch is not None else 1.0
        scalars = {"learning_rate": lr, "step": float(step), "batch_tokens": count, **self.scalars}
        return self.interpreter.run(section, Bindings(batch.bindings() if batch else {}, scalars, seed, step))

    def gradients(self, adapter: Mapping[str, np.ndarray], batch: TokenBatch) -> tuple[float, Arrays]:
        """Loss and every gradient, as the accumulators hold them after one micro-batch."""
        self.buffers.fill(adapter)
        self.buffers.begin_step()
        loss = self.run("micro_step", batch).metrics["loss"]
        sums = self.buffers.step_values
        trained = [name for name in adapter if self.model.lora.trains(name)]
        return loss, {name: sums[f"{name}.gradient"].numpy().copy() for name in trained}

    def step(self, batches: Sequence[TokenBatch], *, step: int, lr: float, seed: int = 0) -> Outcome:
        """One training step as runtime.machine takes it."""
        tokens = sum(batch.trained for batch in batches)
        if "micro_step" not in self.plan.sections:
            outcome = self.run("train_step", batches[0], step=step, lr=lr, seed=seed)
        else:
            self.buffers.begin_step()
            parts = [
                self.run("micro_step", batch, step=step, lr=lr, tokens=tokens).metrics["loss"] for batch in batches
            ]
            outcome = self.run("apply_step", None, step=step, lr=lr)
            outcome.metrics["loss"] = sum(parts)
        self.buffers.flip()
        return outcome


def rig(
    base: Base,
    method: Any,
    length: int,
    rank: int,
    tracer: Tracer,
    *,
    training: Training | None = None,
    rows: int = 3,
    tiles: Tiles | None = None,
    options: Mapping[str, Any] | None = None,
    answers: bool = False,
    linears: tuple[Linear, ...] = LINEARS,
    adapter: Mapping[str, np.ndarray] | None = None,
) -> Rig:
    """By default a rig whose accumulators give the gradients. With an `adapter`, its A is frozen and B alone is trained."""
    training = training or Training(batch_size=rows, accumulation=2)
    model = spec(base, rank, linears, "both" if adapter is None else "B")
    plan = planned(model, method, length, training, tracer, tiles=tiles, options=options, answers=answers)
    plugin = plugins.get("optimizer", method) if isinstance(method, str) else method
    scalars = Method(plugin.name, plugin, plugin.Options(**(options or {})), training).scalars
    return Rig(base, model, plan, tracer, scalars, adapter)


_specs: dict[Hashable, ModelSpec] = {}


def spec(
    base: Base, rank: int, linears: tuple[Linear, ...] = LINEARS, train: Literal["both", "B"] = "both"
) -> ModelSpec:
    """One object for a base and an adapter: a tracer knows functions by identity, and a spec's stages are bound methods."""
    lora = Lora(rank=rank, alpha=SCALE * rank, targets=linears, train=train)
    return _specs.setdefault((base.folder, lora), ModelSpec(base.config, lora))


# ---- the oracle --------------------------------------------------------------------------------------------------------------


class Reference:
    """transformers and peft on the dequantized weights, in float64."""

    def __init__(
        self, base: Base, model: ModelSpec, adapter: Mapping[str, np.ndarray], dtype: torch.dtype = torch.float64
    ) -> None:
        self.dtype = dtype
        self.peft, self.parameters = peft_reference(
            base.folder, adapter, rank=model.lora.rank, alpha=model.lora.alpha, dtype=dtype
        )

    def loss(self, batch: TokenBatch) -> torch.Tensor:
        return masked_loss(self.peft, batch.tokens, batch.targets, batch.mask)

    def gradients(self, batch: TokenBatch) -> tuple[float, Arrays]:
        loss = self.loss(batch)
        names = list(self.parameters)
        found = torch.autograd.grad(loss, [self.parameters[name] for name in names])
        return float(loss.detach()), {name: g.numpy() for name, g in zip(names, found, strict=True)}

    def set(self, adapter: Mapping[str, np.ndarray | torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(torch.as_tensor(np.asarray(adapter[name])))


def worst_error(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> tuple[float, str]:
    """Largest ||g - ref|| / ||ref|| over all tensors, and whose. Where ||ref|| is below 1e-6 of the largest of the model, the error
    is measured against that 1e-6 of the largest, and scaled so that reaching it counts as 1e-5 like everywhere else."""
    assert found.keys() == expected.keys()
    norms = {name: float(np.linalg.norm(g)) for name, g in expected.items()}
    floor = 1e-6 * max(norms.values())
    worst = (0.0, "")
    for name, reference in expected.items():
        distance = float(np.linalg.norm(found[name].astype(np.float64) - reference))
        error = 1e-5 * distance / floor if norms[name] < floor else distance / norms[name]
        worst = max(worst, (error if np.isfinite(error) else np.inf, name))
    return worst


Bases = Callable[[str], Base]


TOLERANCE = 1e-5  # ||g - ref|| / ||ref||; see harness.worst_error for tensors that are nearly zero
LOSS_TOLERANCE = 1e-6  # relative
