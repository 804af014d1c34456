# SPDX-License-Identifier: Apache-2.0
"""The user's examples, as a personal model keeps them."""

from __future__ import annotations

from typing import Any, Literal

from bespoke import arguments
from bespoke.core.handle import Handle
from bespoke.data.example_json import example_id, example_json
from bespoke.rules.records import AddedExample, ExampleInfo, Forgotten

__all__ = ["Examples"]


class Examples:
    """The user's examples. Tokenized when added, never while training."""

    def __init__(self, core: Handle) -> None:
        self._core = core

    def add(
        self, example: dict[str, Any], id: str | None = None, *, use: Literal["train"] | None = None
    ) -> AddedExample:
        """Keeps an example: {"messages": ...}, {"prompt": ..., "completion": ...}, {"text": ...} or {"tokens": ..., "mask": ...}.

        The same id with the same content changes nothing. A text or a conversation that is longer than the bundle's longest
        sequence becomes several rows; what finds no room in a row is cut, and the result says by how much, and which keys say
        nothing here. With `use="train"` it is never held out to judge by: for facts that must be known. Raises DataError for what
        cannot be used or would train nothing.
        """
        if use is not None:
            arguments.one_of("use", use, ("train",))
        return self._core.add_example(example_json(example), None if id is None else example_id(id), use)

    def list(self) -> list[ExampleInfo]:
        """All examples, in the order in which they were added."""
        return self._core.examples()

    def forget(self, id: str) -> Forgotten:
        """Deletes an example at once, with every adapter that saw it; stops a run that uses it."""
        return self._core.forget(example_id(id))

    def __len__(self) -> int:
        return self._core.count_examples()
