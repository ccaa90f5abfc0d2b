"""Tests that the compiled pipelines in the repository are up to date, and of properties of their tasks."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from components.platform.launcher.registry import STEPS
from components.toolchain.__main__ import main
from pipelines.parameters.tables import SDK, TABLES, TRAINING
from pipelines.smoke.rows import TABLE_STEP
from pipelines.spec import COMPILED, COMPILED_PIPELINES, load_spec
from pipelines.spec_changes import dags
from tests.support.commands import run_command

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines")


@pytest.mark.parametrize("name", COMPILED_PIPELINES)
def test_compiled_pipeline_is_up_to_date(name: str, tmp_path: Path) -> None:
    assert (ENVIRONMENT / "bin" / "python").is_file(), "make setup-pipelines"
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--output", str(tmp_path / "p.yaml")]
    command += [] if COMPILED_PIPELINES[name] == COMPILED else ["--pipeline", name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "p.yaml").read_text()
    assert made == COMPILED_PIPELINES[name].read_text(), "run make pipeline, and commit what it writes"
    assert {path.stem for path in COMPILED.parent.iterdir()} == set(COMPILED_PIPELINES)


KFPS_MANIFESTS = """
import sys
from kfp import compiler
from pipelines.smoke.component import smoke_pipeline
options = compiler.KubernetesManifestOptions(
    pipeline_version_name="smoke-7", namespace="kubeflow", include_pipeline_manifest=True)
compiler.Compiler().compile(
    smoke_pipeline, sys.argv[1], kubernetes_manifest_options=options, kubernetes_manifest_format=True)
"""


def test_manifests_are_those_of_kfps_compiler_with_digests(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "kfp.yaml", tmp_path / "ours.yaml"
    subprocess.run([ENVIRONMENT / "bin" / "python", "-c", KFPS_MANIFESTS, theirs], cwd=ROOT, check=True, timeout=300)
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--pipeline", "smoke", "--output", str(ours)]
    images = ",".join(f"{name}=r.example.com/mlgo-{name}@sha256:{'1' * 64}" for name in ("toolchain", "training"))
    command += ["--version-name", "smoke-7", "--namespace", "kubeflow", "--images", images]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    expected, documents = (list(yaml.safe_load_all(path.read_text())) for path in (theirs, ours))
    named, spec = (one[-1]["spec"].pop("pipelineSpec") for one in (expected, documents))
    assert documents == expected
    executors = spec["deploymentSpec"]["executors"].values()
    assert {executor["container"]["image"].partition("@")[2] for executor in executors} == {f"sha256:{'1' * 64}"}
    # Images, and the descriptions and choices of parameters, are added to what kfp writes.
    assert spec.keys() == named.keys() and spec["components"] == named["components"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--version-name", "v"], "--version-name needs --images"),
        (["--namespace", "kubeflow"], "--namespace needs --version-name"),
        (["--images", "i", "--version-name", "V_1"], "--version-name V_1: use up to 63 of a-z, 0-9 and -"),
    ],
)
def test_manifests_that_cannot_be_applied_are_refused(options: list[str], said: str, tmp_path: Path) -> None:
    done = run_command("pipelines", "pipeline", "compile", "--output", tmp_path / "p.yaml", *options)
    assert done.returncode == 2 and said in done.stderr and not list(tmp_path.iterdir())


def test_missing_kfp_is_reported_with_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--output", str(tmp_path / "p.yaml")]
    environment = {"MLGO_PIPELINES_PYTHON": str(tmp_path / "nowhere"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
    assert done.returncode == 1 and "mlgo setup pipelines" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "p.yaml").exists()


@pytest.mark.parametrize("pipeline", TABLES)
def test_signature_of_pipeline_agrees_with_the_table(pipeline: str) -> None:
    definitions = load_spec(COMPILED_PIPELINES[pipeline])["root"]["inputDefinitions"]["parameters"]
    written = {
        name: (one.get("defaultValue", ""), one["description"], tuple(one.get("literals", ())))
        for name, one in definitions.items()
    }
    assert written == {one.name: (one.default, one.describe(), one.literals) for one in TABLES[pipeline]}
    assert all(not one.literals or one.default in one.literals for one in TABLES[pipeline])


def test_description_of_parameter_names_every_choice() -> None:
    parameters = load_spec(COMPILED)["root"]["inputDefinitions"]["parameters"]
    choices = {
        parameter.name: parameter.type.choices for parameter in TRAINING if isinstance(parameter.type, click.Choice)
    }
    assert {"preset", "problem", "features"} <= set(choices)
    for name, allowed in choices.items():
        assert all(f"`{choice}`" in parameters[name]["description"] for choice in allowed), name
    assert all(parameter["description"].endswith(".") for parameter in parameters.values())


def test_parameters_of_sdk_pipeline_are_options_of_its_step() -> None:
    parameters = load_spec(COMPILED_PIPELINES["sdk"])["root"]["inputDefinitions"]["parameters"]
    assert parameters.keys() == {one.name for one in SDK}
    assert all(parameter["description"].endswith(".") for parameter in parameters.values())
    options = {option for parameter in main.params for option in parameter.opts}
    assert {f"--{name.replace('_', '-')}" for name in parameters} <= options
    _task, _component, container = tasks("sdk")["toolchain-sdk"]
    arguments = container["args"][container["args"].index("toolchain") + 1 :]
    assert set(arguments[::2]) == {"--mode", "--output", *(f"--{name.replace('_', '-')}" for name in parameters)}


WORDS = {step.module.removeprefix("components."): step.module for step in STEPS.values()}
"""The step's word in the launcher's command line -> its package."""


@pytest.mark.parametrize("pipeline", COMPILED_PIPELINES)
def test_options_of_tasks_are_those_of_their_commands(pipeline: str) -> None:
    """A component may pass an option that its step does not have."""
    checked = set()
    for name, (_task, _component, container) in tasks(pipeline).items():
        arguments = [argument for argument in container["args"] if isinstance(argument, str)]
        starts = [i for i in range(1, len(arguments)) if arguments[i] in WORDS and arguments[i - 1][:2] != "--"]
        if not starts:  # the exit handler, which runs without the launcher
            continue
        module = importlib.import_module(f"{WORDS[arguments[starts[0]]]}.__main__")
        command = module.promote if module.__name__.startswith("pipelines.retrain") else module.main
        arguments = arguments[starts[0] + 1 :]
        # The group `evaluation` runs `run` if no command is named.
        while isinstance(command, click.Group) and {arguments[0], "run"} & command.commands.keys():
            command = command.commands[arguments.pop(0) if arguments[0] in command.commands else "run"]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("--") and argument != "--"} <= options, name
        checked.add(name)
    assert len(checked) == len(tasks(pipeline)) - 1


def test_sdk_step_has_processors_memory_and_time_of_an_llvm_build() -> None:
    _task, component, container = tasks("sdk")["toolchain-sdk"]
    resources = container["resources"]
    assert resources["cpuLimit"] >= 32 and resources["memoryLimit"] / resources["cpuLimit"] >= 2
    assert int(container["args"][container["args"].index("--time-limit-s") + 1]) >= 12 * 3600
    assert container["image"] == "mlgo-sdk" and component["outputDefinitions"]["artifacts"].keys() == {"sdk"}


def test_smoke_test_fits_small_nodes_and_tries_every_image_that_trains() -> None:
    smoke_tasks = tasks("smoke")
    images = {container["image"] for _task, _component, container in smoke_tasks.values()}
    assert images == {"mlgo-toolchain", "mlgo-training"}
    for _task, _component, container in smoke_tasks.values():
        assert container["resources"]["cpuRequest"] <= 0.5 and container["resources"]["memoryRequest"] <= 1
    (report,) = (task for name, (task, *_rest) in smoke_tasks.items() if name == TABLE_STEP)
    assert set(report["dependentTasks"]) == {"check-retry"} and len(report["inputs"]["artifacts"]) == 4


def tasks(pipeline: str) -> dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Return the tasks of all DAGs of a compiled pipeline: name -> (task, component, container)."""
    spec = load_spec(COMPILED_PIPELINES[pipeline])
    components = spec["components"]
    dags = [spec["root"]["dag"], *(component["dag"] for component in components.values() if "dag" in component)]
    by_name = {name: task for dag in dags for name, task in dag["tasks"].items()}
    made = {name: (task, components[task["componentRef"]["name"]]) for name, task in by_name.items()}
    executors = spec["deploymentSpec"]["executors"]
    return {
        name: (task, component, executors[component["executorLabel"]]["container"])
        for name, (task, component) in made.items()
        if "dag" not in component
    }


TASKS = tasks("smoke") | tasks("sdk") | tasks("shrink") | tasks("training")


@pytest.mark.parametrize("name", TASKS)
def test_each_task_has_requests_limits_retries_and_timeout(name: str) -> None:
    task, _component, container = TASKS[name]
    assert len(TASKS) == 22
    resources = container["resources"]
    for kind in ("Cpu", "Memory"):
        assert 0 < resources[f"{kind.lower()}Request"] <= resources[f"{kind.lower()}Limit"]
        assert resources[f"resource{kind}Request"] and resources[f"resource{kind}Limit"]
    if name != "finish":  # whose only request has one
        assert _time_limit_s(container) > 0
    retry = task["retryPolicy"]
    assert retry["maxRetryCount"] >= 1 and retry["backoffFactor"] > 1


def _time_limit_s(container: dict[str, Any]) -> int:
    args = container["args"]
    return int(args[args.index("--time-limit-s") + 1]) if "--time-limit-s" in args else 0


@pytest.mark.parametrize("name", TASKS)
def test_deadline_of_all_attempts_leaves_time_for_each(name: str) -> None:
    """Argo's backoff.maxDuration is the deadline of all attempts together, from the start of the first one."""
    task, _component, container = TASKS[name]
    retry = task["retryPolicy"]
    attempts, pause_s = 1 + retry["maxRetryCount"], int(retry["backoffDuration"].removesuffix("s"))
    pauses_s = sum(pause_s * retry["backoffFactor"] ** n for n in range(attempts - 1))
    deadline_s = int(retry["backoffMaxDuration"].removesuffix("s"))
    assert deadline_s > attempts * _time_limit_s(container) + pauses_s + 3600
    assert pause_s <= 10, "it also delays the news of a failure"


def test_names_in_kfps_page_say_what_they_are_of() -> None:
    """KFP shows the names of artifacts and of groups of tasks; those that its compiler makes up end in a number."""
    metrics = [
        artifact
        for _task, component, _container in TASKS.values()
        for artifact, definition in component.get("outputDefinitions", {}).get("artifacts", {}).items()
        if definition["artifactType"]["schemaTitle"] == "system.Metrics"
    ]
    assert len(metrics) == len(set(metrics)) == 9 and "metrics" not in metrics
    for pipeline in COMPILED_PIPELINES.values():
        for tasks_of_dag in dags(load_spec(pipeline)):
            for task in tasks_of_dag.values():
                assert not task["taskInfo"]["name"][-1].isdigit(), task["taskInfo"]


@pytest.mark.parametrize("name", TASKS)
def test_task_is_cached_only_if_parameters_determine_result(name: str) -> None:
    """The content behind a path or URI may change while its name stays, and a notification is not a result."""
    task, component, _container = TASKS[name]
    parameters = set(component.get("inputDefinitions", {}).get("parameters", {}))
    about_the_present = {"finish", *tasks("smoke")}
    sound = name not in about_the_present and not parameters & {
        "recipe",
        "source",
        "existing",
        "compile_commands",
        "llvm_source",
        "sdk",
        "clang",
        "ir2vec_vocab",
        "oversample_modules",
        "extra_policy",
        "start_from",
        "retrain_state",
        "state",
        "status",
    }
    assert task["cachingOptions"].get("enableCache", False) is sound


def test_compiled_package_names_images_by_digest(tmp_path: Path) -> None:
    digests = {"toolchain": "1", "training": "2"}
    references = {name: f"r.example.com/mlgo-{name}@sha256:{digit * 64}" for name, digit in digests.items()}
    images = ",".join(f"{name}={reference}" for name, reference in references.items())
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--output", str(tmp_path / "p.yaml")]
    subprocess.run([*command, "--images", images], check=True, cwd=ROOT, timeout=300)
    spec = load_spec(tmp_path / "p.yaml")
    used = {executor["container"]["image"] for executor in spec["deploymentSpec"]["executors"].values()}
    assert used == set(references.values())
    one = images.partition(",")[0]
    done = subprocess.run([*command, "--images", one], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 1 and "the image training has no digest in a registry" in done.stderr
