# SPDX-License-Identifier: Apache-2.0
"""What a bundle's files hashed to is remembered in the state folder by the core: believed, doubted, and written again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.bundle.reader import read_bundle
from bespoke.core import finding
from bespoke.errors import BundleError
from tests.native.core_lab import tiny_core_bundle
from tests.native.own_process import own_process
from tests.support.reading import read_state
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]

pytestmark = pytest.mark.xdist_group("core")
MARK = "bespoke known hashes 1 "


@pytest.fixture(autouse=True)
def built_core(native_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))


@pytest.fixture(scope="module")
def copies(
    request: pytest.FixtureRequest, tiny_core_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """One for each test of this file, all written a while ago."""
    folder = tmp_path_factory.mktemp("copies")
    tests = sum(item.path == request.path for item in request.session.items)
    made = [Path(shutil.copytree(tiny_core_bundle, folder / f"{number}.bundle")) for number in range(tests)]
    time.sleep(2.1)
    return iter(made)


@pytest.fixture
def bundle(copies: Iterator[Path]) -> Path:
    return next(copies)


@pytest.fixture
def state(bundle: Path, tmp_path: Path) -> Path:
    with PersonalModel.open(bundle, tmp_path / "alice", engine="torch") as model:
        add_numbers(model)
    return tmp_path / "alice"


def written(lines: list[str]) -> str:
    body = "".join(line + "\n" for line in lines)
    return f"{MARK}{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def lines_of(file: Path) -> list[str]:
    """Those of a sound file."""
    _, *lines = file.read_text().splitlines()
    assert file.read_text() == written(lines)
    assert file.stat().st_mode & 0o777 == 0o600
    return lines


def test_hashes_are_remembered_and_believed_until_verify_is_asked(bundle: Path, state: Path) -> None:
    core = own_process(bundle, state)
    loss = core.evaluate("train").loss
    lines = lines_of(state / "hashes")
    with read_bundle(bundle) as opened:
        known = {record.sha256 for record in opened.manifest.files.values()}
        weights = {opened.manifest.files[record.file].sha256 for record in opened.manifest.weights}
    remembered = {line.split()[-1] for line in lines}
    assert weights <= remembered <= known
    assert read_state(state, bundle)["broken"] == []
    assert core.evaluate("train").loss == loss
    assert lines_of(state / "hashes") == lines
    (state / "hashes").write_text(written([line[:-64] + "0" * 64 for line in lines]))
    with pytest.raises(BundleError, match="sha256 0000"):  # nothing was read to find that
        core.evaluate("train")
    (state / "hashes").unlink()
    assert core.evaluate("train").loss == loss


def test_a_file_that_changed_is_hashed_again(bundle: Path, state: Path) -> None:
    core = own_process(bundle, state)
    core.evaluate("train")
    with read_bundle(bundle) as opened:
        path = bundle / opened.manifest.weights[0].file
    data, times = bytearray(path.read_bytes()), path.stat()
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(BundleError, match=path.name):
        core.evaluate("train")


def test_verify_hashes_everything(bundle: Path, state: Path) -> None:
    """Also what is remembered: a wrong memory neither helps nor hurts it as far as files go."""
    core = own_process(bundle, state)
    core.evaluate("train")
    with read_bundle(bundle) as opened:
        path = bundle / opened.manifest.weights[0].file
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    after = path.stat()
    lines = lines_of(state / "hashes")
    then, now = (f" {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} " for found in (before, after))
    forged = [line.replace(then, now) for line in lines]
    assert forged != lines
    (state / "hashes").write_text(written(forged))
    core.evaluate("train")  # as a disk would have it that returns other bytes than were written
    with pytest.raises(BundleError, match=path.name):
        core.verify()


@pytest.mark.parametrize(
    "change",
    [lambda text: "", lambda text: text[:-40], lambda text: text.replace(" 1 ", " 2 ", 1), lambda text: "x" * 999],
)
def test_a_damaged_memory_is_none_and_is_written_again(bundle: Path, state: Path, change: Callable[[str], str]) -> None:
    core = own_process(bundle, state)
    loss = core.evaluate("train").loss
    text = (state / "hashes").read_text()
    (state / "hashes").write_text(change(text))
    assert core.evaluate("train").loss == loss
    assert (state / "hashes").read_text() == text


def test_a_link_in_its_place_is_not_followed(bundle: Path, state: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("years of work")
    (state / "hashes").symlink_to(tmp_path / "mine")
    own_process(bundle, state).evaluate("train")
    assert (tmp_path / "mine").read_text() == "years of work"


@pytest.mark.slow
def test_two_processes_may_write_it(bundle: Path, state: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.native.own_process import own_process; "
        "print(own_process(Path(sys.argv[1]), Path(sys.argv[2])).evaluate('train').loss)"
    )
    command = [sys.executable, "-c", program, str(bundle), str(state)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    losses = {process.communicate(timeout=300)[0] for process in both}
    assert len(losses) == 1
    assert float(losses.pop()) == own_process(bundle, state).evaluate("train").loss
    lines_of(state / "hashes")
