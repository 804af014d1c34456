# SPDX-License-Identifier: Apache-2.0
"""Draws memory: over the instructions of a plan that has not run, and over the steps of a training call."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from bespoke.errors import ConfigError, MissingDependency
from bespoke.format.result_file import check_place, write
from bespoke.plan.access import writes
from bespoke.plan.instructions import Call, Free, Instruction, Plan, SectionName

if TYPE_CHECKING:
    from bespoke.rules.report import TrainReport

__all__ = ["Track", "check_path", "memory_over_instructions", "plot_plan", "plot_training"]

SUFFIXES = (".svg", ".png")
MB = 1e6


@dataclass(frozen=True)
class Track:
    """Memory in bytes while each instruction of a section runs. `scratch` is mapped and not a part of the peak."""

    live: tuple[int, ...]
    workspace: tuple[int, ...]
    scratch: tuple[int, ...]

    @property
    def peak_bytes(self) -> int:
        return max((live + work for live, work in zip(self.live, self.workspace, strict=True)), default=0)


def memory_over_instructions(plan: Plan) -> dict[SectionName, Track]:
    """Returns the live bytes of the arena and the workspace of the running call, by section.

    Live bytes count values without the gaps between them. The arena with its gaps takes `estimate.arena_bytes`.
    """
    return {name: _track(plan, code) for name, code in plan.sections.items()}


def _track(plan: Plan, code: Sequence[Instruction]) -> Track:
    live: dict[str, dict[int, int]] = {"arena": {}, "scratch": {}}
    columns: tuple[list[int], list[int], list[int]] = ([], [], [])
    for instruction in code:
        for operand in writes(instruction):
            value = plan.values[operand[0]]
            if value.place.kind in live:
                live[value.place.kind][operand[0]] = value.nbytes
        work = plan.graphs[instruction.graph].workspace_bytes if isinstance(instruction, Call) else 0
        for column, size in zip(
            columns, (sum(live["arena"].values()), work, sum(live["scratch"].values())), strict=True
        ):
            column.append(size)
        if isinstance(instruction, Free) and instruction.value is not None:
            for kind in live.values():
                kind.pop(instruction.value, None)
    return Track(*(tuple(column) for column in columns))


def plot_plan(plan: Plan, path: Path, budget_bytes: int | None = None) -> Path:
    """Draws a panel for each section: memory over its instructions, with the estimate and the budget. Returns `path`."""
    check_path(path)
    all_tracks = memory_over_instructions(plan)
    tracks = {name: all_tracks[name] for name in get_args(SectionName) if name in all_tracks and all_tracks[name].live}
    estimate = plan.estimate

    figure, panels = _figure(len(tracks), 1.9)
    title = f"{plan.method}, sequence length {plan.sequence_length}, batch {plan.batch_size}: memory over the plan"
    figure.suptitle(title, fontsize=11)
    top = max(estimate.peak_bytes, budget_bytes or 0) / MB

    for panel, (name, track) in zip(panels, tracks.items(), strict=True):
        steps = range(len(track.live))
        held = (estimate.engine_bytes + estimate.constant_bytes) / MB
        parts = {
            "live values": [b / MB for b in track.live],
            "workspace of the call": [b / MB for b in track.workspace],
            "engine": [held] * len(track.live),
        }
        if estimate.session_bytes:
            parts["KV cache"] = [estimate.session_bytes / MB] * len(track.live)

        panel.stackplot(
            steps,
            *parts.values(),
            step="post",
            colors=("#3b7dd8", "#f2a541", "#dde1e7", "#b9d2f2"),
            labels=list(parts),
            rasterized=True,  # as vectors, thousands of corners make the file 20 times as large
        )
        if any(track.scratch):
            panel.plot(
                steps, [b / MB for b in track.scratch], color="#6b7785", lw=1, label="checkpoints in scratch (mapped)"
            )

        _limits(panel, estimate.peak_bytes, budget_bytes)
        panel.set(ylabel="MB", ylim=(0, top * 1.12), xlim=(0, max(1, len(track.live) - 1)))
        panel.set_title(f"{name} ({len(track.live)} instructions)", fontsize=9, loc="left")

    figure.legend(
        *panels[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=6, frameon=False
    )
    panels[-1].set_xlabel("instruction")
    return _save(figure, path)


def plot_training(report: TrainReport, path: Path) -> Path:
    """Draws the memory of each step with estimate and limit, and the losses. Returns `path`."""
    check_path(path)
    figure, (memory, losses) = _figure(2, 2.6)
    first = report.total_steps - report.steps + 1
    title = f"{report.method} on {report.runtime}, run {report.run}: {report.steps} steps, stopped because {report.stopped_because}"
    figure.suptitle(title, fontsize=11)

    peaks = [peak / MB for peak in report.step_peak_bytes[: report.steps]]
    steps = range(first, first + len(peaks))
    parts = {
        name: column[: report.steps] for name, column in report.memory_columns.items() if name != "file" and any(column)
    }
    if len(peaks) > 1 and parts:
        layers = [[size / MB for size in column] for column in parts.values()]
        memory.stackplot(steps, *layers, colors=("#b9d2f2", "#f2d9b0", "#e3b5b0"), labels=list(parts))
    memory.plot(steps, peaks, color="#3b7dd8", label="peak of the step")
    _limits(memory, report.memory.estimate_bytes, report.memory.limit_bytes)
    memory.set(ylabel="MB" if report.runtime == "core" else "MB over the idle process", ylim=(0, None))

    losses.plot(range(first, first + len(report.losses)), report.losses, color="#3b7dd8", lw=1, label="training")
    if report.judgements:
        steps_judged, losses_there = zip(*((judged.step, judged.loss) for judged in report.judgements), strict=True)
        losses.plot(
            steps_judged, losses_there, color="#8e5bb5", marker=".", lw=0.8, ls=":", label="chooses the best step"
        )
    if report.best_step is not None:
        losses.axvline(report.best_step, color="#8e5bb5", lw=0.8, label=f"best step, {report.best_step}")

    judged_on = report.judged_on or "validation"
    pairs = (
        (judged_on, report.validation_loss_before, report.validation_loss),
        ("general", report.general_loss_before, report.general_loss),
    )
    for (name, before, after), color in zip(pairs, ("#c0392b", "#2c9c69"), strict=True):
        if before is not None and after is not None:
            ends = (first - 1, report.best_step or report.total_steps)
            losses.plot(ends, (before, after), color=color, marker="o", ls="none", label=f"{name}, before and after")

    losses.set(xlabel="step of the run", ylabel="loss, nats a token")
    for panel in (memory, losses):
        # The legend is above the panel, because a swatch is invisible on an area of its own colour.
        panel.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=6)
        panel.xaxis.get_major_locator().set_params(integer=True)
    return _save(figure, path)


def check_path(path: Path) -> None:
    """Raises ConfigError unless a plot can be written to `path`, and MissingDependency without matplotlib."""
    if path.suffix.lower() not in SUFFIXES:
        got = f"the suffix '{path.suffix}'" if path.suffix else "a name without an ending"
        raise ConfigError(f"plot {path}", got=got, expected=" or ".join(SUFFIXES), next_step="Name the file so")
    check_place(f"plot {path}", path)
    if find_spec("matplotlib") is None:  # imported only to draw: training before it needs the memory
        raise _no_matplotlib()


def _limits(panel: Any, estimate_bytes: int, limit_bytes: int | None) -> None:
    panel.axhline(estimate_bytes / MB, color="#222222", ls="--", lw=0.9, label=f"estimate {estimate_bytes / MB:.1f} MB")
    if limit_bytes is not None:
        panel.axhline(limit_bytes / MB, color="#c0392b", lw=0.9, label=f"limit {limit_bytes / MB:.1f} MB")


def _figure(panels: int, height: float) -> tuple[Any, list[Any]]:
    """A figure of panels one above the other, without pyplot: no window, no global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise _no_matplotlib() from None
    figure = Figure(figsize=(9, height * panels + 0.9), layout="constrained")
    return figure, list(figure.subplots(panels, 1, squeeze=False)[:, 0])


def _no_matplotlib() -> MissingDependency:
    return MissingDependency.of("Plots", "matplotlib", "plot")


def _save(figure: Any, path: Path) -> Path:
    """Writes the figure without a date and random ids, so the same input gives the same bytes."""
    import matplotlib

    suffix, drawn = path.suffix.lower(), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "bespoke", "svg.fonttype": "none"}):
        figure.savefig(drawn, format=suffix[1:], dpi=120, metadata={"Date": None} if suffix == ".svg" else None)
    write(f"plot {path}", path, drawn.getvalue())
    return path
