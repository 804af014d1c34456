# SPDX-License-Identifier: Apache-2.0
"""Which values an instruction reads and writes: what every pass over a plan asks."""

from __future__ import annotations

from collections.abc import Iterator

from bespoke.plan.instructions import Call, Emit, Instruction, Noise, Operand, Receive, Record, Send, Store, Zero


def reads(instruction: Instruction) -> Iterator[Operand]:
    """Operands whose content the instruction needs. A scalar that places a row range or numbers a query counts as one."""
    match instruction:
        case Call():
            for operand in instruction.operands:
                yield operand
                yield from _scalar(operand)
            for result in instruction.results:
                if result.how == "add_to":
                    yield result.to
                yield from _scalar(result.to)
        case Noise(query=[_, scalar]):
            yield [scalar]
        case Record() | Emit() | Send():
            yield [instruction.source]
        case Store():
            yield instruction.source
            yield from _scalar(instruction.source)


def _scalar(operand: Operand) -> Iterator[Operand]:
    if len(operand) == 4:
        yield [operand[3]]


def writes(instruction: Instruction) -> Iterator[Operand]:
    """Operands that the instruction defines or changes; `store` changes nothing before the step ends."""
    match instruction:
        case Call():
            for result in instruction.results:
                yield result.to
        case Zero() | Noise() | Record() | Receive():
            yield [instruction.value]


def touched(instruction: Instruction) -> set[int]:
    """Ids of all values read or written."""
    ids = {operand[0] for operand in reads(instruction)}
    ids.update(operand[0] for operand in writes(instruction))
    return ids
