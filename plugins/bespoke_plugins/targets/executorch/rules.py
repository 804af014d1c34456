# SPDX-License-Identifier: Apache-2.0
"""A table of lowering rules for ATen operators, filled by a decorator: `@RULES("aten.neg.default")`.

A rule takes the lowering and the operator's arguments, with tensors as values. If it returns None, the operator becomes a kernel
call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]


class RuleBook(dict[str, Rule]):
    def __call__(self, *names: str) -> Callable[[Rule], Rule]:
        def register(function: Rule) -> Rule:
            self.update(dict.fromkeys(names, function))
            return function

        return register
