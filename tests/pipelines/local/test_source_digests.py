"""Tests of which code a step's digest covers, in a small tree and in the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.platform.launcher.registry import STEPS
from pipelines.local.run_locally import local_steps
from pipelines.local.source_digests import SourceDigests
from pipelines.spec import COMPILED


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder, text in {
        "step": "def f() -> None:\n    from components.core.direct.part import x\n",
        "core/direct": "import components.core.indirect.deep\n"
        "from components.core import also\nfrom components.platform import console\n",
        "core/indirect": "from . import sibling\n",
        "core/also": "",
        "platform/console": "from components.core.unrelated import x\n",
        "core/unrelated": "",
    }.items():
        (tmp_path / "components" / folder).mkdir(parents=True)
        (tmp_path / "components" / folder / "code.py").write_text(text)
    return tmp_path


def test_all_forms_of_imports_are_followed(root: Path) -> None:
    assert SourceDigests(root).paths("components.step") == {
        "components/step",
        "components/core/direct",
        "components/core/indirect",
        "components/core/also",
    }


def test_digest_covers_all_files_but_caches_and_unrelated_folders(root: Path) -> None:
    before = SourceDigests(root).of("components.step")
    (root / "components" / "core" / "unrelated" / "code.py").write_text("changed = 1\n")
    (root / "components" / "step" / "__pycache__").mkdir()
    (root / "components" / "step" / "__pycache__" / "code.pyc").write_bytes(b"x")
    assert SourceDigests(root).of("components.step") == before
    (root / "components" / "core" / "indirect" / "network.gin").write_text("layers = 3\n")
    assert SourceDigests(root).of("components.step") != before


def test_modules_of_other_projects_are_those_of_all_files_that_are_reached(root: Path) -> None:
    text = "import os, numpy.random as r\ndef f() -> None:\n    from gin import config\n    from . import sibling\n"
    (root / "components" / "core" / "direct" / "more.py").write_text(text)
    (root / "components" / "core" / "unrelated" / "more.py").write_text("import ray\n")
    assert SourceDigests(root).third_party_modules("components.step") == {"numpy", "gin"}


def test_real_steps_import_their_concepts_and_no_other_step() -> None:
    steps = {f"components/{name}" for name, step in STEPS.items() if step.module == f"components.{name}"}
    digests = SourceDigests()
    concepts = {"core/compiler", "core/formats", "platform/workers", "platform/storage"}
    assert {f"components/{name}" for name in concepts} <= digests.paths("components.trace")
    for step in steps:
        assert digests.paths(step.replace("/", ".")) & steps == {step}


def test_digest_of_a_promotion_covers_the_code_of_retraining(tmp_path: Path) -> None:
    steps = local_steps(COMPILED, {"recipe": "tiny", "retrain_state": str(tmp_path / "state.json")})
    modules = {step.name: step.module for step in steps}
    assert modules["promote"] == modules["record-refusal"] == "pipelines.retrain"
    paths = SourceDigests().paths("pipelines.retrain")
    assert {"pipelines/retrain", "components/evaluation", "components/core/formats"} <= paths
