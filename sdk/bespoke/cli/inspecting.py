# SPDX-License-Identifier: Apache-2.0
"""`bespoke inspect`, `verify`, `plugins` and `doctor`, which change nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bespoke.cli.output import (
    PATH,
    Output,
    Tell,
    Trust,
    engine_option,
    format_option,
    print_json,
    progress,
    table,
    trust_options,
)
from bespoke.errors import ConfigError, MissingDependency
from bespoke.rules.report import megabytes

if TYPE_CHECKING:
    from bespoke.bundle.plan_records import PlanRecord
    from bespoke.bundle.reader import Bundle
    from bespoke.bundle.target_records import TargetRecord
    from bespoke.plan.instructions import Plan


_AUTHENTICATED = {"pin": "by the pinned sha256", "signature": "by the given key", "none": "not"}


@click.command(short_help="Describe a bundle and draw its memory.")
@click.argument("bundle", type=PATH)
@click.option("--plot", type=PATH, metavar="FILE", help="Draw a plan's memory (.svg or .png).")
@click.option("--method", help="Method whose plan is drawn, or generation [the first].")
@click.option("--sequence-length", type=int, help="Length whose plan is drawn [the longest].")
@click.option("--features", metavar="TARGET", help="List the tensors that a target's artifacts take in another form.")
@trust_options
@format_option
@click.pass_obj
def inspect(
    output: Output,
    bundle: Path,
    plot: Path | None,
    method: str | None,
    sequence_length: int | None,
    features: str | None,
    trust: Trust,
) -> None:
    """Describe BUNDLE: model, methods, plans with their memory, targets, files.

    \b
    bespoke inspect chat.bundle --plot memory.svg
    """
    from bespoke.bundle.reader import read_bundle

    with read_bundle(bundle, **trust) as opened:
        manifest = opened.manifest
        if plot is not None:
            from bespoke.plot import plot_plan

            plot_plan(_plan(opened, method, sequence_length), plot, manifest.budget.memory_bytes)
        if features is not None:
            rows = _features(opened, features)
            columns = ("graph", "feature", "tensor", "shape", "dtype", "view")
            if output.json:
                print_json([dict(zip(columns, line, strict=True)) for line in rows])
            else:
                click.echo(table(columns, rows))
        elif output.json:
            print_json(
                {
                    "bundle": str(bundle),
                    "manifest_sha256": opened.manifest_sha256,
                    "signed": opened.signed,
                    "authenticated": opened.authenticated,
                    "bytes": sum(file.size for file in manifest.files.values()),
                    "manifest": manifest.model_dump(mode="json"),
                }
            )
        else:
            click.echo(_lines(opened))


def _lines(bundle: Bundle) -> str:
    m = bundle.manifest
    version = f"{m.format_version.major}.{m.format_version.minor}"
    text = "token ids only" if m.text.tokenizer_bin is None else "chat turns" if m.text.turns else "text"
    size = sum(file.size for file in m.files.values())
    made_by = f"{m.created_by.name} {m.created_by.version}"
    plans = [
        (
            method,
            plan.sequence_length,
            megabytes(budget),
            round(plan.estimate.peak_bytes / 1e6, 1),
            round(plan.estimate.work_flops / 1e9, 3),
            ", ".join(f"{name}={value}" for name, value in plan.choices.items()),
        )
        for method, budget, plan in m.plans
    ]
    data = ", ".join(name for name in (m.data.train, m.data.valid, m.data.behaviour) if name) or "none"
    return "\n".join(
        [
            f"bundle      format {version}, by {made_by}, {'signed' if bundle.signed else 'not signed'}",
            f"manifest    sha256 {bundle.manifest_sha256}; authenticated: {_AUTHENTICATED[bundle.authenticated]}",
            f"files       {len(m.files)}, {megabytes(size)}",
            f"model       {m.model.name} ({m.model.architecture}), licence {m.model.licence}, base {m.model.base_sha256[:16]}",
            f"adapter     LoRA of rank {m.lora.rank}, alpha {m.lora.alpha:g}, on {', '.join(m.lora.linears)}; trained: "
            + ("A and B" if m.lora.train == "both" else "B, A stays as it is"),
            f"takes       {text}; trains on {m.text.train_on}; context {m.context_length}",
            f"data        {data}",
            f"golden      {m.golden or 'none'}",
            f"budget      {megabytes(m.budget.memory_bytes)}",
            f"graphs      {len(m.graphs)}, for {', '.join(target.name for target in m.targets)}",
            *map(_artifacts, m.targets),
            "",
            table(("method", "length", "budget", "peak MB", "GFLOP/step", "choices"), plans),
        ]
    )


def _artifacts(target: TargetRecord) -> str:
    """Returns a line with the number of artifacts and of those that need each delegate of the engine."""
    calls = Counter(delegate for artifact in target.artifacts for delegate in artifact.delegates)
    return f"artifacts   {target.name}: {len(target.artifacts)}" + "".join(
        f", {calls[name]} with {name}" for name in sorted(calls)
    )


def _features(bundle: Bundle, name: str) -> list[tuple[str, ...]]:
    """Returns graph, feature, tensor, shape, dtype and view of all operands and results of a target's artifacts."""
    records = {record.name: record for record in bundle.manifest.targets}
    if name not in records or not records[name].features:
        got = "a target without features: it takes the graph's own tensors, or the bundle is of before format 1.4"
        raise ConfigError(
            f"--features {name}",
            got=got if name in records else "no such target in the bundle",
            expected=f"one of {', '.join(records)} whose artifacts take other tensors",
            next_step="Leave --features out, or build the bundle again",
        )

    features = {(feature.tensor_dtype, feature.tensor_shape): feature for feature in records[name].features}
    graphs = {graph.key: graph for graph in bundle.manifest.graphs}
    lines: dict[tuple[str, ...], None] = {}
    for artifact in records[name].artifacts:
        graph = graphs[artifact.graph]
        inputs = {spec.name: spec for spec in graph.inputs}
        for side, specs in (("x", [inputs[operand] for operand in artifact.operands]), ("y", graph.outputs)):
            for number, spec in enumerate(specs):
                feature = features.get((spec.dtype, spec.shape))
                shape, dtype, view = (
                    (feature.shape, feature.dtype, feature.view) if feature else (spec.shape, spec.dtype, "same")
                )
                line = (f"{side}{number}", spec.name, " x ".join(map(str, shape)), dtype, view)
                lines[f"{graph.name}-{graph.key[:8]}", *line] = None
    return list(lines)


def _plan(bundle: Bundle, method: str | None, length: int | None) -> Plan:
    """Returns the plan of a method at a length for the largest budget. None: the first method, the longest length."""
    whole = [plan for plan in bundle.manifest.plans if plan.memory_bytes == bundle.manifest.budget.memory_bytes]
    methods = dict.fromkeys(plan.method for plan in whole)
    name = method or next(iter(methods))
    if name not in methods:
        raise ConfigError(
            f"--method {name}",
            got="no such method",
            expected=f"one of {', '.join(methods)}",
            next_step="Name one of them",
        )

    plans = {plan.record.sequence_length: plan.record for plan in whole if plan.method == name}
    wanted = max(plans) if length is None else length
    if wanted not in plans:
        raise ConfigError(
            f"--sequence-length {wanted}",
            got="no such plan",
            expected=f"one of {', '.join(map(str, plans))}",
            next_step="Name one of them",
        )
    return _read(bundle, plans[wanted])


def _read(bundle: Bundle, record: PlanRecord) -> Plan:
    from bespoke.plan.read import read_plan

    return read_plan(bundle.read(record.file), record.file, bundle.manifest.graphs)


@click.command(short_help="Check a bundle's files, plans and golden vectors.")
@click.argument("bundle", type=PATH)
@click.option("--files-only", is_flag=True, help="Check only hashes and plans, and run nothing.")
@engine_option("Engine to check: torch, or a target that the core runs [each that bundle and machine have].")
@trust_options
@format_option
@click.pass_obj
def verify(output: Output, bundle: Path, files_only: bool, engine: str | None, trust: Trust) -> None:
    """Check BUNDLE: every file's hash, every rule of every plan, and its golden vectors on this machine.

    Golden vectors need torch or the device core. Without torch, only the core is checked.

    \b
    bespoke verify chat.bundle --public-key app.pub
    """
    from bespoke.bundle.reader import read_bundle
    from bespoke.engines import TORCH, provers

    with read_bundle(bundle, **trust) as opened, progress() as tell:
        numbers = count(1)
        report: dict[str, Any] = {
            "bundle": str(bundle),
            "manifest_sha256": opened.manifest_sha256,
            "signed": opened.signed,
            "signature_checked": trust["public_key"] is not None,
            "authenticated": opened.authenticated,
            "files": opened.verify_files(lambda name, size: tell("files", next(numbers), len(opened.names))),
            "plans": len([_read(opened, plan.record) for plan in opened.manifest.plans]),
            "golden": None,
        }
        if opened.manifest.golden is not None and not files_only:
            report["golden"] = []
            for name in provers(engine, opened.manifest):
                report["golden"] += _golden(opened, tell) if name == TORCH else _golden_of_core(opened, bundle, name)

    if output.json:
        print_json(report)
        return
    click.echo(f"{bundle}: {report['files']} files and {report['plans']} plans are whole")
    if report["golden"] is None:
        click.echo("no golden vectors were compared")
    else:
        checks = [
            (c["runtime"], c["what"], c["method"] or "", c["sequence_length"] or "", c["compared"], _percent(c))
            for c in report["golden"]
        ]
        click.echo(table(("runtime", "golden vectors", "method", "length", "compared", "of tolerance"), checks))


def _percent(check: dict[str, Any]) -> str:
    return f"{check['worst']:.1%}"


def _golden(bundle: Bundle, tell: Tell) -> list[dict[str, Any]]:
    """Returns the checks of the golden vectors with torch. Raises GoldenMismatch at the first that fails."""
    numbers = count(1)
    try:
        from bespoke.golden.prover import verify_bundle
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependency.of("Golden vectors", "torch", "torch") from None
    report = verify_bundle(bundle, files=False, on_check=lambda check: tell(f"golden: {check.what}", next(numbers), 0))
    return [{"runtime": "torch", **asdict(check)} for check in report.checks]


def _golden_of_core(bundle: Bundle, path: Path, engine: str) -> list[dict[str, Any]]:
    """Returns the same checks with an engine of the core, in a process of its own. Only torch checks those of a tokenizer."""
    import tempfile

    from bespoke.core.handle import Place
    from bespoke.core.own_process import OwnProcess

    with tempfile.TemporaryDirectory() as state:
        core = OwnProcess(Place(path, Path(state) / "state", bundle.manifest_sha256, bundle.public_key), None, engine)
        return [{"runtime": "core", **check} for check in core.verify()["checks"] if check["what"] != "files"]


@click.command(short_help="List installed plugins and their problems.")
@format_option
@click.pass_obj
def plugins(output: Output) -> None:
    """List installed plugins: what each provides, or why it cannot be used."""
    from bespoke.plugins import installed

    entries = installed()
    if output.json:
        print_json({"plugins": [asdict(plugin) for plugin in entries]})
        return

    rows = [(p.name, f"{p.package} {p.version}", ", ".join(p.provides) or "nothing") for p in entries]
    click.echo(table(("name", "package", "provides"), rows))
    for plugin in entries:
        if plugin.problem is not None:
            click.echo(f"\n{plugin.problem}")


@click.command(short_help="Say what is installed, what is missing and what that means.")
@click.option("--state", type=PATH, metavar="DIR", help="Folder to try SQLite in, where you want to keep a state.")
@format_option
@click.pass_obj
def doctor(output: Output, state: Path | None) -> None:
    """Say what is installed, what is missing and what that means.

    Ends with 3 if something is missing that training on this machine needs.
    """
    from bespoke.doctor import examine

    findings = examine(state)
    if output.json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        click.echo(
            table(("", "what", "found"), [(finding.status, finding.name, finding.found) for finding in findings])
        )
        for finding in findings:
            if finding.means:
                click.echo(
                    f"\n{finding.name}: {finding.means}." + (f" {finding.next_step}." if finding.next_step else "")
                )

    if any(finding.status == "missing" and finding.required for finding in findings):
        click.get_current_context().exit(MissingDependency.exit_code)
