# SPDX-License-Identifier: Apache-2.0
"""A run through the protocol: the server in a process of its own, a signed request for each thing that a device sends, and guidance
as `bespoke federate guide` makes it.

One machine of the core measures for all devices, since all hold the same adapter. It follows the rounds that the server signs and
must come to the hash that the server says.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.benchmarks.federated.intents import Sentences, World
from tests.benchmarks.federated.parties import BATCH, PROJECTIONS, Party, Place, bundle_of
from tests.benchmarks.federated.rounds import PROBED, Run
from tests.support.federation import written
from tests.support.federation_edge import RunningEdge, running_edge
from tests.support.federation_key import PRIVATE
from tests.unit.bundle.example import replace_manifest

from bespoke.bundle.federation_record import seed_of
from bespoke.bundle.signature import public_key_of
from bespoke.federated_guidance import GuidanceMaker, offer_guidance
from bespoke.federation_client import FederationClient
from bespoke.format.json_strict import dumps_canonical
from bespoke.rules.aggregation import Along
from bespoke.rules.federation import coefficients_of
from bespoke.rules.round_documents import DeviceDocument, Measurement, RoundDocument, RoundNumbers, RoundSpan

__all__ = ["Federation", "federation"]

TASK = "intents"


@dataclass
class Federation:
    """Devices, a server and a cloud at work on one run. `party` holds the adapter that all devices have."""

    run: Run
    world: World
    party: Party
    edge: RunningEdge
    folder: Path
    cloud: GuidanceMaker | None
    clients: list[FederationClient]
    round: int = 0
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(1000 + self.run.seed)
        self.party.fill(np.zeros(self.party.size, np.float32))
        ((self.adapter,),) = self.edge.rows("SELECT value FROM about WHERE key = 'adapter'")

    def next_round(self) -> None:
        """A round: devices ask in an order of chance, those that are asked measure and send, and all follow what comes of it."""
        if self.cloud is not None:
            offer_guidance(self.cloud, self.edge.state)
        self.edge.wait_for("SELECT 1 FROM rounds WHERE number = ? AND state = 'open'", self.round + 1)
        for device in self.random.permutation(len(self.clients))[: self.run.clients]:
            asked = self.ask(device).measure
            assert asked is not None
            assert asked.adapter == self.adapter
            batch = self.world.train.at(self.random.choice(self.world.clients[device], BATCH, replace=False))
            numbers = RoundNumbers(round=asked.round, first=asked.first, numbers=self.measured(batch, asked, device))
            assert self.ask(device, numbers).taken == (asked.round,)
        self.edge.wait_for_round(self.round + 1)
        for span in self.ask(0, measures=False).rounds:
            self.follow(span)

    def ask(self, device: int, *numbers: RoundNumbers, measures: bool = True) -> RoundDocument:
        document = DeviceDocument(
            task=TASK, round=self.round, adapter=self.adapter, differs=False, measures=measures, numbers=numbers
        )
        answer = self.clients[device].ask(document.model_dump_json())
        return RoundDocument.model_validate_json(json.loads(answer)["payload"])

    def measured(self, batch: Sentences, asked: Measurement, device: int) -> tuple[float, ...]:
        at = self.at(asked.round, asked.files, device)
        if self.run.method == "projections":
            return tuple(self.party.project(batch, at, asked.count))
        along = Along(asked.first, asked.coefficient, asked.guidance_coefficient)
        return tuple(self.party.measure([(batch, along)], at))

    def follow(self, span: RoundSpan) -> None:
        guided = [0.0] * span.directions
        files: Any = ()
        if span.guidance is not None:
            guided, files = coefficients_of(span.guidance.coefficients), span.guidance.files
        both = zip(coefficients_of(span.coefficients), guided, strict=True)
        steps = [Along(number, c, of_guidance) for number, (c, of_guidance) in enumerate(both)]
        assert span.count == 1
        assert not span.half
        self.round, self.adapter = span.first, self.party.apply(self.at(span.first, files, 0), steps)
        assert self.adapter == span.adapter

    def at(self, number: int, files: Any, device: int) -> dict[str, Any]:
        """Seed and round, and the folder of the guidance, which is fetched once for all devices."""
        at: dict[str, Any] = {"seed": seed_of(TASK), "round": number}
        if files:
            folder = self.folder / f"guidance{number}"
            if not folder.exists():
                shutil.rmtree(self.folder / f"guidance{number - 1}", ignore_errors=True)
                fetched = {file.name: self.clients[device].fetch(file.sha256, 0, file.size) for file in files}
                written({name: np.frombuffer(data, np.uint8) for name, data in fetched.items()}, folder)
            at["guidance"] = str(folder)
        return at


@contextmanager
def federation(run: Run, world: World, party: Party, place: Place) -> Iterator[Federation]:
    """All parties of a run, at their start."""
    bundle = _bundle(place, "mesp" if run.method == "projections" else "zgr")
    guided = run.method in ("guided", "probe")
    settings: dict[str, object] = {
        "rounds": run.rounds,
        "devices": run.clients,
        "least_devices": run.clients,
        "rate": run.rate,
        "guided_rate": run.rate,
        "probe_coefficient": PROBED,
        "half_every": 0,
        "retry_seconds": 0,
        "address_requests": 10**9,
        "device_requests": 10**6,
    }
    if run.method == "projections":
        settings |= {"whose": "shared", "directions": PROJECTIONS}
    if guided:
        settings |= {"guidance": True, "guidance_wait_seconds": 10**6}
    with running_edge(bundle, PRIVATE, place.folder / "edge", **settings) as edge:
        clients = []
        for number, token in enumerate(edge.tokens(len(world.clients))):
            client = FederationClient(edge.url, place.folder / f"{number}.device", ca_file=edge.ca_file)
            client.enrol(token)
            clients.append(client)
        cloud = GuidanceMaker(bundle, _public(world.public, place.folder)) if guided else None
        try:
            yield Federation(run, world, party, edge, place.folder, cloud, clients)
        finally:
            if cloud is not None:
                cloud.close()


def _bundle(place: Place, method: str) -> Path:
    """The simulation's bundle with a federation. Numbers are as they are measured: what clip and noise cost is another question."""
    folder = place.folder / "federated.bundle"
    shutil.copytree(bundle_of(place), folder)
    document = json.loads((folder / "manifest.json").read_bytes())
    document["federation"] = {
        "task": TASK,
        "server_key": public_key_of(PRIVATE).hex(),
        "method": method,
        "seed": seed_of(TASK),
        "clip": 1e9,
        "noise": 0.0,
        "budget": None,
    }
    replace_manifest(folder, dumps_canonical(document))
    return folder


def _public(sentences: Sentences, folder: Path) -> Path:
    """Public sentences as a file of examples: each ends with the word of its label, which alone is trained."""
    lines = []
    for tokens, last, kind in zip(sentences.tokens, sentences.last, sentences.kinds, strict=True):
        row = [*tokens[: last + 1].tolist(), int(sentences.words[kind])]
        lines.append(json.dumps({"tokens": row, "mask": [*[0] * (len(row) - 1), 1]}))
    file = folder / "public.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file
