# SPDX-License-Identifier: Apache-2.0
"""The manifest as a model: what a bundle is, and the only list of what it holds.

Every field is required: a reader that filled one in would decide for the app what the build decided already, and two
readers would fill it in differently. A field that minor version n brings is required from n on and forbidden before
(`ADDED`), so that a document never means one thing to an old reader and another to a new one. Its bytes are read and
written by `bespoke.bundle.manifest_document`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from bespoke.config import Linear, Lora, Settings, Training, as_tuple
from bespoke.model.architecture import ModelConfig
from bespoke.plan.instructions import Estimate
from bespoke.plan.kinds import GENERATION

__all__ = [
    "ADDED",
    "BEFORE",
    "FORMAT",
    "MAJOR",
    "MINOR",
    "ArtifactRecord",
    "BakedRecord",
    "BudgetRecord",
    "BundlePlan",
    "CreatorRecord",
    "DataRecord",
    "FeatureRecord",
    "FileRecord",
    "FormatVersion",
    "GraphRecord",
    "LoraRecord",
    "Manifest",
    "MethodRecord",
    "ModelRecord",
    "PlanRecord",
    "SmallerGenerationRecord",
    "SmallerPlansRecord",
    "TargetRecord",
    "TensorRecord",
    "TextRecord",
    "WeightsRecord",
    "file_name_problem",
]

FORMAT = "bespoke-bundle"
MAJOR, MINOR = 1, 6
# Dotted path of a field (list and key positions left out) -> minor that brought it. Such a field has a default, for documents of
# before; a document of its minor has to hold it like any other.
ADDED: Mapping[str, int] = {
    "text.tokenizer_bin": 1,
    "targets.artifacts.baked": 1,
    "generation": 2,
    "methods.smaller_plans": 3,
    "smaller_generation": 3,
    "lora.train": 4,
    "targets.artifacts.numbers": 4,
    "targets.artifacts.delegates": 4,
    "targets.features": 4,
    "methods.training.useful_gain": 5,
    "methods.training.write_mb_per_run": 5,
}
# What documents of before mean by a field of ADDED that they lack, where that is not the default of today.
BEFORE: Mapping[str, float | None] = {"methods.training.useful_gain": 0.0, "methods.training.write_mb_per_run": None}

MAX_MANIFEST_BYTES = 8 * 2**20
MAX_FILES = 16_384
MAX_FILE_BYTES = 2**40
MAX_COUNT = 2**53  # the largest integer that every JSON reader keeps exactly

_COMPONENT = re.compile(r"[A-Za-z0-9_@+=-][A-Za-z0-9_.@+=-]*")
MANIFEST_FILE, SUM_FILE, SIGNATURE_FILE = "manifest.json", "manifest.sha256", "signature"
RESERVED = frozenset({MANIFEST_FILE, SUM_FILE, SIGNATURE_FILE})  # in addition to what the manifest lists


def file_name_problem(name: str) -> str:
    """Why `name` cannot name a file of a bundle; empty if it can.

    Letters of ASCII only, so that no file system normalises a name into another; no component begins with a dot.
    """
    components = name.split("/")
    if len(name) > 255 or len(components) > 8:
        return "longer than 255 characters or 8 folders"
    if name.casefold() in RESERVED:
        return "reserved for the bundle itself"
    if not all(_COMPONENT.fullmatch(component) for component in components):
        return "not a relative path of letters, digits and _.@+=- (no '..', no backslash, no leading dot)"
    return ""


def _file_name(name: str) -> str:
    problem = file_name_problem(name)
    if problem:
        raise ValueError(f"the name is {problem}")
    return name


def _printable(text: str) -> str:
    if not text.isprintable():  # a name ends up on somebody's terminal
        raise ValueError("the text has control characters")
    return text


FileName = Annotated[str, AfterValidator(_file_name)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
Bytes = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Range = Annotated[
    tuple[Annotated[int, Field(ge=0, le=MAX_COUNT)], ...], Field(min_length=2, max_length=2), BeforeValidator(as_tuple)
]
Shape = Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_COUNT)], ...], Field(max_length=8), BeforeValidator(as_tuple)]
ElementType = Literal["float32", "float16", "uint8", "int32", "int64"]
OptionValue = bool | int | float | Annotated[str, Field(max_length=4096)] | None


class FormatVersion(Settings):
    """A reader takes its own major version and any minor up to its own."""

    major: int = Field(ge=0, le=65_535, description="changes when a document of the old format cannot be read")
    minor: int = Field(ge=0, le=65_535, description="changes when fields are added")


class CreatorRecord(Settings):
    """What wrote the bundle; for people, readers do not act on it."""

    name: Name = Field(description="name of the program")
    version: Name = Field(description="its version")


class ModelRecord(Settings):
    """The base model."""

    name: Name = Field(description="hub id, or name of the folder it was read from")
    architecture: Name = Field(description="family of the decoder: llama, qwen2, qwen3, gemma3_text")
    config: ModelConfig = Field(description="every size and switch of the canonical decoder")
    licence: Name = Field(description="SPDX id of the weights' licence, or the name under which it is known")
    base_sha256: Sha256 = Field(description="hash over the converted weights; adapters and states belong to one base")


class LoraRecord(Settings):
    """y = x W + (alpha / rank) x A B on each of `linears` in every block."""

    rank: int = Field(ge=1, le=1024, description="width of the adapter")
    alpha: float = Field(gt=0, description="numerator of the adapter's scale")
    linears: Annotated[tuple[Linear, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1,
        max_length=64,
        description="the linears of a block that have an adapter, in the order of the adapter",
    )
    train: Literal["both", "B"] = Field(
        default="both",
        description="what of it is trained and kept in states; if that is B alone, A is a weight of group `adapter`",
    )

    @property
    def settings(self) -> Lora:
        """What it was built with."""
        return Lora(rank=self.rank, alpha=self.alpha, targets=self.linears, train=self.train)


class TextRecord(Settings):
    """How text becomes tokens. All files absent: the app gives token ids."""

    tokenizer: FileName | None = Field(
        description="tokenizer.json; null where tokenizer.bin gives the whole tokenizer back"
    )
    tokenizer_config: FileName | None = Field(
        description="its settings: names of special tokens; null without tokenizer.json"
    )
    tokenizer_bin: FileName | None = Field(
        default=None,
        description="tokenizer.bin: the tokenizer as tables that a device maps; null: the device takes token ids",
    )
    turns: FileName | None = Field(description="turns.json: what stands around messages; null without chat template")
    train_on: Literal["assistant", "user", "all"] = Field(description="whose words are learned from")
    bos_id: int | None = Field(ge=0, le=MAX_COUNT, description="token that begins a text")
    eos_id: int | None = Field(ge=0, le=MAX_COUNT, description="token that ends a text")
    stop_ids: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = Field(
        max_length=256, description="tokens that end an answer"
    )
    vocab_size: int = Field(ge=1, le=MAX_COUNT, description="rows of the embedding")


class BudgetRecord(Settings):
    """What the build was asked to fit."""

    memory_bytes: Bytes | None = Field(
        description="bytes of the process that trains; on torch, what training adds to the idle process; null: no limit"
    )


class PlanRecord(Settings):
    """The plan of a method for one sequence length, or the plan for answers."""

    sequence_length: int = Field(
        ge=1,
        le=MAX_COUNT,
        description="positions of a batch row; of the plan for answers, tokens of a chunk of the prompt",
    )
    file: FileName = Field(description="the plan")
    estimate: Estimate = Field(description="memory and work of it")
    choices: dict[Name, OptionValue] = Field(
        max_length=256, description="what the planner chose, by the builder's names"
    )


class SmallerPlansRecord(Settings):
    """Plans of a method for a smaller budget, over the same weights and the same state: a run may go on by them."""

    memory_bytes: Bytes = Field(description="the budget that they fit")
    plans: Annotated[tuple[PlanRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=64, description="one for each sequence length, shortest first"
    )


class SmallerGenerationRecord(Settings):
    """The plan for answers for a smaller budget."""

    memory_bytes: Bytes = Field(description="the budget that it fits")
    plan: PlanRecord = Field(description="the plan")


class MethodRecord(Settings):
    """A way of training: an optimizer plugin with its options, lowered to plans."""

    name: Name = Field(description="name of the optimizer plugin")
    training: Training = Field(description="settings of a run with this method, all of them resolved")
    options: dict[Name, OptionValue] = Field(max_length=256, description="options of the plugin, all of them resolved")
    scalars: dict[Name, float] = Field(max_length=256, description="numbers that the runtime binds by name each step")
    replayable: bool = Field(description="whether a journal of a few bytes a step replaces the adapter")
    plans: Annotated[tuple[PlanRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=64, description="one for each sequence length, shortest first"
    )
    smaller_plans: Annotated[tuple[SmallerPlansRecord, ...], BeforeValidator(as_tuple)] = Field(
        default=(), max_length=64, description="the same for each smaller budget, the largest first"
    )

    @property
    def variants(self) -> tuple[tuple[int | None, MethodRecord], ...]:
        """(None, itself), then each smaller budget in bytes, and itself with the plans for that in the place of its own."""
        smaller = ((one.memory_bytes, self.model_copy(update={"plans": one.plans})) for one in self.smaller_plans)
        return ((None, self), *smaller)


class WeightsRecord(Settings):
    """A group of frozen weights, mapped and dropped as one."""

    group: Name = Field(description="embedding, block_00 onwards, head, rope; adapter, where B alone is trained")
    file: FileName = Field(description="safetensors file of the group")


class DataRecord(Settings):
    """Tokens with an explicit loss mask that ship to every user."""

    train: FileName | None = Field(description="general data, mixed into the user's")
    valid: FileName | None = Field(description="general data on which the acceptance gate looks for forgetting")


class TensorRecord(Settings):
    """An operand or result of a graph."""

    name: Name = Field(description="path in the traced function's arguments, such as weights.q_proj.codes")
    shape: Shape = Field(description="sizes, outermost first")
    dtype: ElementType = Field(description="type of the elements")
    role: Name = Field(description="what it is to the graph: weight, adapter, batch, ...")


class GraphRecord(Settings):
    """A compiled function. Equal computations are one graph, under any name."""

    key: Sha256 = Field(description="hash of what was traced")
    name: Name = Field(description="name of the function, for people")
    file: FileName = Field(description="the exported program: model.json of torch.export, stripped")
    inputs: Annotated[tuple[TensorRecord, ...], BeforeValidator(as_tuple)] = Field(
        max_length=4096, description="operands in order"
    )
    outputs: Annotated[tuple[TensorRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=4096, description="results in order"
    )


class BakedRecord(Settings):
    """A weight that is part of an artifact, where the graph has an operand."""

    operand: Name = Field(description="operand of the graph, which the artifact does not take")
    weight: Name = Field(description="group and tensor, with a dot between them: block_00.q_proj.codes")
    rows: Range | None = Field(description="first row that the operand is, and the one after its last; null: all")
    columns: Range | None = Field(description="first column that is used, and the one after the last; null: all")
    column_start: int | None = Field(
        ge=0,
        le=MAX_COUNT,
        description="value of the graph's column_start; null: the operand's columns are not cut by one",
    )


class ArtifactRecord(Settings):
    """What a target made of a graph, or of a graph and weights of its."""

    graph: Sha256 = Field(description="key of the graph")
    operands: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)] = Field(
        max_length=4096, description="operands that the artifact takes, in its order, by the graph's names"
    )
    baked: Annotated[tuple[BakedRecord, ...], BeforeValidator(as_tuple)] = Field(
        default=(), max_length=4096, description="weights that are part of it; none: it serves every call of the graph"
    )
    numbers: dict[Name, Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]] = Field(
        default={}, max_length=256, description="values of the other operands that are part of it, such as column_start"
    )
    delegates: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        max_length=16,
        description="what computes parts of it for the target's engine, by that engine's names, such as "
        "XnnpackBackend for the processor and QnnBackend for the NPU; none: the engine alone",
    )
    file: FileName = Field(description="the artifact")
    workspace_bytes: Bytes = Field(
        description="workspace: bytes of a call in addition to its operands, free again after it"
    )
    engine_bytes: Bytes = Field(
        description="bytes that the engine allocates for it and keeps, for all artifacts to use"
    )


class FeatureRecord(Settings):
    """What operands and results of one type and shape are to a target's artifacts, which do not take and give them as they are."""

    tensor_dtype: ElementType = Field(description="type of the graph's tensor")
    tensor_shape: Shape = Field(description="its sizes")
    dtype: Literal["float32", "float16", "uint8", "int32", "int64", "int8"] = Field(
        description="type that the artifact has for it"
    )
    shape: Shape = Field(description="sizes that the artifact has for it")
    view: Literal["same", "bytes", "value"] = Field(
        description="how one becomes the other. same: the same elements. bytes: the same bytes, seen as the other type. "
        "value: each element converted; a scalar beyond 2^30 of either sign becomes that, another tensor may have no such element"
    )


class TargetRecord(Settings):
    """An engine that can run the bundle."""

    name: Name = Field(description="name of the target plugin")
    options: dict[Name, OptionValue] = Field(max_length=256, description="options of the plugin, all of them resolved")
    artifacts: Annotated[tuple[ArtifactRecord, ...], BeforeValidator(as_tuple)] = Field(
        max_length=4096, description="one for each graph, or for each graph and what is baked into it"
    )
    features: Annotated[tuple[FeatureRecord, ...], BeforeValidator(as_tuple)] = Field(
        default=(),
        max_length=4096,
        description="tensors that its artifacts take and give as other ones; all others as they are. "
        "Where an artifact has names for them, operand i of its list is x<i>, result i of the graph y<i>",
    )


class FileRecord(Settings):
    """A file of the bundle."""

    sha256: Sha256 = Field(description="hash of its bytes, lower-case hexadecimal")
    size: int = Field(ge=0, le=MAX_FILE_BYTES, description="bytes")


class Manifest(Settings):
    """The whole document."""

    format: Literal["bespoke-bundle"] = Field(description="what this file is")
    format_version: FormatVersion = Field(description="version of the format it is written in")
    created_by: CreatorRecord = Field(description="what wrote it")
    model: ModelRecord = Field(description="the base model")
    lora: LoraRecord = Field(description="shape of the adapter")
    text: TextRecord = Field(description="tokenizer, turns and special tokens")
    context_length: int = Field(ge=1, le=MAX_COUNT, description="rows of the KV cache and of the RoPE tables")
    sequence_lengths: Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(as_tuple)] = Field(
        min_length=1,
        max_length=64,
        description="lengths that plans of methods exist for, ascending; an example is cut to the last",
    )
    budget: BudgetRecord = Field(description="memory that was asked for")
    methods: Annotated[tuple[MethodRecord, ...], BeforeValidator(as_tuple)] = Field(
        max_length=64,
        description="ways of training; the first is the default; none: the bundle answers and does not train",
    )
    generation: PlanRecord | None = Field(
        default=None, description="the plan for answers; null: the bundle does not answer"
    )
    smaller_generation: Annotated[tuple[SmallerGenerationRecord, ...], BeforeValidator(as_tuple)] = Field(
        default=(), max_length=64, description="the plan for answers for each smaller budget, the largest first"
    )
    weights: Annotated[tuple[WeightsRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=4096, description="groups of frozen weights"
    )
    adapter: FileName = Field(description="safetensors file of the initial adapter, where every state starts")
    data: DataRecord = Field(description="data that ships with the bundle")
    golden: FileName | None = Field(description="golden vectors: the device proves itself with them")
    graphs: Annotated[tuple[GraphRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=4096, description="everything that plans call"
    )
    targets: Annotated[tuple[TargetRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=64, description="engines that the graphs were compiled for"
    )
    licences: Annotated[tuple[FileName, ...], BeforeValidator(as_tuple)] = Field(
        max_length=64, description="licence texts that must travel with the weights"
    )
    files: dict[FileName, FileRecord] = Field(
        max_length=MAX_FILES, description="every file but manifest.json, its sum and the signature"
    )

    @property
    def plans(self) -> tuple[BundlePlan, ...]:
        """All of them, those of a smaller budget behind those of the larger one."""
        whole = self.budget.memory_bytes
        found = []
        for method in self.methods:
            found += [BundlePlan(method.name, whole, plan) for plan in method.plans]
            found += [
                BundlePlan(method.name, one.memory_bytes, plan) for one in method.smaller_plans for plan in one.plans
            ]
        found += [] if self.generation is None else [BundlePlan(GENERATION, whole, self.generation)]
        found += [BundlePlan(GENERATION, one.memory_bytes, one.plan) for one in self.smaller_generation]
        return tuple(found)


class BundlePlan(NamedTuple):
    """A plan of a bundle: of a method, or for answers ("generation")."""

    method: str
    memory_bytes: int | None  # the budget that it was made for
    record: PlanRecord
