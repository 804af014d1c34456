# SPDX-License-Identifier: Apache-2.0
"""Runs: their lists of examples, where they stand, the slots, journal and metrics that they left; and accepted versions."""

from __future__ import annotations

import math
import re
import sqlite3
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from findings import Findings

FORGOTTEN = "example_forgotten"
SLOTS_KEPT, VERSIONS_KEPT = 2, 3
CURSOR = ("step", "user_position", "general_position")


@dataclass(frozen=True)
class Run:
    id: int
    seed: int
    settings: str
    steps: int
    started_from: int | None
    parent: int | None
    step: int
    cursor: str
    ended: str | None
    ended_at: str | None


def runs_of(connection: sqlite3.Connection) -> list[Run]:
    columns = "id, seed, settings, steps, started_from, parent, step, cursor, ended_because, ended_at"
    return [Run(*row) for row in connection.execute(f"SELECT {columns} FROM runs ORDER BY id")]


def check_runs(connection: sqlite3.Connection, findings: Findings) -> None:
    runs = runs_of(connection)
    unfinished = [run for run in runs if run.ended is None]
    findings.check(len(unfinished) <= 1, "one run", "runs", f"{len(unfinished)} that have not ended")
    run_of_version = dict(connection.execute("SELECT id, run FROM versions"))
    for run in runs:
        where = f"run {run.id}"
        findings.check(
            "training" in findings.json_object(run.settings, "runs", where), "runs", where, "no training settings"
        )
        findings.check(
            run.seed >= 0 and run.step <= run.steps, "runs", where, f"seed {run.seed}, step {run.step} of {run.steps}"
        )
        findings.check(
            (run.ended is None) == (run.ended_at is None), "runs", where, f"ended {run.ended}, at {run.ended_at}"
        )
        if run.started_from in run_of_version:
            parent = run_of_version[run.started_from]
            got = f"parent {run.parent}, but version {run.started_from} is of run {parent}"
            findings.check(run.parent == parent, "runs", where, got)
        elif run.ended is None:
            findings.check(
                run.started_from is None, "versions", where, f"no version {run.started_from}, from which it started"
            )
        _check_list(connection, run, findings)
        _check_progress(connection, run, findings)
    _check_versions(connection, {run.id: run for run in runs}, unfinished, findings)


def _check_list(connection: sqlite3.Connection, run: Run, findings: Findings) -> None:
    where = f"run {run.id}"
    listed = connection.execute(
        "SELECT position, example FROM run_examples WHERE run = ? ORDER BY position", (run.id,)
    ).fetchall()
    keys = [key for _, key in listed]
    there = {key for (key,) in connection.execute("SELECT key FROM examples")}
    findings.check(set(keys) <= there, "run list", where, f"examples {sorted(set(keys) - there)} that are not there")
    if run.ended == FORGOTTEN:
        return
    findings.check(
        [position for position, _ in listed] == list(range(len(listed))), "run list", where, "positions with gaps"
    )
    expected = sorted(key for key in there if keys and key <= max(keys))
    findings.check(
        keys == expected, "run list", where, f"examples {keys[:20]}, at its start there were {expected[:20]}"
    )


def _check_progress(connection: sqlite3.Connection, run: Run, findings: Findings) -> None:
    """Cursor against slots and journal; every step reported once."""
    where = f"run {run.id}"
    slots = connection.execute("SELECT step, cursor FROM slots WHERE run = ? ORDER BY id", (run.id,)).fetchall()
    journal = connection.execute(
        "SELECT step, cursor, metrics FROM journal WHERE run = ? ORDER BY step", (run.id,)
    ).fetchall()
    metrics = connection.execute("SELECT step, json FROM metrics WHERE run = ? ORDER BY id", (run.id,)).fetchall()
    if run.ended == FORGOTTEN:
        findings.check(
            not (slots or journal or metrics) and run.cursor == "{}", "forgotten run", where, "more than its settings"
        )
        return
    findings.check(len(slots) <= (SLOTS_KEPT if run.ended is None else 0), "slots", where, f"{len(slots)} slots")
    if run.step == 0 and not slots and not journal:
        findings.check(run.cursor == "{}", "cursor", where, f"{run.cursor} before the first commit")
        return
    for kind, rows in (("slots", slots), ("journal", journal)):
        cursors = [_cursor(cursor, step, f"{where}, {kind}, step {step}", findings) for step, cursor, *_ in rows]
        later = all(a[0] < b[0] and a[1] <= b[1] and a[2] <= b[2] for a, b in pairwise(cursors))
        findings.check(later, "cursor", f"{where}, {kind}", f"a cursor that goes back: {cursors[:10]}")
    _cursor(run.cursor, run.step, where, findings)
    steps = [step for step, *_ in journal]
    if journal:
        findings.check(steps == list(range(1, len(steps) + 1)), "journal", where, f"steps with gaps: {steps[:20]}")
        at = {step: cursor for step, cursor, _ in journal}
        agree = all(at.get(step) == cursor for step, cursor in slots)
        findings.check(agree, "journal", where, "no row of a slot's step, or one with another cursor")
    if journal or slots:
        newest = max(
            [(steps[-1], journal[-1][1])] if journal else [], slots[-1:], key=lambda rows: rows[0][0] if rows else -1
        )[0]
        findings.check(
            (run.step, run.cursor) == newest, "cursor", where, f"step {run.step} {run.cursor}, committed is {newest}"
        )
    elif run.ended is None:
        findings.check(False, "cursor", where, f"step {run.step} with neither slot nor journal")
    reported = [findings.json_object(text, "metrics", where).get("step") for *_, text in journal + metrics]
    whole = reported == list(range(1, run.step + 1))
    findings.check(whole, "metrics", where, f"steps {reported[:20]} are reported, {run.step} were done")
    early = [step for step, text in metrics if findings.json_object(text, "metrics", where).get("step", 0) > step]
    findings.check(not early, "metrics", where, f"reports of later steps in the commits {early[:10]}")


def _cursor(text: str, step: int, where: str, findings: Findings) -> tuple[int, int, int]:
    cursor: dict[str, Any] = findings.json_object(text, "cursor", where)
    plain = set(cursor) == set(CURSOR) and all(type(value) is int and value >= 0 for value in cursor.values())
    if not findings.check(plain, "cursor", where, text):
        return (step, 0, 0)
    findings.check(cursor["step"] == step, "cursor", where, f"step {cursor['step']} in the cursor of step {step}")
    return (cursor["step"], cursor["user_position"], cursor["general_position"])


def check_losses(connection: sqlite3.Connection, findings: Findings) -> None:
    known = {0} | {row[0] for row in connection.execute("SELECT id FROM versions")}
    known |= {-row[0] for row in connection.execute("SELECT id FROM runs WHERE ended_because IS NULL")}
    for version, rows, loss in connection.execute("SELECT version, rows, loss FROM losses"):
        where = f"loss of {version}"
        findings.check(version in known, "losses", where, "neither a version nor a run that goes on")
        findings.check(bool(re.fullmatch("[0-9a-f]{64}", rows)), "losses", where, f"rows {rows[:80]!r}")
        findings.check(loss >= 0, "losses", where, loss)


def check_judgements(connection: sqlite3.Connection, findings: Findings) -> None:
    """Checks that judgements belong to steps of a run. The best step of an unfinished run is the first with the least loss."""
    runs = {run.id: run for run in runs_of(connection)}
    best = dict(connection.execute("SELECT run, step FROM best_steps"))
    by_run: dict[int, list[tuple[int, float]]] = {}
    for of, step, loss in connection.execute("SELECT run, step, loss FROM judgements ORDER BY run, step"):
        by_run.setdefault(of, []).append((step, loss))
        where = f"run {of}, step {step}"
        findings.check(of in runs and step <= runs[of].steps, "judgements", where, "a step that the run does not have")
        findings.check(loss >= 0, "judgements", where, loss)
    for of in set(best) - set(by_run):  # of a run that judges no step: the one that the gate has let answer
        unfinished = of in runs and runs[of].ended is None
        findings.check(unfinished and best[of] <= runs[of].steps, "best step", f"run {of}", f"step {best[of]}")
    for of, judged in by_run.items():
        where = f"run {of}"
        run = runs.get(of)
        if run is None or run.ended is not None:
            findings.check(of not in best, "best step", where, "kept of a run that has ended")
            findings.check(run is None or run.ended != FORGOTTEN, "forgotten run", where, "what it was worth")
            continue
        finite = [(loss, step) for step, loss in judged if math.isfinite(loss)]
        expected = min(finite)[1] if finite else None
        findings.check(
            best.get(of) == expected, "best step", where, f"step {best.get(of)}, the best judged one is {expected}"
        )


def check_answers(connection: sqlite3.Connection, findings: Findings) -> None:
    """Checks that answers are of the best step of an unfinished run, and short."""
    best = dict(connection.execute("SELECT run, step FROM best_steps"))
    for of, step, prompt, tokens in connection.execute("SELECT run, step, prompt, tokens FROM answers"):
        where = f"answer of run {of}, step {step}"
        findings.check(best.get(of) == step, "answers", where, f"the best step is {best.get(of)}")
        findings.check(bool(re.fullmatch("[0-9a-f]{64}", prompt)), "answers", where, f"prompt {prompt[:80]!r}")
        findings.check(len(tokens) % 4 == 0 and len(tokens) <= 4 * 64, "answers", where, f"{len(tokens)} bytes")


def _check_versions(
    connection: sqlite3.Connection, runs: dict[int, Run], unfinished: list[Run], findings: Findings
) -> None:
    versions = connection.execute("SELECT id, run, step, metrics, source FROM versions ORDER BY id").fetchall()
    needed = {run.started_from for run in unfinished}
    surplus = [version[0] for version in versions[:-VERSIONS_KEPT] if version[0] not in needed]
    findings.check(not surplus, "versions", "versions", f"{surplus}, older than the last {VERSIONS_KEPT}")
    for id, of, step, metrics, source in versions:
        where = f"version {id}"
        findings.json_object(metrics, "versions", where)
        findings.check((of is None) == (source is not None), "versions", where, f"run {of} and source {source!r}")
        if of is None:
            continue
        run = runs.get(of)
        findings.check(run, "versions", where, f"run {of}, which is not there")
        if run is not None:
            findings.check(run.ended != FORGOTTEN, "versions", where, f"run {of} saw what is forgotten")
            shared = "shared_round" in findings.json_object(run.settings, "runs", where)  # it judges, and takes no step
            findings.check(
                step <= (1 if shared else run.step), "versions", where, f"step {step}, run {of} has done {run.step}"
            )
