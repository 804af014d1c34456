# SPDX-License-Identifier: Apache-2.0
"""Every rule a plan must keep, checked without running it: when it is built, and again by the reader of a bundle.

Values of the kinds that `plan.kinds` allows, defined before use, freed once, shapes as the graphs' signatures say, ranges in
bounds, no result over an operand of its call, no two living values on the same bytes, whole pieces of state stored once per step
or never. What each value is by itself is checked in `plan.values`; here, what instructions do with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

from bespoke.plan.access import reads, writes
from bespoke.plan.instructions import (
    Call,
    Emit,
    Free,
    Instruction,
    Load,
    Named,
    Noise,
    Number,
    Operand,
    Plan,
    Receive,
    Record,
    SectionName,
    Send,
    Store,
    ValueRecord,
)
from bespoke.plan.kinds import (
    MAX_DECODE_ROWS,
    MAX_QUERY,
    MAX_ROW,
    MAX_SENT_BYTES,
    NUMBERS,
    OPTION_PREFIX,
    SECTIONS,
    array_name,
)
from bespoke.plan.overlaps import overlapping_result
from bespoke.plan.replay import is_replayable
from bespoke.plan.sections import check_sections, decode_rows, sends
from bespoke.plan.values import check_values, refuse

MAKES = ("make", "record", "receive")  # ways to define a value that was not there


class Signature(Protocol):
    """Key and typed operands of a graph, as the manifest has them."""

    @property
    def key(self) -> str: ...
    @property
    def inputs(self) -> Sequence[Any]: ...
    @property
    def outputs(self) -> Sequence[Any]: ...


def verify(plan: Plan, subject: str, graphs: Mapping[str, Signature]) -> None:
    """Raises PlanError naming section, instruction and value of the first violation."""
    _Checker(plan, subject, graphs).check()


class _Checker:
    def __init__(self, plan: Plan, subject: str, graphs: Mapping[str, Signature]) -> None:
        self.plan = plan
        self.values = plan.values
        self.where = subject
        self.graphs = graphs

    def check(self) -> None:
        check_values(self.plan, self.where)
        for graph in self.plan.graphs:
            if graph.key not in self.graphs:
                self._refuse(f"graph '{graph.name}'", f"key {graph.key[:12]}...", "the key of a graph of the bundle")
        check_sections(self.plan, self.where)
        for name, code in self.plan.sections.items():
            self._check_section(name, code)
        replayable = is_replayable(self.plan.sections.get("train_step", []), [value.role for value in self.values])
        if replayable != self.plan.replayable:
            got, expected = (str(flag).lower() for flag in (self.plan.replayable, replayable))
            self._refuse("replayable", got, f"{expected}, which is what its stores say")

    # ---- one section ---------------------------------------------------------------------------------------------------

    def _check_section(self, name: SectionName, code: Sequence[Instruction]) -> None:
        self.section, self.rule = name, SECTIONS[name]
        self.prompt = {"T": self.plan.sequence_length, "1": 1, "R": decode_rows(self.plan)}.get(self.rule.prompt)
        emitted: set[str] = set()
        sent = 0
        self.live: dict[int, set[tuple[int, int]] | None] = {}  # None: wholly defined; else the rows filled so far
        self.loaded: set[str] = set()
        self.freed: set[int] = set()
        self.bytes: dict[str, list[tuple[int, int, int]]] = {"arena": [], "scratch": []}
        self.is_complete = False  # nothing may be written any more: the runtime reads emitted rows after the section
        stored: set[int] = set()
        for position, instruction in enumerate(code):
            self.at = f"section {name}, instruction {position} ({instruction.op})"
            for operand in reads(instruction):
                self._check_read(operand)
            match instruction:
                case Load():
                    if not self.rule.weights:
                        self._refuse(self.at, f"weights in section {name}", "none: adapter, noise and scalars alone")
                    self.loaded.add(instruction.group)
                case Call():
                    self._check_call(instruction)
                case Store():
                    if not self.rule.stores:
                        self._refuse(
                            self.at, f"a store in section {name}", "stores in train_step, apply_step or finish"
                        )
                    self._check_store(instruction, stored)
                case Free():
                    self._check_free(instruction)
                case Record():
                    self._check_record(instruction)
                case Emit():
                    self._check_emit(instruction)
                    emitted.add(instruction.name)
                case Noise():
                    self._check_noise(instruction)
                case Receive():
                    self._check_receive(instruction)
                case Send():
                    self._check_send(instruction)
                    sent += 1
                case _:
                    for operand in writes(instruction):
                        self._define(operand, "make")
        for metric in self.rule.emits:
            if metric not in emitted:
                self._refuse(f"section {name}", f"no emit of '{metric}'", "one")
        if name == "finish":
            self._check_whole_adapter(stored)
        if self.rule.sends and sent != int(sends(self.plan, name)):
            expected = "one in federated_project, or in federated_measure where there is none"
            self._refuse(f"section {name}", f"{sent} sends", expected)
        left = [value for value in self.live if self.values[value].lifetime == "section"]
        if left:
            self._refuse(f"section {name}, value {left[0]}", "a value alive at its end", "every value freed")

    def _check_call(self, call: Call) -> None:
        if call.graph >= len(self.plan.graphs):
            self._refuse(self.at, f"graph {call.graph}", f"one of {len(self.plan.graphs)} graphs")
        signature = self.graphs[self.plan.graphs[call.graph].key]
        for kind, got, expected in (
            ("operands", call.operands, signature.inputs),
            ("results", [result.to for result in call.results], signature.outputs),
        ):
            if len(got) != len(expected):
                self._refuse(self.at, f"{len(got)} {kind}", f"{len(expected)}, as graph {call.graph} has")
            for operand, spec in zip(got, expected, strict=True):
                shape, dtype = self._shape(operand)
                if (shape, dtype) != (list(spec.shape), spec.dtype):
                    self._refuse(
                        f"{self.at}, value {operand[0]}",
                        f"{dtype} {shape} in {kind}",
                        f"{spec.dtype} {list(spec.shape)}",
                    )
        for result in call.results:
            if result.how == "add_to":
                self._check_float32(result.to[0], "add_to of")
            self._define(result.to, result.how)
        overlapping = overlapping_result(call, self.values)
        if overlapping is not None:
            over = "a result over an operand or result of its call"
            self._refuse(f"{self.at}, value {overlapping}", over, "bytes of its own")

    def _check_noise(self, noise: Noise) -> None:
        if not self.rule.noise:
            self._refuse(self.at, f"noise in section {self.section}", "noise in a step, whose number it is drawn by")
        first, scalar = noise.query if isinstance(noise.query, list) else (noise.query, None)
        if scalar is not None:
            self._check_integer_scalar(scalar)
            place = self.values[scalar].place
            first += place.number if isinstance(place, Number) else 0
        if not 0 <= first < MAX_QUERY:
            self._refuse(self.at, f"query {first}", f"a query from 0 to {MAX_QUERY - 1}")
        self._check_float32(noise.value, "noise of")
        self._define([noise.value], "make")

    def _check_receive(self, receive: Receive) -> None:
        if not self.rule.receives:
            self._refuse(self.at, f"a receive in section {self.section}", "receives in a round of federated learning")
        value = self._value(receive.value)
        if value.role != "received":
            got = f"a receive into a value of role {value.role}"
            self._refuse(f"{self.at}, value {receive.value}", got, "a value of role received")
        self._define([receive.value], "receive")

    def _check_integer_scalar(self, number: int) -> None:
        scalar = self._value(number)
        if scalar.shape or scalar.dtype != "int64" or scalar.role not in ("scalar", "constant"):
            self._refuse(f"{self.at}, value {number}", f"{scalar.role} {scalar.dtype}", "an integer scalar")

    def _check_send(self, send: Send) -> None:
        value = self._value(send.source)
        if not self.rule.sends:
            self._refuse(self.at, f"a send in section {self.section}", "sends in a federated measurement")
        if value.role != "recorded":
            got = f"a send of a value of role {value.role}"
            self._refuse(f"{self.at}, value {send.source}", got, "a recorded value")
        if not 0 < value.nbytes <= MAX_SENT_BYTES:
            got = f"a send of {value.nbytes} bytes"
            self._refuse(f"{self.at}, value {send.source}", got, f"1 to {MAX_SENT_BYTES} bytes")

    def _check_record(self, record: Record) -> None:
        value = self._value(record.value)
        if self._value(record.source).shape != value.shape:
            self._refuse(self.at, "a record of another shape", "the shape of its source")
        self._check_float32(record.source, "a record of")
        if value.role != "recorded":
            got = f"a record into a value of role {value.role}"
            self._refuse(f"{self.at}, value {record.value}", got, "a value of role recorded")
        self._define([record.value], "record")

    def _check_emit(self, emit: Emit) -> None:
        value = self._value(emit.source)
        self._check_float32(emit.source, "an emit of")
        if emit.name in NUMBERS and math.prod(value.shape) != 1:
            self._refuse(f"{self.at}, value {emit.source}", f"'{emit.name}' of shape {value.shape}", "one number")
        if self.section == "decode_rows" and emit.name == "logits":
            if value.shape[1:] != [self.prompt]:
                got = f"'logits' of shape {value.shape}"
                self._refuse(f"{self.at}, value {emit.source}", got, f"[V, R], one R from 2 to {MAX_DECODE_ROWS}")
            self.is_complete = True

    def _check_float32(self, number: int, what: str) -> None:
        value = self._value(number)
        if value.dtype != "float32":
            self._refuse(f"{self.at}, value {number}", f"{what} {value.dtype}", "float32")

    def _check_store(self, store: Store, stored: set[int]) -> None:
        state = self._value(store.state)
        if state.lifetime != "state" or store.state in stored:
            got = "stored twice" if store.state in stored else f"a {state.lifetime} value"
            self._refuse(f"{self.at}, value {store.state}", got, "state, stored once")
        if state.role not in self.rule.stores:
            got = f"a store to {state.role} state in section {self.section}"
            self._refuse(f"{self.at}, value {store.state}", got, f"state of role {' or '.join(self.rule.stores)}")
        shape, dtype = self._shape(store.source)
        if (shape, dtype) != (state.shape, state.dtype):
            self._refuse(
                f"{self.at}, value {store.state}", f"{dtype} {shape}", f"{state.dtype} {state.shape}, the whole piece"
            )
        stored.add(store.state)

    def _check_whole_adapter(self, stored: set[int]) -> None:
        """Refuses a section `finish` that leaves out a piece of the adapter."""
        for number, value in enumerate(self.values):
            if value.role == "adapter" and number not in stored:
                got = "a piece of the adapter that it does not store"
                self._refuse(f"section finish, value {number}", got, "every piece stored")

    def _check_free(self, free: Free) -> None:
        if (free.value is None) == (free.group is None):
            self._refuse(self.at, "a free of both or neither", "a value or a weight group")
        if free.group is not None:
            if free.group not in self.loaded:
                self._refuse(self.at, f"group '{free.group}', which is not loaded", "a loaded group")
            self.loaded.discard(free.group)
            return
        assert free.value is not None
        if free.value not in self.live:
            self._refuse(f"{self.at}, value {free.value}", "a value that is not alive", "each value freed once")
        del self.live[free.value]
        self.freed.add(free.value)
        kind = self.values[free.value].place.kind
        self.bytes[kind] = [span for span in self.bytes[kind] if span[2] != free.value]

    # ---- values ----------------------------------------------------------------------------------------------------------

    def _value(self, number: int) -> ValueRecord:
        if not 0 <= number < len(self.values):
            self._refuse(f"{self.at}, value {number}", "an id outside the table", f"an id below {len(self.values)}")
        return self.values[number]

    def _shape(self, operand: Operand) -> tuple[list[int], str]:
        value = self._value(operand[0])
        if len(operand) == 1:
            return value.shape, value.dtype
        rows = min(value.shape[0], MAX_ROW) if value.shape else 0
        if len(operand) == 2 or operand[1] < 0 or operand[2] < 1 or operand[1] + operand[2] > rows:
            self._refuse(
                f"{self.at}, value {operand[0]}", f"the range {operand[1:]}", f"[start, rows] within {rows} rows"
            )
        if len(operand) == 4:
            self._check_integer_scalar(operand[3])
            place = self.values[operand[3]].place
            if isinstance(place, Number) and not 0 <= operand[1] + place.number <= rows - operand[2]:
                got = f"{operand[2]} rows from {operand[1]} + {place.number}"
                self._refuse(f"{self.at}, value {operand[0]}", got, f"a range within {rows} rows")
        return [operand[2], *value.shape[1:]], value.dtype

    def _check_read(self, operand: Operand) -> None:
        value = self._value(operand[0])
        self._shape(operand)
        self._check_given(operand[0])
        if value.role == "weight" and value.place.kind == "named":
            group = value.place.name.split(".", 1)[0]
            if group not in self.loaded:
                self._refuse(
                    f"{self.at}, value {operand[0]}", f"weight group '{group}' out of reach", "a load before it"
                )
        if value.lifetime != "section":
            return
        if operand[0] not in self.live:
            state = "freed" if operand[0] in self.freed else "not defined"
            self._refuse(f"{self.at}, value {operand[0]}", f"a value that is {state}", "a value defined before its use")
        filled = self.live[operand[0]]
        if filled is not None and not self._covered(operand, filled):
            self._refuse(
                f"{self.at}, value {operand[0]}", "rows that nothing has filled", "rows defined before their use"
            )

    def _check_given(self, number: int) -> None:
        """Refuses a value of a lifetime or name that the runtime does not give to this section."""
        value, rule = self.values[number], self.rule
        name = value.place.name if isinstance(value.place, Named) else ""
        given = value.lifetime in ("section", "state", "bundle", *rule.lifetimes) or value.role == "constant"
        given = given and (rule.weights or value.role not in ("weight", "optimizer"))
        if value.role == "scalar":
            given = rule.options if name.startswith(OPTION_PREFIX) else name in rule.scalars
        elif value.role == "batch":
            given = name == f"prompt_{self.prompt}" if name.startswith("prompt_") else rule.batch
            given = rule.arrays if array_name(name) is not None else given
        if not given:
            what = f"{value.role} '{name}'" if value.lifetime == "call" else f"a {value.lifetime} value"
            self._refuse(
                f"{self.at}, value {number}",
                f"{what} in section {self.section}",
                "what the runtime gives to the section",
            )

    def _covered(self, operand: Operand, filled: set[tuple[int, int]]) -> bool:
        start, stop = (
            (operand[1], operand[1] + operand[2]) if len(operand) == 3 else (0, self.values[operand[0]].shape[0])
        )
        for a, b in sorted(filled):
            if a <= start < b:
                start = b
        return start >= stop

    def _define(self, operand: Operand, how: str) -> None:
        number = operand[0]
        value = self._value(number)
        self._shape(operand)
        if value.lifetime in ("state", "bundle", "call"):
            self._refuse(
                f"{self.at}, value {number}", f"a write to a {value.lifetime} value", "a write to a value of the plan"
            )
        self._check_given(number)
        if self.is_complete:
            self._refuse(f"{self.at}, value {number}", "a write after the emit of 'logits'", "that emit last")
        own = {"recorded": "record", "received": "receive"}.get(value.role)
        if own not in (None, how):
            self._refuse(f"{self.at}, value {number}", f"a write to a {value.role} value", f"a {own}")
        if value.lifetime != "section":
            if how in MAKES:
                self._refuse(f"{self.at}, value {number}", f"a {value.lifetime} value made again", "`into` or `add_to`")
            return
        if how == "add_to":
            return  # read before, so it is alive
        whole = len(operand) == 1
        if number in self.live:
            if how in MAKES:
                self._refuse(f"{self.at}, value {number}", "defined twice", "one definition")
        else:
            if number in self.freed:
                self._refuse(f"{self.at}, value {number}", "written after it was freed", "one life")
            self._claim(number, value)
            self.live[number] = None if whole else set()
        filled = self.live[number]
        if filled is not None:
            if whole:
                self.live[number] = None
            elif len(operand) == 3:
                filled.add((operand[1], operand[1] + operand[2]))

    def _claim(self, number: int, value: ValueRecord) -> None:
        if value.place.kind not in ("arena", "scratch"):
            self._refuse(f"{self.at}, value {number}", "a value without a place", "an offset in arena or scratch")
        start, stop = value.place.offset, value.place.offset + max(1, value.nbytes)
        for a, b, other in self.bytes[value.place.kind]:
            if start < b and a < stop:
                self._refuse(
                    f"{self.at}, value {number}", f"the bytes of value {other}, which is alive", "bytes of its own"
                )
        self.bytes[value.place.kind].append((start, stop, number))

    def _refuse(self, subject: str, got: str, expected: str) -> NoReturn:
        refuse(self.where, subject, got, expected)


__all__ = ["Signature", "verify"]
