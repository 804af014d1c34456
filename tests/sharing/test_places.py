# SPDX-License-Identifier: Apache-2.0
"""Where a state may lie, and that nothing is written where it may not; what a failed opening leaves open: nothing."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.bundle.reader import read_bundle
from bespoke.errors import BespokeError, BundleError, SignatureError
from tests.sharing import outside
from tests.sharing.c_api import CModel
from tests.support.checks import few_of
from tests.unit.cli.commands import bespoke
from tests.unit.personal_model.tiny import add_numbers, changed, other_base

Refused = tuple[str, str, str]


def refusal(language: str, core: Path, bundle: Path, state: Path) -> Refused | None:
    """Kind, subject and what was got of the error that opening gives."""
    if language == "core":
        model = CModel(core, bundle, state)
        answer = model.act("open")
        model.__exit__(None, None, None)
        return answer and (answer["error"], answer["subject"], answer["got"])
    try:
        PersonalModel.open(bundle, state).close()
    except BespokeError as error:
        return type(error).__name__, error.subject, error.got
    return None


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


PLACES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "the bundle": (lambda place: place / "bundle", "which is the bundle"),
    "within the bundle": (lambda place: place / "bundle" / "data" / "alice", "which lies within the bundle"),
    "around the bundle": (lambda place: place, "which holds the bundle"),
    "the bundle by a link": (lambda place: place / "link", "which is the bundle"),
    "within, by a way that is not there": (
        lambda place: place / "new" / ".." / "bundle" / "alice",
        "which lies within the bundle",
    ),
}


@pytest.mark.parametrize("language", ["torch", "core"])
@pytest.mark.parametrize("where", PLACES)
def test_a_state_in_its_bundle_is_refused_and_nothing_is_written(
    core: Path, tiny_core_bundle: Path, tmp_path: Path, language: str, where: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    bundle = changed(tiny_core_bundle, place / "bundle")
    (place / "link").symlink_to(bundle)
    state, got = PLACES[where][0](place), PLACES[where][1]
    before = everything(place)
    assert refusal(language, core, bundle, state) == ("ConfigError", "state", f"{state}, {got}")
    assert everything(place) == before
    assert refusal(language, core, bundle, tmp_path / "alice") is None


@pytest.mark.parametrize("language", ["torch", "core"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o703, 0o770, 0o775, 0o2770, 0o720], ids=oct)
def test_a_folder_into_which_others_may_write_is_refused(
    core: Path, tiny_core_bundle: Path, tmp_path: Path, language: str, mode: int
) -> None:
    state = tmp_path / "alice"
    state.mkdir()
    state.chmod(mode)
    others = "every user" if mode & 0o002 else "its group"
    expected = ("StateError", str(state), f"a folder of mode {mode:04o}, into which {others} may write")
    assert refusal(language, core, tiny_core_bundle, state) == expected
    assert list(state.iterdir()) == []
    state.chmod(0o755)  # may be listed by others: the files are private
    assert refusal(language, core, tiny_core_bundle, state) is None
    assert {path.stat().st_mode & 0o777 for path in state.iterdir()} == {0o600}


@pytest.mark.parametrize("language", ["torch", "core"])
def test_a_folder_that_everyone_may_exchange_is_refused(
    core: Path, tiny_core_bundle: Path, tmp_path: Path, language: str
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    state = above / "alice"
    got = f"a folder above it, {above} of mode 0777, in which every user may exchange it"
    assert refusal(language, core, tiny_core_bundle, state) == ("StateError", str(state), got)
    assert list(above.iterdir()) == []
    above.chmod(0o1777)  # as /tmp: each may exchange what is its own
    assert refusal(language, core, tiny_core_bundle, state) is None
    above.chmod(0o775)  # a group is trusted there
    assert refusal(language, core, tiny_core_bundle, state) is None


@pytest.mark.parametrize("language", ["torch", "core"])
@pytest.mark.parametrize("name", ["state.sqlite", "files.lock"])
@pytest.mark.parametrize("mode", [0o660, 0o602], ids=oct)
def test_a_file_that_others_may_change_is_refused(
    core: Path, tiny_core_bundle: Path, tmp_path: Path, language: str, name: str, mode: int
) -> None:
    state = tmp_path / "it's alice"
    assert refusal(language, core, tiny_core_bundle, state) is None
    file = state / name
    file.chmod(mode)
    others = "every user" if mode & 0o002 else "its group"
    expected = ("StateError", str(file), f"a file of mode {mode:04o}, which {others} may change")
    assert refusal(language, core, tiny_core_bundle, state) == expected
    with pytest.raises(BespokeError) as caught:
        PersonalModel.open(tiny_core_bundle, state)
    subprocess.run(caught.value.next_step.removeprefix("Close it to others: "), shell=True, check=True)
    assert refusal(language, core, tiny_core_bundle, state) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
@pytest.mark.parametrize("language", ["torch", "core"])
def test_a_folder_of_somebody_else_is_refused(
    core: Path, tiny_core_bundle: Path, tmp_path: Path, language: str
) -> None:
    state = tmp_path / "alice"
    state.mkdir(mode=0o700)
    os.chown(state, 12345, 12345)
    assert refusal(language, core, tiny_core_bundle, state) == ("StateError", str(state), "a folder of user 12345")
    assert list(state.iterdir()) == []


@pytest.mark.parametrize("language", ["torch", "core"])
def test_a_folder_that_is_made_is_private(core: Path, tiny_core_bundle: Path, tmp_path: Path, language: str) -> None:
    before = os.umask(0)
    try:
        assert refusal(language, core, tiny_core_bundle, tmp_path / "new" / "alice") is None
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "alice").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755  # in which nobody else may exchange it


@pytest.mark.parametrize(
    "verb",
    [["evaluate"], ["export", "OUT"], ["generate", "hello"], ["versions"], ["rollback"], ["examples", "list"]],
    ids=" ".join,
)
@pytest.mark.parametrize("there", [False, True], ids=["no folder", "an empty folder"])
def test_a_command_that_needs_a_state_makes_none(
    tiny_bundle: Path, tmp_path: Path, verb: list[str], there: bool
) -> None:
    state = tmp_path / "a" / "b"
    if there:
        state.mkdir(parents=True)
    words = 2 if verb[0] == "examples" else 1
    rest = [tmp_path / "out" if word == "OUT" else word for word in verb[words:]]
    answer = bespoke(*verb[:words], tiny_bundle, *rest, "--state", state)
    assert answer.code == 9
    assert f"{state}: got no state; expected the folder of a user's state" in answer.err
    assert state.exists() == there
    assert not there or list(state.iterdir()) == []
    assert not (tmp_path / "out").exists()


def open_things() -> tuple[int, int]:
    """Descriptors of this process, and files that it maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len(os.listdir("/proc/self/fd")), sum(".safetensors" in line or "state.sqlite" in line for line in lines)


def broken_state(place: Path, bundle: Path, state: Path) -> tuple[Path, Path]:
    (state / "state.sqlite").write_bytes(b"no database" * 999)
    return bundle, state


def another_base(place: Path, bundle: Path, state: Path) -> tuple[Path, Path]:
    return changed(bundle, place / "other", other_base), state


@pytest.mark.parametrize("broken", few_of((broken_state, another_base), (broken_state,)))
def test_an_opening_that_fails_leaves_nothing_open(
    tiny_bundle: Path, tmp_path: Path, broken: Callable[[Path, Path, Path], tuple[Path, Path]]
) -> None:
    with PersonalModel.open(tiny_bundle, tmp_path / "alice") as model:
        add_numbers(model)
    bundle, state = broken(tmp_path, tiny_bundle, tmp_path / "alice")
    gc.collect()  # what earlier tests left behind is not counted
    before, errors = open_things(), []
    for _ in range(5):
        with pytest.raises(BespokeError) as caught:
            PersonalModel.open(bundle, state)
        errors.append(caught)  # which keep the frames of the calls that failed
    assert open_things() == before


def test_a_broken_tokenizer_is_refused_when_a_text_comes_and_the_state_stays(tiny_bundle: Path, tmp_path: Path) -> None:
    """Its text is read at its first use: training on tokens, listing and forgetting need none."""
    name = "text/tokenizer.bin"
    broken = changed(
        tiny_bundle,
        tmp_path / "broken",
        lambda manifest: manifest.model_copy(update={"text": manifest.text.model_copy(update={"tokenizer_bin": name})}),
        files={name: b"{}"},
    )
    with PersonalModel.open(tiny_bundle, tmp_path / "alice") as model:
        pass
    with PersonalModel.open(broken, tmp_path / "alice") as model:
        for _ in range(2):
            with pytest.raises(BundleError, match=r"tokenizer\.bin"):
                model.examples.add({"text": "some words"})
        assert len(model.examples) == 0


# ---- another base ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def alice(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A state with an adapter that answers."""
    with PersonalModel.open(tiny_bundle, tmp_path / "alice") as model:
        add_numbers(model)
        assert model.train(run_steps=4).accepted
    return tmp_path / "alice"


def learned(state: Path) -> list[Any]:
    return [
        outside.read(state, "SELECT id, file, sha256 FROM versions"),
        sorted(path.name for path in state.glob("*.safetensors")),
    ]


def test_another_base_takes_the_adapters_only_where_pin_or_key_hold(
    tiny_bundle: Path, tmp_path: Path, alice: Path
) -> None:
    before = learned(alice)
    assert before[0]
    bundle = changed(tiny_bundle, tmp_path / "other", other_base)
    with read_bundle(bundle) as opened:
        pin = opened.manifest_sha256
    for trust in ({"pin_sha256": "0" * 64}, {"public_key": b"k" * 32}):
        with pytest.raises(SignatureError):
            PersonalModel.reset_for_new_base(bundle, alice, **trust)  # type: ignore[arg-type]
        assert learned(alice) == before
    with PersonalModel.reset_for_new_base(bundle, alice, pin_sha256=pin) as model:
        assert model.versions() == []
        assert len(model.examples) == 12
    assert learned(alice) == [[], []]


@pytest.mark.slow
def test_another_base_takes_nothing_where_any_file_of_its_bundle_is_damaged(
    tiny_bundle: Path, tmp_path: Path, alice: Path
) -> None:
    before = learned(alice)
    bundle = changed(tiny_bundle, tmp_path / "other", other_base)
    for name in ("weights/block_00.safetensors", "adapter/initial.safetensors"):
        file = next(path for path in (bundle / Path(name).parent).iterdir())
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(BespokeError, match="sha256"):
            PersonalModel.reset_for_new_base(bundle, alice)
        assert learned(alice) == before
        file.write_bytes(whole)
    PersonalModel.reset_for_new_base(bundle, alice).close()
    assert learned(alice) == [[], []]
