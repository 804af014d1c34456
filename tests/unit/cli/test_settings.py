# SPDX-License-Identifier: Apache-2.0
"""Flags over a TOML file: what wins, what is refused, and that the flags are those that the settings have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bespoke.cli.settings import FLAGS, TRAIN_FLAGS, personalizer
from bespoke.config import Budget, Lora, Training
from bespoke.errors import ConfigError
from tests.conftest import REPOSITORY
from tests.unit.cli.commands import bespoke

TABLES: dict[str, Any] = {"lora": Lora, "training": Training, "budget": Budget}


def write(folder: Path, text: str) -> Path:
    path = folder / "bespoke.toml"
    path.write_text(text)
    return path


def test_every_setting_has_a_flag_and_its_help_tells_the_default() -> None:
    assert {(flag.table, flag.field) for flag in FLAGS} == {
        (t, f) for t, kind in TABLES.items() for f in kind.model_fields
    }
    for flag in FLAGS:
        default = TABLES[flag.table].model_fields[flag.field].default
        stated = flag.help.rpartition("[")[2].rstrip("].")
        match default:
            case None:
                assert stated in ("none", "no limit", "by the number of examples")
            case bool():
                assert stated == ("yes" if default else "no")
            case tuple():
                assert stated == ",".join(map(str, default))
            case float() | int():
                assert float(stated) == default
            case _:
                assert stated == default


def test_train_has_a_flag_for_every_setting_that_is_not_compiled_into_the_bundle() -> None:
    others = {flag.field for flag in FLAGS if not flag.compiled} - {"steps"}  # --run-steps in its place
    assert {flag.field for flag in TRAIN_FLAGS} == others


def test_flags_win_over_the_file_and_keep_the_rest_of_it(tmp_path: Path) -> None:
    optimizers = '[optimizers.mezo]\nepsilon = 0.01\n[optimizers.mesp]\nupdate = "sgd"\n'
    config = write(tmp_path, f'model = "m"\n{optimizers}[training]\nsteps = 5\nseed = 3\n')
    both = personalizer(config, {"seed": 7}, ())
    assert [method.name for method in both.request.methods] == ["mezo", "mesp"]
    assert (both.request.training.steps, both.request.training.seed) == (5, 7)
    chosen = personalizer(config, {"optimizers": ("mesp,mebp",)}, ("mebp.update=sgd", "mebp.weight_decay=0.1"))
    assert [method.name for method in chosen.request.methods] == ["mesp", "mebp"]
    assert [method.options.update for method in chosen.request.methods] == ["sgd", "sgd"]  # type: ignore[attr-defined]
    assert chosen.request.methods[1].options.weight_decay == 0.1  # type: ignore[attr-defined]


def test_the_file_in_the_docs_is_one_that_works(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "reference" / "command_line.md").read_text(encoding="utf-8")
    made = personalizer(write(tmp_path, page.partition("```toml\n")[2].partition("```")[0]), {}, ())
    request = made.request
    assert ([method.name for method in request.methods], request.lora.rank, request.budget.memory_mb) == (
        ["mesp"],
        8,
        200,
    )


def test_optimizers_may_be_a_name_or_a_list_in_the_file(tmp_path: Path) -> None:
    assert [
        m.name for m in personalizer(write(tmp_path, 'model = "m"\noptimizers = "mezo"\n'), {}, ()).request.methods
    ] == ["mezo"]
    both = personalizer(write(tmp_path, 'model = "m"\noptimizers = ["mezo", "mesp"]\n'), {}, ())
    assert [method.name for method in both.request.methods] == ["mezo", "mesp"]


def test_paths_in_the_file_are_relative_to_it_and_hub_ids_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    made = personalizer(write(tmp_path, 'model = "m"\ndata = "d.jsonl"\n'), {}, ())
    assert (made.request.model, made.request.data) == (str(tmp_path / "m"), tmp_path / "d.jsonl")
    assert personalizer(write(tmp_path, 'model = "Qwen/Qwen2.5-0.5B"\n'), {}, ()).request.model == "Qwen/Qwen2.5-0.5B"


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    config = write(tmp_path, '[training]\nstep = 5\nlearning_rate = "fast"\n[lora]\nrank = 0\n[optimizers.mesq]\n')
    with pytest.raises(ConfigError) as caught:
        personalizer(config, {}, ())
    text = str(caught.value)
    for part in ("model", "training.step", "training.learning_rate", "lora.rank", "'mesq'", "Did you mean 'mesp'"):
        assert part in text, part


@pytest.mark.parametrize(
    ("text", "subject", "hint"),
    [
        ('modell = "m"', "modell", "Did you mean 'model'"),
        ("model = 3", "model", "Put it in quotes"),
        ('lora = "big"', "lora", "Write [lora]"),
        ("model = [", "bespoke.toml", "Correct the file"),
        ('model = "m"\noptimizers = [1]', "optimizers", "[optimizers.mesp]"),
        ('model = "m"\nsigning_key = "nosuch.pem"', "signing key", "Check the path"),
    ],
)
def test_a_file_that_cannot_work_is_refused_by_name(tmp_path: Path, text: str, subject: str, hint: str) -> None:
    config = write(tmp_path, text + "\n")
    answer = bespoke("build", "--config", config, "--dry-run", "--format", "json")
    assert answer.code == 2
    assert subject in answer.json["error"]["subject"]
    assert hint in answer.json["error"]["next_step"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--option", "mezo.epsilon=1"), "one of mesp"),
        (("--option", "mesp=1"), "NAME.FIELD=VALUE"),
        (("--option", "mesp.epsilon"), "NAME=VALUE"),
        (("--option", "mesp.update=adagrad"), "optimizers.mesp.update"),
        (("--config", "nosuch.toml"), "nosuch.toml"),
        (("--lora-targets", "q_proj,qproj"), "--lora-targets.1: got 'qproj'"),
        (("--lora-targets", "q_proj,q_proj"), "Change --lora-targets."),
        ((), "OUT"),
    ],
)
def test_flags_that_cannot_work_are_refused_by_name(flags: tuple[str, ...], words: str) -> None:
    answer = bespoke("build", "--model", "m", "--optimizers", "mesp", *flags)
    assert answer.code == 2
    assert words in answer.err


def test_the_linears_of_the_adapter_have_a_flag_next_to_that_of_the_engines(tmp_path: Path) -> None:
    config = write(
        tmp_path, 'model = "m"\noptimizers = "mesp"\ntargets = "torch"\n[lora]\nrank = 4\ntargets = ["o_proj"]\n'
    )
    of_the_file = personalizer(config, {}, ()).request
    assert (of_the_file.lora.rank, of_the_file.lora.targets) == (4, ("o_proj",))
    request = personalizer(config, {"lora_targets": ("v_proj", "q_proj")}, ()).request
    assert (request.lora.rank, request.lora.targets) == (4, ("q_proj", "v_proj"))
    assert [target.name for target in request.targets] == ["torch"]


def test_sequence_lengths_that_are_no_numbers_are_a_usage_error() -> None:
    answer = bespoke("build", "--sequence-lengths", "64;128", "--format", "json")
    assert (answer.code, answer.json["error"]["kind"]) == (2, "BadParameter")
    assert "64,128" in answer.err


@pytest.mark.parametrize(
    ("given", "found"), [(None, "auto"), ("auto", "auto"), ("none", None), ("./none", Path("none"))]
)
def test_data_is_a_file_or_one_of_two_words(tmp_path: Path, given: str | None, found: str | Path | None) -> None:
    """A file literally named `none` is named by a path: ./none."""
    flags = {"model": "m", "optimizers": ("mesp",), **({} if given is None else {"data": given})}
    assert personalizer(None, flags, ()).request.data == found
    if given is not None:
        made = personalizer(write(tmp_path, f'model = "m"\noptimizers = "mesp"\ndata = "{given}"\n'), {}, ())
        assert made.request.data == (tmp_path / found if isinstance(found, Path) else found)
