# SPDX-License-Identifier: Apache-2.0
"""What a plan may hold, listed by hand, and the changes that no plan may have."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

from bespoke.errors import PlanError
from tests.unit.plan.drafts import Draft, document_of

ROLES = ("weight", "adapter", "optimizer", "batch", "scalar", "constant", "temporary", "recorded", "received")
LIFETIMES = ("section", "step", "session", "state", "bundle", "call")
PLACES = ("arena", "scratch", "named", "number")
DTYPES = ("float32", "float16", "uint8", "int64")
ANY = range(9)

# (role, lifetime, place, dtype) -> ranks
ALLOWED = {
    ("weight", "bundle", "named", "float32"): (1, 2),
    ("weight", "bundle", "named", "float16"): (2,),
    ("weight", "bundle", "named", "uint8"): (2,),
    ("adapter", "state", "named", "float32"): (2,),
    ("optimizer", "state", "named", "float32"): ANY,
    ("batch", "call", "named", "int64"): (2,),
    ("batch", "call", "named", "float32"): (2,),
    ("scalar", "call", "named", "float32"): (0,),
    ("scalar", "call", "named", "int64"): (0,),
    ("constant", "call", "number", "int64"): (0,),
    ("recorded", "section", "arena", "float32"): ANY,
    ("received", "section", "arena", "float32"): (1, 2),
    ("received", "section", "arena", "uint8"): (1, 2),
    ("temporary", "step", "named", "float32"): ANY,
    ("temporary", "session", "named", "float32"): (2,),
    ("temporary", "section", "arena", "float32"): ANY,
    ("temporary", "section", "arena", "float16"): ANY,
    ("temporary", "section", "arena", "uint8"): ANY,
    ("temporary", "section", "arena", "int64"): ANY,
    ("temporary", "section", "scratch", "float32"): ANY,
    ("temporary", "section", "scratch", "float16"): ANY,
    ("temporary", "section", "scratch", "uint8"): ANY,
    ("temporary", "section", "scratch", "int64"): ANY,
}

Document = dict[str, Any]


def small() -> tuple[Draft, Document]:
    """A plan of one call at [2, 2], which leaves room for one value more."""
    draft = Draft()
    draft.store(draft.adapter("block_00.q_proj.lora_A"), [draft.make([[draft.batch()]])])
    document = document_of(draft.compile())
    document["estimate"].update(arena_bytes=1 << 20, scratch_bytes=1 << 20)
    return draft, document


def record(role: str, lifetime: str, place: str, dtype: str, rank: int) -> Document:
    """A value of this kind that is right in everything else."""
    names = {
        ("batch", "int64"): "targets",
        ("batch", "float32"): "mask",
        ("scalar", "float32"): "learning_rate",
        ("scalar", "int64"): "position",
        ("optimizer", "float32"): "block_00.q_proj.lora_A.another",
    }
    where = {
        "arena": {"offset": 4096},
        "scratch": {"offset": 0},
        "number": {"number": 3},
        "named": {"name": names.get((role, dtype), "block_00.another")},
    }[place]
    return {"shape": [2] * rank, "dtype": dtype, "role": role, "lifetime": lifetime, "place": {"kind": place, **where}}


def kinds() -> list[tuple[str, str, str, str, int]]:
    return list(itertools.product(ROLES, LIFETIMES, PLACES, DTYPES, ANY))


def is_allowed(kind: tuple[str, str, str, str, int]) -> bool:
    return kind[4] in ALLOWED.get(kind[:4], ())


def taken_of(take: Callable[[Document], object], document: Document) -> set[tuple[str, str, str, str, int]]:
    """Those of all kinds of value that are taken."""
    values = document["values"]
    taken = set()
    for kind in kinds():
        try:
            take({**document, "values": [*values, record(*kind)]})
            taken.add(kind)
        except PlanError as error:
            if f"value {len(values)}" not in error.subject:
                raise
    return taken


# What crashed a core that took it, and more of the kind: a change of the sample, the value or part it names, what it got.
Change = Callable[[Document], Any]


def value(document: Document, number: int) -> Document:
    found: Document = document["values"][number]
    return found


def code(document: Document, section: str = "train_step") -> list[Document]:
    found: list[Document] = document["sections"][section]
    return found


TOKENS, ADAPTER, RATE, POSITION, SEVEN, TEMPORARY = range(6)


def sample() -> tuple[Draft, Document]:
    """Values 0 to 5 as named above; a noise, a record, an `add_to`, an emit; a session in prefill."""
    draft = Draft()
    tokens, adapter = draft.batch(), draft.adapter("block_00.q_proj.lora_A")
    rate, position = draft.scalar("learning_rate"), draft.scalar("position", "int64")
    seven = draft.value((), "seven", role="constant", lifetime="call", dtype="int64", number=1)
    z = draft.noise(adapter)
    g = draft.record(draft.make([[tokens], [z], [rate], [seven]], ()))
    total = draft.zeros()
    draft.call([[g]], ([total], "add_to"))
    draft.call([[z, 0, 2, seven]], ([total, 0, 2], "into"))
    draft.store(adapter, [total])
    draft.emit_number("loss", z)
    draft.section = "prefill"
    cache = draft.value((8, 2), "block_00.key_cache", lifetime="session")
    draft.call([[draft.batch("prompt_2", (1, 2))]], ([cache, 0, 2, position], "into"))
    assert (tokens, adapter, rate, position, seven, z) == (TOKENS, ADAPTER, RATE, POSITION, SEVEN, TEMPORARY)
    return draft, document_of(draft.compile())


def at(document: Document, op: str, section: str = "train_step") -> Document:
    return next(i for i in code(document, section) if i["op"] == op)


def recorded(document: Document) -> Document:
    return value(document, at(document, "record")["value"])


def last_call(document: Document) -> Document:
    """That of `emit_number`, whose result is one number as the recorded value is."""
    return [i for i in code(document) if i["op"] == "call"][-1]


def placed_call(document: Document) -> Document:
    """The one with a range that a number places."""
    return next(i for i in code(document) if i["op"] == "call" and len(i["operands"][0]) == 4)


def cache_of(document: Document) -> int:
    return next(n for n, found in enumerate(document["values"]) if found["lifetime"] == "session")


REFUSED: dict[str, tuple[Change, str, str]] = {
    "an arena near 2^64 bytes": (
        lambda d: d["estimate"].update(arena_bytes=2**64 - 64),
        "estimate.arena_bytes",
        "18446744073709551552",
    ),
    "a scratch file near 2^64 bytes": (
        lambda d: d["estimate"].update(scratch_bytes=2**64 - 1),
        "estimate.scratch_bytes",
        "18446744073709551615",
    ),
    "a value beyond every file": (
        lambda d: value(d, TEMPORARY).update(shape=[2**39, 2]),
        f"value {TEMPORARY}",
        "more than 1099511627776 bytes",
    ),
    "a scalar that lives for a session": (
        lambda d: value(d, RATE).update(lifetime="session"),
        f"value {RATE}",
        "scalar of lifetime session",
    ),
    "a batch that lives for a session": (
        lambda d: value(d, TOKENS).update(lifetime="session"),
        f"value {TOKENS}",
        "batch of lifetime session",
    ),
    "a constant found by name": (
        lambda d: value(d, SEVEN).update(place={"kind": "named", "name": "position"}),
        f"value {SEVEN}",
        "placed by 'named'",
    ),
    "two values of one name": (
        lambda d: d["values"].append(copy.deepcopy(value(d, ADAPTER))),
        "value ",
        f"the name of value {ADAPTER}",
    ),
    "a batch of more rows than the plan": (
        lambda d: value(d, TOKENS).update(shape=[4, 2]),
        f"value {TOKENS}",
        "int64 [4, 2]",
    ),
    "a batch of longer rows": (lambda d: d.update(sequence_length=1), f"value {TOKENS}", "int64 [2, 2]"),
    "a plan of a smaller batch than its tensors": (lambda d: d.update(batch_size=1), f"value {TOKENS}", "int64 [2, 2]"),
    "a batch tensor that nobody binds": (
        lambda d: value(d, TOKENS)["place"].update(name="labels"),
        f"value {TOKENS}",
        "batch 'labels'",
    ),
    "one copy of a batch tensor": (
        lambda d: value(d, TOKENS)["place"].update(name="tokens*1"),
        f"value {TOKENS}",
        "'tokens*1'",
    ),
    "an array of longer rows": (
        lambda d: (value(d, TOKENS)["place"].update(name="array.rejected"), d.update(sequence_length=1)),
        f"value {TOKENS}",
        "batch 'array.rejected', int64 [2, 2]",
    ),
    "an array without a name": (
        lambda d: value(d, TOKENS)["place"].update(name="array."),
        f"value {TOKENS}",
        "batch 'array.'",
    ),
    "two copies of an array": (
        lambda d: value(d, TOKENS)["place"].update(name="array.rejected*2"),
        f"value {TOKENS}",
        "batch 'array.rejected*2'",
    ),
    "an array where nothing is trained": (
        lambda d: (
            value(d, TOKENS)["place"].update(name="array.rejected"),
            d["sections"].update(evaluate_step=[{"op": "emit", "name": "loss_sum", "source": TOKENS}]),
        ),
        f"value {TOKENS}",
        "batch 'array.rejected' in section evaluate_step",
    ),
    "a scalar that nobody binds": (
        lambda d: value(d, RATE)["place"].update(name="rate"),
        f"value {RATE}",
        "scalar 'rate'",
    ),
    "a scalar of another type": (
        lambda d: value(d, RATE)["place"].update(name="position"),
        f"value {RATE}",
        "scalar 'position'",
    ),
    "an option of integers": (
        lambda d: value(d, POSITION)["place"].update(name="option.rows"),
        f"value {POSITION}",
        "scalar 'option.rows'",
    ),
    "an option where nothing is trained": (
        lambda d: (
            value(d, RATE)["place"].update(name="option.momentum"),
            code(d, "prefill").append({"op": "emit", "name": "momentum", "source": RATE}),
        ),
        f"value {RATE}",
        "scalar 'option.momentum' in section prefill",
    ),
    "an option without a name": (
        lambda d: value(d, RATE)["place"].update(name="option."),
        f"value {RATE}",
        "scalar 'option.'",
    ),
    "a scalar with a shape": (lambda d: value(d, RATE).update(shape=[1 << 20]), f"value {RATE}", "float32 of rank 1"),
    "a number with a shape": (lambda d: value(d, SEVEN).update(shape=[1 << 20]), f"value {SEVEN}", "int64 of rank 1"),
    "a number beyond 64 bits": (lambda d: value(d, SEVEN)["place"].update(number=2**63), "value", str(2**63)),
    "noise of bytes": (lambda d: value(d, TEMPORARY).update(dtype="uint8"), f"value {TEMPORARY}", "noise of uint8"),
    "noise of a query that the counter has no room for": (
        lambda d: at(d, "noise").update(query=2**31),
        "(noise)",
        "query 2147483648",
    ),
    "a record of integers": (
        lambda d: value(d, at(d, "record")["source"]).update(dtype="int64", shape=[]),
        "value",
        "int64",
    ),
    "a record in the scratch file": (
        lambda d: (d["estimate"].update(scratch_bytes=64), recorded(d).update(place={"kind": "scratch", "offset": 0})),
        "value",
        "recorded of lifetime section placed by 'scratch'",
    ),
    "a record into something else": (
        lambda d: recorded(d).update(role="temporary"),
        "(record)",
        "a record into a value of role temporary",
    ),
    "a recorded value that a call writes": (
        lambda d: last_call(d)["results"].__setitem__(0, {"to": [at(d, "record")["value"]], "how": "into"}),
        "(call)",
        "a write to a recorded value",
    ),
    "an addition to integers": (
        lambda d: [value(d, i["value"]).update(dtype="int64") for i in code(d) if i["op"] == "zero"],
        "value",
        "int64 [4, 2]",
    ),
    "an emit of integers": (lambda d: at(d, "emit").update(source=SEVEN), f"value {SEVEN}", "an emit of int64"),
    "a loss of several numbers": (
        lambda d: at(d, "emit").update(source=ADAPTER),
        f"value {ADAPTER}",
        "'loss' of shape [4, 2]",
    ),
    "a number that places rows outside": (
        lambda d: value(d, SEVEN)["place"].update(number=3),
        f"value {TEMPORARY}",
        "2 rows from 0 + 3",
    ),
    "a number whose sum overflows": (
        lambda d: value(d, SEVEN)["place"].update(number=2**63 - 1),
        f"value {TEMPORARY}",
        "2 rows from 0 + 9223372036854775807",
    ),
    "a scalar that the section is not given": (
        lambda d: placed_call(d)["operands"][0].__setitem__(3, POSITION),
        f"value {POSITION}",
        "scalar 'position' in section train_step",
    ),
    "a session outside of a generation": (
        lambda d: at(d, "emit").update(source=cache_of(d), name="cache"),
        "(emit)",
        "a session value in section train_step",
    ),
    "sums over micro-batches where there are none": (
        lambda d: (
            d["values"].append(record("temporary", "step", "named", "float32", 2)),
            at(d, "emit").update(source=len(d["values"]) - 1, name="sum"),
        ),
        "(emit)",
        "a step value in section train_step",
    ),
    "an evaluation without its numbers": (
        lambda d: d["sections"].update(evaluate_step=[]),
        "section evaluate_step",
        "no emit of 'loss_sum'",
    ),
    "a decoding without logits": (lambda d: d["sections"].update(decode=[]), "section decode", "no emit of 'logits'"),
    "a weight without a group": (
        lambda d: value(d, ADAPTER).update(role="weight", lifetime="bundle", place={"kind": "named", "name": "norm"}),
        f"value {ADAPTER}",
        "weight 'norm'",
    ),
}
