# SPDX-License-Identifier: Apache-2.0
"""Personalizer: what a developer calls at build time. Model, methods and budget go in, a bundle comes out.

Settings are resolved and checked when the object is made, so that all of their problems are told at once. `build` writes
the bundle; `estimate` says what it will be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from bespoke import arguments, plugins
from bespoke.config import Budget, Lora, Settings, Training, config_problems
from bespoke.errors import BespokeError, ConfigError, MissingDependency
from bespoke.plan.instructions import Estimate

if TYPE_CHECKING:
    from bespoke.data.prepare import DataReport

Named = str | Sequence[str] | Mapping[str, Mapping[str, Any]]
Progress = Callable[[str, int, int], None]
"""Told (stage, done, total) as a build goes on."""
AUTO = "auto"
"""`data`: a general set of the build's own."""
DIAL_MB = (64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True)
class Method:
    """An optimizer plugin with its options and its training settings, resolved."""

    name: str
    plugin: Any
    options: Settings
    training: Training

    @property
    def scalars(self) -> dict[str, float]:
        """Options that have the name of a run-time scalar."""
        return {"epsilon": float(self.options.epsilon)} if hasattr(self.options, "epsilon") else {}


@dataclass(frozen=True)
class TargetChoice:
    """A target plugin with its options."""

    name: str
    plugin: Any
    options: Settings


@dataclass(frozen=True)
class PlanEstimate:
    """What one plan will take. Bytes of anonymous memory over the idle process; floating-point operations a step.

    `seconds` of a step by the planner's formula: for comparing plans. `least` and `fastest` are the ends of what can be had.
    """

    method: str
    sequence_length: int
    choices: dict[str, int | str | bool]
    estimate: Estimate
    seconds: float
    least: Estimate
    fastest: Estimate


@dataclass(frozen=True)
class DialPoint:
    """What a budget buys; without an estimate, nothing fits it."""

    method: str
    sequence_length: int
    budget_bytes: int
    estimate: Estimate | None
    seconds: float | None
    choices: dict[str, int | str | bool]


@dataclass(frozen=True)
class Dial:
    """Plans over budgets: what going lower or faster costs."""

    points: tuple[DialPoint, ...]

    def __str__(self) -> str:
        lines = ["method  length  budget MB   peak MB  in a file   GFLOP/step  seconds by formula  choices"]
        for p in self.points:
            start = f"{p.method:<7} {p.sequence_length:>6} {p.budget_bytes / 1e6:>10.0f}"
            if p.estimate is None:
                lines.append(f"{start} {'does not fit':>9}")
                continue
            e = p.estimate
            figures = f"{e.peak_bytes / 1e6:>9.1f} {e.scratch_bytes / 1e6:>10.1f} {e.work_flops / 1e9:>12.2f} {p.seconds:>19.4f}"
            lines.append(f"{start} {figures}  {_words(p.choices)}")
        return "\n".join(lines)


def _words(choices: Mapping[str, int | str | bool]) -> str:
    return ", ".join(f"{name}={value}" for name, value in choices.items())


@dataclass(frozen=True)
class BuildEstimate:
    """What `build` would make: its plans as they will stand in the bundle, and the size of all files, golden values (which are not
    computed for this) as long as they can get."""

    plans: tuple[PlanEstimate, ...]
    bundle_bytes: int
    budget_bytes: int | None

    @property
    def peak_bytes(self) -> int:
        """The largest peak of all plans."""
        return max(plan.estimate.peak_bytes for plan in self.plans)

    def __str__(self) -> str:
        budget = "none" if self.budget_bytes is None else f"{self.budget_bytes / 1e6:.1f} MB"
        lines = [
            f"bundle at most {self.bundle_bytes / 1e6:.1f} MB, budget {budget}",
            "method  length   peak MB   GFLOP/step   least MB   GFLOP/step  fastest MB   GFLOP/step  choices",
        ]
        for plan in self.plans:
            ends = (plan.estimate, plan.least, plan.fastest)
            widths = (9, 10, 11)
            figures = [f"{e.peak_bytes / 1e6:>{w}.1f} {e.work_flops / 1e9:>12.2f}" for e, w in zip(ends, widths, strict=True)]
            lines.append(f"{plan.method:<7} {plan.sequence_length:>6} {' '.join(figures)}  {_words(plan.choices)}")
        return "\n".join(lines)


class Personalizer:
    """A model, the ways of training it, and what it may cost.

    model:       Hugging Face folder or hub id
    optimizers:  a name, several, or name -> options; an option that is a field of `Training` overrides it for that method
    targets:     the same for targets
    data:        JSONL, .json, CSV or .txt that ships to all users: general text against forgetting, labels. "auto": a small general
                 set of the build's own, on which the gate looks and nothing is trained; None: no such set, and nonsense may pass
    fields:      column names of `data`, as {"prompt": "question", "completion": "answer"}
    train_on:    whose words are learned from: "assistant", "user" ("write like me") or "all"
    licence:     terms of the base model, where its folder does not say
    signing_key: private ed25519 key in PEM; its public half is what an app asks for
    """

    def __init__(
        self, model: str | Path, optimizers: Named = "mesp", targets: Named = "cuda", *, data: str | Path | None = AUTO,
        data_format: str | None = None, fields: Mapping[str, str] | None = None, lora: Lora | None = None,
        training: Training | None = None, budget: Budget | None = None, train_on: str = "assistant",
        licence: str | None = None, template_date: str | None = None, signing_key: bytes | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        self.data = Path(data) if isinstance(data, str) and data != AUTO else data
        self.data_format = data_format
        self.fields = dict(fields) if isinstance(fields, Mapping) and fields else fields or None
        self.lora = lora or Lora()
        self.training = training or Training()
        self.budget = budget or Budget()
        self.train_on = train_on
        self.licence = licence
        self.template_date = template_date
        self.signing_key = signing_key
        problems = _wrong_kinds(vars(self))
        if problems:  # what they are, before what they say
            raise ConfigError.from_problems(problems)
        self.methods, self.targets = self._resolve(optimizers, targets)

    def estimate(self) -> BuildEstimate:
        """Peak memory, work and bundle size as `build` will have them; refuses what `build` refuses, and leaves nothing behind."""
        from bespoke.compiler.bundle import estimate

        return estimate(self)

    def dial(self, budgets_mb: Sequence[float] = DIAL_MB) -> Dial:
        """The fastest plan within each budget, for every method and sequence length. `print` it for a table.

        Peaks of the least and of the largest budgets are as measured by the target, those between are near it.
        """
        from bespoke.compiler.bundle import dial

        return dial(self, [Budget(memory_mb=budget).memory_bytes or 0 for budget in budgets_mb])

    def build(self, out: str | Path, progress: Progress | None = None) -> Path:
        """Writes the bundle into folder `out`, whole or not at all, and returns it. Same input, same bytes."""
        return self.build_with_report(out, progress)[0]

    def build_with_report(self, out: str | Path, progress: Progress | None = None) -> tuple[Path, DataReport | None]:
        """`build`, and what became of the rows of `data`."""
        from bespoke.bundle.signature import public_key_of
        from bespoke.compiler.bundle import build

        if self.signing_key is not None:
            public_key_of(self.signing_key)  # a key that is none is told before the work, not after
        return build(self, arguments.folder("out", out), progress or (lambda stage, done, total: None))

    # ---- settings --------------------------------------------------------------------------------------------------------

    def _resolve(self, optimizers: Named, targets: Named) -> tuple[tuple[Method, ...], tuple[TargetChoice, ...]]:
        problems: list[ConfigError] = []
        methods: list[Method] = []
        chosen: list[TargetChoice] = []
        if not isinstance(self.train_on, str) or self.train_on not in ("assistant", "user", "all"):
            problems.append(
                ConfigError("train_on", got=repr(self.train_on), expected="'assistant', 'user' or 'all'", next_step="Choose one")
            )
        for name, values in _by_name("optimizers", optimizers, problems):
            plugin = _plugin("optimizer", name, problems)
            if plugin is None:
                continue
            shared = {key: value for key, value in values.items() if key in Training.model_fields}
            own = {key: value for key, value in values.items() if key not in shared}
            options = _settings(f"optimizers.{name}", plugin.Options, own, problems)
            overridden = {**self.training.model_dump(), **self._method_defaults(options), **shared}
            training = _settings(f"optimizers.{name}", Training, overridden, problems)
            if isinstance(options, Settings) and isinstance(training, Training):
                methods.append(Method(name, plugin, options, training))
        for name, values in _by_name("targets", targets, problems):
            plugin = _plugin("target", name, problems)
            if plugin is not None:
                options = _settings(f"targets.{name}", plugin.Options, dict(values), problems)
                if isinstance(options, Settings):
                    chosen.append(TargetChoice(name, plugin, options))
        lengths = {method.training.sequence_lengths for method in methods}
        if len(lengths) > 1:
            problems.append(
                ConfigError(
                    "training.sequence_lengths", got=f"{len(lengths)} different lists", expected="one list for all methods",
                    next_step="Set sequence_lengths in Training only: tokens are cut to them once",
                )
            )
        if problems:
            raise ConfigError.from_problems(problems)
        return tuple(methods), tuple(chosen)

    def _method_defaults(self, options: Any) -> dict[str, Any]:
        """What the method does best with, of the fields that `training` leaves open."""
        defaults: Mapping[str, Any] = getattr(options, "training_defaults", {})
        return {name: value for name, value in defaults.items() if name not in self.training.model_fields_set}


# What arguments must be, and how that is said.
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "model": ((str, Path), "a folder or a hub id"), "data": ((str, Path, type(None)), "a file, 'auto' or None"),
    "data_format": ((str, type(None)), "the name of a format or None"),
    "fields": ((dict, type(None)), "{what it is: the column that holds it} or None"),
    "lora": (Lora, "Lora(...)"), "training": (Training, "Training(...)"), "budget": (Budget, "Budget(...)"),
    "licence": ((str, type(None)), "text or None"), "template_date": ((str, type(None)), "text or None"),
    "signing_key": ((bytes, type(None)), "the bytes of a PEM file or None"),
}  # fmt: skip


def _wrong_kinds(arguments: Mapping[str, Any]) -> list[ConfigError]:
    return [
        ConfigError(name, got=repr(arguments[name])[:200], expected=words, next_step=f"Change {name}")
        for name, (kinds, words) in _KINDS.items()
        if not isinstance(arguments[name], kinds)
    ]


def _by_name(subject: str, named: Any, problems: list[ConfigError]) -> list[tuple[str, Mapping[str, Any]]]:
    if isinstance(named, str):
        return [(named, {})]
    pairs: list[tuple[Any, Any]] = []
    if isinstance(named, Mapping):
        pairs = [(name, {} if values is None else values) for name, values in named.items()]
    elif isinstance(named, Sequence):
        pairs = [(name, {}) for name in named]
    names = [name for name, _ in pairs]
    named_well = all(isinstance(name, str) and isinstance(values, Mapping) for name, values in pairs)
    if not pairs or not named_well or len(set(names)) < len(names):
        empty = isinstance(named, Sequence | Mapping) and not named
        problems.append(
            ConfigError(
                subject, got="none" if empty else repr(named)[:200],
                expected="at least one name" if empty else "a name, several different ones, or name -> options",
                next_step=f"Name one in {subject}",
            )
        )  # fmt: skip
        return []
    return pairs


def _plugin(kind: plugins.Kind, name: str, problems: list[ConfigError]) -> Any:
    try:
        return plugins.get(kind, name)
    except MissingDependency:
        raise  # no setting mends it
    except BespokeError as error:
        problems.append(
            ConfigError(error.subject, got=error.got, expected=error.expected, next_step=error.next_step)
        )
        return None


def _settings(
    subject: str, kind: type[BaseModel], values: dict[str, Any], problems: list[ConfigError]
) -> BaseModel | None:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems += config_problems(subject, error, kind)
        return None
