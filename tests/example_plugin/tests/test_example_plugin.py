# SPDX-License-Identifier: Apache-2.0
"""The example's own tests: the contract suites that every author of a plugin can call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from bespoke_example.listing import Listing
from bespoke_example.momentum_fa import MomentumFA, MomentumFAOptions
from bespoke_example.zo_signsgd import ZOSignSGD, ZOSignSGDOptions

from bespoke.testing import check_optimizer, check_target

pytestmark = pytest.mark.xdist_group("contract")


@pytest.mark.slow
def test_optimizer_keeps_the_contract() -> None:
    options = ZOSignSGDOptions(queries=2)
    report = check_optimizer(ZOSignSGD(), options, steps=20, learning_rate=3e-3)
    assert report.replayable
    assert not report.accumulates


@pytest.mark.slow
def test_an_optimizer_with_a_scalar_and_a_state_of_its_own_keeps_it_too() -> None:
    report = check_optimizer(MomentumFA(), MomentumFAOptions(momentum=0.5), steps=20, learning_rate=0.1)
    assert report.accumulates
    assert not report.replayable


def test_target_keeps_the_contract() -> None:
    report = check_target(Listing(), partial=True, optimizers=["zo_signsgd"])
    assert report.unsupported == ()
    assert report.opened == report.lowered > 20


def test_a_listing_is_read_without_evaluating_it(tmp_path: Path) -> None:
    path = tmp_path / "doctored.txt"
    for line in ("%1 = aten.save.default(%0)", "%1 = __import__('os').getcwd()", "%1 = aten.mul.Tensor(%0, open('x'))"):
        path.write_text(f"graph doctored: x float32 [1]\n{line}\nreturn %1\n")
        with pytest.raises(ValueError, match=r"no operator|malformed"):
            Listing().open(path, Listing.Options())(torch.zeros(1))
