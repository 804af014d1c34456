# SPDX-License-Identifier: Apache-2.0
"""Backward functions that autodiff derives: differentiate sum(dy * f(x)) with dy constant, the forward recomputed inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from bespoke.graph.trace import identity


@lru_cache(maxsize=256)
def vjp(function: Callable[..., Any], wrt: tuple[int, ...]) -> Callable[..., tuple[Any, ...]]:
    """`backward(*args, dy)` -> gradients with respect to the arguments at positions `wrt`, each in the argument's form.

    The same function and positions give the same object, so that the builder traces it once.
    """

    def backward(*args: Any) -> tuple[Any, ...]:
        *primals, cotangent = args

        def of_chosen(*chosen: Any) -> Any:
            return function(*[chosen[wrt.index(i)] if i in wrt else primal for i, primal in enumerate(primals)])

        _, pull = torch.func.vjp(of_chosen, *[primals[i] for i in wrt])
        return pull(cotangent)

    backward.trace_key = ("vjp", identity(function), wrt)  # type: ignore[attr-defined]
    backward.__name__ = f"{getattr(function, '__name__', 'function')}_backward"
    return backward
