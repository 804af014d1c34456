# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a device tell a server that asks: was this sentence in its batch?

Of each of 300 sentences there is a batch of four that holds it, and one with another sentence of the same kind in its place. The
server knows the sentence, the adapter and the direction, so it knows what the sentence alone would send. AUC: how often a batch
with the sentence scores above one without it; 0.5 tells nothing.

    seed             one number along z; score: the number, with the sign of what the sentence sends
    honest guidance  one number along the mean of eight public gradients; the same score
    own gradient     one number along the sentence's own gradient, which a dishonest server hands out as guidance; score: the number
    projections      256 numbers of the exact gradient; score: (v - u) . (p - u) / |p - u| with p what the sentence would
                     send, and u what a sentence sends on average
    picked           with these scores the server picks one of a hundred sentences; the share of right picks, 0.01 by luck
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from tests.benchmarks.federated.intents import Sentences, World, world
from tests.benchmarks.federated.parties import BATCH, CLOUD_ROWS, COLUMNS, PROJECTIONS, Party, Place
from tests.benchmarks.federated.rounds import PROBED, Run, Simulation
from tests.benchmarks.federated.runs import keep, kept_lines
from tests.support.federation import flat_noise, written

from bespoke.rules.aggregation import Along
from bespoke.rules.guidance import basis_of, files_of
from bespoke.rules.privacy import protected

__all__ = ["CANDIDATES", "SIGMAS", "Telling", "auc", "told", "two_adapters"]

TARGETS, CANDIDATES = 300, 100
TRAINED = 150  # rounds of FedSGD before the second look
SIGMAS = (0.0, 1.0, 4.0)
SEED = 3


@dataclass(frozen=True)
class Telling:
    """By sigma in the order of SIGMAS: the AUC, or the share of right picks. Without noise nothing is clipped either."""

    what: str
    rounds: int
    by_sigma: list[float]


@dataclass(frozen=True)
class Numbers:
    """What devices sent with the sentence, without it, and what the sentence alone would send: [n, numbers]."""

    with_it: np.ndarray
    without: np.ndarray
    alone: np.ndarray


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """The share of pairs in the right order; equal ones count half."""
    statistic = scipy.stats.mannwhitneyu(positive, negative).statistic
    return float(statistic / (len(positive) * len(negative)))


def told(place: Place, data_folder: Path) -> list[Telling]:
    """Of an adapter that changes nothing and of a trained one; from the file if they were measured before."""
    kept = [Telling(**line) for line in kept_lines("tellings.jsonl")]
    if not kept:
        of = world(place.model, data_folder, seed=0)
        place = replace(place, probe=True)
        with Party(place, "zgr") as devices, Party(place, "mesp") as cloud:
            for rounds, adapter in two_adapters(place, of, cloud).items():
                kept += tellings(place, of, devices, cloud, adapter, rounds)
        keep("tellings.jsonl", *(asdict(one) for one in kept))
    return kept


def two_adapters(place: Place, of: World, cloud: Party) -> dict[int, np.ndarray]:
    """By rounds of FedSGD: the adapter that changes nothing, and one that was trained."""
    simulation = Simulation(Run("fedsgd", 1.0), of, cloud, cloud, place)
    simulation.start()
    start = cloud.adapter()
    for _ in range(TRAINED):
        simulation.descended()
    return {0: start, TRAINED: cloud.adapter()}


def tellings(place: Place, of: World, devices: Party, cloud: Party, adapter: np.ndarray, rounds: int) -> list[Telling]:
    """`adapter`: what devices hold, after so many rounds."""
    devices.fill(adapter)
    cloud.fill(adapter)
    random = np.random.default_rng(5)
    at: dict[str, Any] = {"seed": SEED, "round": rounds}
    batches = batches_of(of, random)
    with_it, without, alone = (np.stack([cloud.gradient(batch) for batch in some]) for some in batches)
    z = np.stack([flat_noise(cloud.shapes, number, SEED, rounds) for number in range(PROJECTIONS)]).astype(np.float32)
    public = np.stack([cloud.gradient(sample(of.public, CLOUD_ROWS, random)) for _ in range(8)]).mean(0)
    folder = place.folder / "asked"

    def along_z(number: int, batch: Sentences) -> list[float]:
        return devices.measure([(batch, Along(number % PROJECTIONS, 1.0, 0.0))], at)

    def along(direction: np.ndarray, batch: Sentences) -> list[float]:
        shutil.rmtree(folder, ignore_errors=True)
        written(files_of(basis_of(direction[None], COLUMNS), devices.shapes), folder)
        return devices.measure([(batch, Along(0, 0.0, PROBED))], {**at, "guidance": str(folder)})

    def sent_by(measure: Callable[[int, Sentences], list[float]], expected: np.ndarray) -> Numbers:
        sides = [np.array([measure(number, batch) for number, batch in enumerate(some)]) for some in batches[:2]]
        return Numbers(sides[0], sides[1], expected[:, None])

    signs = z[np.arange(TARGETS) % PROJECTIONS]
    found = {
        "seed": sent_by(along_z, (signs * alone).sum(1)),
        "honest guidance": sent_by(lambda number, batch: along(public, batch), alone @ public),
        "own gradient": sent_by(lambda number, batch: along(alone[number], batch), np.ones(TARGETS)),
        "projections": Numbers(with_it @ z.T, without @ z.T, alone @ z.T),
    }
    memberships = [
        Telling(what, rounds, [membership(numbers, sigma, random) for sigma in SIGMAS])
        for what, numbers in found.items()
    ]
    return [*memberships, Telling("picked", rounds, [picked(found["projections"], sigma, random) for sigma in SIGMAS])]


def batches_of(of: World, random: np.random.Generator) -> tuple[list[Sentences], ...]:
    """For each target a batch with it, one without it, and it alone. Others are of any device."""
    everyone = np.concatenate(of.clients)
    chosen = random.choice(everyone, TARGETS, replace=False)
    batches: tuple[list[Sentences], ...] = ([], [], [])
    for target in chosen:
        kin = everyone[(of.train.kinds[everyone] == of.train.kinds[target]) & (everyone != target)]
        others = random.choice(everyone[everyone != target], 2 * (BATCH - 1), replace=False)
        rows = ([target, *others[: BATCH - 1]], [random.choice(kin), *others[BATCH - 1 :]], [target])
        for place, numbers in zip(batches, rows, strict=True):
            place.append(of.train.at(np.array(numbers)))
    return batches


def sample(of: Sentences, count: int, random: np.random.Generator) -> Sentences:
    return of.at(random.choice(len(of), count))


def sent(numbers: np.ndarray, norm: float, sigma: float, random: np.random.Generator) -> np.ndarray:
    return np.stack([protected(one, norm, sigma, random) for one in numbers]) if sigma else numbers


def membership(numbers: Numbers, sigma: float, random: np.random.Generator) -> float:
    """The AUC after clipping to the median norm, with noise of sigma times that."""
    norm = float(np.median(np.linalg.norm(numbers.with_it, axis=1)))
    known, usual = asked(numbers)
    scores = [((sent(some, norm, sigma, random) - usual) * known).sum(1) for some in (numbers.with_it, numbers.without)]
    return auc(*scores)


def picked(numbers: Numbers, sigma: float, random: np.random.Generator) -> float:
    """The share of batches whose sentence scores highest among so many others."""
    norm = float(np.median(np.linalg.norm(numbers.with_it, axis=1)))
    known, usual = asked(numbers)
    scores = (sent(numbers.with_it, norm, sigma, random) - usual) @ known.T  # (batches, sentences)
    right = 0
    for batch, row in enumerate(scores):
        others = np.delete(np.arange(len(row)), batch)
        right += bool(row[batch] > row[random.choice(others, min(CANDIDATES - 1, len(others)), replace=False)].max())
    return right / len(scores)


def asked(numbers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """What tells each sentence from the usual one, of unit length, and the usual one; one number has its sign alone."""
    alone = numbers.alone
    usual = alone.mean(0) if alone.shape[1] > 1 else np.zeros(1)
    apart = alone - usual
    return apart / np.linalg.norm(apart, axis=1, keepdims=True), usual
