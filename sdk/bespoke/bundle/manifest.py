# SPDX-License-Identifier: Apache-2.0
"""The manifest as a model: the description of a bundle, and the only list of its files.

Every field is required. A reader that filled in a default would decide for the app what the build has decided, and two
readers would fill in different ones. A field that minor version n brings is required from n on and forbidden before
(`ADDED`), so a document means the same to an old and a new reader. `bespoke.bundle.manifest_document` reads and writes its
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from bespoke.arguments import TrainOn
from bespoke.bundle.federation_record import FederationRecord
from bespoke.bundle.fields import MAX_COUNT, Bytes, FileName, Name, Sha256
from bespoke.bundle.file_names import MAX_FILES
from bespoke.bundle.plan_records import MethodRecord, PlanRecord, SmallerGenerationRecord
from bespoke.bundle.target_records import GraphRecord, TargetRecord
from bespoke.config import Linear, Lora, Settings, as_tuple
from bespoke.model.architecture import ModelConfig
from bespoke.plan.kinds import GENERATION

__all__ = [
    "ADDED",
    "BEFORE",
    "FORMAT",
    "MAJOR",
    "MINOR",
    "BudgetRecord",
    "BundlePlan",
    "CreatorRecord",
    "DataRecord",
    "FileRecord",
    "FormatVersion",
    "LoraRecord",
    "Manifest",
    "ModelRecord",
    "TextRecord",
    "WeightsRecord",
]

FORMAT = "bespoke-bundle"
MAJOR, MINOR = 1, 8
# Dotted path of a field (without list and key positions) -> minor version that brought it. Such a field has a default for
# older documents. A document of that minor version or later must hold it like any other field.
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
    "data.behaviour": 7,
    "federation": 8,
}
# The value of a field of ADDED in documents older than it, if that differs from today's default.
BEFORE: Mapping[str, float | None] = {"methods.training.useful_gain": 0.0, "methods.training.write_mb_per_run": None}

MAX_FILE_BYTES = 2**40


class FormatVersion(Settings):
    """Version of the format. A reader accepts its own major version, with any minor version up to its own."""

    major: int = Field(ge=0, le=65_535, description="changes when a document of the old format cannot be read")
    minor: int = Field(ge=0, le=65_535, description="changes when fields are added")


class CreatorRecord(Settings):
    """The program that wrote the bundle. Readers do not act on it."""

    name: Name = Field(description="name of the program")
    version: Name = Field(description="its version")


class ModelRecord(Settings):
    """The base model."""

    name: Name = Field(description="hub id, or name of the folder it was read from")
    architecture: Name = Field(description="family of the decoder: llama, qwen2, qwen3, gemma3_text")
    config: ModelConfig = Field(description="every size and switch of the canonical decoder")
    licence: Name = Field(description="SPDX id or name of the weights' licence")
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
        description="factors that are trained and kept in states; with B alone, A is a weight of group `adapter`",
    )

    @property
    def settings(self) -> Lora:
        """The LoRA settings of the build."""
        return Lora(rank=self.rank, alpha=self.alpha, targets=self.linears, train=self.train)


class TextRecord(Settings):
    """Files and ids that turn text into tokens. If all files are absent, the app gives token ids."""

    tokenizer: FileName | None = Field(description="tokenizer.json; null if tokenizer.bin holds the whole tokenizer")
    tokenizer_config: FileName | None = Field(
        description="its settings: names of special tokens; null without tokenizer.json"
    )
    tokenizer_bin: FileName | None = Field(
        default=None,
        description="tokenizer.bin: the tokenizer as tables that a device maps; null: the device takes token ids",
    )
    turns: FileName | None = Field(description="turns.json: the text around messages; null without a chat template")
    train_on: TrainOn = Field(description="whose words the model learns")
    bos_id: int | None = Field(ge=0, le=MAX_COUNT, description="token that begins a text")
    eos_id: int | None = Field(ge=0, le=MAX_COUNT, description="token that ends a text")
    stop_ids: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = Field(
        max_length=256, description="tokens that end an answer"
    )
    vocab_size: int = Field(ge=1, le=MAX_COUNT, description="rows of the embedding")


class BudgetRecord(Settings):
    """The memory budget of the build."""

    memory_bytes: Bytes | None = Field(
        description="bytes of the process that trains; on torch, bytes that training adds to the idle process; null: no limit"
    )


class WeightsRecord(Settings):
    """A group of frozen weights, mapped and dropped together."""

    group: Name = Field(description="embedding, block_00 onwards, head, rope; adapter, if B alone is trained")
    file: FileName = Field(description="safetensors file of the group")


class DataRecord(Settings):
    """Tokens with an explicit loss mask that ship to every user."""

    train: FileName | None = Field(description="general data, mixed into the user's")
    valid: FileName | None = Field(description="general data on which the acceptance gate looks for forgetting")
    behaviour: FileName | None = Field(
        default=None,
        description="the base model's answers to prompts of kinds that `train` lacks, by which the gate compares with the base; "
        "null: it does not",
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
        description="lengths of the methods' plans, ascending; an example is cut to the last",
    )
    budget: BudgetRecord = Field(description="memory budget of the build")
    methods: Annotated[tuple[MethodRecord, ...], BeforeValidator(as_tuple)] = Field(
        max_length=64,
        description="methods; the first is the default; none: the bundle answers and does not train",
    )
    generation: PlanRecord | None = Field(
        default=None, description="the plan for answers; null: the bundle does not answer"
    )
    smaller_generation: Annotated[tuple[SmallerGenerationRecord, ...], BeforeValidator(as_tuple)] = Field(
        default=(), max_length=64, description="the plan for answers for each smaller budget, the largest first"
    )
    federation: FederationRecord | None = Field(
        default=None, description="what users learn together; null: nothing, and each device learns for itself"
    )
    weights: Annotated[tuple[WeightsRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=4096, description="groups of frozen weights"
    )
    adapter: FileName = Field(description="safetensors file of the initial adapter, where every state starts")
    data: DataRecord = Field(description="data that ships with the bundle")
    golden: FileName | None = Field(description="golden vectors, by which a device checks its results")
    graphs: Annotated[tuple[GraphRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=4096, description="the graphs that plans call"
    )
    targets: Annotated[tuple[TargetRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=64, description="targets that the graphs are compiled for"
    )
    licences: Annotated[tuple[FileName, ...], BeforeValidator(as_tuple)] = Field(
        max_length=64, description="licence texts that must travel with the weights"
    )
    files: dict[FileName, FileRecord] = Field(
        max_length=MAX_FILES, description="every file but manifest.json, its sum and the signature"
    )

    @property
    def plans(self) -> tuple[BundlePlan, ...]:
        """All plans. Those of a smaller budget follow those of the larger budget."""
        whole = self.budget.memory_bytes
        plans = []
        for method in self.methods:
            plans += [BundlePlan(method.name, whole, plan) for plan in method.plans]
            plans += [
                BundlePlan(method.name, smaller.memory_bytes, plan)
                for smaller in method.smaller_plans
                for plan in smaller.plans
            ]
        if self.generation is not None:
            plans.append(BundlePlan(GENERATION, whole, self.generation))
        plans += [BundlePlan(GENERATION, smaller.memory_bytes, smaller.plan) for smaller in self.smaller_generation]
        return tuple(plans)


class BundlePlan(NamedTuple):
    """A plan of a method, or the plan for answers (method "generation")."""

    method: str
    memory_bytes: int | None  # its budget; None: no limit
    record: PlanRecord
