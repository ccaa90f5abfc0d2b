"""Tests that a run is refused at its start if a step cannot write where it will."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.kinds import Kind
from components.platform.storage.manifest import MANIFEST
from pipelines.local.run_locally import local_steps
from pipelines.local.runners.process import ProcessRunner
from pipelines.local.scheduler import run_pipeline
from pipelines.local.step import RunLocations, Step
from pipelines.local.step_cache import StepRecords
from pipelines.local.targets import _KINDS, require_free_targets, require_inputs_kept
from pipelines.parameters.check import run_parameters
from pipelines.parameters.parameter import as_option
from pipelines.spec import COMPILED, COMPILED_PIPELINES

CORPUS = Step("corpus", "mlgo-toolchain", "components.corpus", ("true",), (), "corpus")
PPO = Step("ppo", "mlgo-training", "components.ppo", ("true",), (), "policy", work="ppo")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def check(run: Path, *steps: Step, artifacts: Path | None = None) -> None:
    records = StepRecords(run, RunLocations(str(artifacts or run), str(run / ".files")))
    require_free_targets(steps or (CORPUS, PPO), records)


def make(directory: Path, kind: Kind) -> Path:
    with publish(directory, kind) as partial:
        (partial / "content").write_text(kind)
    return directory


@pytest.mark.parametrize("name", ["main.c", "src", "CMakeLists.txt"])
def test_directory_with_files_of_a_user_is_refused(run: Path, name: str) -> None:
    (run / name).mkdir(parents=True)
    with pytest.raises(UserError, match=f"is not the directory of an earlier run and is not empty: it has {name}\n"):
        check(run)
    (run / ".steps").mkdir()
    check(run)


@pytest.mark.parametrize("name", ["run.log", "lost+found", ".gitignore", "logs", "ppo"])
def test_directory_with_nothing_but_the_log_of_the_command_or_folders_of_a_run_is_taken(run: Path, name: str) -> None:
    check(run)
    run.mkdir()
    check(run)
    (run / name).mkdir()
    check(run)
    assert [path.name for path in run.iterdir()] == [name]


def test_artifacts_of_a_run_that_was_copied_without_its_records_are_taken(run: Path) -> None:
    make(run / "corpus", "corpus")
    check(run)


@pytest.mark.parametrize("name", ["policy", "ppo", "logs", ".files", ".steps"])
def test_file_where_a_later_step_writes_is_found_first(run: Path, name: str) -> None:
    run.mkdir()
    (run / name).write_text("mine")
    runner = ProcessRunner()
    with pytest.raises(UserError, match=f"{re.escape(name)} exists and is not a directory"):
        run_pipeline([CORPUS, PPO], run, runner)
    assert (run / name).read_text() == "mine" and [path.name for path in run.iterdir()] == [name]


@pytest.mark.parametrize(
    ("other", "why"),
    [("trace", "is a trace, and would be replaced by a policy"), ("", "has no manifest.json")],
)
def test_other_content_where_a_later_step_writes_is_found_first(run: Path, other: Kind | str, why: str) -> None:
    if other:
        make(run / "policy", other)  # type: ignore[arg-type]
    else:
        (run / "policy").mkdir(parents=True)
        (run / "policy" / "notes").write_text("mine")
    with pytest.raises(UserError, match=why):
        check(run)
    with pytest.raises(UserError, match=why):
        check(run.with_name("other"), artifacts=run)


def test_artifact_that_a_step_may_reuse_is_not_checked(run: Path) -> None:
    """A user keeps notes in it."""
    records = StepRecords(run, RunLocations(str(run), str(run / ".files")))
    made = make(run / "policy", "policy")
    (made / "notes").write_text("mine")
    with pytest.raises(UserError, match="would be lost: notes"):
        check(run)
    records.finished(PPO, "key", 1.0)
    check(run)
    (made / MANIFEST).unlink()
    with pytest.raises(UserError, match=r"has no manifest\.json"):
        check(run)


def test_step_of_another_pipeline_may_replace_any_kind(run: Path) -> None:
    step = Step("other", "image", "components.platform.launcher", ("true",), (), "other")
    make(run / "other", "trace")
    check(run, step)
    (run / "other" / "notes").write_text("mine")
    with pytest.raises(UserError, match="not part of the trace and would be lost: notes"):
        check(run, step)


@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        ({"start_from": "{}/policy"}, True),
        ({"start_from": "{}/link"}, True),
        ({"corpus": "{}/corpus/part"}, True),
        ({"start_from": "pretrained", "recipe": "demo", "corpus": ""}, False),
        ({"start_from": "{}/policy2", "recipe": "{}/recipe.yaml"}, False),
        ({"start_from": "gs://bucket/run/policy"}, False),
    ],
)
def test_parameter_that_the_run_would_replace_is_refused(run: Path, parameters: dict[str, str], refused: bool) -> None:
    run.mkdir()
    (run / "policy").mkdir()
    (run / "link").symlink_to("policy")
    values = {name: value.format(run) for name, value in parameters.items()}
    locations = RunLocations(str(run), str(run / ".files"))
    if not refused:
        require_inputs_kept(values, [CORPUS, PPO], locations, as_option)
        return
    with pytest.raises(UserError, match="which this run would replace"):
        require_inputs_kept(values, [CORPUS, PPO], locations, as_option)


def test_kind_of_each_output_of_our_pipelines_is_known(tmp_path: Path) -> None:
    parameters = run_parameters({"recipe": Path(__file__), "tune_minutes": 1.0})
    state = {"retrain_state": str(tmp_path / "state.json"), "recipe": "tiny"}
    steps = [
        *local_steps(COMPILED, parameters | state),
        *local_steps(COMPILED_PIPELINES["sdk"], {}),
        *local_steps(COMPILED_PIPELINES["smoke"], {}),
    ]
    outputs = {step.output for step in steps} - {""}
    assert {"plan", "promotion", "refusal", "sdk", "table"} <= outputs <= _KINDS.keys()
