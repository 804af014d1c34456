# SPDX-License-Identifier: Apache-2.0
"""The core's store, through tests/native/core_store.py: a process for each open one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.native.core_store import CoreStore, state_lab

from . import states

OpenState = Callable[..., Any]  # (folder, base=BASE, shapes=None), as states.open_state


@dataclass(frozen=True)
class Stores:
    open: OpenState
    reset_for_new_base: OpenState  # (folder, base, shapes, retokenize)


@pytest.fixture
def stores() -> Stores:
    return Stores(states.open_state, partial(CoreStore.reset_for_new_base, state_lab()))


@pytest.fixture
def open_state(stores: Stores) -> OpenState:
    return stores.open
