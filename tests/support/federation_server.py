# SPDX-License-Identifier: Apache-2.0
"""A server of federated learning in one process, for tests: it takes steps, asks for measurements and signs what it sends.

Its adapter moves by the reference in torch, so an adapter of a device is compared with another implementation's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from bespoke.bundle.reader import read_bundle
from bespoke.bundle.signature import signed_document
from bespoke.personal_model import PersonalModel
from bespoke.reference.machine import Machine
from bespoke.rules.federation import Direction, coefficients_text, rounded
from bespoke.rules.records import FederationReport, FederationRequest
from bespoke.rules.round_documents import (
    DeviceDocument,
    Measurement,
    ReceivedFile,
    RoundDocument,
    RoundGuidance,
    RoundSpan,
    Snapshot,
)
from tests.support.federation import adapter_hash


@dataclass(frozen=True)
class Round:
    """A round that has ended: c and c' of its directions, guidance by name, and the adapter's hash after it."""

    coefficients: Sequence[float]
    guided: Sequence[float] = ()
    guidance: Mapping[str, np.ndarray] = field(default_factory=dict)
    half: bool = False
    adapter: str = ""


class Server:
    """Holds the rounds of a bundle's federation. `key`: the private key whose public half the bundle has."""

    def __init__(self, bundle: Path, key: bytes, method: str = "zgr") -> None:
        opened = read_bundle(bundle)
        assert opened.manifest.federation is not None
        self.record = opened.manifest.federation
        self.key = key
        self.machine = Machine(opened, opened.method(method))
        self.machine.buffers.fill(opened.initial_adapter())
        self.rounds: list[Round] = []
        self.files: dict[str, bytes] = {}
        self.heard: list[DeviceDocument] = []  # of all devices, in order

    @property
    def adapter(self) -> str:
        return adapter_hash(self.machine.adapter())

    def end_round(
        self,
        coefficients: Sequence[float],
        guided: Sequence[float] = (),
        guidance: Mapping[str, np.ndarray] | None = None,
        *,
        half: bool = False,
    ) -> None:
        """Takes the steps of the next round, each along a direction of its own. `half`: and rounds the adapter to float16."""
        number = len(self.rounds) + 1
        coefficients = [rounded(c) for c in coefficients]
        guided = [rounded(c) for c in guided] or [0.0] * len(coefficients)
        for direction, (c, c_guided) in enumerate(zip(coefficients, guided, strict=True)):
            self.machine.step_along(
                Direction(self.record.seed, number, direction, c, c_guided, received=guidance or {})
            )
        if half:
            adapter = self.machine.adapter()
            self.machine.buffers.fill(
                {name: piece.astype(np.float16).astype(np.float32) for name, piece in adapter.items()}
            )
        self.rounds.append(Round(coefficients, guided if guidance else (), guidance or {}, half, self.adapter))

    def received(self, guidance: Mapping[str, np.ndarray]) -> tuple[ReceivedFile, ...]:
        """Records of files that devices may fetch from now on."""
        records = []
        for name, array in guidance.items():
            data = array.tobytes()
            records.append(ReceivedFile(name=name, sha256=self.kept(data), size=len(data)))
        return tuple(records)

    def kept(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        self.files[sha256] = data
        return sha256

    def spans(self, after: int) -> tuple[RoundSpan, ...]:
        """The rounds behind `after`: those without guidance and with the same number of directions in one."""
        spans: list[RoundSpan] = []
        for number, one in enumerate(self.rounds[after:], after + 1):
            last = spans[-1] if spans else None
            if (
                last
                and not last.half
                and not one.guidance
                and not last.guidance
                and last.directions == len(one.coefficients)
            ):
                first, joined = last.first, [c for r in self.rounds[last.first - 1 : number] for c in r.coefficients]
                spans.pop()
            else:
                first, joined = number, list(one.coefficients)
            guidance = None
            if one.guidance:
                guidance = RoundGuidance(coefficients=coefficients_text(one.guided), files=self.received(one.guidance))
            spans.append(
                RoundSpan(
                    first=first,
                    count=number - first + 1,
                    directions=len(one.coefficients),
                    coefficients=coefficients_text(joined),
                    guidance=guidance,
                    half=one.half,
                    adapter=one.adapter,
                )
            )
        return tuple(spans)

    def measurement(self, first: int = 0, count: int = 1, **more: Any) -> Measurement:
        """Asks for directions of the round that is open."""
        asked: dict[str, Any] = {"coefficient": 1.0, "guidance_coefficient": 0.0, "files": (), "adapter": self.adapter}
        return Measurement(round=len(self.rounds) + 1, first=first, count=count, **{**asked, **more})

    def snapshot(self, after: int | None = None) -> Snapshot:
        """The adapter as it is. `after`: the round after which it was so. None: the last one."""
        adapter = self.machine.adapter()
        if self.rounds and self.rounds[-1].half:
            adapter = {name: piece.astype(np.float16) for name, piece in adapter.items()}
        data = save({name: np.ascontiguousarray(piece) for name, piece in adapter.items()})
        return Snapshot(round=after or len(self.rounds), adapter=self.adapter, sha256=self.kept(data), size=len(data))

    def document(self, after: int, **more: Any) -> RoundDocument:
        fields: dict[str, Any] = {"taken": (), "snapshot": None, "measure": None, "wait_seconds": 0.0, "done": False}
        return RoundDocument(task=self.record.task, **{**fields, "rounds": self.spans(after), **more})

    def signed(self, document: RoundDocument) -> bytes:
        return signed_document(json.dumps(document.model_dump(mode="json"), separators=(",", ":")), self.key)

    def answer(self, body: str, measure: Measurement | None = None, **more: Any) -> bytes:
        """What the server answers to a device's document. It confirms all of its numbers."""
        heard = DeviceDocument.model_validate_json(body)
        self.heard.append(heard)
        taken = tuple(sorted({numbers.round for numbers in heard.numbers}))
        return self.signed(self.document(heard.round, **{"taken": taken, "measure": measure, **more}))

    def fetched(self, request: FederationRequest) -> bytes:
        return self.files[request.sha256][request.offset : request.offset + request.size]


def sync(
    model: PersonalModel, server: Server, measure: Measurement | None = None, **more: Any
) -> FederationReport | None:
    """One exchange as an app does it: asks once, fetches what is needed, takes part. None: there was nothing to do."""
    request = model.federation.request()
    assert request.step == "ask", request
    model.federation.respond(request, server.answer(request.body, measure, **more))
    while (request := model.federation.request()).step == "fetch":
        model.federation.respond(request, server.fetched(request))
    return model.federation.take_part() if request.step == "take_part" else None
