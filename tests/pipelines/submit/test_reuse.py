"""Tests of what a server reuses of earlier runs, with a cache that identifies steps as KFP's driver does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.cloud import storage

from components.platform.launcher.__main__ import main
from pipelines.spec import COMPILED, COMPILED_PIPELINES, load_spec, parameter_values
from pipelines.spec_changes import dags, without_cache
from pipelines.submit.reuse import reuse_by_content
from tests.support.buckets import local_bucket

SPEC = load_spec(COMPILED)
PREPARATION = {"toolchain-training", "corpus", "trace", "vocab", "warmstart", "ppo", "evaluation"}
"""Steps of every run that only make artifacts."""


class KfpCache:
    """The results on a KFP server, by a key as of backend/src/v2/cacheutils/cache.go."""

    def __init__(self) -> None:
        self._results: dict[str, str] = {}
        self._made = 0

    def run(self, spec: dict[str, Any], values: dict[str, Any]) -> set[str]:
        """Run a pipeline's steps up to the evaluation; return those whose results are reused."""
        tasks = {name: task for dag in dags(spec) for name, task in dag.items()}
        artifacts: dict[str, str] = {}
        reused = set()
        for name in ("toolchain-training", "corpus", "trace", "vocab", "warmstart", "ppo", "evaluation"):
            task, inputs = tasks[name], tasks[name]["inputs"]
            component = spec["components"][task["componentRef"]["name"]]
            container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
            parameters = {
                key: source["runtimeValue"]["constant"]
                if "runtimeValue" in source
                else values[source["componentInputParameter"].removeprefix("pipelinechannel--")]
                for key, source in inputs.get("parameters", {}).items()
            }
            producers = {
                key: artifacts[source["taskOutputArtifact"]["producerTask"]]
                for key, source in inputs.get("artifacts", {}).items()
            }
            key = json.dumps([producers, parameters, container["command"], container["args"], container["image"]])
            if task["cachingOptions"].get("enableCache") and key in self._results:
                artifacts[name] = self._results[key]
                reused.add(name)
            else:
                self._made += 1
                self._results[key] = artifacts[name] = f"artifact {self._made}"
        return reused


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[storage.Bucket]:
    with local_bucket("there", monkeypatch, tmp_path / "cache"):
        yield storage.Client.create_anonymous_client().bucket("there")


def values_of(**values: str) -> dict[str, Any]:
    return parameter_values(SPEC, values)


def test_repeated_run_reuses_every_step_that_only_makes_artifacts() -> None:
    cache, values = KfpCache(), values_of(recipe="demo")
    first, reasons = reuse_by_content(SPEC, values)
    assert reasons == [] and cache.run(first, values) == set()
    assert cache.run(reuse_by_content(SPEC, values)[0], values) == PREPARATION
    other = values_of(recipe="demo", seed="2")
    assert cache.run(reuse_by_content(SPEC, other)[0], other) == {"toolchain-training", "corpus", "trace", "vocab"}


def test_changed_content_of_a_uri_is_not_reused(bucket: storage.Bucket) -> None:
    cache, values = KfpCache(), values_of(corpus="gs://there/corpus", sdk="gs://there/sdk")
    bucket.blob("corpus/a.bc").upload_from_string("a")
    bucket.blob("sdk/clang").upload_from_string("1")
    for changed, reused in (
        (None, set()),
        (None, PREPARATION),
        ("corpus/a.bc", {"toolchain-training"}),
        ("sdk/clang", {"corpus"}),
    ):
        if changed:
            bucket.blob(changed).upload_from_string(f"new {changed}")
        spec, reasons = reuse_by_content(SPEC, values)
        assert reasons == [] and cache.run(spec, values) == reused, changed


@pytest.mark.parametrize(
    ("values", "why", "fresh"),
    [
        ({"corpus": "/volume/corpus"}, "corpus is /volume/corpus, a path that only the steps see", {"corpus"}),
        ({"recipe": "/volume/own.yaml"}, "recipe is /volume/own.yaml", {"corpus"}),
        ({"recipe": "demo", "clang": "/opt/clang"}, "clang is /opt/clang", {"toolchain-training"}),
        ({"compile_commands": "gs://there/c.json"}, "compile_commands names files that only the step sees", {"corpus"}),
        ({"recipe": "gs://there/own.yaml"}, "recipe has a source tree that only the step sees", {"corpus"}),
        ({"corpus": "gs://there/nothing"}, "corpus cannot be read here: gs://there/nothing does not exist", {"corpus"}),
        ({"corpus": "gs://forbidden/corpus"}, "corpus cannot be read here: ", {"corpus"}),
    ],
)
def test_step_whose_content_is_unknown_is_not_reused(
    bucket: storage.Bucket, values: dict[str, str], why: str, fresh: set[str]
) -> None:
    bucket.blob("own.yaml").upload_from_string("name: p\nsource: {path: ../p}\ncmake: {}\n")
    bucket.blob("c.json").upload_from_string("[]")
    spec, reasons = reuse_by_content(SPEC, values_of(**values))
    assert any(reason.startswith(why) for reason in reasons), reasons
    cached = {
        name for dag in dags(spec) for name, task in dag.items() if task.get("cachingOptions", {}).get("enableCache")
    }
    assert not cached & fresh and cached >= {"trace", "vocab", "warmstart", "ppo"}


def test_steps_that_change_something_are_never_reused() -> None:
    spec, _reasons = reuse_by_content(SPEC, values_of(recipe="demo"))
    tasks = {name: task for dag in dags(spec) for name, task in dag.items()}
    for name in ("promote", "record-refusal", "finish"):
        assert not tasks[name]["cachingOptions"].get("enableCache"), name
    sdk = load_spec(COMPILED_PIPELINES["sdk"])
    built, reasons = reuse_by_content(sdk, parameter_values(sdk, {}))
    assert "toolchain-sdk': {'cachingOptions': {'enableCache': True" in str(built) and reasons == []


def test_other_pipelines_and_the_compiled_one_are_not_changed() -> None:
    before = json.dumps(SPEC)
    reuse_by_content(SPEC, values_of(recipe="demo"))
    assert json.dumps(SPEC) == before
    other = {**SPEC, "pipelineInfo": {"name": "mine"}}
    assert reuse_by_content(other, values_of(recipe="demo")) == (other, [])
    assert all(task["cachingOptions"] == {} for dag in dags(without_cache(SPEC)) for task in dag.values())


def test_launcher_takes_the_digest_and_runs_the_same_step() -> None:
    spec, _reasons = reuse_by_content(SPEC, values_of(recipe="demo"))
    executors = spec["deploymentSpec"]["executors"]
    changed = {name for name, before in SPEC["deploymentSpec"]["executors"].items() if executors[name] != before}
    assert changed == {"exec-corpus", "exec-release-report", "exec-tune"}, "the only steps that read the recipe"
    for name in changed:
        contexts = [
            main.make_context(
                "launcher", list(pipeline["deploymentSpec"]["executors"][name]["container"]["args"])
            ).params
            for pipeline in (SPEC, spec)
        ]
        assert len(contexts[1].pop("content")) == 64 and contexts[0].pop("content") == ""
        assert contexts[0] == contexts[1] and contexts[0]["step"] in ("corpus", "evaluation", "tune")
