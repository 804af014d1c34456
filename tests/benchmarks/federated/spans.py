# SPDX-License-Identifier: Apache-2.0
"""How much of the devices' gradient lies in the span of four public gradients, and what packing leaves of that.

exact    |V^T g|^2 / |g|^2 with orthonormal V
packed   the same with the basis that devices read from INT4 codes, orthonormal again
cosine   of the mean public gradient and g
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from tests.benchmarks.federated.intents import Public, Sentences, world
from tests.benchmarks.federated.parties import CLOUD_ROWS, COLUMNS, Party, Place
from tests.benchmarks.federated.runs import keep, kept_lines
from tests.benchmarks.federated.telling import two_adapters

from bespoke.rules.guidance import basis_of, files_of, unpacked

__all__ = ["Span", "spans"]

OF_DEVICES = 512  # sentences for the devices' gradient


@dataclass(frozen=True)
class Span:
    public: Public
    rounds: int
    exact: float
    packed: float
    cosine: float


def spans(place: Place, data_folder: Path) -> list[Span]:
    """At an adapter that changes nothing and at a trained one; from the file if they were measured before."""
    kept = [Span(**line) for line in kept_lines("spans.jsonl")]
    if not kept:
        random = np.random.default_rng(6)
        of = world(place.model, data_folder, seed=0)
        devices = of.train.at(random.choice(np.concatenate(of.clients), OF_DEVICES, replace=False))
        with Party(place, "mesp") as cloud:
            for rounds, adapter in two_adapters(place, of, cloud).items():
                cloud.fill(adapter)
                g = cloud.gradient(devices)
                for kind in get_args(Public):
                    public = world(place.model, data_folder, 0, kind).public
                    kept.append(span(kind, rounds, public, g, cloud, random))
        keep("spans.jsonl", *(asdict(one) for one in kept))
    return kept


def span(
    kind: Public, rounds: int, public: Sentences, g: np.ndarray, cloud: Party, random: np.random.Generator
) -> Span:
    gradients = np.stack([cloud.gradient(public.at(random.choice(len(public), CLOUD_ROWS))) for _ in range(COLUMNS)])
    basis = basis_of(gradients, COLUMNS)
    read = basis_of(unpacked(files_of(basis, cloud.shapes), cloud.shapes), COLUMNS)
    shares = [float(np.sum((some @ g) ** 2) / (g @ g)) for some in (basis, read)]
    mean = gradients.mean(0)
    return Span(kind, rounds, *shares, cosine=float(mean @ g / np.linalg.norm(mean) / np.linalg.norm(g)))
