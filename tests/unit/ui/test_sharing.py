# SPDX-License-Identifier: Apache-2.0
"""The page with another client of the same state: what it may do while that one trains, and what it says where it may not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.errors import StateLocked
from bespoke.ui.desk import Desk
from tests.unit.ui.pages import ended, trains

pytestmark = pytest.mark.xdist_group("cli")


def test_while_another_client_trains_the_page_says_so(desk: Desk, bundle: Path, state: Path) -> None:
    begun, stop = threading.Event(), threading.Event()
    with PersonalModel.open(bundle, state) as other:
        training = threading.Thread(
            target=lambda: other.train(stop=stop.is_set, on_step=lambda step, loss: begun.set())
        )
        training.start()
        try:
            assert begun.wait(60)
            desk.train(None)
            assert "train" in str(ended(desk)["training"]["error"])
            for changes in (desk.rollback, desk.reset):
                with pytest.raises(StateLocked):
                    changes()
            added = desk.add("", "Soup")
            assert desk.view({})["notes"]["new"][-1]["words"] == "Soup"
            assert not desk.forget(added["id"])["run_stopped"]
        finally:
            stop.set()
            training.join()
    assert desk.view({})["unfinished"]
    assert trains(desk)["training"]["report"]["accepted"]
