# SPDX-License-Identifier: Apache-2.0
"""Misuse of what Python does itself, one case for each class of bespoke.errors; those of the core are in tests/native."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bespoke import errors
from tests.support.misuse import Misuse, Monkey
from tests.unit.bundle.example import write_example


def _unknown_optimizer(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke import Personalizer

    Personalizer("some/model", "mesq")


def _key_without_cryptography(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.bundle.signature import generate_key

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    generate_key()


def _no_config(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.model.families import read_config

    read_config(folder)


def _gpt2(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.model.families import read_config

    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}))
    read_config(folder)


def _row_without_completion(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.data.files import read_examples

    (folder / "notes.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "c"}\n')
    list(read_examples(folder / "notes.jsonl"))


def _template_that_counts(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.data.template import compile_turns

    compile_turns("{% for m in messages %}{{ loop.index }}/{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}", {})


def _graph_that_branches_on_data(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.graph.trace import Tracer
    from bespoke.graph.tree import flatten

    def branching(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    operand = SimpleNamespace(shape=(2, 3), dtype="float32")
    Tracer().trace(branching, [operand], flatten((operand,))[1], {})


def _empty_plan(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.plan.read import read_plan

    read_plan(b'{"version": [1, 0]}', "plans/mesp-64.json", [])


def _budget_of_a_byte(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke import Budget, Personalizer, Training

    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 64,
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        **sizes,
    }
    (folder / "config.json").write_text(
        json.dumps({**config, "max_position_embeddings": 64, "tie_word_embeddings": True})
    )
    budget, training = Budget(memory_mb=1e-6), Training(sequence_lengths=(8,))
    Personalizer(folder, "mezo", training=training, budget=budget, licence="MIT").estimate()


def _operator_without_a_kernel(folder: Path, monkeypatch: Monkey) -> None:
    """What a target says of a graph that it cannot lower; targets are plugins, so this one is written here."""
    from bespoke.contracts import Unsupported

    operator = "aten.cumsum.default"
    raise Unsupported(
        f"Target 'npu', graph 'head', operator {operator}",
        got="an operator without a kernel",
        expected="add, mul or linear_int4",
        next_step="Choose a target that has it",
    )


def _plugin_misspelt(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.plugins import get

    get("target", "cudo")


def _not_a_bundle(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.bundle.reader import read_bundle

    read_bundle(folder / "nosuch.bundle")


def _bundle_of_the_future(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.bundle.manifest_document import read_manifest

    document = json.loads((write_example(folder / "bundle") / "manifest.json").read_bytes())
    read_manifest(json.dumps({**document, "format_version": {"major": 2, "minor": 0}}).encode())


def _another_pin(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.bundle.reader import read_bundle

    read_bundle(write_example(folder / "bundle"), pin_sha256="0" * 64)


def _more_than_the_limit(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke import Lora, Personalizer, PersonalModel, Training
    from tests.support.models import tiny_model

    lora, training = Lora(rank=2), Training(sequence_lengths=(16,))
    personalizer = Personalizer(
        tiny_model("llama", folder / "model"), "mesp", context=16, lora=lora, training=training, data=None
    )
    with PersonalModel.open(personalizer.build(folder / "bundle"), folder / "state", memory_mb=2.0) as personal:
        personal.examples.add({"tokens": [1, 2, 3]})
        personal.train(run_steps=1)


def _a_server_that_is_not_there(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke import FederationClient

    FederationClient("http://127.0.0.1:1", folder / "device").ask('{"round": 0}')


def _temperature_below_zero(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.rules.sampling import check_sampling

    check_sampling(temperature=-1.0)


def _weights_that_are_not_those_of_the_golden_vectors(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.golden.document import GoldenText
    from bespoke.golden.prover import _Prover

    document = SimpleNamespace(texts=[GoldenText(text="Hello", ids=[1, 2, 3])])
    prover = _Prover.__new__(_Prover)
    prover.document = document  # type: ignore[assignment]
    prover.bundle = SimpleNamespace(  # type: ignore[assignment]
        manifest=SimpleNamespace(text=SimpleNamespace(tokenizer=None, tokenizer_bin=None, turns=None)), read=None
    )
    prover._texts()


def _as_the_core_tells_it(
    kind: str, subject: str, got: str, expected: str, next_step: str
) -> Callable[[Path, Monkey], object]:
    """A program that ends as bespoke-core does. That the core raises these is checked in C (c_border_calls.c)."""

    def misuse(folder: Path, monkeypatch: Monkey) -> None:
        from bespoke.core import finding, run

        parts = {"subject": subject, "got": got, "expected": expected, "next_step": next_step}
        program = folder / "bespoke-core"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps({'event': 'error', 'kind': kind, **parts})}\nEND\n")
        program.chmod(0o755)
        monkeypatch.setenv(finding.OVERRIDE, str(program))
        run({"verb": "verify", "bundle": "chat.bundle", "state": str(folder)})

    return misuse


MISUSES = [
    Misuse(
        errors.ConfigError,
        _unknown_optimizer,
        "optimizer 'mesq'",
        "no plugin",
        "mebp, mesp, mezo",
        "Did you mean 'mesp'?",
        2,
    ),
    Misuse(
        errors.MissingDependency,
        _key_without_cryptography,
        "Signatures",
        "no package 'cryptography'",
        "installed",
        "pip install 'bespoke-sdk[sign]'",
        3,
    ),
    Misuse(
        errors.ModelError,
        _no_config,
        "config.json",
        "No such file",
        "the config.json of a Hugging Face model folder",
        "",
        4,
    ),
    Misuse(errors.UnsupportedModel, _gpt2, "config.json", "gpt2", "one of llama, qwen2", "", 4),
    Misuse(
        errors.DataError,
        _row_without_completion,
        "notes.jsonl, row 2",
        "without 'completion'",
        "'prompt' and 'completion'",
        "",
        5,
    ),
    Misuse(errors.TemplateError, _template_that_counts, "template", "3/assistant: ", "", "", 5),
    Misuse(
        errors.GraphError,
        _graph_that_branches_on_data,
        "Function 'branching'",
        "",
        "a plain torch function",
        "Call it once",
        6,
    ),
    Misuse(errors.PlanError, _empty_plan, "plans/mesp-64.json", "", "a value", "Build the bundle again", 6),
    Misuse(
        errors.PlanDoesNotFit,
        _budget_of_a_byte,
        "Method 'mezo' at sequence length 8",
        "0.0 MB",
        "the smallest plan",
        "memory_mb=",
        6,
    ),
    Misuse(
        errors.Unsupported,
        _operator_without_a_kernel,
        "graph 'head', operator aten.cumsum",
        "without a kernel",
        "",
        "",
        6,
    ),
    Misuse(errors.PluginError, _plugin_misspelt, "target 'cudo'", "no plugin", "cuda", "Did you mean 'cuda'?", 7),
    Misuse(errors.BundleError, _not_a_bundle, "nosuch.bundle", "No such file", "a bundle", "Get the bundle", 8),
    Misuse(errors.BundleVersionError, _bundle_of_the_future, "manifest.json", "2.0", "1.0", "", 8),
    Misuse(errors.SignatureError, _another_pin, "manifest.json", "sha256", "the pinned 0000", "Get the bundle", 8),
    Misuse(
        errors.GoldenMismatch,
        _weights_that_are_not_those_of_the_golden_vectors,
        "'Hello'",
        "a bundle without tokenizer",
        "tokens [1, 2, 3]",
        "Check the version of the tokenizers package",
        8,
    ),
    Misuse(
        errors.BudgetExceeded,
        _more_than_the_limit,
        "Training with 'mesp'",
        "more to come",
        "2.0 MB over what it held",
        "Raise the memory budget",
        10,
    ),
    Misuse(
        errors.Busy,
        _as_the_core_tells_it(
            "Busy",
            "the model",
            "a call while another one computes",
            "one call that computes at a time",
            "Wait until it has ended, or cancel it",
        ),
        "the model",
        "another one",
        "one call",
        "Wait until",
        14,
    ),
    Misuse(
        errors.Cancelled,
        _as_the_core_tells_it(
            "Cancelled",
            "the call",
            "its end before there was anything to report",
            "to run to its end",
            "Call it again, with more time where it has a deadline",
        ),
        "the call",
        "its end",
        "to run",
        "Call it again",
        15,
    ),
    Misuse(
        errors.Unavailable,
        _as_the_core_tells_it(
            "Unavailable",
            "state.sqlite",
            "SQLITE_BUSY: database is locked",
            "other processes to hold the database for moments only",
            "End the process that keeps it open in a transaction, then try again",
        ),
        "state.sqlite",
        "locked",
        "moments only",
        "try again",
        16,
    ),
    Misuse(errors.ServerError, _a_server_that_is_not_there, "http://127.0.0.1:1", "refused", "an answer", "later", 17),
    Misuse(errors.GenerationError, _temperature_below_zero, "temperature", "-1.0", "0 (greedy) or more", "", 13),
]
