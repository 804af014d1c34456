# SPDX-License-Identifier: Apache-2.0
"""The examples of a personal model's user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from bespoke import arguments
from bespoke.core.handle import Handle
from bespoke.data.example_json import example_id, example_json
from bespoke.rules.records import AddedExample, ExampleInfo, Forgotten

__all__ = ["Examples"]


class Examples:
    """The examples of one user. An example is tokenized when you add it, never while training."""

    def __init__(self, core: Handle) -> None:
        self._core = core

    def add(
        self, example: dict[str, Any], id: str | None = None, *, use: Literal["train"] | None = None
    ) -> AddedExample:
        """Adds an example to the state.

        A text or a conversation that is longer than the bundle's longest sequence becomes several rows. Tokens that do not fit in
        a row are cut. The result says how many were cut and which keys were not used.

        Args:
            example: {"messages": ...}, {"prompt": ..., "completion": ...}, {"prompt": ..., "chosen": ..., "rejected": ...},
                {"text": ...} or {"tokens": ..., "mask": ...}.
            id: Your name for it, with which `forget` deletes it. Adding the same id and content again changes nothing. None: the
                sha256 of its JSON.
            use: "train" trains on it always. Set it for facts that must be known. None: one example in ten is held out for
                the gate.

        Raises DataError for an example that cannot be used or would train nothing.
        """
        if use is not None:
            arguments.one_of("use", use, ("train",))
        return self._core.add_example(example_json(example), None if id is None else example_id(id), use)

    def add_all(self, examples: Iterable[dict[str, Any]], *, use: Literal["train"] | None = None) -> list[AddedExample]:
        """Adds examples in one transaction, which is faster than one at a time. Returns a result for each, in their order.

        Args:
            examples: As for `add`, each under the sha256 of its JSON.
            use: As for `add`, for all of them.

        Raises DataError if one of them cannot be used, and names it. None is added then.
        """
        if use is not None:
            arguments.one_of("use", use, ("train",))
        return self._core.add_examples([(example_json(example), None, use) for example in examples])

    def list(self, after: str = "", most: int = 0) -> list[ExampleInfo]:
        """The examples, in the order in which you added them.

        Args:
            after: The id of the example before the first one. Give the last id of a page to get the next page. "": from the
                first example.
            most: How many at most. 0: all.

        Raises DataError if no example has the id `after`.
        """
        return self._core.examples(after, most)

    def forget(self, id: str) -> Forgotten:
        """Deletes an example at once, with every adapter that was trained on it. A run that uses it stops."""
        return self._core.forget(example_id(id))

    def __len__(self) -> int:
        return self._core.count_examples()
