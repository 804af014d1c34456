# SPDX-License-Identifier: Apache-2.0
"""What a model is after training."""

from __future__ import annotations

from collections.abc import Callable

from bespoke import PersonalModel
from tests.unit.personal_model.tiny import answering


def after(count: int) -> Callable[[], bool]:
    """A stop callback that says yes from its call number `count` on."""
    calls = iter(range(10**9))
    return lambda: next(calls) >= count


def answers(model: PersonalModel) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in answering(model).items()}
