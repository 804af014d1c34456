# SPDX-License-Identifier: Apache-2.0
"""Guidance that a cloud makes of public examples, and the server that waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bespoke import PersonalModel
from bespoke.errors import BundleError, DataError
from bespoke.federated_guidance import GuidanceMaker, offer_guidance
from bespoke.rules.batches import Row, evaluation_batches
from bespoke.rules.federation import adapter_hash
from bespoke.rules.guidance import files_of, unpacked
from tests.native.conftest import compile_core
from tests.native.edge_device import EdgeDevice
from tests.native.federation_devices import exact, example, with_federation
from tests.support import federation as f
from tests.support.federation_edge import running_edge
from tests.support.federation_key import PRIVATE

__all__ = ["exact"]

PUBLIC = 6  # examples


@pytest.fixture
def public(tmp_path: Path) -> Path:
    file = tmp_path / "public.jsonl"
    file.write_text("".join(json.dumps(example(100 + number)) + "\n" for number in range(PUBLIC)))
    return file


@pytest.fixture
def maker(exact: Path, public: Path) -> Iterator[GuidanceMaker]:
    maker = GuidanceMaker(exact, public, rows=PUBLIC)
    yield maker
    maker.close()


def test_it_spans_the_gradient_that_the_core_computes(exact: Path, maker: GuidanceMaker, tmp_path: Path) -> None:
    """Each gradient is that of all public examples, so there is one direction, and no other public gradient lies outside of it."""
    rng = np.random.default_rng(3)
    adapter = {
        name: rng.normal(0, 0.05, piece.shape).astype(np.float32) for name, piece in maker.initial_adapter.items()
    }
    made = maker.make(adapter)
    shapes = {name: piece.shape for name, piece in maker.initial_adapter.items()}
    basis = unpacked(made.files, shapes)

    rows = [
        Row(np.array(one["tokens"], np.int32), np.array(one["mask"], np.uint8)) for one in map(example, range(100, 106))
    ]
    file = tmp_path / "floats"
    lab = [str(compile_core("core") / "tests" / "federation_lab")]
    with f.Lab(lab, exact, "mesp", tmp_path / "scratch") as core:
        by_name = core.do(do="adapter", file=str(file))
        np.concatenate([adapter[name].reshape(-1) for name, _ in by_name]).tofile(file)
        core.do(do="fill", file=str(file))
        batches = [f.as_json(batch) for batch in evaluation_batches(rows, 2, (f.LENGTH,))]
        core.do(do="measure", seed=0, round=0, along=(0, 1.0, 0.0), batches=batches)
        core.do(do="gradient", file=str(file))
        pieces, start, values = {}, 0, np.fromfile(file, np.float32)
        for name, shape in by_name:
            pieces[name] = values[start : start + int(np.prod(shape))]
            start += int(np.prod(shape))
    gradient = np.concatenate([pieces[name] for name in shapes])
    column = gradient / np.linalg.norm(gradient)
    expected = unpacked(files_of(np.stack([column, *np.zeros((f.COLUMNS - 1, len(column)))]), shapes), shapes)
    assert np.linalg.norm(basis[1:]) == 0
    assert np.mean(basis == expected) > 0.999  # codes at a border may round to either side
    assert 0 < made.public.inside < made.public.whole


def test_a_round_waits_for_it_and_is_guided(exact: Path, maker: GuidanceMaker, tmp_path: Path) -> None:
    bundle = with_federation(exact, tmp_path / "bundle", method="zgr")  # type: ignore[arg-type]
    settings = {"devices": 1, "least_devices": 1, "guidance_wait_seconds": 600, "guided_rate": 0.01, "retry_seconds": 0}
    with (
        running_edge(bundle, PRIVATE, tmp_path / "edge", tls=False, guidance=True, **settings) as edge,
        PersonalModel.open(bundle, tmp_path / "state") as model,
    ):
        device = EdgeDevice(model, edge)
        device.exchange()
        assert edge.rows("SELECT state FROM rounds") == [("waiting",)]
        for number in (1, 2):
            made = offer_guidance(maker, edge.state)
            assert made == device.document["adapter"]
            assert offer_guidance(maker, edge.state) is None
            edge.wait_for("SELECT 1 FROM rounds WHERE number = ? AND guidance IS NOT NULL", number)
            device.exchange()
            device.exchange()
            edge.wait_for_round(number)
            device.exchange()
        assert device.document["round"] == 2
        assert edge.rows("SELECT adapter FROM rounds WHERE number = 2") == [(device.document["adapter"],)]


def test_the_hash_of_an_adapter_is_that_of_the_tests(maker: GuidanceMaker) -> None:
    assert adapter_hash(maker.initial_adapter) == f.adapter_hash(maker.initial_adapter)


def test_too_few_examples_and_a_bundle_without_guidance_are_refused(exact: Path, public: Path, tmp_path: Path) -> None:
    public.write_text(public.read_text().splitlines(keepends=True)[0])
    with pytest.raises(DataError, match="columns of guidance"):
        GuidanceMaker(exact, public)
    other = with_federation(exact, tmp_path / "bundle", method="mesp")  # type: ignore[arg-type]
    with pytest.raises(BundleError, match="guidance_columns"):
        GuidanceMaker(other, public)
