# SPDX-License-Identifier: Apache-2.0
"""Computes all that torch computes here in the app's process: first as torch is in a new process, then once for each thing
that an app may set. Prints the results.

    python -m tests.support.torch_settings_lab BUNDLE MODEL FOLDER

A process of its own, since some of the settings cannot be read, and none may reach other tests.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.golden.prover import verify_bundle
from bespoke.reference.evaluate import evaluate
from bespoke.reference.generate import generate
from bespoke.reference.train import replay, train
from tests.unit.personal_model.tiny import add_numbers, number_rows

# ---- what an app sets ------------------------------------------------------------------------------------------------------


@contextmanager
def put(set: Callable[[Any], object], value: Any, before: Any) -> Iterator[None]:
    set(value)
    try:
        yield
    finally:
        set(before)


@contextmanager
def new_precisions() -> Iterator[None]:
    """As torch's documentation asks for it since 2.9; the old functions cannot be read then."""
    torch.backends.fp32_precision = "tf32"
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        torch.backends.fp32_precision = "none"
        torch.backends.cuda.matmul.fp32_precision = "none"
        torch.backends.mkldnn.matmul.fp32_precision = "none"


def products(name: str) -> Callable[[Any], None]:
    return lambda value: setattr(torch.backends.cuda.matmul, name, value)


SET: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing": nullcontext,
    "float32_matmul_precision high": lambda: put(torch.set_float32_matmul_precision, "high", "highest"),
    "float32_matmul_precision medium": lambda: put(torch.set_float32_matmul_precision, "medium", "highest"),
    "allow_tf32": lambda: put(products("allow_tf32"), True, False),
    "fp32_precision": new_precisions,
    "reduced sums": lambda: put(products("allow_fp16_reduced_precision_reduction"), (False, False), True),
    "fp16 sums": lambda: put(products("allow_fp16_accumulation"), True, False),
    "cudnn.allow_tf32": lambda: put(lambda on: setattr(torch.backends.cudnn, "allow_tf32", on), False, True),
    "default dtype": lambda: put(torch.set_default_dtype, torch.float64, torch.float32),
    "default dtype bfloat16": lambda: put(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "default device": lambda: put(torch.set_default_device, "meta", None),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
    "no grad": torch.no_grad,
    "deterministic": lambda: put(torch.use_deterministic_algorithms, True, False),
    "denormals": lambda: put(torch.set_flush_denormal, True, False),
    "mkldnn": lambda: put(torch._C._set_mkldnn_enabled, False, True),
}


# ---- what can be read of it ------------------------------------------------------------------------------------------------


def settings() -> dict[str, str]:
    """Also what the precisions are when the general one changes: an operator that had none of its own follows it."""
    found = {**_readable(), "flushes denormals": str(sys.float_info.min / 2 == 0)}
    general = torch.backends.fp32_precision
    torch.backends.fp32_precision = "ieee"
    found |= {f"{name} where the general one is ieee": value for name, value in _readable().items()}
    torch.backends.fp32_precision = general
    return found


def _readable() -> dict[str, str]:
    cuda, cudnn, mkldnn = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends.mkldnn
    asked: dict[str, Callable[[], Any]] = {
        "matmul": torch.get_float32_matmul_precision,
        "general": lambda: torch.backends.fp32_precision,
        "cuda.matmul": lambda: cuda.fp32_precision,
        "cuda": lambda: cudnn.fp32_precision,
        "cudnn.conv": lambda: cudnn.conv.fp32_precision,
        "cudnn.rnn": lambda: cudnn.rnn.fp32_precision,
        "mkldnn": lambda: mkldnn.fp32_precision,
        "mkldnn.matmul": lambda: mkldnn.matmul.fp32_precision,
        "mkldnn.conv": lambda: mkldnn.conv.fp32_precision,
        "mkldnn.rnn": lambda: mkldnn.rnn.fp32_precision,
        "allow_tf32": lambda: cuda.allow_tf32,
        "cudnn.allow_tf32": lambda: cudnn.allow_tf32,
        "fp16": lambda: (
            cuda.allow_fp16_reduced_precision_reduction,
            cuda.allow_fp16_reduced_precision_reduction_split_k,
        ),
        "bf16": lambda: (
            cuda.allow_bf16_reduced_precision_reduction,
            cuda.allow_bf16_reduced_precision_reduction_split_k,
        ),
        "fp16 sums": lambda: cuda.allow_fp16_accumulation,
        "dtype": torch.get_default_dtype,
        "device": torch.get_default_device,
        "autocast": lambda: torch.is_autocast_enabled("cpu"),
        "inference": torch.is_inference_mode_enabled,
        "gradients": torch.is_grad_enabled,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "mkldnn enabled": torch._C._get_mkldnn_enabled,
    }
    return {name: _said(one) for name, one in asked.items()}


def _said(asked: Callable[[], Any]) -> str:
    try:
        return str(asked())
    except RuntimeError:
        return "torch cannot say"  # the old functions, where the new ones contradict them


# ---- what is computed ------------------------------------------------------------------------------------------------------


def computed(bundle: Path, folder: Path, conversation: PersonalModel) -> tuple[str, list[dict[str, str]]]:
    """A digest of all results, and the settings that the steps of a run saw."""
    seen: list[dict[str, str]] = []
    results: list[object] = []
    with PersonalModel.open(bundle, folder / "state", engine="torch") as personal:
        add_numbers(personal)
        report = personal.train(run_steps=3, on_step=lambda *told: seen.append(settings()))
        results += [report.losses]
        report = personal.train(learning_rate=1e-2)
        results += [report.losses, report.validation_loss, report.gain, personal.evaluate().loss]
        results += [list(personal.generate_ids([41, 42, 43], max_tokens=4))]
    results += [conversation.evaluate().loss]  # uses an engine that earlier calls have filled
    with read_bundle(bundle) as opened:
        rows = number_rows()
        verify_bundle(opened, files=False)
        for method in ("mesp", "mezo"):
            trained = train(opened, method, user_rows=rows, seed=1, steps=3)
            results += [trained.losses, digests(trained.adapter)]
        results += [digests(replay(opened, "mezo", opened.initial_adapter(), trained.journal, seed=1))]
        found = evaluate(opened, rows)
        results += [found and found.loss, list(generate(opened, [41, 42, 43], max_tokens=4))]
    return repr(results), seen


def built(model: Path, out: Path) -> str:
    """The sha256 of a bundle's manifest, which has those of all its files."""
    training = Training(sequence_lengths=(16,), batch_size=1, steps=2)
    Personalizer(model, "mesp", "torch", context=32, lora=Lora(rank=2), training=training).build(out)
    return hashlib.sha256((out / "manifest.json").read_bytes()).hexdigest()


@contextmanager
def all_of_them() -> Iterator[None]:
    with ExitStack() as stack:
        for setting in SET.values():
            stack.enter_context(setting())
        yield


def digests(adapter: Any) -> list[str]:
    return [hashlib.sha256(adapter[name].tobytes()).hexdigest() for name in sorted(adapter)]


def main(bundle: Path, model: Path, folder: Path) -> None:
    warnings.simplefilter("error", UserWarning)
    numbers = itertools.count()
    found = {}
    with PersonalModel.open(bundle, folder / "kept", engine="torch") as conversation:
        add_numbers(conversation)
        for name, setting in SET.items():
            place = folder / str(next(numbers))
            place.mkdir()
            with setting():
                before = settings()
                result, seen = tried(lambda place=place: computed(bundle, place, conversation))
                found[name] = {"result": result, "seen": seen, "before": before, "after": settings()}
    builds = {"nothing": built(model, folder / "plain.bundle")}
    with all_of_them():
        builds["all of them"], _ = tried(lambda: (built(model, folder / "set.bundle"), []))
    print(json.dumps({"computed": found, "built": builds}))


def tried(work: Callable[[], tuple[str, list[dict[str, str]]]]) -> tuple[str, list[dict[str, str]]]:
    try:
        return work()
    except Exception as error:  # what it comes to where a setting reaches what is computed
        return f"failed: {type(error).__name__}: {error}", []


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
