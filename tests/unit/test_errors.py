# SPDX-License-Identifier: Apache-2.0
"""Every class of bespoke.errors, raised by real misuse: object, got, expected and next step are there, and say something."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bespoke import errors
from bespoke.errors import BespokeError, ConfigError
from tests.support.checks import few_of
from tests.unit.bundle.example import write_example
from tests.unit.state.states import BASE, fill, open_state, slot_tensors

Monkey = pytest.MonkeyPatch


@dataclass(frozen=True)
class Misuse:
    """Something that a person gets wrong, and what the message must say of it."""

    kind: type[BespokeError]
    do: Callable[[Path, Monkey], Any]
    subject: str
    got: str
    expected: str
    next_step: str
    exit_code: int


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
    from bespoke.bundle.reader import open_bundle

    open_bundle(folder / "nosuch.bundle")


def _bundle_of_the_future(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.bundle.manifest_document import read_manifest

    document = json.loads((write_example(folder / "bundle") / "manifest.json").read_bytes())
    read_manifest(json.dumps({**document, "format_version": {"major": 2, "minor": 0}}).encode())


def _another_pin(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.bundle.reader import open_bundle

    open_bundle(write_example(folder / "bundle"), pin_sha256="0" * 64)


def _another_base(folder: Path, monkeypatch: Monkey) -> None:
    fill(folder / "state")
    open_state(folder / "state", base="0" * 64).close()


def _two_trainers(folder: Path, monkeypatch: Monkey) -> None:
    fill(folder / "state")
    one, other = open_state(folder / "state"), open_state(folder / "state")
    with one, other, one.trainer_lock(), other.trainer_lock():
        pass


def _disk_that_fills_up(folder: Path, monkeypatch: Monkey) -> None:
    """The kernel refuses to let any file grow: what a quota does."""
    fill(folder / "state")
    with open_state(folder / "state") as store:
        run = store.current_run()
        assert run is not None
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(store.process, resource.RLIMIT_FSIZE, (256, hard))
        store.commit_step(run.id, step=run.step + 1, cursor={}, tensors=slot_tensors(1), metrics=[])


def _more_than_the_limit(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke import Lora, Personalizer, PersonalModel, Training
    from tests.support.models import tiny_model

    lora, training = Lora(rank=2), Training(sequence_lengths=(16,))
    personalizer = Personalizer(
        tiny_model("llama", folder / "model"), "mesp", context=16, lora=lora, training=training, data=None
    )
    with PersonalModel.open(personalizer.build(folder / "bundle"), folder / "state", memory_mb=2.0) as personal:
        personal.examples.add({"tokens": [1, 2, 3]})
        personal.train(1)


def _adapter_of_a_higher_rank(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.config import Lora
    from bespoke.model.architecture import ModelConfig
    from tests.native.conftest import compile_core
    from tests.native.format_lab import CoreReader
    from tests.unit.adapter.codes import Code
    from tests.unit.bundle.example import manifest_document

    config = ModelConfig.model_validate(manifest_document()["model"]["config"])
    lora = Lora(rank=4, alpha=8.0)
    tensors = {name: np.zeros(shape, np.float32) for name, shape in config.adapter_shapes(lora).items()}
    with CoreReader(compile_core("core") / "tests" / "format_lab") as reader:
        code = Code(reader)
        code.write(folder / "adapter", tensors, config, lora, BASE)
        code.read(folder / "adapter", config, Lora(rank=2, alpha=4.0), BASE)


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
    Misuse(errors.StateError, _another_base, "state", BASE[:12], "000000000000", "reset_for_new_base", 9),
    Misuse(
        errors.StateLocked, _two_trainers, "trainer.lock", "a lock held by process", "no other trainer", "Wait until", 9
    ),
    Misuse(
        errors.DiskFull, _disk_that_fills_up, "slot", os.strerror(errno.EFBIG), "room on the disk", "Free some space", 9
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
        errors.AdapterError, _adapter_of_a_higher_rank, "adapter_config.json", "r 4", "at most 2", "Lora(rank=4)", 12
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
    Misuse(errors.GenerationError, _temperature_below_zero, "temperature", "-1.0", "0 (greedy) or more", "", 13),
]


def classes() -> list[type[BespokeError]]:
    """What errors.py declares, the base aside: nobody raises that itself."""
    found = [entry for entry in vars(errors).values() if isinstance(entry, type) and issubclass(entry, BespokeError)]
    return [kind for kind in found if kind is not BespokeError]


def raised(misuse: Misuse, folder: Path, monkeypatch: Monkey) -> BespokeError:
    with monkeypatch.context() as patches, pytest.raises(BespokeError) as caught:
        misuse.do(folder, patches)
    return caught.value


BUILT_FOR = (errors.PlanDoesNotFit, errors.BudgetExceeded)  # a model is planned, or a bundle built


@pytest.mark.parametrize(
    "misuse",
    few_of(MISUSES, [one for one in MISUSES if one.kind not in BUILT_FOR]),
    ids=lambda misuse: misuse.kind.__name__,
)
def test_an_error_says_object_got_expected_and_next_step(misuse: Misuse, tmp_path: Path, monkeypatch: Monkey) -> None:
    error = raised(misuse, tmp_path, monkeypatch)
    assert type(error) is misuse.kind
    for part in ("subject", "got", "expected", "next_step"):
        text = getattr(error, part)
        assert isinstance(text, str)
        assert text.strip(), part
        assert not text.endswith("."), part  # the message sets its own dots
        assert getattr(misuse, part) in text, f"{part}: {text}"
        assert text in str(error)
    assert re.match(r"[A-Z]|pip install", error.next_step), error.next_step  # an instruction to the reader
    assert error.exit_code == misuse.exit_code
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


def test_every_class_is_raised_by_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    tested = {misuse.kind for misuse in MISUSES}
    assert tested == set(classes())
    with capsys.disabled():
        print(
            f"\nerror classes: {len(tested)} of {len(classes())} in errors.py raised by misuse, all four parts checked"
        )


def test_several_settings_errors_are_reported_as_one() -> None:
    problems = [
        ConfigError(f"setting {name}", got="nothing", expected="something", next_step=f"Give {name}")
        for name in ("a", "b")
    ]
    whole = ConfigError.from_problems(problems)
    assert all(str(problem) in str(whole) for problem in problems)
    assert "2 settings (setting a, setting b)" in str(whole)
    assert ConfigError.from_problems(problems[:1]) is problems[0]


# Where a bare error is raised and does not leave the SDK.
CAUGHT = {
    "bespoke/bundle/fields.py": "validators: pydantic wants ValueError, and the reader of manifests makes BundleError of it",
    "bespoke/config.py": "a validator, of which config_problems makes a ConfigError",
    "bespoke/tasks/measures.py": "inside the parser of a call, which says None of what is none",
    "bespoke/data/turns.py": "a validator; Turns.from_bytes makes BundleError of it",
    "bespoke/format/plain_file.py": "as the system's own errors of opening a file, which every caller names in its own words",
}


def test_no_bare_error_leaves_the_sdk() -> None:
    """ValueError and its like say nothing of the four parts."""
    import ast

    from tests.conftest import REPOSITORY

    bare = {
        "ValueError",
        "KeyError",
        "AssertionError",
        "RuntimeError",
        "TypeError",
        "Exception",
        "IndexError",
        "OSError",
    }
    found = set()
    for path in (REPOSITORY / "sdk").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                if isinstance(called, ast.Name) and called.id in bare:
                    found.add(path.relative_to(REPOSITORY / "sdk").as_posix())
    assert found == CAUGHT.keys()
