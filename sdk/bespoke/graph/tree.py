# SPDX-License-Identifier: Apache-2.0
"""Trees of values: dicts, lists, tuples and quantized pairs. A form is hashable, so a call of a known form is looked up at once.

A plan of a large model records tens of thousands of operands. These functions do for them what torch's pytree does for tensors,
without its registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bespoke.ops.weight import QuantizedWeight

Form = tuple[Any, ...]
LEAF: Form = ("leaf",)


def flatten(tree: Any) -> tuple[list[Any], Form]:
    """Leaves in order, and the form that `unflatten` needs. None is an empty tree."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> Form:
    if isinstance(tree, dict):
        return ("dict", tuple(tree), tuple([_flatten(child, leaves) for child in tree.values()]))
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return (kind, tuple(range(len(tree))), tuple([_flatten(child, leaves) for child in tree]))
    if isinstance(tree, QuantizedWeight):
        leaves += [tree.codes, tree.scales]
        return ("quantized", ("codes", "scales"), (LEAF, LEAF), tree.columns)
    if tree is None:
        return ("none", (), ())
    leaves.append(tree)
    return LEAF


def unflatten(form: Form, leaves: Iterator[Any]) -> Any:
    """The tree of this form over these leaves."""
    if form is LEAF or form[0] == "leaf":
        return next(leaves)
    kind, keys, children = form[:3]
    built = [unflatten(child, leaves) for child in children]
    if kind == "dict":
        return dict(zip(keys, built, strict=True))
    if kind == "quantized":
        return QuantizedWeight(built[0], built[1], form[3])
    if kind == "none":
        return None
    return built if kind == "list" else tuple(built)


def paths(form: Form, prefix: str = "") -> list[str]:
    """The path of each leaf, such as `weights.q_proj.codes`."""
    if form[0] == "leaf":
        return [prefix]
    return [
        path
        for key, child in zip(form[1], form[2], strict=True)
        for path in paths(child, f"{prefix}.{key}" if prefix else str(key))
    ]


def leaves_of(tree: Any) -> list[Any]:
    return flatten(tree)[0]


def map_leaves(function: Any, tree: Any) -> Any:
    """The tree with `function` applied to each leaf."""
    leaves, form = flatten(tree)
    return unflatten(form, iter([function(leaf) for leaf in leaves]))
