# SPDX-License-Identifier: Apache-2.0
"""A plan with every kind of instruction, and each rule of a plan broken once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from bespoke.errors import PlanError
from tests.unit.plan.broken_rounds import ROUNDS
from tests.unit.plan.drafts import Draft, document_of

Document = dict[str, Any]


class Sample:
    """A sound plan with every kind of instruction, and the ids of its values."""

    def __init__(self) -> None:
        d = self.draft = Draft()
        self.weight, self.other = d.weight("block_00"), d.weight("block_01")
        self.tokens = d.batch()
        self.adapter, self.second = d.adapter("block_00.q_proj.lora_A"), d.adapter("block_00.q_proj.lora_B")
        self.rate, self.position = d.scalar("learning_rate"), d.scalar("position", "int64")
        self.seven = d.value((), "seven", role="constant", lifetime="call", dtype="int64", number=7)
        self.x = d.make([[self.tokens], [self.weight], [self.seven]])
        self.filled = d.zeros()
        d.call([[self.x, 0, 2]], ([self.filled, 0, 2], "into"))
        d.call([[self.x, 2, 2]], ([self.filled, 2, 2], "into"))
        self.sum = d.zeros()
        d.call([[self.filled], [self.other]], ([self.sum], "add_to"))
        self.z = d.noise(self.adapter)
        self.new = d.value((4, 2))
        self.newer = d.value((4, 2))
        d.call([[self.adapter], [self.sum], [self.z], [self.rate]], ([self.new], "make"), ([self.newer], "make"))
        d.store(self.adapter, [self.new])
        d.store(self.second, [self.newer])
        d.emit_number("loss", self.sum)
        d.section = "evaluate_step"
        d.emit_number("loss_sum", self.tokens)
        d.emit_number("correct", self.tokens)
        d.section = "prefill"
        self.prompt = d.batch("prompt_2", (1, 2))
        self.cache = d.value((8, 2), "block_00.key_cache", lifetime="session")
        d.call([[self.prompt]], ([self.cache, 0, 2, self.position], "into"))
        d.section = "finish"
        self.moment = d.value((4, 2), "block_00.q_proj.lora_A.m", role="optimizer", lifetime="state")
        self.epsilon = d.scalar("epsilon")
        for piece in (self.adapter, self.second):
            d.store(piece, [d.make([[piece], [self.moment], [self.epsilon]])])
        d.section = "decode_rows"
        self.drafted = d.batch("prompt_3", (1, 3))
        self.logits = d.value((5, 3))
        d.call([[self.drafted], [self.cache]], ([self.logits], "make"))
        d.emit("logits", self.logits)
        d.section = "federated_measure"
        self.direction, self.coefficient = d.scalar("direction", "int64"), d.scalar("coefficient")
        self.guidance = d.receive("guidance.block_00.scales")
        self.along = d.noise(self.adapter, [0, self.direction])
        self.measured = d.make([[self.tokens], [self.weight], [self.along], [self.guidance], [self.epsilon]], ())
        self.sent = d.record(self.measured)
        d.send(self.sent)
        d.section = "federated_apply"
        self.other_along = d.noise(self.adapter, [0, self.direction])
        self.followed = d.make([[self.adapter], [self.other_along], [self.coefficient]])
        d.store(self.adapter, [self.followed])
        self.document = document_of(d.compile())

    def code(self, document: Document, section: str = "train_step") -> list[dict[str, Any]]:
        return document["sections"][section]

    def at(self, document: Document, op: str, nth: int = 0, section: str = "train_step") -> dict[str, Any]:
        return [i for i in self.code(document, section) if i["op"] == op][nth]

    def refused(self, change: Callable[[Document], Any]) -> PlanError:
        document = copy.deepcopy(self.document)
        change(document)
        with pytest.raises(PlanError) as caught:
            self.draft.read(document)
        return caught.value


def value(document: Document, number: int) -> dict[str, Any]:
    return document["values"][number]


def free(value: int | None = None, group: str | None = None) -> dict[str, Any]:
    return {"op": "free", "value": value, "group": group}


# name of the rule: what breaks it, what the error names, what it says was got
RULES: dict[str, tuple[Callable[[Sample, Document], Any], Callable[[Sample], str], str]] = {
    "a value of a section has an offset": (
        lambda s, d: value(d, s.x).update(place={"kind": "number", "number": 3}),
        lambda s: f"value {s.x}",
        "placed by 'number'",
    ),
    "weights are named": (
        lambda s, d: value(d, s.weight).update(place={"kind": "arena", "offset": 0}),
        lambda s: f"value {s.weight}",
        "a weight of lifetime bundle placed by 'arena'",
    ),
    "state is adapter or optimizer": (
        lambda s, d: value(d, s.second).update(role="weight"),
        lambda s: f"value {s.second}",
        "a weight of lifetime state",
    ),
    "state is fp32": (
        lambda s, d: value(d, s.second).update(dtype="float16"),
        lambda s: f"value {s.second}",
        "float16",
    ),
    "state belongs to a piece": (
        lambda s, d: value(d, s.moment)["place"].update(name="block_00.another.m"),
        lambda s: f"value {s.moment}",
        "optimizer 'block_00.another.m'",
    ),
    "state belongs to a piece of the adapter and not to a weight": (
        lambda s, d: value(d, s.moment)["place"].update(name="block_00.m"),
        lambda s: f"value {s.moment}",
        "optimizer 'block_00.m'",
    ),
    "state is no state of a state": (
        lambda s, d: value(d, s.moment)["place"].update(name="block_00.q_proj.lora_A.m.n"),
        lambda s: f"value {s.moment}",
        "optimizer 'block_00.q_proj.lora_A.m.n'",
    ),
    "state has a name of its own": (
        lambda s, d: value(d, s.moment)["place"].update(name="block_00.q_proj.lora_A."),
        lambda s: f"value {s.moment}",
        "optimizer 'block_00.q_proj.lora_A.'",
    ),
    "state is named after its piece": (
        lambda s, d: value(d, s.moment)["place"].update(name="m"),
        lambda s: f"value {s.moment}",
        "optimizer 'm'",
    ),
    "offsets lie within the arena": (
        lambda s, d: value(d, s.x)["place"].update(offset=1 << 20),
        lambda s: f"value {s.x}",
        "bytes up to",
    ),
    "offsets are aligned": (lambda s, d: value(d, s.x)["place"].update(offset=4), lambda s: f"value {s.x}", "offset 4"),
    "graphs are those of the bundle": (
        lambda s, d: d["graphs"][0].update(key="f" * 64),
        lambda s: "graph 'graph_0'",
        "key ffffffffffff",
    ),
    "there is a training step, or a way to answer": (
        lambda s, d: [d["sections"].pop(name) for name in ("train_step", "prefill")],
        lambda s: "sections",
        "evaluate_step",
    ),
    "micro_step and apply_step go together": (
        lambda s, d: d["sections"].update(micro_step=[]),
        lambda s: "sections",
        "micro_step",
    ),
    "replayable is what the stores say": (lambda s, d: d.update(replayable=True), lambda s: "replayable", "true"),
    "weights are loaded before use": (
        lambda s, d: s.code(d).pop(0),
        lambda s: f"value {s.weight}",
        "weight group 'block_00' out of reach",
    ),
    "weights are freed after use": (
        lambda s, d: s.code(d).insert(1, free(group="block_00")),
        lambda s: f"value {s.weight}",
        "out of reach",
    ),
    "values are defined before use": (
        lambda s, d: s.at(d, "call", 1).update(operands=[[s.new, 0, 2]]),
        lambda s: f"value {s.new}",
        "not defined",
    ),
    "values are not used after they are freed": (
        lambda s, d: s.at(d, "call", 4).update(operands=[[s.adapter], [s.x], [s.z], [s.rate]]),
        lambda s: f"value {s.x}",
        "a value that is freed",
    ),
    "rows are filled before use": (
        lambda s, d: s.code(d).remove(s.at(d, "call", 1)),
        lambda s: f"value {s.filled}",
        "rows that nothing has filled",
    ),
    "ranges lie within their value": (
        lambda s, d: s.at(d, "call", 1)["operands"].__setitem__(0, [s.x, 3, 2]),
        lambda s: f"value {s.x}",
        "the range [3, 2]",
    ),
    "ranges have a start and a length": (
        lambda s, d: s.at(d, "call", 1)["operands"].__setitem__(0, [s.x, 3]),
        lambda s: f"value {s.x}",
        "the range [3]",
    ),
    "ranges are placed by integer scalars": (
        lambda s, d: s.at(d, "call", 1)["operands"].__setitem__(0, [s.x, 0, 2, s.rate]),
        lambda s: f"value {s.rate}",
        "scalar float32",
    ),
    "ids lie within the table": (
        lambda s, d: s.at(d, "call", 1)["operands"].__setitem__(0, [999]),
        lambda s: "value 999",
        "outside the table",
    ),
    "calls name a graph": (lambda s, d: s.at(d, "call").update(graph=99), lambda s: "(call)", "graph 99"),
    "calls have the graph's number of operands": (
        lambda s, d: s.at(d, "call")["operands"].pop(),
        lambda s: "(call)",
        "2 operands",
    ),
    "operands have the graph's shapes": (
        lambda s, d: s.at(d, "call", 1)["operands"].__setitem__(0, [s.x, 0, 1]),
        lambda s: f"value {s.x}",
        "float32 [1, 2]",
    ),
    "results have the graph's dtypes": (
        lambda s, d: value(d, s.x).update(dtype="int64"),
        lambda s: f"value {s.x}",
        "int64 [4, 2]",
    ),
    "no result lies over an operand": (
        lambda s, d: s.at(d, "call", 1)["results"][0].update(to=[s.x, 0, 2]),
        lambda s: f"value {s.x}",
        "over an operand",
    ),
    "no result lies over another": (
        lambda s, d: s.at(d, "call", 4)["results"][1].update(to=[s.new], how="into"),
        lambda s: f"value {s.new}",
        "over an operand or result",
    ),
    "values are made once": (
        lambda s, d: s.at(d, "call", 3)["results"][0].update(how="make"),
        lambda s: f"value {s.sum}",
        "defined twice",
    ),
    "values live once": (
        lambda s, d: s.code(d).append({"op": "zero", "value": s.x}),
        lambda s: f"value {s.x}",
        "written after it was freed",
    ),
    "living values have bytes of their own": (
        lambda s, d: value(d, s.filled).update(place=value(d, s.x)["place"]),
        lambda s: f"value {s.filled}",
        "the bytes of value",
    ),
    "every value is freed": (
        lambda s, d: s.code(d).remove(free(s.filled)),
        lambda s: f"value {s.filled}",
        "alive at its end",
    ),
    "each value is freed once": (
        lambda s, d: s.code(d).append(free(s.filled)),
        lambda s: f"value {s.filled}",
        "not alive",
    ),
    "each group is freed once": (
        lambda s, d: s.code(d).append(free(group="block_01")),
        lambda s: "(free)",
        "group 'block_01', which is not loaded",
    ),
    "a free names one thing": (lambda s, d: s.code(d).append(free()), lambda s: "(free)", "both or neither"),
    "state changes by store alone": (
        lambda s, d: s.at(d, "call", 1)["results"][0].update(to=[s.second, 0, 2]),
        lambda s: f"value {s.second}",
        "a write to a state value",
    ),
    "weights never change": (
        lambda s, d: s.at(d, "call", 1)["results"][0].update(to=[s.weight, 0, 2]),
        lambda s: f"value {s.weight}",
        "a write to a bundle value",
    ),
    "values of a session are filled, not made": (
        lambda s, d: s.code(d, "prefill").append({"op": "zero", "value": s.cache}),
        lambda s: f"value {s.cache}",
        "made again",
    ),
    "state is stored once": (
        lambda s, d: s.at(d, "store", 1).update(state=s.adapter),
        lambda s: f"value {s.adapter}",
        "stored twice",
    ),
    "only state is stored to": (
        lambda s, d: s.at(d, "store").update(state=s.sum),
        lambda s: f"value {s.sum}",
        "a section value",
    ),
    "whole pieces are stored": (
        lambda s, d: s.at(d, "store").update(source=[s.new, 0, 2]),
        lambda s: f"value {s.adapter}",
        "float32 [2, 2]",
    ),
    "evaluation stores nothing": (
        lambda s, d: s.code(d, "evaluate_step").append({"op": "store", "state": s.adapter, "source": [s.adapter]}),
        lambda s: "section evaluate_step",
        "a store in section evaluate_step",
    ),
    "finish stores no other state than the adapter": (
        lambda s, d: s.code(d, "finish").append({"op": "store", "state": s.moment, "source": [s.adapter]}),
        lambda s: f"value {s.moment}",
        "a store to optimizer state in section finish",
    ),
    "finish stores the whole adapter": (
        lambda s, d: s.code(d, "finish").remove(s.at(d, "store", 1, "finish")),
        lambda s: f"section finish, value {s.second}",
        "a piece of the adapter that it does not store",
    ),
    "rows of an answer come from 2 tokens on": (
        lambda s, d: value(d, s.logits).update(shape=[5, 1]),
        lambda s: f"section decode_rows, instruction 0 (call), value {s.drafted}",
        "batch 'prompt_3' in section decode_rows",
    ),
    "rows of an answer are those of its prompt": (
        lambda s, d: value(d, s.logits).update(shape=[5, 2]),
        lambda s: f"section decode_rows, instruction 0 (call), value {s.drafted}",
        "batch 'prompt_3' in section decode_rows",
    ),
    "rows of an answer are few": (
        lambda s, d: value(d, s.drafted).update(shape=[1, 9], place={"kind": "named", "name": "prompt_9"}),
        lambda s: f"value {s.drafted}",
        "batch 'prompt_9'",
    ),
    "rows of an answer have logits": (
        lambda s, d: s.at(d, "emit", 0, "decode_rows").update(name="other"),
        lambda s: f"section decode_rows, instruction 0 (call), value {s.drafted}",
        "batch 'prompt_3' in section decode_rows",
    ),
    "rows of an answer have one kind of logits": (
        lambda s, d: s.code(d, "decode_rows").append({"op": "emit", "name": "logits", "source": s.cache}),
        lambda s: f"value {s.cache}",
        "'logits' of shape [8, 2]",
    ),
    "rows of an answer emit logits last": (
        lambda s, d: s.code(d, "decode_rows").append({"op": "zero", "value": s.filled}),
        lambda s: f"value {s.filled}",
        "a write after the emit of 'logits'",
    ),
    "other sections have no rows of an answer": (
        lambda s, d: s.at(d, "call", 0, "prefill")["operands"].__setitem__(0, [s.drafted]),
        lambda s: "section prefill",
        "batch 'prompt_3' in section prefill",
    ),
    "finish draws no noise": (
        lambda s, d: s.code(d, "finish").append(s.at(d, "noise")),
        lambda s: "section finish",
        "noise in section finish",
    ),
    "finish is of no step": (
        lambda s, d: s.at(d, "call", 0, "finish")["operands"].__setitem__(2, [s.rate]),
        lambda s: f"value {s.rate}",
        "scalar 'learning_rate' in section finish",
    ),
} | ROUNDS
