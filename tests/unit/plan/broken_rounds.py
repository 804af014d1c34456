# SPDX-License-Identifier: Apache-2.0
"""Each rule of the sections of federated learning broken once, in the sound plan of tests.unit.plan.broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.unit.plan.broken import Sample

Document = dict[str, Any]


def only_projects(sections: Document) -> None:
    del sections["federated_apply"]
    sections["federated_project"] = sections.pop("federated_measure")


# name of the rule: what breaks it, what the error names, what it says was got
ROUNDS: dict[str, tuple[Callable[[Sample, Document], Any], Callable[[Sample], str], str]] = {
    "a measurement and its step go together": (
        lambda s, d: d["sections"].pop("federated_apply"),
        lambda s: "sections",
        "federated_measure",
    ),
    "projections are of a measurement": (
        lambda s, d: only_projects(d["sections"]),
        lambda s: "sections",
        "federated_project",
    ),
    "a measurement sends": (
        lambda s, d: s.code(d, "federated_measure").remove(s.at(d, "send", 0, "federated_measure")),
        lambda s: "section federated_measure",
        "0 sends",
    ),
    "a measurement sends once": (
        lambda s, d: s.code(d, "federated_measure").insert(-2, s.at(d, "send", 0, "federated_measure")),
        lambda s: "section federated_measure",
        "2 sends",
    ),
    "what is sent is recorded": (
        lambda s, d: s.at(d, "send", 0, "federated_measure").update(source=s.guidance),
        lambda s: f"value {s.guidance}",
        "freed",
    ),
    "other values are not sent": (
        lambda s, d: s.code(d, "federated_measure").insert(3, {"op": "send", "source": s.guidance}),
        lambda s: f"value {s.guidance}",
        "a send of a value of role received",
    ),
    "a step sends nothing": (
        lambda s, d: s.code(d).append({"op": "send", "source": s.adapter}),
        lambda s: "section train_step",
        "a send in section train_step",
    ),
    "a step receives nothing": (
        lambda s, d: s.code(d).append({"op": "receive", "value": s.guidance, "name": "guidance"}),
        lambda s: "section train_step",
        "a receive in section train_step",
    ),
    "what is received is of that role": (
        lambda s, d: s.code(d, "federated_measure").insert(0, {"op": "receive", "value": s.along, "name": "guidance"}),
        lambda s: f"value {s.along}",
        "a receive into a value of role temporary",
    ),
    "what is received is received alone": (
        lambda s, d: s.code(d, "federated_measure").insert(0, {"op": "zero", "value": s.guidance}),
        lambda s: f"value {s.guidance}",
        "a write to a received value",
    ),
    "a direction is an integer": (
        lambda s, d: s.at(d, "noise", 0, "federated_measure").update(query=[0, s.epsilon]),
        lambda s: f"value {s.epsilon}",
        "scalar float32",
    ),
    "a direction is within the counter": (
        lambda s, d: s.at(d, "noise", 0, "federated_measure").update(query=[2**31, s.direction]),
        lambda s: "section federated_measure",
        "query 2147483648",
    ),
    "a direction is that of a round": (
        lambda s, d: s.at(d, "noise").update(query=[0, s.direction]),
        lambda s: f"value {s.direction}",
        "scalar 'direction' in section train_step",
    ),
    "a step along a direction reads no weights": (
        lambda s, d: s.code(d, "federated_apply").insert(0, {"op": "load", "group": "block_00"}),
        lambda s: "section federated_apply",
        "weights in section federated_apply",
    ),
    "a step along a direction reads no batch": (
        lambda s, d: s.at(d, "call", 0, "federated_apply")["operands"].__setitem__(0, [s.tokens]),
        lambda s: f"value {s.tokens}",
        "batch 'tokens' in section federated_apply",
    ),
    "a step along a direction reads no other state than the adapter": (
        lambda s, d: s.at(d, "call", 0, "federated_apply")["operands"].__setitem__(0, [s.moment]),
        lambda s: f"value {s.moment}",
        "a state value in section federated_apply",
    ),
    "a measurement stores nothing": (
        lambda s, d: s.code(d, "federated_measure").append({"op": "store", "state": s.adapter, "source": [s.adapter]}),
        lambda s: "section federated_measure",
        "a store in section federated_measure",
    ),
}
