# SPDX-License-Identifier: Apache-2.0
"""Tests of one xdist group run in one process, which then keeps what they share: pytest-xdist says so by a suffix of their ids."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_groups_are_honoured(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", False):
        pytest.skip("not among several processes")
    assert request.node.nodeid.endswith("@groups"), "this pytest and this pytest-xdist do not fit: see pyproject.toml"
