"""Tests of which code a step's digest covers, in a small tree and in the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.local.source_digests import SourceDigests


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder, text in {
        "step": "def f() -> None:\n    from components.core.direct.part import x\n",
        "core/direct": "import components.core.indirect.deep\nfrom components.core import also, console\n",
        "core/indirect": "from . import sibling\n",
        "core/also": "",
        "platform/console": "from components.core.unrelated import x\n",
        "core/unrelated": "",
    }.items():
        (tmp_path / "components" / folder).mkdir(parents=True)
        (tmp_path / "components" / folder / "code.py").write_text(text)
    return tmp_path


def test_all_forms_of_imports_are_followed(root: Path) -> None:
    assert SourceDigests(root).folders("components.step") == {"step", "core/direct", "core/indirect", "core/also"}


def test_digest_covers_all_files_but_caches_and_unrelated_folders(root: Path) -> None:
    before = SourceDigests(root).of("components.step")
    (root / "components" / "core" / "unrelated" / "code.py").write_text("changed = 1\n")
    (root / "components" / "step" / "__pycache__").mkdir()
    (root / "components" / "step" / "__pycache__" / "code.pyc").write_bytes(b"x")
    assert SourceDigests(root).of("components.step") == before
    (root / "components" / "core" / "indirect" / "network.gin").write_text("layers = 3\n")
    assert SourceDigests(root).of("components.step") != before


def test_real_steps_import_their_concepts_and_no_other_step() -> None:
    steps = {"toolchain", "corpus", "trace", "vocab", "warmstart", "ppo", "evaluation", "tune"}
    digests = SourceDigests()
    assert {f"core/{name}" for name in ("compiler", "formats", "workers", "storage")} <= digests.folders(
        "components.trace"
    )
    for step in steps:
        assert digests.folders(f"components.{step}") & steps == {step}
