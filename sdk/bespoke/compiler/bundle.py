# SPDX-License-Identifier: Apache-2.0
"""Builder of a bundle: text rules and data, plans, weights, graphs, targets, golden vectors, manifest."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bespoke.bundle.federation_record import FederationRecord, seed_of
from bespoke.bundle.manifest import (
    MAJOR,
    MINOR,
    BudgetRecord,
    CreatorRecord,
    FormatVersion,
    LoraRecord,
    Manifest,
    ModelRecord,
    WeightsRecord,
)
from bespoke.bundle.plan_records import MethodRecord, PlanRecord, SmallerGenerationRecord, SmallerPlansRecord
from bespoke.bundle.target_records import GraphRecord, TensorRecord
from bespoke.bundle.writer import BundleWriter
from bespoke.compiler.artifacts import Artifacts
from bespoke.compiler.build_report import BuildReport
from bespoke.compiler.data_files import base_model_data, read_data, write_data
from bespoke.compiler.estimate import BuildEstimate, Dial
from bespoke.compiler.golden_file import write_golden
from bespoke.compiler.opened_model import OpenedModel, open_model
from bespoke.compiler.planner import Planned, remeasured
from bespoke.compiler.plans import ANSWERS, Key, Plans, Subject, context_length
from bespoke.compiler.quantization_cost import QuantizationCost
from bespoke.compiler.request import BuildListener, BuildRequest
from bespoke.compiler.text import text_rules
from bespoke.compiler.weight_files import initial_adapter, quantization_cost, write_weights
from bespoke.config import MEGABYTE
from bespoke.errors import ConfigError, PlanDoesNotFit
from bespoke.format.json_strict import dumps_canonical
from bespoke.format.tensors import write_arrays
from bespoke.model.architecture import ModelConfig
from bespoke.model.convert import base_sha256
from bespoke.model.licence import find_licence
from bespoke.model.spec import ModelSpec
from bespoke.plan.costs import Workspace
from bespoke.plan.instructions import Plan
from bespoke.plan.kinds import ADAPTER_GROUP
from bespoke.plan.same_state import check_same_state
from bespoke.plan.verify import verify
from bespoke.reference.torch_settings import computing
from bespoke.remedies import setting
from bespoke.version import __version__

if TYPE_CHECKING:
    from bespoke.graph.trace import Graph

__all__ = ["build", "dial", "estimate"]

PROGRAMS = "graphs/exported"
ADAPTER = "adapter/initial.safetensors"


@dataclass(frozen=True)
class BundleDraft:
    """A bundle whose files are written, all but the manifest."""

    manifest: Manifest
    report: BuildReport
    plans: Plans
    planned: dict[Key, Planned]
    artifacts: Artifacts  # the first target's


def estimate(request: BuildRequest) -> BuildEstimate:
    """Build the bundle and throw it away. Weights are not read, golden vectors have their largest size without values."""
    with (
        computing(None),
        open_model(request) as opened,
        tempfile.TemporaryDirectory() as temporary,
        BundleWriter(Path(temporary) / "bundle") as writer,
    ):
        draft = _draft(request, opened, writer, lambda stage, done, total: None, hollow=True)
        folder = writer.finish(draft.manifest, request.signing_key)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())

        draft.artifacts.folder = Path(temporary)  # artifacts compiled from here on are in no bundle
        cache_bytes = draft.artifacts.cache_bytes
        plans = draft.plans.estimates(draft.planned, draft.artifacts.compile)
        runs = draft.plans.run_estimates(draft.planned)
    return BuildEstimate(plans, runs, size, request.budget.memory_bytes, cache_bytes)


def dial(request: BuildRequest, budgets: Sequence[int]) -> Dial:
    """Implements `Personalizer.dial`."""
    with computing(None), open_model(request) as opened, tempfile.TemporaryDirectory() as temporary:
        _check(request, opened.config)
        artifacts = Artifacts(request.targets[0], Path(temporary), lambda stage, done, total: None)
        return Dial(Plans(request, ModelSpec(opened.config, request.lora)).dial(budgets, artifacts.compile))


def build(request: BuildRequest, out: Path, progress: BuildListener) -> tuple[Path, BuildReport]:
    """Implements `Personalizer.build`."""
    with computing(None), open_model(request) as opened, BundleWriter(out) as writer:
        draft = _draft(request, opened, writer, progress)
        return writer.finish(draft.manifest, request.signing_key), draft.report


def _draft(
    request: BuildRequest, opened: OpenedModel, writer: BundleWriter, progress: BuildListener, *, hollow: bool = False
) -> BundleDraft:
    """Write all files but the manifest. `hollow`: same checks and sizes, without weights and golden values."""
    folder, config = opened.folder, opened.config
    _check(request, config)
    licence = find_licence(folder, request.licence)
    model = ModelSpec(config, request.lora)

    text = text_rules(request, opened.text_folder, config)
    for name, content in text.files.items():
        writer.add_bytes(name, content)
    given = read_data(request, text, writer, progress)

    plans = Plans(request, model)
    planned = plans.estimated(progress)
    compiled = [Artifacts(target, writer.work / "graphs" / target.name, progress) for target in request.targets]
    planned = plans.fitted(planned, compiled[0].compile)

    context = context_length(request, config)
    files, error = write_weights(opened, model, text, context, writer, progress, hollow)
    data = base_model_data(given, request, folder, text, model, files, context, progress, hollow)
    base = base_sha256(files)
    adapter = writer.path_for(ADAPTER)
    write_arrays(adapter, initial_adapter(model, request.training.seed))

    weights = {group: f"weights/{group}.safetensors" for group in files}
    if model.lora.train == "B":  # A is a weight that comes from there
        files, weights = {**files, ADAPTER_GROUP: adapter}, {**weights, ADAPTER_GROUP: ADAPTER}

    used = plans.graphs(planned)
    graphs = _write_programs(used, writer, progress)
    for artifacts in compiled:
        if artifacts.bakes:
            artifacts.bake([each.plan for each in planned.values()], plans.tracer.graphs, files, hollow)
        else:
            artifacts.compile(used)
    targets = [artifacts.record(used) for artifacts in compiled]

    methods, generation = _write_plans(request, planned, plans, compiled[0].workspaces, graphs, writer)
    for file in licence.files:
        writer.add_file(f"licences/{file.name}", file)
    golden = write_golden(request, folder, model, planned, files, used, text, writer, progress, hollow)

    manifest = Manifest(
        format="bespoke-bundle",
        format_version=FormatVersion(major=MAJOR, minor=MINOR),
        created_by=CreatorRecord(name="bespoke-sdk", version=__version__),
        model=ModelRecord(
            name=_model_name(request.model),
            architecture=config.family,
            config=config,
            licence=licence.text,
            base_sha256=base,
        ),
        lora=LoraRecord(
            rank=model.lora.rank, alpha=model.lora.alpha, linears=model.lora.targets, train=model.lora.train
        ),
        text=text.record,
        context_length=context,
        sequence_lengths=request.sequence_lengths,
        budget=BudgetRecord(memory_bytes=request.budget.memory_bytes),
        methods=tuple(methods),
        generation=generation[0].plan,
        federation=_federation(request, planned),
        smaller_generation=tuple(generation[1:]),
        weights=tuple(WeightsRecord(group=group, file=file) for group, file in weights.items()),
        adapter=ADAPTER,
        data=write_data(data, writer),
        golden=golden,
        graphs=tuple(graphs),
        targets=tuple(targets),
        licences=tuple(f"licences/{file.name}" for file in licence.files),
        files={},
    )

    cost = QuantizationCost(error) if hollow else quantization_cost(request, opened, model, files, text, error)
    return BundleDraft(
        manifest, BuildReport(data.file_report, cost, data.rehearsal_report), plans, planned, compiled[0]
    )


def _check(request: BuildRequest, config: ModelConfig) -> None:
    """Raise at once the errors that would otherwise end a build after minutes."""
    longest = request.sequence_lengths[-1]
    if longest > config.max_positions:
        raise ConfigError(
            setting("training.sequence_lengths"),
            got=str(longest),
            expected=f"at most {config.max_positions}, which the model knows",
            next_step="Leave out what is longer",
        )
    if request.context is not None and request.context > config.max_positions:
        raise ConfigError(
            setting("context"),
            got=str(request.context),
            expected=f"at most {config.max_positions}, which the model knows",
            next_step="Lower it",
        )
    for target in request.targets:
        target.plugin.ready(target.options)


def _federation(request: BuildRequest, planned: dict[Key, Planned]) -> FederationRecord | None:
    """Returns the manifest's record. Raises ConfigError if no method, or not the named one, has the sections of a round."""
    given = request.federation
    if given is None:
        return None
    able = [
        method.name
        for method in request.methods
        if all("federated_apply" in each.plan.sections for key, each in planned.items() if key.method == method.name)
    ]
    if not able or given.method not in (None, *able):
        raise ConfigError(
            setting("federation.method"),
            got="none that can measure" if given.method is None else repr(given.method),
            expected=f"one of {', '.join(able)}"
            if able
            else "a method that takes part in rounds (docs/how_to/learn_together.md)",
            next_step="Name it in " + setting("federation.method") if able else "Add it to " + setting("optimizers"),
        )
    return FederationRecord(
        task=given.task,
        server_key=given.server_key,
        method=given.method or able[0],
        seed=seed_of(given.task),
        clip=given.clip,
        noise=given.noise,
        budget=given.budget,
    )


def _write_programs(graphs: list[Graph], writer: BundleWriter, progress: BuildListener) -> list[GraphRecord]:
    records = []
    for done, graph in enumerate(graphs):
        progress("graphs", done, len(graphs))
        name = f"{PROGRAMS}/{graph.name}-{graph.key[:16]}.json"
        writer.add_bytes(name, graph.program)
        specs = [
            [TensorRecord(name=s.name, shape=s.shape, dtype=s.dtype, role=s.name.split(".", 1)[0]) for s in side]
            for side in (graph.inputs, graph.outputs)
        ]
        records.append(
            GraphRecord(key=graph.key, name=graph.name, file=name, inputs=tuple(specs[0]), outputs=tuple(specs[1]))
        )
    progress("graphs", len(graphs), len(graphs))
    return records


def _write_plans(
    request: BuildRequest,
    planned: dict[Key, Planned],
    plans: Plans,
    workspaces: dict[str, Workspace],
    graphs: list[GraphRecord],
    writer: BundleWriter,
) -> tuple[list[MethodRecord], list[SmallerGenerationRecord]]:
    """Write the plans; returns records of the methods and of the plans for answers, for each budget, the largest first."""
    signatures = {graph.key: graph for graph in graphs}
    largest, *smaller = plans.budgets

    def write(subject: Subject, budget: int | None, name: str) -> tuple[Plan, PlanRecord]:
        file = f"plans/{name}.json" if budget == largest else f"plans/{name}-{(budget or 0) / MEGABYTE:.15g}mb.json"
        plan = remeasured(planned[Key(*subject, budget)], plans.costs, workspaces)
        if budget is not None and plan.estimate.peak_bytes > budget:  # a target that bakes is measured with its weights
            raise PlanDoesNotFit(
                f"The plan {file}",
                got=f"{plan.estimate.peak_bytes / 1e6:.1f} MB with the workspaces that the target measured",
                expected=f"at most {budget / 1e6:.1f} MB",
                next_step="Raise the budget a little",
            )
        verify(plan, file, signatures)
        writer.add_bytes(file, dumps_canonical(plan.model_dump(mode="json")))
        length = plan.sequence_length
        return plan, PlanRecord(sequence_length=length, file=file, estimate=plan.estimate, choices=dict(plan.choices))

    methods = []
    for method in request.methods:
        written = {
            budget: [
                write((method.name, length), budget, f"{method.name}-{length}") for length in request.sequence_lengths
            ]
            for budget in plans.budgets
        }
        method_plans = [plan for pairs in written.values() for plan, _ in pairs]
        check_same_state(method.name, method_plans)
        records = {budget: tuple(record for _, record in pairs) for budget, pairs in written.items()}
        methods.append(
            MethodRecord(
                name=method.name,
                training=method.training,
                options=method.options.model_dump(),
                scalars=method.scalars,
                replayable=all(plan.replayable for plan in method_plans),
                plans=records[largest],
                smaller_plans=tuple(
                    SmallerPlansRecord(memory_bytes=budget, plans=records[budget]) for budget in smaller if budget
                ),
            )
        )

    answers = [(budget, write(ANSWERS, budget, "generation")[1]) for budget in plans.budgets]
    return methods, [SmallerGenerationRecord(memory_bytes=budget or 0, plan=record) for budget, record in answers]


def _model_name(model: str | Path) -> str:
    """The hub id or the folder's name: no path of the machine that builds the bundle."""
    return str(model) if isinstance(model, str) and not Path(model).exists() else Path(model).resolve().name
