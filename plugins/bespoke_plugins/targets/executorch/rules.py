# SPDX-License-Identifier: Apache-2.0
"""A table of what ATen operators become, filled by its own decorator: `@RULES("aten.neg.default")`.

A rule is called with the lowering and the operator's arguments, tensors as values; where it returns None, the operator is called as
a kernel.
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
