# SPDX-License-Identifier: Apache-2.0
"""Models of published size with random weights, a pretrained one, and bundles of them for the device core, kept under
`.cache/benchmarks`.

A bundle is built again when its settings or the code that builds it have changed; the old one is deleted. What bundles of a model
share is made once (see core_build.py). BESPOKE_KEEP_BUNDLES=1 takes bundles as they are: for trying a benchmark.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.benchmarks.core_build import BUNDLE_SOURCES, GOLDEN_SOURCES, TARGET_SOURCES, WEIGHT_SOURCES, sources_digest
from tests.conftest import REPOSITORY
from tests.support.full_size import full_size_folder

CACHE = REPOSITORY / ".cache" / "benchmarks"
BUNDLES = CACHE / "bundles"
GIGABYTE = 10**9
PRETRAINED = "SmolLM2-135M-Instruct"


class DoesNotFit(Exception):
    """The budget is less than the smallest plan, which takes `smallest_mb`."""

    def __init__(self, words: str, smallest_mb: float) -> None:
        super().__init__(words)
        self.smallest_mb = smallest_mb


@dataclass(frozen=True)
class Wanted:
    """One plan in one bundle. `memory_mb` None: the fastest plan there is. `options`: the method's, as pairs; `factors`: those of
    the adapter that are trained. `general_rows`: those that the gate reads of the bundle's own data, of `length` random tokens."""

    model: str
    method: str
    length: int
    memory_mb: float | None
    options: tuple[tuple[str, Any], ...] = (("update", "sgd"),)
    general_rows: int = 0
    batch_size: int = 1
    factors: str = "both"

    @property
    def name(self) -> str:
        budget = "any" if self.memory_mb is None else f"{self.memory_mb:g}"
        general = f"_general{self.general_rows}" if self.general_rows else ""
        batch = f"x{self.batch_size}" if self.batch_size > 1 else ""
        options = "-".join(f"{name}-{value}" for name, value in self.options)
        return f"{self.model}_{self.method}_{options}_{self.factors}_{self.length}{batch}_{budget}{general}"


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk, and what its manifest says of its one plan."""

    path: Path
    wanted: Wanted

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.path / "manifest.json").read_text())  # type: ignore[no-any-return]

    @property
    def plan(self) -> dict[str, Any]:
        (method,) = self.manifest["methods"]
        (plan,) = method["plans"]
        return plan  # type: ignore[no-any-return]

    @property
    def choices(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.plan["choices"].items())

    @property
    def weight_bytes(self) -> int:
        return sum(file.stat().st_size for file in (self.path / "weights").iterdir())


def model_folder(name: str) -> Path:
    return _pretrained_folder() if name == PRETRAINED else full_size_folder(name, CACHE / name)


def _pretrained_folder() -> Path:
    """The weights of the GGUF file, decoded to float32 by transformers, without a tokenizer."""
    from sample_apps.desktop.pretrain import DEFAULT_CACHE
    from sample_apps.desktop.real_model import fetch_model
    from transformers import AutoModelForCausalLM

    folder = CACHE / PRETRAINED
    if not folder.is_dir():
        file = fetch_model(DEFAULT_CACHE)
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
        model.hf_quantizer = None  # what was decoded is float, and can be saved
        model.config.__dict__.pop("quantization_config", None)
        partial = folder.with_suffix(".partial")
        model.save_pretrained(partial)
        (partial / "README.md").write_text("---\nlicense: apache-2.0\n---\n", encoding="utf-8")
        partial.rename(folder)
    return folder


def bundle(wanted: Wanted) -> Bundle:
    """The bundle, built if need be. DoesNotFit where no plan is so small."""
    path = BUNDLES / f"{wanted.name}.bundle"
    key = hashlib.sha256(json.dumps([asdict(wanted), sources_digest(*BUNDLE_SOURCES)]).encode()).hexdigest()
    stamp = BUNDLES / f"{wanted.name}.json"
    known = json.loads(stamp.read_text()) if stamp.is_file() else {}
    if known.get("key") != key and not (known and os.environ.get("BESPOKE_KEEP_BUNDLES")):
        shutil.rmtree(path, ignore_errors=True)
        stamp.unlink(missing_ok=True)
        known = {"key": key, **_built(wanted, path)}
        stamp.write_text(json.dumps(known))
    if "smallest_mb" in known:
        raise DoesNotFit(known["words"], known["smallest_mb"])
    return Bundle(path, wanted)


def smallest_bundle(wanted: Wanted) -> Bundle:
    """The bundle with the least budget that the SDK says it can do with; once graphs are measured, it may say a little more."""
    memory_mb = 1.0
    for _ in range(5):
        try:
            return bundle(replace(wanted, memory_mb=memory_mb))
        except DoesNotFit as refused:
            memory_mb = refused.smallest_mb
    raise AssertionError(f"{wanted.name}: no budget that the SDK names fits, {memory_mb} MB was the last")


def first_that_fits(wanted: Wanted, *budgets_mb: float) -> Bundle:
    """With the first of these budgets that a plan fits; with the smallest of all where none does."""
    for memory_mb in budgets_mb:
        try:
            return bundle(replace(wanted, memory_mb=memory_mb))
        except DoesNotFit:
            continue
    return smallest_bundle(wanted)


def _built(wanted: Wanted, path: Path) -> dict[str, Any]:
    model = model_folder(wanted.model)
    shared = BUNDLES / "shared" / wanted.model
    shared.mkdir(parents=True, exist_ok=True)
    _remove_stale(shared)
    assert shutil.disk_usage(BUNDLES).free > 4 * GIGABYTE, f"less than 4 GB are free under {BUNDLES}"
    settings = {
        "model": str(model),
        "bundle": str(path),
        "shared": str(shared),
        "method": wanted.method,
        "length": wanted.length,
        "options": dict(wanted.options),
        "memory_mb": wanted.memory_mb,
        "general_rows": wanted.general_rows,
        "batch_size": wanted.batch_size,
        "factors": wanted.factors,
    }
    command = [sys.executable, "-m", "tests.benchmarks.core_build", json.dumps(settings)]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, f"building {wanted.name} ended with {done.returncode}"
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    assert answer.get("smallest_mb", 0) is not None, answer["words"]
    print(f"built {wanted.name}: {answer}", flush=True)
    return answer


def _remove_stale(shared: Path) -> None:
    """What older code has made; bundles that hold a link to it keep it until they are built again."""
    current = [sources_digest(*sources) for sources in (WEIGHT_SOURCES, TARGET_SOURCES, GOLDEN_SOURCES)]
    for kept in shared.iterdir():
        if any(digest in kept.name for digest in current):
            continue
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
