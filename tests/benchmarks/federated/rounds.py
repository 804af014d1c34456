# SPDX-License-Identifier: Apache-2.0
"""A run of the simulation: rounds in which devices measure, a server combines, and all take the same step.

    plain         h = z, a direction for each device; the server averages Delta_i z_i
    literal       as CooperLLM writes: h = sqrt(a/d) z + sqrt((1-a)/m) V z_g, one V z_g for all, every `gamma` rounds; else h = z
    guided        h = sqrt(a) z + sqrt((1-a) d/m) V w, so every h is as long as z; w is each direction's own
    probe         devices measure the columns of V in turn, and the step is their sum
    projections   devices send z_j . g of their exact gradients, the same 256 directions for all
    cloud         steps by exact gradients on public data, no devices
    fedsgd        steps by the devices' exact gradients

V comes from four gradients on 16 public sentences each, at the adapter of the round. A projection is linear in the gradient, so
what devices send is summed by measuring their batches together.

`directions` below the number of devices is mode shared: device i measures direction i mod directions.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from tests.benchmarks.federated.intents import Public, Sentences, World
from tests.benchmarks.federated.parties import BATCH, CLOUD_ROWS, COLUMNS, EPSILON, PROJECTIONS, Party, Place
from tests.support.federation import written

from bespoke.rules.aggregation import Along, Combine, direction_of, step_of
from bespoke.rules.guidance import Guard, Squares, basis_of, files_of, squares_of
from bespoke.rules.one_sided import REMEMBERED, always_outer, outer_shares

__all__ = ["COLLUDING", "HUGE", "MIX", "PROBED", "Attack", "Method", "Run", "Simulation", "Step"]

Attack = Literal["huge", "colluding", "flipped"]
Method = Literal["plain", "literal", "guided", "probe", "projections", "cloud", "fedsgd"]
GUIDED = ("literal", "guided", "probe")
MIX = 0.5  # alpha, the share of z
PROBED = 0.1 / EPSILON  # c' of a column, so that a device goes 0.1 far along it
EVERY = 10  # of so many devices one is hostile
HUGE, COLLUDING = 1e6, -1e3  # numbers that hostile devices send: colluding ones push against the public gradients
WATCHERS = 8  # of a round's devices, which measure z until a guard has judged
START_ROUNDS, START_RATE, START_ROWS = 300, 1.0, 64  # of the adapter that a cloud trains before devices begin


@dataclass(frozen=True)
class Run:
    """What decides the numbers of a run.

    gamma:      guidance is there every so many rounds
    directions: None: a direction for each device (mode own)
    start:      whether rounds begin with an adapter that was trained on the public data
    guard:      how much of the public gradients' share in the span devices must have, else guidance stops; None: no guard
    rate_after: the rate once it has stopped
    attack:     what one of ten devices sends: huge numbers, always the least that is let in, or what it measured with another
                sign
    clip:       largest number that honest devices send and the server lets in; None: no limit
    noise:      standard deviation of what is added to the number of each direction, in units of `clip`
    last_block: whether guidance and exact steps leave all blocks but the last as they are
    model:      the name of a model other than the small Llama
    """

    method: Method
    rate: float
    seed: int = 0
    rounds: int = 300
    clients: int = 16
    public: Public = "same"
    gamma: int = 1
    directions: int | None = None
    combine: Combine = "mean"
    start: bool = False
    guard: float | None = None
    rate_after: float = 0.0
    last_block: bool = False
    attack: Attack | None = None
    clip: float | None = None
    noise: float = 0.0
    model: str | None = None


@dataclass(frozen=True)
class Step:
    """What a round came to: directions with coefficients, and the numbers that devices sent."""

    along: list[Along]
    sent: dict[int, list[float]]


@dataclass
class Simulation:
    """Parties at work on one run."""

    run: Run
    world: World
    devices: Party
    cloud: Party
    place: Place
    guard: Guard | None = None
    seen: list[tuple[float, float]] = field(default_factory=list)
    """Shares of devices and of public gradients that the guard saw, by guided round."""

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(1000 + self.run.seed)
        self.compared = Squares(0.0, 0.0)
        self.chosen: list[int] = []  # devices of the round
        self.hostile: list[bool] = []
        self.remembered: dict[int, list[float]] = {}  # outer shares of each device
        if self.run.guard is not None:
            self.guard = Guard(COLUMNS, self.run.guard)

    def batches(self) -> list[Sentences]:
        """What each device of a round measures: sentences of its own."""
        chosen = self.random.permutation(len(self.world.clients))[: self.run.clients]
        self.chosen = chosen.tolist()
        self.hostile = [self.run.attack is not None and one % EVERY == 0 for one in chosen]
        train, clients = self.world.train, self.world.clients
        return [train.at(self.random.choice(clients[one], BATCH, replace=False)) for one in chosen]

    def public_gradient(self, rows: int = CLOUD_ROWS) -> np.ndarray:
        public = self.world.public
        return self.exact(public.at(self.random.choice(len(public), rows)))

    def exact(self, of: Sentences) -> np.ndarray:
        gradient = self.cloud.gradient(of)
        if self.run.last_block:
            last = max(name.split(".")[0] for name in self.cloud.shapes)
            below = sum(
                math.prod(shape) for name, shape in self.cloud.shapes.items() if not name.startswith(f"{last}.")
            )
            gradient[:below] = 0
        return gradient

    def guidance(self) -> dict[str, np.ndarray]:
        """The files of a round's guidance, at the devices' adapter."""
        self.cloud.fill(self.devices.adapter())
        basis = basis_of(np.stack([self.public_gradient() for _ in range(COLUMNS)]), COLUMNS)
        if self.guard and not self.guard.judges:
            others = np.stack([self.public_gradient(BATCH) for _ in range(WATCHERS)])
            self.compared = squares_of(others, basis)
        if self.run.method == "literal":  # one direction for all: the first column, and nothing in the others
            mixed = math.sqrt((1 - MIX) / COLUMNS) * self.random.standard_normal(COLUMNS) @ basis
            basis = np.concatenate([mixed[None], np.zeros((COLUMNS - 1, self.cloud.size))])
        return files_of(basis, self.cloud.shapes)

    def measured(self, round_number: int) -> Step:
        """A round of devices that measure along directions."""
        run, d = self.run, self.devices.size
        at: dict[str, Any] = {"seed": 2000 + run.seed, "round": round_number}
        guided = run.method in GUIDED and round_number % run.gamma == 0 and not (self.guard and self.guard.stopped)
        if guided:
            folder = self.place.folder / "guidance"
            shutil.rmtree(folder, ignore_errors=True)
            at["guidance"] = str(written(self.guidance(), folder))
        c, c_g = self.coefficients(guided, d)
        batches = self.batches()
        watching = batches[-WATCHERS:] if guided and self.guard and not self.guard.judges else []
        batches = batches[: len(batches) - len(watching)]
        probe = guided and run.method == "probe"
        directions = COLUMNS if probe else run.directions or run.clients
        each = [(batch, Along(direction_of(device, directions), c, c_g)) for device, batch in enumerate(batches)]
        each += [(batch, Along(directions + device, 1.0, 0.0)) for device, batch in enumerate(watching)]
        numbers = self.devices.measure(each, at)
        came: list[tuple[int, int, float]] = []  # device, direction, number
        for device, ((_, along), number) in enumerate(zip(each[: len(batches)], numbers, strict=False)):
            if (shown := self.shown(device, number)) is not None:
                came.append((self.chosen[device], along.number, shown))
        sent: dict[int, list[float]] = {}
        for _, direction, number in came if run.combine == "mean" else self.not_always_outer(came):
            sent.setdefault(direction, []).append(number)
        if watching:
            self.watched([number / c_g for number in numbers[: len(batches)]], numbers[len(batches) :])
        rate = run.rate_after if self.guard and self.guard.stopped else run.rate
        rate = rate / c_g**2 if probe else rate / len(sent)  # a number along a column is c' v . g
        if run.noise and run.clip:
            for of in sent.values():  # what is added to all numbers of a direction is added to what is made of them
                added = run.noise * run.clip * self.random.standard_normal()
                of[:] = [number + added for number in of]
        steps = step_of(sent, rate, coefficient=c, guidance_coefficient=c_g, combine=run.combine)
        self.devices.apply(at, steps)
        return Step(steps, sent)

    def not_always_outer(self, came: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
        """What came of devices whose numbers do not always lie at an end."""
        for (device, *_), share in zip(came, outer_shares([(at, [number]) for _, at, number in came]), strict=True):
            if share is not None:
                self.remembered.setdefault(device, []).append(share)
        return [one for one in came if not always_outer(self.remembered.get(one[0], [])[-REMEMBERED:])]

    def shown(self, device: int, number: float) -> float | None:
        """What the server takes of a device's number. None: it refuses what is above the clip."""
        run = self.run
        most = math.inf if run.clip is None else run.clip
        honest = min(max(number, -most), most)
        if run.attack is None or not self.hostile[device]:
            return honest
        bad = {"huge": HUGE, "colluding": max(-most, COLLUDING), "flipped": -honest}[run.attack]
        return bad if abs(bad) <= most else None

    def watched(self, of_columns: list[float], of_noise: list[float]) -> None:
        """Lets the guard see the numbers along columns and those along z."""
        assert self.guard
        self.guard.add(of_columns, of_noise, self.compared)
        self.seen.append((self.guard.share, self.guard.public_share))

    def coefficients(self, guided: bool, d: int) -> tuple[float, float]:
        """c and c' of a round."""
        if not guided:
            return 1.0, 0.0
        if self.run.method == "probe":
            return 0.0, PROBED
        if self.run.method == "literal":
            return math.sqrt(MIX / d), 1.0
        return math.sqrt(MIX), math.sqrt((1 - MIX) * d / COLUMNS)

    def projected(self, number: int) -> Step:
        at = {"seed": 2000 + self.run.seed, "round": number}
        numbers = self.cloud.project(together(self.batches()), at, PROJECTIONS)
        sent = {direction: [value] for direction, value in enumerate(numbers)}
        steps = step_of(sent, self.run.rate / PROJECTIONS)
        self.cloud.apply(at, steps)
        return Step(steps, sent)

    def descended(self) -> None:
        """A step by an exact gradient."""
        many = self.run.clients * BATCH
        gradient = self.public_gradient(many) if self.run.method == "cloud" else self.exact(together(self.batches()))
        self.cloud.fill(self.cloud.adapter() - self.run.rate * gradient)

    @property
    def holder(self) -> Party:
        """The party whose adapter is the newest."""
        return self.devices if self.run.method in ("plain", *GUIDED) else self.cloud

    def round(self, number: int) -> Step | None:
        if self.run.method == "projections":
            return self.projected(number)
        if self.run.method in ("cloud", "fedsgd"):
            self.descended()
            return None
        return self.measured(number)

    def start(self) -> None:
        """The adapter that rounds begin with. What the cloud trained is kept."""
        nothing = np.zeros(self.cloud.size, np.float32)
        kept = self.place.kept / f"{self.place.model.name}.{self.run.public}.{self.run.seed}.npy"
        if self.run.start and not kept.is_file():
            self.cloud.fill(nothing)
            for _ in range(START_ROUNDS):
                self.cloud.fill(self.cloud.adapter() - START_RATE * self.public_gradient(START_ROWS))
            np.save(kept, self.cloud.adapter())
        self.holder.fill(np.load(kept) if self.run.start else nothing)


def together(batches: list[Sentences]) -> Sentences:
    first = batches[0]
    cells = {name: np.concatenate([getattr(one, name) for one in batches]) for name in ("tokens", "last", "kinds")}
    return Sentences(**cells, words=first.words)
