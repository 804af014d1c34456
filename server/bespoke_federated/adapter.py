# SPDX-License-Identifier: Apache-2.0
"""The shared adapter as devices compute it, bit for bit (docs/explanation/federation.md).

Of round r with directions j = 0, 1, ... and coefficients c_j, in this order and in float32,

    theta <- theta - c_j z_j;   theta <- theta - c'_j G_j

z_j is Rademacher noise of query j and step r, and G_j = V w_j is guidance. In a round without guidance G_j is zero, and the second
term changes nothing but the sign of a zero: -0 - -0 = 0. Where a plan has this term, it is taken here too. The plan of the bundle's
method says which pieces are trained, which counters make their noise, and what guidance looks like.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save

from bespoke.bundle.reader import Bundle
from bespoke.errors import BundleError
from bespoke.plan.instructions import Call, Named, Noise, Plan, Receive, SectionName, Store
from bespoke.plan.kinds import NO_BLOCK
from bespoke.plan.read import read_plan
from bespoke.rules.federation import adapter_hash
from bespoke.rules.noise import noise

__all__ = ["Adapter", "Received", "Step", "Steps", "snapshot_of"]

SECTION: SectionName = "federated_apply"


class Counter(NamedTuple):
    """Where a piece's noise comes from."""

    block: int
    tensor: int


class Received(NamedTuple):
    """A file of guidance as the plan reads it."""

    shape: tuple[int, ...]
    dtype: str


class Steps(NamedTuple):
    """What a plan says of the steps of a round."""

    counters: dict[str, Counter]  # by piece, in the plan's order
    received: dict[str, Received]  # files of guidance by name; none: the plan subtracts one term
    probe: bool  # whether a direction weighs one column of guidance alone

    @property
    def columns(self) -> int:
        """m, the columns of the guidance."""
        return next((file.shape[1] for file in self.received.values() if len(file.shape) == 2), 0)


class Step(NamedTuple):
    """The step of a round. guided: c' of each direction; guidance: the round's files by name, for those blocks that have some."""

    coefficients: Sequence[float]
    half: bool = False
    guided: Sequence[float] = ()
    guidance: Mapping[str, np.ndarray] = MappingProxyType({})


class Adapter:
    """The trained pieces after a round. `pieces` are replaced and never changed in place, so a reader may keep them."""

    def __init__(self, pieces: Mapping[str, np.ndarray], steps: Steps, seed: int, round_number: int = 0) -> None:
        self.pieces = {name: np.ascontiguousarray(pieces[name], np.float32) for name in sorted(pieces)}
        self.steps, self._seed = steps, seed
        self.round = round_number

    @classmethod
    def of_bundle(cls, bundle: Bundle) -> Adapter:
        """The adapter where every device starts. Raises BundleError for a bundle that no federation can use."""
        federation = bundle.manifest.federation
        if federation is None:
            raise BundleError(
                "the bundle",
                got="one whose users learn each for themselves",
                expected="one that was built with a federation",
                next_step="Build it with Personalizer(federation=Federation(...))",
            )
        record = bundle.method(federation.method).plans[0]
        steps = _steps_of(read_plan(bundle.read(record.file), record.file, bundle.manifest.graphs), record.file)
        initial, lora = bundle.initial_adapter(), bundle.manifest.lora.settings
        trained = {name: np.array(piece) for name, piece in initial.items() if lora.trains(name)}
        if trained.keys() != steps.counters.keys():
            raise _no_steps(record.file, f"steps of {len(steps.counters)} pieces", f"those of all {len(trained)}")
        return cls(trained, steps, federation.seed)

    def restored(self, pieces: Mapping[str, np.ndarray], round_number: int) -> Adapter:
        """These pieces in place of its own, as the adapter after a round."""
        return Adapter(pieces, self.steps, self._seed, round_number)

    @property
    def sha256(self) -> str:
        """The hash by which devices and server compare adapters."""
        return adapter_hash(self.pieces)

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces.values())

    @property
    def is_finite(self) -> bool:
        return all(bool(np.isfinite(piece).all()) for piece in self.pieces.values())

    @property
    def size(self) -> int:
        """d, the trained numbers."""
        return sum(piece.size for piece in self.pieces.values())

    def after(self, step: Step) -> Adapter:
        """The adapter after the next round."""
        number, pieces = self.round + 1, {}
        guided = step.guided or [0.0] * len(step.coefficients)
        for name, piece in self.pieces.items():
            theta, counter = piece.copy(), self.steps.counters[name]
            z, basis = np.empty_like(theta), self._basis(name, step.guidance)
            for direction, (coefficient, of_guidance) in enumerate(zip(step.coefficients, guided, strict=True)):
                noise(
                    theta.shape,
                    seed=self._seed,
                    step=number,
                    query=direction,
                    block=counter.block,
                    tensor=counter.tensor,
                    distribution="rademacher",
                    out=z,
                )
                with np.errstate(over="ignore"):
                    z *= np.float32(coefficient)  # exact
                    theta -= z
                    if basis is not None:
                        theta -= np.float32(of_guidance) * basis.along(self._weights(number, direction), theta.shape)
            if step.half:
                with np.errstate(over="ignore"):  # beyond float16 devices have infinity too
                    theta = theta.astype(np.float16).astype(np.float32)
            pieces[name] = theta
        return Adapter(pieces, self.steps, self._seed, number)

    def _weights(self, number: int, direction: int) -> np.ndarray:
        """w_j: the signs of the columns, or the one that is probed."""
        columns = self.steps.columns
        if self.steps.probe:
            return (np.arange(columns) == direction % columns).astype(np.float32)
        return noise(
            (columns,),
            seed=self._seed,
            step=number,
            query=direction,
            block=NO_BLOCK,
            tensor=0,
            distribution="rademacher",
        )

    def _basis(self, name: str, guidance: Mapping[str, np.ndarray]) -> _Basis | None:
        """V of a piece. None: the plan has no guidance."""
        if not self.steps.received:
            return None
        group, size = name.split(".", 1)[0], -(-self.pieces[name].size // 2)
        codes = guidance.get(f"guidance.{group}.codes")
        if codes is None:  # as devices read what did not come
            return _Basis(np.full((1, self.steps.columns), -8, np.float32), np.float32(0))
        block = [piece for piece in self.steps.counters if piece.split(".", 1)[0] == group]
        place = block.index(name)
        start = sum(-(-self.pieces[piece].size // 2) for piece in block[:place])
        pairs = codes[start : start + size]
        nibbles = np.stack([pairs & 15, pairs >> 4], 1).reshape(2 * size, -1)
        return _Basis(nibbles.astype(np.float32) - 8, np.float32(guidance[f"guidance.{group}.scales"][place]))


class _Basis(NamedTuple):
    """V of a piece: whole numbers, float32 [d, m], and their scale. One row where all are alike; one to spare where d is odd."""

    numbers: np.ndarray
    scale: np.float32

    def along(self, weights: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """G = V w. A sum of whole numbers is exact in any order."""
        g = (self.numbers @ weights) * self.scale
        return g if len(g) == 1 else g[: math.prod(shape)].reshape(shape)


def snapshot_of(adapter: Adapter, *, half: bool) -> bytes:
    """The trained pieces as a safetensors file. `half`: in float16, for an adapter that was rounded to it."""
    return save({name: piece.astype(np.float16) if half else piece for name, piece in adapter.pieces.items()})


def _steps_of(plan: Plan, file: str) -> Steps:
    """Reads section `federated_apply`: the noise that is first subtracted from each piece which it stores."""
    section = plan.sections.get(SECTION) or []
    noises: dict[int, Noise] = {}
    counters: dict[str, Counter] = {}
    received: dict[str, Received] = {}
    probe = True
    for instruction in section:
        if isinstance(instruction, Receive):
            value = plan.values[instruction.value]
            received[instruction.name] = Received(tuple(value.shape), value.dtype)
        elif isinstance(instruction, Noise):
            if instruction.distribution != "rademacher":
                raise _no_steps(file, f"{instruction.distribution} noise", "noise of -1 and 1")
            noises[instruction.value] = instruction
            if instruction.block == NO_BLOCK:
                probe = False
        elif isinstance(instruction, Call):
            _note_counter(plan, instruction, noises, counters)
    stored = {_piece(plan, instruction.state) for instruction in section if isinstance(instruction, Store)}
    if not section or stored != counters.keys():
        raise _no_steps(file, f"{len(counters)} steps along noise", f"one for each of the {len(stored)} pieces")
    return Steps(counters, received, probe)


def _note_counter(plan: Plan, call: Call, noises: Mapping[int, Noise], counters: dict[str, Counter]) -> None:
    """Notes the counter of a call's noise for the piece of the adapter that it takes."""
    operands = [operand[0] for operand in call.operands]
    pieces = [name for value in operands if (name := _piece(plan, value)) is not None]
    steps = [noises[value] for value in operands if value in noises and noises[value].block != NO_BLOCK]
    if len(pieces) == len(steps) == 1:
        counters.setdefault(pieces[0], Counter(steps[0].block, steps[0].tensor))


def _piece(plan: Plan, value: int) -> str | None:
    record = plan.values[value]
    return record.place.name if record.role == "adapter" and isinstance(record.place, Named) else None


def _no_steps(file: str, got: str, expected: str) -> BundleError:
    return BundleError(
        f"{file}, section {SECTION}",
        got=got,
        expected=expected,
        next_step="Build the bundle with a method that takes part: zgr, or mesp or mebp with federated_directions",
    )
