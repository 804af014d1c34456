# SPDX-License-Identifier: Apache-2.0
"""Small drafts written by hand, and a machine that runs a plan on real bytes, knowing nothing of how places were found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from bespoke.plan.compile import compile_plan, with_liveness
from bespoke.plan.costs import Costs
from bespoke.plan.draft import DraftGraph, DraftPlan, DraftValue
from bespoke.plan.instructions import Call, Emit, Noise, Plan, Receive, Record, Result, Send, Store, Zero
from bespoke.plan.read import read_plan

Operand = list[int]
GARBAGE = 0xA5
DTYPES = {"float32": np.float32, "int64": np.int64}


@dataclass
class Draft:
    """Records instructions as the builder does, without tracing. Every graph is its own."""

    plan: DraftPlan = field(default_factory=DraftPlan)
    section: Any = "train_step"

    def value(
        self,
        shape: Sequence[int],
        name: str = "temporary",
        *,
        role: Any = "temporary",
        lifetime: Any = "section",
        dtype: Any = "float32",
        number: int | None = None,
    ) -> int:
        self.plan.values.append(DraftValue(tuple(shape), dtype, role, lifetime, name, number))
        return len(self.plan.values) - 1

    def weight(self, group: str, shape: Sequence[int] = (4, 2)) -> int:
        return self.value(shape, f"{group}.w", role="weight", lifetime="bundle")

    def adapter(self, name: str, shape: Sequence[int] = (4, 2)) -> int:
        return self.value(shape, name, role="adapter", lifetime="state")

    def scalar(self, name: str, dtype: Any = "float32") -> int:
        return self.value((), name, role="scalar", lifetime="call", dtype=dtype)

    def batch(self, name: str = "tokens", shape: Sequence[int] = (2, 2)) -> int:
        return self.value(shape, name, role="batch", lifetime="call", dtype="int64")

    def add(self, instruction: Any) -> None:
        self.plan.sections.setdefault(self.section, []).append(instruction)

    def call(
        self, operands: Sequence[Operand], *results: tuple[Operand, Any], workspace: int = 0, flops: int = 0
    ) -> None:
        """A call of a graph of its own whose signature is what it gets."""
        number = len(self.plan.graphs)
        key = f"{number:064x}"
        inputs = [self.signature(operand) for operand in operands]
        outputs = [self.signature(to) for to, _ in results]
        self.plan.graphs.append(DraftGraph(key, f"graph_{number}", inputs, outputs, workspace, flops))
        made = [Result(to=list(to), how=how) for to, how in results]
        self.add(Call(op="call", graph=number, operands=[list(operand) for operand in operands], results=made))

    def make(self, operands: Sequence[Operand], shape: Sequence[int] = (4, 2)) -> int:
        value = self.value(shape)
        self.call(operands, ([value], "make"))
        return value

    def zeros(self, shape: Sequence[int] = (4, 2)) -> int:
        value = self.value(shape)
        self.add(Zero(op="zero", value=value))
        return value

    def noise(self, like: int, query: int | list[int] = 0) -> int:
        value = self.value(self.plan.values[like].shape)
        self.add(Noise(op="noise", value=value, query=query, block=0, tensor=0, distribution="normal"))
        return value

    def receive(self, name: str, shape: Sequence[int] = (4, 2)) -> int:
        value = self.value(shape, "received", role="received")
        self.add(Receive(op="receive", value=value, name=name))
        return value

    def send(self, source: int) -> None:
        self.add(Send(op="send", source=source))

    def record(self, source: int) -> int:
        value = self.value(self.plan.values[source].shape, "recorded", role="recorded")
        self.add(Record(op="record", source=source, value=value))
        return value

    def store(self, state: int, source: Operand) -> None:
        self.add(Store(op="store", state=state, source=list(source)))

    def emit(self, name: str, source: int) -> None:
        self.add(Emit(op="emit", name=name, source=source))

    def emit_number(self, name: str, source: int) -> None:
        """One number made of the value: what the runtime reads."""
        self.emit(name, self.make([[source]], ()))

    def signature(self, operand: Operand) -> tuple[tuple[int, ...], Any]:
        value = self.plan.values[operand[0]]
        return (value.shape if len(operand) == 1 else (operand[2], *value.shape[1:])), value.dtype

    @property
    def graphs(self) -> list[Any]:
        """As the manifest has them."""
        return [
            SimpleNamespace(
                key=graph.key,
                inputs=[SimpleNamespace(shape=shape, dtype=dtype) for shape, dtype in graph.inputs],
                outputs=[SimpleNamespace(shape=shape, dtype=dtype) for shape, dtype in graph.outputs],
            )
            for graph in self.plan.graphs
        ]

    def compile(self, *, spilled: Sequence[int] = (), constant_bytes: int = 0) -> Plan:
        return compile_plan(
            self.plan,
            with_liveness(self.plan),
            Costs(constant_bytes),
            method="handmade",
            sequence_length=2,
            batch_size=2,
            choices={},
            spilled=spilled,
        )

    def read(self, plan: Plan | dict[str, Any]) -> Plan:
        """Through bytes, as a device gets it: validated and verified."""
        document = plan if isinstance(plan, dict) else document_of(plan)
        return read_plan(json.dumps(document).encode(), "plan", self.graphs)


def document_of(plan: Plan) -> dict[str, Any]:
    return plan.model_dump(mode="json")


class ByteMachine:
    """Runs a section of a plan document. A graph fills its results with a number made of all of its operands' elements."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.values = document["values"]
        self.memory = {
            kind: np.full(document["estimate"][f"{kind}_bytes"], GARBAGE, np.uint8) for kind in ("arena", "scratch")
        }
        self.named: dict[str, np.ndarray] = {}
        self.loaded: set[str] = set()
        self.emitted: dict[str, np.ndarray] = {}

    def run(self, code: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
        for instruction in code:
            getattr(self, instruction["op"])(instruction)
        return self.emitted

    def find(self, operand: Operand) -> np.ndarray:
        value = self.values[operand[0]]
        place, dtype = value["place"], DTYPES[value["dtype"]]
        if place["kind"] in self.memory:
            size = int(np.prod(value["shape"])) * dtype().itemsize
            raw = self.memory[place["kind"]][place["offset"] : place["offset"] + size]
            whole = raw.view(dtype).reshape(value["shape"])
        else:
            name = place["name"]
            if value["role"] == "weight":
                assert name.split(".")[0] in self.loaded
            whole = self.named.setdefault(name, content_of(name, value["shape"], dtype))
        return whole if len(operand) == 1 else whole[operand[1] : operand[1] + operand[2]]

    def load(self, i: dict[str, Any]) -> None:
        self.loaded.add(i["group"])

    def free(self, i: dict[str, Any]) -> None:
        if i["group"] is not None:
            self.loaded.remove(i["group"])
        else:
            self.find([i["value"]]).view(np.uint8)[...] = GARBAGE

    def zero(self, i: dict[str, Any]) -> None:
        self.find([i["value"]])[...] = 0

    def emit(self, i: dict[str, Any]) -> None:
        self.emitted[i["name"]] = self.find([i["source"]]).copy()

    def call(self, i: dict[str, Any]) -> None:
        number = mixed([self.find(operand) for operand in i["operands"]])
        for place, result in enumerate(i["results"]):
            target = self.find(result["to"])
            target[...] = (target if result["how"] == "add_to" else 0) + (number + place) % 97


def mixed(operands: Sequence[np.ndarray]) -> int:
    """A small number that depends on every element of every operand."""
    return sum((place + 1) * int(operand.astype(np.int64).sum()) for place, operand in enumerate(operands)) % 97


def content_of(name: str, shape: Sequence[int], dtype: Any) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape) + sum(name.encode()) % 89


def replayable() -> Draft:
    draft = Draft()
    adapter = draft.adapter("block_00.q_proj.lora_A")
    z = draft.noise(adapter)
    kept = draft.record(draft.make([[draft.batch()], [z]], ()))
    third = draft.value((), "third", role="constant", lifetime="call", dtype="int64", number=2)
    new = draft.make([[adapter], [kept], [z], [adapter, 0, 2, third]])
    draft.store(adapter, [new])
    return draft
