# SPDX-License-Identifier: Apache-2.0
"""Report of `bespoke bench`: what a device can do. The core measures the device, the SDK adds the steps of a bundle.

It names no user and no machine, so that it can be published: docs/reference/devices.md collects such reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Spread:
    """The median of several turns, and the range that they cover. All are greater than 0."""

    median: float
    least: float
    most: float
    turns: int


@dataclass(frozen=True)
class SystemName:
    """The operating system: Linux and its kernel's version, or Android and its release."""

    name: str
    version: str
    architecture: str


@dataclass(frozen=True)
class CoreClass:
    """Cores that are equally fast.

    name:     their numbers in the system, such as "0-3"; empty where the system does not bind threads to cores
    capacity: the kernel's figure for the work that a core does, 1024 for the fastest; None if it has none
    max_mhz:  None if unknown
    part:     implementer and part of an Arm core in hexadecimal, such as "41:d05"
    """

    name: str
    count: int
    capacity: int | None
    max_mhz: int | None
    part: str | None


@dataclass(frozen=True)
class ReadRate:
    """Bytes that threads read from memory, out of a buffer of `read_buffer_bytes`. `cores` is a class or "all"."""

    cores: str
    threads: int
    gigabytes_per_second: Spread


@dataclass(frozen=True)
class ProductRate:
    """The rate of products with int4 weights of Qwen2.5-0.5B.

    product: "forward" and "transposed" are the seven linears of a block, x W^T and g W. "head" is a chunk of the loss over the
             vocabulary, with its gradient.
    rows:    rows of the other operand
    unit:    "Gweights/s", 10^9 weights a second, for one row; "GFLOP/s" for more
    """

    cores: str
    threads: int
    instruction_set: str
    product: str
    rows: int
    unit: Literal["Gweights/s", "GFLOP/s"]
    rate: Spread


@dataclass(frozen=True)
class StepProducts:
    """The products of a step on all threads, without the adapter: blocks forward, the head, blocks forward again and back."""

    instruction_set: str
    threads: int
    blocks: int
    vocabulary: int
    rows: int
    seconds: Spread


@dataclass(frozen=True)
class PlanSteps:
    """Real steps by one plan of a bundle.

    budget_bytes: the budget that the plan was compiled for; None if the bundle was built without one
    peak_bytes:   memory of the process that trains; with the torch engine what training adds to it
    """

    method: str
    sequence_length: int
    batch_size: int
    budget_bytes: int | None
    estimate_bytes: int
    peak_bytes: int
    seconds: Spread


@dataclass(frozen=True)
class AnswerRate:
    """Answers to prompts of random tokens. Tokens are counted after the first, which the prompt's length decides."""

    prompt_tokens: int
    first_token_seconds: Spread
    tokens_per_second: Spread


@dataclass(frozen=True)
class BundleBench:
    """What a bundle does on the device. `answers` is None if it has no plan for answers, or if its answers end at once."""

    model: str
    engine: str
    plans: tuple[PlanSteps, ...]
    answers: AnswerRate | None


@dataclass(frozen=True)
class BenchReport:
    """What a device can do.

    processor:       the chip's name; None if the system has none
    features:        instruction sets that the kernels use here, apart from what BESPOKE_MASKED_FEATURES hides
    masked_features: the value of BESPOKE_MASKED_FEATURES
    load_average:    processes that were running before, over a minute; None if unknown
    quick:           whether it only tried that everything works: then no figure counts
    seconds:         what measuring the device took
    bundle:          None if none was given
    """

    core_version: str
    system: SystemName
    processor: str | None
    features: tuple[str, ...]
    masked_features: str
    cores: tuple[CoreClass, ...]
    memory_bytes: int
    load_average: float | None
    read_buffer_bytes: int
    reads: tuple[ReadRate, ...]
    products: tuple[ProductRate, ...]
    step_products: StepProducts
    quick: bool
    seconds: float
    bundle: BundleBench | None
