"""Tests of our compiled pipeline on this machine: it is consistent, and every step accepts its arguments."""

from __future__ import annotations

import importlib
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from components.platform.console import PRESETS
from components.platform.errors import UserError
from components.platform.launcher.__main__ import drop_empty_options
from components.platform.storage import digest, publish
from components.platform.storage.uri import ObjectUri, mirror
from pipelines.cli.pipeline import local_parameters
from pipelines.local.run_locally import local_steps
from pipelines.local.step import RunLocations, Step
from pipelines.parameters.check import run_parameters
from pipelines.retrain.state import Deployed, load_state, save_state
from pipelines.spec import COMPILED
from tests.support.buckets import put_object
from tests.support.commands import run_command

ROOT = Path(__file__).parents[3]
ROLES = ("trained", "start", "pretrained", "none")
"""Values of the evaluation's output `release_policy`."""


def source(tmp_path: Path, kind: str) -> dict[str, Any]:
    """Return the options for one of the three sources of code."""
    if kind == "recipe":
        return {"recipe": ROOT / "components" / "core" / "projects" / "recipes" / "tiny.yaml"}
    if kind == "corpus":
        return {"corpus": tmp_path}
    (tmp_path / "compile_commands.json").write_text("[]")
    return {"compile_commands": tmp_path / "compile_commands.json"}


def steps(tmp_path: Path, preset: str = "demo", kind: str = "recipe", **more: Any) -> tuple[Step, ...]:
    return local_steps(COMPILED, run_parameters({"preset": preset, **source(tmp_path, kind), **more}))


def one(tmp_path: Path, name: str, **more: Any) -> Step:
    (step,) = (step for step in steps(tmp_path, **more) if step.name == name)
    return step


def value(step: Step, flag: str) -> str:
    return step.arguments[step.arguments.index(flag) + 1]


def test_every_artifact_read_is_written_by_a_step(tmp_path: Path) -> None:
    made = {step.output for step in steps(tmp_path)} - {""}
    assert made == {
        "training",
        "corpus",
        "trace",
        "vocab",
        "warmstart",
        "policy",
        "release",
        "evaluation",
        "release_policy",
        "release_report",
    }
    for step in steps(tmp_path):
        assert set(step.inputs.values()) <= made, step.name
    assert one(tmp_path, "ppo").work == "ppo" and one(tmp_path, "ppo").extends == ("--minutes",)


@pytest.mark.filterwarnings("ignore:.protected_args.")  # the name of what replaces it comes with Click 9
@pytest.mark.parametrize("kind", ["recipe", "corpus", "compile_commands"])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_step_accepts_its_arguments(tmp_path: Path, preset: str, kind: str) -> None:
    locations = RunLocations(str(tmp_path / "run"), str(tmp_path / "files"))
    for step in steps(tmp_path, preset, kind):
        if step.always:
            continue
        launcher = importlib.import_module("components.platform.launcher.__main__").main
        with launcher.make_context("launcher", step.argv(locations)[3:]) as context:
            assert context.params["step"] == step.module.split(".")[1]
            arguments = drop_empty_options(context.params["arguments"])
        command: Any = importlib.import_module(f"{step.module}.__main__").main
        with command.make_context(step.module, arguments) as context:
            # Groups parse the subcommand's part only when they are invoked.
            while isinstance(command, click.Group) and context.protected_args:
                name, command, rest = command.resolve_command(context, [*context.protected_args, *context.args])
                assert command is not None
                context = command.make_context(name, rest, parent=context)
        assert context.params["output"] == tmp_path / "run" / step.output


def test_release_steps_depend_on_the_verdict(tmp_path: Path) -> None:
    for name in ("select-policy", "toolchain-release", "release-report"):
        (condition,) = one(tmp_path, name).conditions
        assert (condition.step, condition.parameter) == ("evaluation", "release_policy")
        assert [condition.holds(chosen) for chosen in ROLES] == [True, True, True, False]


def test_release_clang_and_its_report_have_the_selected_policy(tmp_path: Path) -> None:
    assert one(tmp_path, "select-policy").output == "release_policy"
    for name in ("toolchain-release", "release-report"):
        assert one(tmp_path, name).inputs["policy"] == "release_policy"


def test_only_a_trained_policy_is_promoted(tmp_path: Path) -> None:
    """A start or a pretrained policy that the release clang embeds in its place is recorded as a refusal."""
    parameters = {"recipe": "demo", "retrain_state": str(tmp_path / "state.json")}
    by_name = {step.name: step for step in local_steps(COMPILED, parameters)}
    for name, expected in (("promote", [True, False, False, False]), ("record-refusal", [False, True, True, True])):
        conditions = by_name[name].conditions
        assert {condition.parameter for condition in conditions} == {"release_policy"}
        assert [all(condition.holds(chosen) for condition in conditions) for chosen in ROLES] == expected
        assert by_name[name].inputs["policy"] == "policy"


def test_corpus_is_built_by_clang_of_the_runs_llvm(tmp_path: Path) -> None:
    assert value(one(tmp_path, "corpus", llvm_major=19), "--llvm-major") == "19"


@pytest.mark.parametrize("parameter", ["llvm_source", "sdk"])
def test_content_behind_local_paths_is_part_of_the_cache_inputs(parameter: str, tmp_path: Path) -> None:
    """These are the recipe of the corpus and of whole builds, and the LLVM that the clangs are built from."""
    recipe = tmp_path / "r.yaml"
    tree = tmp_path / "llvm"
    tree.mkdir()
    seen = []
    for number in ("1", "11"):
        recipe.write_text(f"name: p{number}\nsource: {{deb: pp}}\ncmake: {{}}\n")
        (tree / "driver.cpp").write_text(number)
        parameters = run_parameters({"recipe": recipe}) | {parameter: str(tree)}
        seen.append({step.name: step.cache_inputs for step in local_steps(COMPILED, parameters)})
    for name in ("toolchain-training", "corpus", "toolchain-release", "release-report"):
        assert seen[0][name] != seen[1][name], name


def test_content_behind_uris_is_part_of_the_cache_inputs(storage_uri: ObjectUri, tmp_path: Path) -> None:
    """Covers a recipe and a build with the files that they name, a retraining state, an artifact, a plain folder."""
    tree, made = tmp_path / "tree", tmp_path / "a.o"
    tree.mkdir()
    recipe = f"name: mine\nsource: {{path: {tree}}}\ncmake: {{}}\n"
    database = json.dumps([{"directory": str(tmp_path), "file": "a.c", "command": "cc -c a.c -o a.o"}])
    folder = {"corpus_description.json": "{}", "a.bc": "bitcode"}
    for name, text in {"r.yaml": recipe, "cc.json": database, "state.json": "[]", **folder}.items():
        put(storage_uri / "in" / name, text)

    def cache_inputs(**parameters: object) -> dict[str, tuple[str, ...]]:
        return {
            step.name: step.cache_inputs for step in local_steps(COMPILED, {k: str(v) for k, v in parameters.items()})
        }

    def changes(step: str, change: Callable[[], object], **parameters: object) -> bool:
        before = cache_inputs(**parameters)[step]
        assert before and before == cache_inputs(**parameters)[step]
        change()
        return before != cache_inputs(**parameters)[step]

    here = storage_uri / "in"
    for step in ("corpus", "release-report"):
        edited = recipe.replace("mine", f"{step}-of-mine")
        assert changes(step, lambda text=edited: put(here / "r.yaml", text), recipe=here / "r.yaml")  # type: ignore[misc]
        assert changes(step, lambda: (tree / secrets.token_hex()).touch(), recipe=here / "r.yaml")
    assert changes("corpus", lambda: made.write_text("object"), compile_commands=here / "cc.json")
    assert changes("corpus", lambda: put(here / "cc.json", "[]"), compile_commands=here / "cc.json")
    assert changes(
        "ppo", lambda: put(here / "state.json", '["a"]'), recipe="demo", oversample_modules=here / "state.json"
    )
    assert changes("corpus", lambda: put(here / "a.bc", "BITCODE"), corpus=here)
    assert not changes("corpus", lambda: put(storage_uri / "inside", "beside it"), corpus=here)
    with publish(mirror(storage_uri / "made"), "trace") as directory:
        (directory / "a.bc").write_text("1")
    assert cache_inputs(corpus=storage_uri / "made")["corpus"] == (digest(mirror(storage_uri / "made")),)
    with pytest.raises(UserError, match="does not exist"):
        cache_inputs(corpus=storage_uri / "nowhere")


def put(uri: ObjectUri, text: str) -> None:
    folder, _, name = uri.path.rpartition("/")
    put_object(replace(uri, path=folder), name, text)


def test_ppo_gets_budget_and_seed_of_the_run(tmp_path: Path) -> None:
    ppo = one(tmp_path, "ppo", train_minutes=3.5, seed=9)
    assert (value(ppo, "--minutes"), value(ppo, "--seed")) == ("3.5", "9")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--output", "gs://b/run", "--param", "recipe=tiny"), "--output gs://b/run: a run keeps"),
        (("--output", "{}/run", "--param", "recipe=tiny", "--pipeline-root", "s3://b/run"), "s3://b/run"),
        (("--output", "{}/run", "--param", "llvm_major=new"), "llvm_major is 'new'"),
        (("--output", "{}/run"), "none given"),
    ],
)
def test_invalid_run_is_refused_before_the_first_step(tmp_path: Path, arguments: tuple[str, ...], named: str) -> None:
    done = run_command("pipelines", "pipeline", "run", *(a.format(tmp_path) for a in arguments), timeout=60, cwd=ROOT)
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == [] and not (ROOT / "gs:").exists()


@pytest.mark.parametrize(
    ("param", "named"),
    [
        ("release_if=foo", "--param release_if=foo: 'foo' is not one of 'better', 'always'"),
        ("problem=foo", "--param problem=foo: 'foo' is not"),
        (
            "llvm_major=22",
            "Debian has no source package of LLVM 22\n.*llvm_source=git:llvmorg-22.*--param strategy=plugin",
        ),
        ("strategy=static", "--param strategy=static: 'static' is not one of 'sdk', 'plugin', 'external'"),
        ("ir2vec_vocab=random", "--param ir2vec_vocab=random: IR2Vec's embeddings need LLVM 22"),
        ("seed=-1", "--param seed=-1: -1 is not in the range"),
        ("train_minutes=abc", "--param train_minutes=abc: 'abc' is not a finite number"),
        ("workers=rayjob:4", "--param workers=rayjob:4: only a step in a Kubernetes cluster can start a RayJob"),
        ("minutes=3", "no parameter 'minutes'\n  remedy: .*it has .*train_minutes"),
        ("oversample_modules=/nowhere", "/nowhere does not exist"),
        ("extra_policy=/nowhere", "/nowhere does not exist"),
        ("extra_policy=/tmp", "/tmp is not a policy"),
        ("start_from=/nowhere", "/nowhere does not exist"),
        ("start_from=/tmp", "/tmp is not a policy"),
        ("retrain_state=/tmp", "'/tmp' is not a file name"),
    ],
)
def test_invalid_pipeline_parameter_is_refused(param: str, named: str) -> None:
    name, _equals, value = param.partition("=")
    with pytest.raises(UserError, match=named):
        local_steps(COMPILED, {"recipe": "tiny", name: value})


def test_vocabulary_of_embeddings_is_passed_on() -> None:
    parameters = {"recipe": "tiny", "strategy": "plugin", "llvm_major": "22", "features": "ir2vec"}
    with pytest.raises(UserError, match="/nowhere does not exist"):
        local_steps(COMPILED, parameters | {"ir2vec_vocab": "/nowhere"})
    made = {step.name: step for step in local_steps(COMPILED, parameters | {"ir2vec_vocab": "random"})}
    assert value(made["toolchain-training"], "--ir2vec-vocab") == "random"


def deployment(state_path: Path, policy: str, *regressed: str, decisions: int = 0) -> Path:
    """Write a state of retraining."""
    deployed = Deployed(
        policy, "d" * 64, "inlining", "19.1.7", ("a",), {}, 4.0, None, 0.0, regressed=regressed, comparisons=decisions
    )
    save_state(str(state_path), load_state(str(state_path)).promoted(deployed))
    return state_path


def test_steps_depend_on_what_a_state_deploys_but_not_on_its_decisions(tmp_path: Path) -> None:
    def cache_inputs(state_path: Path) -> dict[str, tuple[str, ...]]:
        steps = local_steps(COMPILED, {"recipe": "tiny", "retrain_state": str(state_path)})
        return {step.name: step.cache_inputs for step in steps if str(state_path) in step.arguments}

    missing = cache_inputs(tmp_path / "missing.json")
    assert missing == {name: ("nothing is deployed", "") for name in ("warmstart", "promote", "record-refusal")}
    first = cache_inputs(deployment(tmp_path / "a.json", "gs://b/p", "m1"))
    assert first == {name: ("d" * 64, "m1") for name in ("warmstart", "promote", "record-refusal")}
    assert cache_inputs(deployment(tmp_path / "b.json", "gs://b/p", "m1", decisions=3)) == first
    assert cache_inputs(deployment(tmp_path / "c.json", "gs://b/p", "m2")) != first


@pytest.mark.parametrize(
    ("state", "arguments", "named"),
    [
        ("state.json", (), "contains a policy that is or was deployed, and this run would overwrite it"),
        ("other.json", ("--runner", "docker"), "the step in a container that promotes cannot write this file"),
        ("gs://b/state.json", (), "is shared, but a policy on this machine is not"),
    ],
)
def test_run_that_could_not_promote_is_refused_before_the_first_step(
    tmp_path: Path, state: str, arguments: tuple[str, ...], named: str, gs_uri: ObjectUri
) -> None:
    deployment(tmp_path / "state.json", str(tmp_path / "run" / "policy"))
    location = state.replace("gs://b", str(gs_uri)) if "://" in state else str(tmp_path / state)
    options = (*arguments, "--param", "recipe=tiny", "--param", f"retrain_state={location}")
    done = run_command("pipelines", "pipeline", "run", "--output", tmp_path / "run", *options, timeout=60, cwd=ROOT)
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()


def test_state_that_does_not_exist_yet_is_an_absolute_path() -> None:
    assert local_parameters(("retrain_state=new.json",)) == {"retrain_state": os.path.abspath("new.json")}
    assert local_parameters(("retrain_state=gs://b/new.json",)) == {"retrain_state": "gs://b/new.json"}


def test_external_clang_is_found_by_relative_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps run in another working directory, and what the program contains decides whether they are reused."""
    program = tmp_path / "bin" / "clang-19"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(program.parent))
    for clang in ("bin/clang-19", "clang-19", str(program)):
        parameters = local_parameters(("recipe=tiny", "strategy=external", f"clang={clang}"))
        assert parameters["clang"] == str(program)
        assert local_steps(COMPILED, parameters)
    assert local_parameters(("clang=nowhere/clang",)) == {"clang": "nowhere/clang"}


def test_parameter_longer_than_a_path_is_accepted() -> None:
    assert len(local_parameters((f"gin_bindings={'x' * 5000}", f"corpus={'x' * 5000}"))["corpus"]) == 5000
