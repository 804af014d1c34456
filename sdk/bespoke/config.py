# SPDX-License-Identifier: Apache-2.0
"""The developer's settings: adapter shape, training, memory. Defaults are resolved here once and written into the bundle."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Collection
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticKnownError

from bespoke.errors import ConfigError, shown
from bespoke.format.json_strict import shown_json
from bespoke.remedies import setting

MEGABYTE = 10**6  # MB = 10**6 bytes, everywhere
MAX_BUDGETS = 8
LONGEST_RUN = 10_000_000  # steps
JUDGED_POSITIONS = 4096  # most that the gate evaluates of the user's rows, and of the bundle's own

Schedule = Literal["constant", "linear", "cosine"]
Linear = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LINEARS: tuple[Linear, ...] = get_args(Linear)  # a block's linears, in the order of a forward pass


class Settings(BaseModel):
    """Base of settings, frozen and strict. An unknown field, a number given as text and a number that is not finite are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError.from_problems(config_problems(type(self).__name__, error, type(self))) from None

    # Pydantic's mark for an __init__ that it need not call. Readers of files validate and raise errors of their own.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class BoundAtRunTime:
    """Marks an option as a scalar of the plan."""


Scalar = Annotated[float, BoundAtRunTime()]
"""Type of an option that a plan reads with `b.scalar(name)`: its value is bound when the plan runs, not traced into graphs."""


def scalar_options(kind: type[Settings]) -> tuple[str, ...]:
    """Names of the fields declared as `Scalar`."""
    return tuple(
        name for name, field in kind.model_fields.items() if any(isinstance(m, BoundAtRunTime) for m in field.metadata)
    )


def as_tuple(value: Any) -> Any:
    """Turns a list into a tuple, for validators: JSON has lists only."""
    return tuple(value) if isinstance(value, list) else value


def _lengths(value: tuple[int, ...]) -> tuple[int, ...]:
    if min(value, default=1) < 1 or len(set(value)) != len(value):
        raise ValueError("different whole numbers, each 1 or more")
    return value


def _auto(value: Any) -> Any:
    return None if value == "auto" else value


def _in_order(value: tuple[Linear, ...]) -> tuple[Linear, ...]:
    if len(set(value)) != len(value):
        raise ValueError("each linear once")
    return tuple(name for name in LINEARS if name in value)


class Lora(Settings):
    """The shape of the adapter: y = x W + (alpha / rank) x A B on linear layers of every block, with PEFT's names and layout.

    Args:
        rank: Width of A and B. A higher rank learns more and takes more memory.
        alpha: Scale of the adapter, which is multiplied by alpha / rank.
        targets: The linear layers that get an adapter, in any order. By default all seven. Fewer take less memory and learn less.
        train: "both" trains A and B. "B" trains B alone (LoRA-FA, arXiv 2308.03303): A stays as it is drawn at build, so
            state, gradients and noise hold nothing of it.
    """

    rank: int = Field(default=8, ge=1, le=1024)
    alpha: float = Field(default=16.0, gt=0)
    targets: Annotated[tuple[Linear, ...], BeforeValidator(as_tuple), AfterValidator(_in_order)] = Field(
        default=LINEARS, min_length=1
    )
    train: Literal["both", "B"] = "both"

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def trains(self, piece: str) -> bool:
        """Whether the piece of this name, `q_proj.lora_A` or with its group before it, is trained or stays as it is."""
        return self.train == "both" or piece.endswith("lora_B")


class Training(Settings):
    """The settings of a run. A method's options may override any of them.

    Args:
        learning_rate: Step size. If you do not set it, the method's own default counts. Lower it if the loss jumps or is not
            finite.
        steps: Length of a run, and of its schedule. "auto" (kept as None): as many as read each row of the user's six times, at
            least 300 and at most 5,000.
        sequence_lengths: Lengths in tokens for which the bundle has plans. A batch takes the shortest that holds its longest row.
            Raise the longest to keep long examples whole; memory grows with it.
        batch_size: Rows of a micro-batch.
        accumulation: Micro-batches whose gradients are summed into one step. Raise it for a larger batch in the same memory.
        clip_norm: Largest norm of all gradients together. None: no clipping.
        schedule: Learning rate over the run: "constant", or falling to 0 as "linear" or "cosine".
        warmup_steps: Steps in which the learning rate rises from 0.
        seed: Seed of the order of the data and of a method's noise.
        general_share: Share of batches from the bundle's own data, from 0 to 1. Raise it if the model forgets what it knew.
        general_tolerance: Largest relative rise allowed for the loss on general data. The gate refuses an adapter above it.
        useful_gain: Least relative fall of the loss on the user's examples. The gate refuses an adapter below it.
        commit_seconds: Seconds between two commits. A killed run loses at most that much work.
        write_mb_per_second: Most MB a second that commits may write, because flash memory wears.
        write_mb_per_run: Most MB that a run may write to files of its state in one call of `train`. None: no limit.
        packing: Whether the bundle's own `text` rows are packed into full sequences. Attention then crosses documents.
    """

    learning_rate: float = Field(default=2e-4, gt=0)
    steps: Annotated[int | None, BeforeValidator(_auto)] = Field(
        default=None, ge=1, le=LONGEST_RUN, description="length of a run; null: by the number of the user's rows"
    )
    sequence_lengths: Annotated[tuple[int, ...], BeforeValidator(as_tuple), AfterValidator(_lengths)] = Field(
        default=(64, 128, 256), min_length=1, max_length=16
    )
    batch_size: int = Field(default=1, ge=1, le=4096)
    accumulation: int = Field(default=1, ge=1, le=65536, description="micro-batches a step")
    clip_norm: float | None = Field(default=None, gt=0, description="largest norm of all gradients together")
    schedule: Schedule = "constant"
    warmup_steps: int = Field(default=0, ge=0)
    seed: int = Field(default=0, ge=0, lt=2**63)
    general_share: float = Field(default=0.3, ge=0, le=1, description="share of batches from the bundle's own data")
    general_tolerance: float = Field(
        default=0.05, ge=0, description="largest relative rise allowed for the loss on the bundle's data"
    )
    useful_gain: float = Field(
        default=0.002, ge=0, lt=1, description="least relative fall required of the loss on the user's examples"
    )
    commit_seconds: float = Field(default=30.0, gt=0)
    write_mb_per_second: float = Field(
        default=2.0, gt=0, description="most that commits may write, because flash wears"
    )
    write_mb_per_run: float | None = Field(
        default=300.0, gt=0, description="most that a run may write to files of its state in one call; null: no limit"
    )
    packing: bool = Field(default=False, description="pack the bundle's own `text` rows; attention crosses documents")

    @property
    def accumulates(self) -> bool:
        """Whether gradients are summed before they are applied, for several micro-batches or for a norm over all gradients."""
        return self.accumulation > 1 or self.clip_norm is not None

    @property
    def step_section(self) -> Literal["train_step", "micro_step"]:
        """The section of a plan that reads a batch: the whole step, or one micro-step of it."""
        return "micro_step" if self.accumulates else "train_step"


def _budgets(value: Any) -> float | tuple[float, ...] | None:
    if value is None:
        return None
    budgets = tuple(value) if isinstance(value, list | tuple) else (value,)
    for budget in budgets:
        if isinstance(budget, bool) or not isinstance(budget, int | float):
            raise PydanticKnownError("float_type")
        if not math.isfinite(budget):
            raise PydanticKnownError("finite_number")
        if not budget > 0:
            raise PydanticKnownError("greater_than", {"gt": 0})
    if not 1 <= len(set(budgets)) == len(budgets) <= MAX_BUDGETS:
        raise ValueError(f"a number, or up to {MAX_BUDGETS} different ones")
    return float(budgets[0]) if len(budgets) == 1 else tuple(sorted(map(float, budgets), reverse=True))


class Budget(Settings):
    """The memory limit of training.

    Args:
        memory_mb: Anonymous memory of the process that trains, in MB of 10**6 bytes. With the engine `torch` it is what training
            adds to the idle process. None: no limit, and the fastest plan. Give several numbers for devices of several sizes: the
            largest is the bundle's budget, and the bundle has plans for each of the others, which continue the same run.
    """

    memory_mb: Annotated[float | tuple[float, ...] | None, PlainValidator(_budgets)] = None

    @property
    def memory_bytes(self) -> int | None:
        """The largest budget."""
        return self._bytes[0] if self._bytes else None

    @property
    def smaller_bytes(self) -> tuple[int, ...]:
        """The other budgets, largest first."""
        return self._bytes[1:]

    @property
    def _bytes(self) -> tuple[int, ...]:
        budgets = (
            self.memory_mb if isinstance(self.memory_mb, tuple) else () if self.memory_mb is None else (self.memory_mb,)
        )
        return tuple(int(budget * MEGABYTE) for budget in budgets)


class Federation(Settings):
    """What the users of an app may learn together, each on their own device. Nobody takes part without consent.

    Args:
        task: Name of what is learned. A device spends its budget and gives its consent by this name.
        server_key: Public ed25519 key of the server, in hexadecimal. A device follows rounds that it signed and no others.
        clip: Largest L2 norm of the numbers that a device sends of one round. Longer ones are scaled down to it.
        noise: Standard deviation of the normal noise that a device adds to each number, in units of `clip`. 0: none, and then the
            numbers promise nothing about the words behind them.
        budget: Most that a device ever spends, in zero-concentrated differential privacy (rho, arXiv 1605.02065). A round costs
            1 / (2 noise^2). When it is spent, the device sends no more numbers. None: no limit, which only `noise=0` allows.
        method: Method that measures. None: the first of the bundle that can.
    """

    task: str = Field(min_length=1, max_length=256)
    server_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    clip: float = Field(default=1.0, gt=0)
    noise: float = Field(default=1.0, ge=0)
    budget: float | None = Field(default=4.0, gt=0)
    method: str | None = None

    @model_validator(mode="after")
    def _budget_of_noise(self) -> Self:
        if (self.noise == 0) != (self.budget is None):
            raise ValueError("budget=None with noise=0, and a number with noise: rounds without noise have no price")
        return self


def settings_from(kind: type[Settings], subject: str, values: dict[str, Any]) -> Settings:
    """Returns `kind(**values)`. Raises one ConfigError that lists everything that pydantic rejects."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError.from_problems(config_problems(subject, error, kind)) from None


def config_problems(
    subject: str, error: ValidationError, kind: type[BaseModel], more_fields: Collection[str] = ()
) -> list[ConfigError]:
    """Returns one ConfigError for each error of pydantic.

    Args:
        subject: What was validated, as errors name it.
        error: Pydantic's errors.
        kind: The class that was validated.
        more_fields: Fields that may stand in the same table and belong to another class. An unknown field is answered with the
            nearest of all.
    """
    problems = []

    for entry in error.errors():
        where = ".".join([subject, *(str(part) for part in entry["loc"])])
        unknown = entry["type"] == "extra_forbidden"
        expected = expected_of(entry)
        next_step: str = "Change " + setting(where)

        if unknown:
            fields = sorted({*kind.model_fields, *more_fields})
            near = difflib.get_close_matches(str(entry["loc"][-1]), fields, 1) if more_fields else []
            expected = f"one of the fields {', '.join(fields)}"
            next_step = f"Did you mean '{near[0]}'?" if near else "Remove it or correct its name"

        problems.append(ConfigError(setting(where), got=_shown(entry["input"]), expected=expected, next_step=next_step))
    return problems


def _shown(value: object) -> str:
    """The value as JSON writes it, because settings often come from files. Python writes what JSON cannot hold."""
    try:
        held = not isinstance(value, str) and bool(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        held = False
    return shown_json(value, 200) if held else shown(value)


# Type of a pydantic error -> what it expects, in the words of the SDK.
_EXPECTED = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "missing": "a value",
    "string_type": "text",
    "too_long": "at most {max_length} entries",
    "too_short": "at least {min_length} entries",
    "tuple_type": "a list",
}


def expected_of(entry: Any) -> str:
    """Returns what an error of pydantic expects, in the words of the SDK."""
    if entry["type"] in _EXPECTED:
        ctx = entry.get("ctx", {})
        return _EXPECTED[entry["type"]].format(
            **{name: f"{it:g}" if isinstance(it, float) else it for name, it in ctx.items()}
        )
    return str(entry["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
