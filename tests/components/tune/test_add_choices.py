"""`mlgo tune add-choices` adds the choices of -mlgo-keep-smaller to a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import PLAN_FILE, PlannedModule, write_plan
from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.manifest import MANIFEST
from components.tune.__main__ import main


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def choice(digit: int, variant: str) -> str:
    return json.dumps({"bytes": {}, "digest": str(digit) * 32, "name": f"{digit}.c", "variant": variant}) + "\n"


def test_choices_are_added_to_a_copy_of_the_plan(tmp_path: Path) -> None:
    with publish(tmp_path / "plan", "plan") as partial:
        write_plan(partial / PLAN_FILE, [PlannedModule("a.c", ForcedDecisions.of({("a", "b", 0): 1}))], 22)
        (partial / "tune.json").write_text("{}")
    (tmp_path / "choices").write_text(choice(1, "policy") + choice(2, "heuristic") + choice(1, "heuristic"))
    before = (tmp_path / "plan" / PLAN_FILE).read_bytes()
    done = run(
        "add-choices", "--choices", tmp_path / "choices", "--plan", tmp_path / "plan", "--output", tmp_path / "o"
    )
    assert done.exit_code == 0 and "2 choices" in done.output
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == [PLAN_FILE, MANIFEST, "tune.json"]
    header, rest = (tmp_path / "o" / PLAN_FILE).read_bytes().split(b"\n", 1)
    decisions = before.split(b"\n", 1)[1]
    assert json.loads(header)["llvm_major"] == 22 and rest.startswith(decisions)
    assert [json.loads(line)["variant"] for line in rest[len(decisions) :].splitlines()] == ["heuristic", "heuristic"]
    assert (tmp_path / "plan" / PLAN_FILE).read_bytes() == before


def test_plan_may_have_choices_only(tmp_path: Path) -> None:
    (tmp_path / "choices").write_text(choice(1, "policy"))
    done = run("add-choices", "--choices", tmp_path / "choices", "--output", tmp_path / "plan", "--llvm-major", 22)
    assert done.exit_code == 0
    header = json.loads((tmp_path / "plan" / PLAN_FILE).read_bytes().split(b"\n", 1)[0])
    assert header["modules"] == 0 and header["llvm_major"] == 22 and "choices" in header


@pytest.mark.parametrize(("content", "problem"), [("{}\n", "line 1 of "), ("", "choices has no choices")])
def test_refused_choices_publish_nothing(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "choices").write_text(content)
    done = run("add-choices", "--choices", tmp_path / "choices", "--output", tmp_path / "plan")
    assert isinstance(done.exception, UserError) and problem in done.exception.problem
    assert [path.name for path in tmp_path.iterdir()] == ["choices"]


@pytest.mark.parametrize("words", [[], ["--output", "plan"], ["--corpus", "c", "--output", "plan"]], ids=" ".join)
def test_search_names_the_missing_options(words: list[str]) -> None:
    done = run(*words)
    missing = [name for name in ("--corpus", "--toolchain", "--output") if name not in words]
    assert done.exit_code == 2 and f"Missing option {', '.join(missing)}." in done.output
