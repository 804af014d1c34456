# SPDX-License-Identifier: Apache-2.0
"""Memory over a plan's instructions, counted by hand on a plan of six instructions; what is drawn of a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import bespoke.plot
from bespoke.errors import MissingDependency
from bespoke.plan.instructions import (
    Arena,
    Call,
    Estimate,
    Free,
    GraphRef,
    Load,
    Named,
    Plan,
    Result,
    Scratch,
    ValueRecord,
    Zero,
)
from bespoke.plot import memory_over_instructions, plot_plan, plot_training
from bespoke.rules.report import JudgedStep, MemoryReport, TrainReport


def plan() -> Plan:
    """Two values in the arena (400 and 80 bytes), one in scratch (800), a weight; one graph with 1,000 bytes of workspace."""

    def value(elements: int, place: Arena | Scratch | Named) -> ValueRecord:
        kept = place.kind == "named"
        return ValueRecord(
            shape=[elements],
            dtype="float32",
            role="weight" if kept else "temporary",
            lifetime="bundle" if kept else "section",
            place=place,
        )

    def call(into: int, *operands: int) -> Call:
        return Call(op="call", graph=0, operands=[[o] for o in operands], results=[Result(to=[into], how="make")])

    return Plan(
        version=[1, 0],
        method="by-hand",
        sequence_length=8,
        batch_size=1,
        replayable=False,
        choices={},
        estimate=Estimate(
            arena_bytes=512,
            workspace_bytes=1000,
            engine_bytes=0,
            constant_bytes=0,
            step_bytes=0,
            state_bytes=0,
            session_bytes=0,
            scratch_bytes=800,
            peak_bytes=1512,
            work_flops=0,
        ),
        graphs=[GraphRef(key="0" * 64, name="g", workspace_bytes=1000, engine_bytes=0)],
        values=[
            value(100, Arena(kind="arena", offset=0)),
            value(20, Arena(kind="arena", offset=448)),
            value(200, Scratch(kind="scratch", offset=0)),
            value(5, Named(kind="named", name="block_00.w")),
        ],
        sections={
            "train_step": [
                Load(op="load", group="block_00"),
                call(0, 3),
                Zero(op="zero", value=1),
                call(2, 0),
                Free(op="free", value=0, group=None),
                call(1, 2),
            ],
        },
    )


def test_live_bytes_rise_where_a_value_is_written_and_fall_after_its_free() -> None:
    track = memory_over_instructions(plan())["train_step"]
    assert track.live == (0, 400, 480, 480, 480, 80)
    assert track.workspace == (0, 1000, 0, 1000, 0, 1000)
    assert track.scratch == (0, 0, 0, 800, 800, 800)
    assert track.peak_bytes == 1480


def test_a_plan_with_a_budget_shows_both_limits_and_is_drawn_the_same_each_time(tmp_path: Path) -> None:
    svg = plot_plan(plan(), tmp_path / "p.svg", budget_bytes=3_000_000).read_text()
    assert plot_plan(plan(), tmp_path / "again.svg", budget_bytes=3_000_000).read_text() == svg
    assert "limit 3.0 MB" in svg
    assert "checkpoints in scratch" in svg


def test_a_report_without_steps_can_be_drawn(tmp_path: Path) -> None:
    memory = MemoryReport(
        idle_bytes=1, estimate_bytes=2, peak_bytes=0, limit_bytes=None, mapped_dirty_bytes=0, file_bytes=0
    )
    report = TrainReport(
        method="mesp",
        run=1,
        steps=0,
        total_steps=0,
        tokens=0,
        losses=(),
        rejected_steps=0,
        validation_loss_before=None,
        validation_loss=None,
        general_loss_before=None,
        general_loss=None,
        judged_on=None,
        accepted=False,
        stopped_because="stop_requested",
        memory=memory,
        step_peak_bytes=(),
        bytes_written=0,
        seconds=0.0,
    )
    assert plot_training(report, tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependency, match=r"bespoke-sdk\[plot\]"):
        plot_plan(plan(), tmp_path / "p.svg")


def trained_on_the_core() -> TrainReport:
    """Four steps with memory columns: what is live fills the panel up to the peak."""
    peaks = (40_000_000, 41_000_000, 41_000_000, 40_500_000)
    memory = MemoryReport(
        idle_bytes=0,
        estimate_bytes=44_000_000,
        peak_bytes=peaks[1],
        limit_bytes=45_000_000,
        mapped_dirty_bytes=0,
        file_bytes=0,
    )
    return TrainReport(
        method="mesp",
        run=1,
        steps=4,
        total_steps=4,
        tokens=90,
        losses=(3.0, 2.5, 2.2, 2.0),
        rejected_steps=0,
        validation_loss_before=3.1,
        validation_loss=2.1,
        general_loss_before=2.0,
        general_loss=2.05,
        judged_on="validation",
        accepted=True,
        stopped_because="finished",
        memory=memory,
        step_peak_bytes=peaks,
        bytes_written=0,
        seconds=1.0,
        judgements=(JudgedStep(2, 2.3), JudgedStep(3, 2.1), JudgedStep(4, 2.2)),
        best_step=3,
        runtime="core",
        memory_columns={"anonymous": peaks, "shmem": (0,) * 4, "swap": (0,) * 4, "file": (9,) * 4},
    )


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The figure of a training on the core, as it is laid out."""
    figures: list[Any] = []
    save = bespoke.plot._save
    monkeypatch.setattr(bespoke.plot, "_save", lambda figure, path: (figures.append(figure), save(figure, path))[1])
    plot_training(trained_on_the_core(), tmp_path / "t.png")
    return figures[0]


def test_a_legend_covers_nothing_and_its_swatches_are_seen(drawn: Any) -> None:
    for panel in drawn.axes:
        legend = panel.get_legend()
        assert legend.get_texts()
        assert not legend.get_window_extent().overlaps(panel.bbox)


def test_what_was_measured_twice_is_two_points_and_no_line(drawn: Any) -> None:
    lines = {line.get_label(): line for line in drawn.axes[1].get_lines()}
    assert lines["training"].get_linestyle() == "-"
    for name in ("validation", "general"):
        points = lines[f"{name}, before and after"]
        assert (list(points.get_xdata()), points.get_linestyle()) == ([0, 3], "None")  # the gate judges the best step
        assert points.get_marker() not in ("", "None", None)


def test_judgements_are_points_and_the_best_step_a_line(drawn: Any) -> None:
    lines = {line.get_label(): line for line in drawn.axes[1].get_lines()}
    assert [tuple(point) for point in lines["chooses the best step"].get_xydata()] == [(2, 2.3), (3, 2.1), (4, 2.2)]
    assert list(lines["best step, 3"].get_xdata()) == [3, 3]
