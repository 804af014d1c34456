# SPDX-License-Identifier: Apache-2.0
"""Drafts: guesses of the next tokens, from what followed the same tokens before in the prompt and the answer.

Most of the time of a token goes into reading the weights, so several tokens cost less together than one by one. A draft is computed
together with the token before it, and as much of it is taken as the model would have chosen (Leviathan et al., "Fast inference from
transformers via speculative decoding", 2023, with a look-up in the place of a model: Saxena, "Prompt lookup decoding", 2023). The
answer is the same with and without drafts. The rule is the same in every language:

1. The last 3 tokens are looked up in what was seen before them. What follows their latest place is the draft. Where it reaches the
   end of what was seen, it goes on with its own beginning. With 2 tokens or 1, answers took longer.
2. A draft whose first token is wrong has cost time. No draft is made for the next 1, 2, 4, ... tokens, at most 32. A draft whose
   first token is right ends this.

All endings are looked up in a table, so a token costs the same however long the text is.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Drafts"]

ENDING = 3  # tokens that have to stand earlier
LONGEST_PAUSE = 32


class Drafts:
    """The drafts of one answer."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], int] = {}  # the place behind the latest one of each
        self._earlier = 0  # behind the one before, of what `seen` ends with; 0: there is none
        self._read = 0
        self._draft: list[int] = []  # of what follows the first `_begin` tokens
        self._begin = self._pause = self._resume = 0

    def next(self, seen: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may follow `seen`, which is that of the last call and more."""
        self._judge(seen)
        for read in range(max(self._read + 1, ENDING), len(seen) + 1):
            ending = tuple(seen[read - ENDING : read])
            self._earlier = self._places.get(ending, 0)
            self._places[ending] = read
        self._read = len(seen)
        place = self._earlier
        if not place or len(seen) < self._resume:
            return []
        self._begin = len(seen)
        for at in range(place, place + most):
            self._draft.append(seen[at] if at < len(seen) else self._draft[at - len(seen)])
        return list(self._draft)

    def _judge(self, seen: Sequence[int]) -> None:
        """Forgets the draft given last. A wrong one begins a pause."""
        if not self._draft:
            return
        if self._begin < len(seen) and seen[self._begin] != self._draft[0]:
            self._pause = min(max(2 * self._pause, 1), LONGEST_PAUSE)
            self._resume = len(seen) + self._pause
        else:
            self._pause = 0
        self._draft = []
