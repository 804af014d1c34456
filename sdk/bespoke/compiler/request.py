# SPDX-License-Identifier: Apache-2.0
"""A build request: model, methods, targets and budget, resolved and checked. `build` and `estimate` know nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bespoke.arguments import TrainOn
from bespoke.config import Budget, Federation, Lora, Settings, Training, scalar_options
from bespoke.plan.kinds import option_scalar

if TYPE_CHECKING:
    from bespoke.contracts import Optimizer, Target

__all__ = ["AUTO", "BuildArguments", "BuildListener", "BuildRequest", "Method", "TargetChoice"]

BuildListener = Callable[[str, int, int], None]
"""A function that a build calls with (stage, done, total)."""
AUTO = "auto"
"""The value of `data` for a general set that the build creates."""


@dataclass(frozen=True)
class Method:
    """An optimizer plugin with its options and its training settings, resolved."""

    name: str
    plugin: Optimizer
    options: Settings
    training: Training

    @property
    def scalars(self) -> dict[str, float]:
        """Scalars that engines bind at every step: an option `epsilon`, and `option.<name>` for options declared as `Scalar`."""
        known = ("epsilon",) if hasattr(self.options, "epsilon") else ()
        return {
            option_scalar(name): float(getattr(self.options, name))
            for name in (*known, *scalar_options(type(self.options)))
        }


@dataclass(frozen=True)
class TargetChoice:
    """A target plugin with its options."""

    name: str
    plugin: Target
    options: Settings


@dataclass(frozen=True)
class BuildArguments:
    """The arguments of `Personalizer` other than its plugins, with every default filled in."""

    model: str | Path
    tokenizer: str | Path | None
    context: int | None
    draft_tokens: int
    data: Path | str | None
    data_format: str | None
    fields: Mapping[str, str] | None
    encoding: str | None
    lora: Lora
    training: Training
    budget: Budget
    rehearsal: bool
    text: bool
    train_on: TrainOn
    licence: str | None
    template_date: str | None
    federation: Federation | None
    signing_key: bytes | None


@dataclass(frozen=True, kw_only=True)
class BuildRequest(BuildArguments):
    """The arguments, resolved and checked. At least one target; all methods have the same sequence lengths."""

    methods: tuple[Method, ...]
    targets: tuple[TargetChoice, ...]

    @property
    def compiled_for(self) -> tuple[str, ...]:
        """Targets that get artifacts. Without any, only the engine `torch` runs the bundle."""
        return tuple(target.name for target in self.targets if target.plugin.compiles)

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Sequence lengths, the shortest first. Without a method the longest still limits an example."""
        training = self.methods[0].training if self.methods else self.training
        return tuple(sorted(training.sequence_lengths))
