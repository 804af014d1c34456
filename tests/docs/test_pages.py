# SPDX-License-Identifier: Apache-2.0
"""What the pages show works: code blocks are run in order, links lead somewhere, figures have markers in pairs."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from bespoke import PersonalModel
from tests.benchmarks.figures import pages
from tests.conftest import REPOSITORY
from tests.docs.pages import blocks, run_bash, run_page
from tests.support.bundles import stories_bundle
from tests.support.models import tiny_model
from tests.unit.bundle.replaced import contents

__all__ = ["stories_bundle"]

BANKING = ("age_limit", "change_pin")
COLLECT = REPOSITORY / "docs" / "how_to" / "collect_examples.md"
TUTORIAL = REPOSITORY / "docs" / "tutorials" / "first_bundle.md"
# Plain text between turns: stories260K has no special tokens for them.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


@pytest.fixture
def chat_model(stories: Path, tmp_path: Path) -> Path:
    """stories260K with a chat template."""
    folder = Path(shutil.copytree(stories, tmp_path / "chat_model", copy_function=shutil.copyfile))
    folder.chmod(0o755)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": CHAT_TEMPLATE}), encoding="utf-8")
    return folder


def test_the_readme_builds_trains_and_answers(chat_model: Path, tmp_path: Path) -> None:
    printed = run_page(
        REPOSITORY / "README.md", tmp_path, instead={"HuggingFaceTB/SmolLM2-135M-Instruct": str(chat_model)}
    )
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    assert "finished" in printed[-1]
    before, after = (printed[-1].partition(f"{when}: ")[2].partition("\n")[0] for when in ("before", "after"))
    assert before != after


@pytest.mark.slow
def test_the_tutorial_leads_to_an_adapter_that_answers(chat_model: Path, tmp_path: Path) -> None:
    instead = {"--steps 100": "--steps 10", "steps=100": "steps=10", "== 10": "== 5", "smollm2.gguf": "chat_model"}
    run_page(TUTORIAL, tmp_path, instead=instead, make_model=lambda folder: None)
    for adapter in ("adapter", "adapter_of_you"):
        assert (tmp_path / adapter / "adapter_config.json").is_file()


@pytest.mark.slow
def test_the_tutorial_works_with_the_model_that_it_fetches(smollm2: Path, tmp_path: Path) -> None:
    printed = run_page(
        TUTORIAL, tmp_path, slow=True, make_model=lambda folder: shutil.copyfile(smollm2, folder / "smollm2.gguf")
    )
    learned = "Your dog is called Pepper."
    assert learned in printed[-2]
    assert sum(learned in part for part in printed) >= 2


@pytest.mark.slow
def test_the_core_is_used_as_its_page_says(stories: Path, tmp_path: Path) -> None:
    shutil.copytree(stories, tmp_path / "everyday", copy_function=shutil.copyfile)
    printed = run_page(REPOSITORY / "docs" / "how_to" / "use_the_device_core.md", tmp_path)
    from bespoke.core import find

    engine, runtime = ("executorch", "core") if find().path else ("torch", "torch")
    assert printed[-1].startswith(f"{engine}\n{runtime} ")


def test_a_bundle_is_signed_and_pinned_as_its_page_says(stories: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    shutil.copytree(stories, tmp_path / "everyday", copy_function=shutil.copyfile)
    printed = run_page(REPOSITORY / "docs" / "how_to" / "sign_pin_and_ship.md", tmp_path)
    assert printed[-1] == "pin\n"
    assert "are whole" in printed[2]


@pytest.mark.slow
def test_a_bundle_is_delivered_as_its_page_says(stories: Path, tmp_path: Path) -> None:
    shutil.copytree(stories, tmp_path / "everyday", copy_function=shutil.copyfile)
    printed = run_page(REPOSITORY / "docs" / "how_to" / "deliver.md", tmp_path)
    assert "installed" in printed[-1]
    assert contents(tmp_path / "app" / "chat.bundle") == contents(tmp_path / "v2.bundle")


def test_other_engines_are_given_what_their_page_says(stories: Path, stories_bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(stories, tmp_path / "everyday", copy_function=shutil.copyfile)
    (tmp_path / "chat.bundle").symlink_to(stories_bundle)
    with PersonalModel.open(stories_bundle, tmp_path / "alice") as model:
        model.import_adapter(model.export_adapter(tmp_path / "first", base=True))
    run_page(REPOSITORY / "docs" / "how_to" / "use_another_engine.md", tmp_path)
    for file in (
        "adapter_mlx/adapters.safetensors",
        "adapter_gguf/adapter.gguf",
        "merged/model.safetensors",
        "llama/base.gguf",
    ):
        assert (tmp_path / file).is_file()


@pytest.mark.slow
def test_a_task_is_measured_as_its_page_says(stories_bundle: Path, data_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "chat.bundle").symlink_to(stories_bundle)
    for split in ("train", "test"):  # short ones: the bundle's context is 64 tokens
        with (data_folder / "classification" / "banking77" / f"{split}.csv").open(newline="") as file:
            short = [row for row in csv.DictReader(file) if len(row["text"]) < 40]
        with (tmp_path / f"{split}.csv").open("w", newline="") as file:
            rows = [row for label in BANKING for row in [one for one in short if one["category"] == label][:6]]
            csv.writer(file).writerows([("text", "label"), *((row["text"], row["category"]) for row in rows)])
    printed = run_page(REPOSITORY / "docs" / "how_to" / "measure_a_task.md", tmp_path)
    assert "macro F1" in printed[0]
    assert "of which" in printed[-1]


@pytest.mark.slow  # exporting takes most of a minute
def test_an_engine_alone_trains_as_its_page_says(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 256}
    tiny_model("llama", tmp_path / "model", num_hidden_layers=1, **sizes)
    printed = run_page(REPOSITORY / "docs" / "how_to" / "train_by_forward_alone.md", tmp_path)
    assert (tmp_path / "step.pte").is_file()
    assert [line.split()[0] for line in printed[1].splitlines()] == ["1", "2", "3", "4", "5"]
    assert "looked at   32 tokens" in printed[2]
    adapter = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert all(piece.any() for name, piece in adapter.items() if "lora_B" in name)


@pytest.mark.slow
def test_the_recipes_run(chat_model: Path, stories: Path, tmp_path: Path) -> None:
    shutil.copytree(stories, tmp_path / "plain_model", copy_function=shutil.copyfile)
    run_page(COLLECT, tmp_path)
    talk = [{"role": "user", "content": "Where is the boat?"}, {"role": "assistant", "content": "At the ferry."}]
    assert json.loads((tmp_path / "chat.jsonl").read_text()) == {"messages": talk}


@pytest.mark.slow
def test_answers_are_corrected_as_the_page_says(chat_model: Path, tmp_path: Path) -> None:
    run_page(REPOSITORY / "docs" / "how_to" / "correct_answers.md", tmp_path)


def test_an_exported_chat_becomes_what_the_page_shows(tmp_path: Path) -> None:
    page = blocks(COLLECT)
    asked = next(i for i, block in enumerate(page) if block.language == "bash" and "bespoke read" in block.code)
    assert run_bash(page[asked], page[asked].code, tmp_path) == page[asked + 1].code
    assert len(page[asked + 1].code.splitlines()) == 2


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    assert not missing, f"{page.relative_to(REPOSITORY)} links to {missing}"


def test_markers_of_figures_come_in_pairs_and_once_a_page() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        opened = re.findall(r"^<!-- figures:(\w+) -->$", text, re.MULTILINE)
        assert opened == re.findall(r"^<!-- /figures:(\w+) -->$", text, re.MULTILINE), page
        assert len(opened) == len(set(opened)), page
