# SPDX-License-Identifier: Apache-2.0
"""Which linears get an adapter: what `Lora(targets=...)` takes, and what of a bundle's own is held to it."""

from __future__ import annotations

from typing import Any

import pytest

from bespoke.config import LINEARS, Lora
from bespoke.errors import ConfigError
from bespoke.testing.tiny import tiny_models


def test_all_linears_have_an_adapter_unless_some_are_chosen() -> None:
    config = tiny_models()["plain"].config
    assert Lora().targets == LINEARS == tuple(config.linear_shapes)
    assert list(config.piece_shapes(Lora(rank=2, targets=("down_proj",)))) == ["down_proj.lora_A", "down_proj.lora_B"]


def test_linears_are_kept_in_the_order_of_a_forward() -> None:
    chosen = Lora(targets=("down_proj", "v_proj", "q_proj"))
    assert chosen.targets == ("q_proj", "v_proj", "down_proj")
    assert chosen == Lora(targets=["q_proj", "down_proj", "v_proj"])  # type: ignore[arg-type]  # as JSON and TOML have it


@pytest.mark.parametrize(
    ("targets", "subject", "got", "expected"),
    [
        ((), "Lora.targets", "[]", "at least 1 entries"),
        (("q_proj", "qproj"), "Lora.targets.1", "'qproj'", f"{', '.join(map(repr, LINEARS[:-1]))} or 'down_proj'"),
        (("q_proj", "v_proj", "q_proj"), "Lora.targets", '["q_proj", "v_proj", "q_proj"]', "each linear once"),
        ("all-linear", "Lora.targets", "'all-linear'", "a list"),
    ],
)
def test_what_names_no_linears_is_refused(targets: Any, subject: str, got: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Lora(targets=targets)
    assert (caught.value.subject, caught.value.got, caught.value.expected) == (subject, got, expected)
