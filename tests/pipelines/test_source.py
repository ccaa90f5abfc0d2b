"""Which code counts as a step's, in a small tree and in the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.source import SourceDigests


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder, text in {
        "step": "def f() -> None:\n    from components.direct.part import x\n",
        "direct": "import components.indirect.deep\nfrom components import also, console\n",
        "indirect": "from . import sibling\n",
        "also": "",
        "console": "from components.unrelated import x\n",
        "unrelated": "",
    }.items():
        (tmp_path / "components" / folder).mkdir(parents=True)
        (tmp_path / "components" / folder / "code.py").write_text(text)
    return tmp_path


def test_imports_are_followed_wherever_and_however_they_stand(root: Path) -> None:
    assert SourceDigests(root).folders("components.step") == {"step", "direct", "indirect", "also"}


def test_any_file_of_any_kind_counts_but_not_caches_or_strangers(root: Path) -> None:
    before = SourceDigests(root).of("components.step")
    (root / "components" / "unrelated" / "code.py").write_text("changed = 1\n")
    (root / "components" / "step" / "__pycache__").mkdir()
    (root / "components" / "step" / "__pycache__" / "code.pyc").write_bytes(b"x")
    assert SourceDigests(root).of("components.step") == before
    (root / "components" / "indirect" / "network.gin").write_text("layers = 3\n")
    assert SourceDigests(root).of("components.step") != before


def test_the_real_steps_reach_their_concepts_and_no_other_step() -> None:
    steps = {"toolchain", "corpus", "trace", "vocab", "warmstart", "ppo", "evaluation", "tune"}
    digests = SourceDigests()
    assert {"compiler", "formats", "workers", "storage"} <= digests.folders("components.trace")
    for step in steps:
        assert digests.folders(f"components.{step}") & steps == {step}
