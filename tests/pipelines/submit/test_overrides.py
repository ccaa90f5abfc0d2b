"""Tests of overrides files."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.platform.errors import UserError
from pipelines.cluster.pod_requests import step_pods
from pipelines.spec import COMPILED, load_spec
from pipelines.spec_changes import dags
from pipelines.submit.kfp_package import notify_settings, platform_spec, security_settings, workflow_limits
from pipelines.submit.options import SubmitOptions
from pipelines.submit.overrides import override_for_kfp, with_small_requests
from pipelines.submit.overrides_document import KEYS, cpus, gigabytes, read_overrides
from pipelines.vertex.package import override_steps
from tests.support.schemas import PIPELINES_PYTHON

SPEC = load_spec(COMPILED)
EXAMPLE = Path(__file__).parents[3] / "docs" / "pipeline.md"


@pytest.fixture
def overrides(tmp_path: Path) -> Any:
    def read(text: str) -> Any:
        (tmp_path / "o.yaml").write_text(text)
        return read_overrides(tmp_path / "o.yaml")

    return read


def container(spec: dict[str, Any], task: str) -> dict[str, Any]:
    document: dict[str, Any] = spec["deploymentSpec"]["executors"][f"exec-{task}"]["container"]
    return document


def test_only_named_steps_change(overrides: Any) -> None:
    spec, pods = override_for_kfp(SPEC, overrides("vocab: {cpu: {request: 1, limit: 2}}"))
    assert pods == {} and container(spec, "vocab")["resources"]["resourceCpuLimit"] == "2"
    expected = copy.deepcopy(SPEC)
    expected["deploymentSpec"]["executors"]["exec-vocab"] = spec["deploymentSpec"]["executors"]["exec-vocab"]
    assert spec == expected and load_spec(COMPILED) == SPEC


def test_no_overrides_change_nothing() -> None:
    assert override_for_kfp(SPEC, {}) == (SPEC, {})


def test_key_of_step_replaces_key_of_default(overrides: Any) -> None:
    text = "default: {node_selector: {a: b}, memory: {limit: 32G}}\ntune: {node_selector: {c: d}}"
    spec, pods = override_for_kfp(SPEC, overrides(text))
    assert pods["exec-tune"]["nodeSelector"] == {"labels": {"c": "d"}}
    assert pods["exec-trace"]["nodeSelector"] == {"labels": {"a": "b"}}
    assert set(pods) == set(SPEC["deploymentSpec"]["executors"])
    assert {container(spec, t)["resources"]["memoryLimit"] for t in ("tune", "finish", "ppo")} == {32.0}


def test_machine_type_selects_nodes_of_kfp(overrides: Any) -> None:
    text = "default: {machine_type: n2-standard-4, node_selector: {pool: a}}\nppo: {machine_type: n2-highmem-16}"
    _spec, pods = override_for_kfp(SPEC, overrides(text))
    for task, machine in (("ppo", "n2-highmem-16"), ("vocab", "n2-standard-4")):
        labels = {"pool": "a", "node.kubernetes.io/instance-type": machine}
        assert pods[f"exec-{task}"] == {"nodeSelector": {"labels": labels}}


@pytest.mark.parametrize(
    ("text", "named", "remedy"),
    [
        ("ppo: {gpu: 1}", "ppo: Object contains unknown field `gpu`", "cpu, memory, accelerator"),
        ("ppo: {cpu: {max: 1}}", "unknown field `max` - at `$.cpu`", "cpu, memory"),
        ("ppo: {cpu: 4}", "Expected `object", "cpu, memory"),
        ("ppo: {cpu: {}}", "ppo: cpu has neither request nor limit", "limit"),
        ("ppo: {cpu: {limit: 4G}}", "ppo: cpu: limit: '4G' is no number of CPUs", "docs/pipeline.md"),
        ("ppo: {cpu: {limit: 0}}", "is no number of CPUs", "docs/pipeline.md"),
        ("ppo: {cpu: {limit: true}}", "got `bool` - at `$.cpu.limit`", "docs/pipeline.md"),
        ("ppo: {memory: {limit: 8}}", "ppo: memory: limit: 8 is no amount of memory with a unit", "docs/pipeline.md"),
        ("ppo: {memory: {limit: 8K}}", "is no amount of memory with a unit", "docs/pipeline.md"),
        ("ppo: {accelerator: {type: x/y, count: 0}}", "Expected `int` >= 1", "docs/pipeline.md"),
        ("ppo: {node_selector: {spot: true}}", "Expected `str`, got `bool`", "docs/pipeline.md"),
        ("ppo: {node_selector: {a b: c}}", "node_selector a b: 'c' is no label", "kubectl get nodes"),
        ("ppo: {tolerations: [{value: x}]}", "without a key, the operator must be Exists", "kubectl"),
        ("ppo: {tolerations: [{key: a, operator: Exists, value: x}]}", "the operator Exists has no value", "kubectl"),
        ("ppo: {tolerations: [{key: a, operator: In}]}", "Invalid enum value 'In'", "docs/pipeline.md"),
        ("ppo: {tolerations: [{key: a, toleration_seconds: 1}]}", "needs the effect NoExecute", "kubectl"),
        ("ppo: {volumes: [{pvc: a}]}", "missing required field `mount_path`", "docs/pipeline.md"),
        ("ppo: {volumes: [{pvc: A, mount_path: /a}]}", "'A' is no name of a claim", "kubectl get pvc"),
        ("ppo: {volumes: [{pvc: a, mount_path: a}]}", "mount_path 'a' is no path", "/cache"),
        ("ppo: {volumes: [{pvc: a, mount_path: /}]}", "mount_path '/' is no path", "/cache"),
        ("ppo: {volumes: [{pvc: a, mount_path: /a/../etc}]}", "is no path", "/cache"),
        ('ppo: {volumes: [{pvc: a, mount_path: "/a\\0"}]}', "is no path", "/cache"),
        ('ppo: {cpu: {limit: "' + "9" * 400 + '"}}', "is no number of CPUs", "docs/pipeline.md"),
        ("ppo: {volumes: [{pvc: a, mount_path: /a, sub_path: ../b}]}", "is no path in the volume", "caches/mlgo"),
        ("ppo: {volumes: [{pvc: a, mount_path: /a}, {pvc: a, mount_path: /b}]}", "volume a is given twice", "once"),
        (
            "ppo: {volumes: [{pvc: a, mount_path: /a}, {pvc: b, mount_path: /a/}]}",
            "mount_path /a is given twice",
            "own",
        ),
        (
            "ppo: {volumes: [{pvc: a, mount_path: /a}], secret_as_volume: [{secret: a, mount_path: /b}]}",
            "ppo: volumes and secret_as_volume: the volume a is given twice",
            "a name and at a path of its own",
        ),
        (
            "ppo: {secret_as_volume: [{secret: a.b, mount_path: /a}]}",
            "'a.b' is no name of a Secret that KFP can mount",
            "kubectl get secret",
        ),
        (
            "ppo: {config_map_as_volume: [{config_map: ca-bundle, mount_path: /a}]}",
            "'ca-bundle' is no name",
            "configmap",
        ),
        ("ppo: {shared_memory: 1Gi, volumes: [{pvc: a, mount_path: /dev/shm}]}", "/dev/shm is given twice", "own"),
        ("ppo: {shared_memory: 64}", "Expected `str | null`, got `int`", "docs/pipeline.md"),
        ("ppo: {shared_memory: much}", "shared_memory: 'much' is no amount of memory", "2Gi"),
        ("ppo: {env: {A: 1}}", "Expected `str`, got `int`", "docs/pipeline.md"),
        ("ppo: {env: {A-B: x}}", "'A-B' is no name of an environment variable", "HTTPS_PROXY"),
        ("ppo: {env: {MLGO_CLUSTER_IMAGE: x}}", "the pipeline sets the environment variable MLGO_CLUSTER_IMAGE", "out"),
        ("ppo: {env: {KFP_POD_NAME: x}}", "the pipeline sets the environment variable KFP_POD_NAME", "out"),
        (
            "ppo: {env: {A: x}, secret_as_env: [{secret: s, key_to_env: {a: A}}]}",
            "the environment variable A is set twice",
            "leave one out",
        ),
        ("ppo: {secret_as_env: [{secret: s, key_to_env: {}}]}", "secret_as_env: s has no keys", "key_to_env"),
        ("ppo: {secret_as_env: [{secret: S, key_to_env: {a: A}}]}", "'S' is no name of a Kubernetes object", "secret"),
        ("ppo: {secret_as_env: [{secret: s, key_to_env: {a/b: A}}]}", "'a/b' is no key of s", "kubectl describe"),
        ("ppo: {image_pull_secrets: [A]}", "image_pull_secrets: 'A' is no name", "kubectl get secret"),
        (
            "ppo: {machine_type: n2 highmem}",
            "machine_type 'n2 highmem' is no value of a node's label",
            "kubectl get nodes",
        ),
        ('ppo: {machine_type: ""}', "length >= 1", "docs/pipeline.md"),
        (
            "ppo: {machine_type: a, node_selector: {node.kubernetes.io/instance-type: a}}",
            "machine_type is node_selector node.kubernetes.io/instance-type",
            "leave one out",
        ),
        ("ppo:", "ppo: not a mapping of settings", "cpu, memory"),
        ("[ppo]", "is not one mapping", "docs/pipeline.md"),
        ("", "is not one mapping", "docs/pipeline.md"),
        ("ppo: {", "is not valid YAML", "docs/pipeline.md"),
    ],
)
def test_invalid_file_is_refused_with_key_and_remedy(overrides: Any, text: str, named: str, remedy: str) -> None:
    with pytest.raises(UserError) as error:
        overrides(text)
    assert "o.yaml" in error.value.problem and named in error.value.problem and remedy in error.value.remedy


def test_unknown_step_is_refused_with_names_of_steps(overrides: Any) -> None:
    with pytest.raises(UserError, match="the pipeline has no step 'exec-ppo'") as error:
        override_for_kfp(SPEC, overrides("exec-ppo: {cpu: {limit: 8}}"))
    assert "default, corpus, evaluation, finish, ppo" in error.value.remedy


@pytest.mark.parametrize(
    ("text", "named", "remedy"),
    [
        ("ppo: {accelerator: {type: NVIDIA_L4}}", "is no resource of a Kubernetes node", "nvidia.com/gpu"),
        ("ppo: {cpu: {limit: 2}}", "cpu: the request 4000m exceeds the limit 2", "{request: 2, limit: 2}"),
        (
            "default: {machine_type: a}\nppo: {node_selector: {node.kubernetes.io/instance-type: b}}",
            "ppo: machine_type is node_selector node.kubernetes.io/instance-type",
            "leave one out",
        ),
        (
            "default: {env: {A: x}}\nppo: {config_map_as_env: [{config_map: c, key_to_env: {a: A}}]}",
            "ppo: the environment variable A is set twice",
            "leave one out",
        ),
        (
            "default: {volumes: [{pvc: a, mount_path: /a}]}\nppo: {secret_as_volume: [{secret: b, mount_path: /a}]}",
            "ppo: volumes and secret_as_volume: mount_path /a is given twice",
            "a path of its own",
        ),
        ("default: {memory: {request: 9G}}", "memory: the request 9G exceeds the limit 8G", "limit: 8G"),
    ],
)
def test_setting_that_kfp_does_not_have_is_refused(overrides: Any, text: str, named: str, remedy: str) -> None:
    with pytest.raises(UserError) as error:
        override_for_kfp(SPEC, overrides(text))
    assert named in error.value.problem and remedy in error.value.remedy


PODS = """
ppo:
  volumes: [{pvc: ccache, mount_path: /cache, sub_path: mlgo}]
  shared_memory: 2Gi
  secret_as_env: [{secret: mlgo-s3, key_to_env: {key: AWS_ACCESS_KEY_ID, secret: AWS_SECRET_ACCESS_KEY}}]
  secret_as_volume: [{secret: mlgo-gcs, mount_path: /secrets/gcs, optional: true}]
  config_map_as_env: [{config_map: site, key_to_env: {region: AWS_REGION}}]
  config_map_as_volume: [{config_map: recipes, mount_path: /recipes}]
  image_pull_secrets: [registry, other]
"""
KFP_KUBERNETES = """
import json
from google.protobuf import json_format
from kfp import dsl, kubernetes
@dsl.container_component
def ppo():
    return dsl.ContainerSpec(image="i")
@dsl.pipeline(
    pipeline_config=dsl.PipelineConfig(ttl_seconds_after_finished=3600, active_deadline_seconds=7200)
)
def pipeline():
    task = ppo()
    kubernetes.mount_pvc(task, "ccache", "/cache", "mlgo")
    kubernetes.empty_dir_mount(task, "shared-memory", "/dev/shm", "Memory", "2Gi")
    kubernetes.use_secret_as_env(task, "mlgo-s3", {"key": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY"})
    kubernetes.use_secret_as_volume(task, "mlgo-gcs", "/secrets/gcs", optional=True)
    kubernetes.use_config_map_as_env(task, "site", {"region": "AWS_REGION"})
    kubernetes.use_config_map_as_volume(task, "recipes", "/recipes")
    kubernetes.set_image_pull_secrets(task, ["registry", "other"])
    kubernetes.set_security_context(task, run_as_non_root=True)
    kubernetes.use_secret_as_env(task, "mlgo-notify", {"url": "MLGO_NOTIFY_URL"}, optional=True)
print(json.dumps(json_format.MessageToDict(pipeline.platform_spec)))
"""


def test_settings_of_pods_are_those_of_kfp_kubernetes(overrides: Any) -> None:
    done = subprocess.run([PIPELINES_PYTHON, "-c", KFP_KUBERNETES], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    spec, pods = override_for_kfp(SPEC, overrides(PODS))
    (notified,) = notify_settings(spec, "mlgo-notify", "")[1].values()
    settings = (pods, {"exec-ppo": security_settings(spec)["exec-ppo"]}, {"exec-ppo": notified})
    limits = workflow_limits(SubmitOptions(SPEC, ttl_hours=1, deadline_hours=2))
    assert platform_spec(*settings, pipeline=limits) == theirs


def test_variables_of_a_step_keep_those_of_the_pipeline(overrides: Any) -> None:
    text = "default: {env: {HTTPS_PROXY: 'http://proxy:3128'}}"
    spec, _pods = override_for_kfp(SPEC, overrides(text))
    variable = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    assert container(spec, "ppo")["env"] == [*container(SPEC, "ppo")["env"], variable]
    assert container(spec, "vocab")["env"] == [variable]


def test_everything_that_is_mounted_counts_as_a_place(overrides: Any) -> None:
    assert [path for _key, _volume, path in overrides(PODS)["ppo"].mounts()] == [
        "/cache",
        "/secrets/gcs",
        "/recipes",
        "/dev/shm",
    ]


def test_steps_of_one_component_must_agree(overrides: Any) -> None:
    spec: dict[str, Any] = json.loads(json.dumps(SPEC))
    tasks = next(dag for dag in dags(spec) if "vocab" in dag)
    tasks["vocab-2"] = tasks["vocab"]
    with pytest.raises(UserError, match="the steps vocab and vocab-2 are the same component"):
        override_for_kfp(spec, overrides("vocab: {cpu: {limit: 8}}"))
    both, _pods = override_for_kfp(spec, overrides("vocab: {cpu: {limit: 8}}\nvocab-2: {cpu: {limit: 8}}"))
    assert container(both, "vocab")["resources"]["cpuLimit"] == 8


def test_example_in_documentation_is_accepted(overrides: Any) -> None:
    blocks = [part.split("```")[0] for part in EXAMPLE.read_text().split("```yaml\n")[1:]]
    (kfp,) = [block for block in blocks if "node_selector" in block]
    (secrets,) = [block for block in blocks if "secret_as_env" in block]
    assert set(yaml.safe_load(kfp)) > {"default"}
    _spec, pods = override_for_kfp(SPEC, overrides(kfp))
    assert {"nodeSelector", "tolerations", "pvcMount"} <= set(pods["exec-ppo"])
    _spec, pods = override_for_kfp(SPEC, overrides(secrets))
    assert {"secretAsEnv", "secretAsVolume", "emptyDirMounts", "imagePullSecret"} <= set(pods["exec-ppo"])


@given(st.integers(1, 10**6), st.sampled_from([("M", 1e6), ("G", 1e9), ("T", 1e12), ("Mi", 2**20), ("Ti", 2**40)]))
def test_memory_has_its_unit(number: int, unit: tuple[str, float]) -> None:
    assert gigabytes(f"{number}{unit[0]}") == pytest.approx(number * unit[1] / 1e9)


@given(st.text(max_size=6) | st.from_regex(r"[0-9]{1,4}(\.[0-9]{1,2})?[mGMi]{0,2}", fullmatch=True))
def test_any_text_is_a_positive_amount_or_refused(text: str) -> None:
    for read in (cpus, gigabytes):
        try:
            assert read(text) > 0
        except ValueError as error:
            assert str(error).startswith("is no ")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["8", "8G", "a/b", "a", "/a", ""])
FIELDS = st.sampled_from(
    [
        "request",
        "limit",
        "type",
        "count",
        "key",
        "operator",
        "value",
        "effect",
        "toleration_seconds",
        "pvc",
        "secret",
        "config_map",
        "key_to_env",
        "mount_path",
    ]
)
VALUES = SCALARS | st.dictionaries(FIELDS, SCALARS, max_size=4)
STEPS = st.dictionaries(st.sampled_from([*KEYS, "x"]), VALUES | st.lists(VALUES, max_size=2), max_size=4)


@given(st.dictionaries(st.sampled_from(["default", "ppo", "vocab", "x"]), STEPS | SCALARS, max_size=3))
def test_any_document_is_applied_or_refused(tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(yaml.safe_dump(document))
    for apply in (override_for_kfp, override_steps):
        try:
            applied = apply(SPEC, read_overrides(file))
        except UserError as error:
            assert error.problem and error.remedy
        else:
            json.dumps(applied, allow_nan=False)


def test_proxy_that_hides_the_cluster_from_the_launcher_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On KFP 2.17 the launcher then fails: "failed to pre-publish Pod info to ML Metadata"."""
    file = tmp_path / "o.yaml"
    file.write_text("corpus: {env: {https_proxy: 'http://p:1', NO_PROXY: .svc}, cpu: {limit: 8}}\nppo: {env: {A: b}}")
    override_for_kfp(SPEC, read_overrides(file))
    assert capsys.readouterr().out == ""
    file.write_text("corpus: {env: {HTTPS_PROXY: 'http://p:1'}}")
    override_for_kfp(SPEC, read_overrides(file))
    assert capsys.readouterr().out.startswith("warning: --overrides: corpus: HTTPS_PROXY is set without NO_PROXY")


def test_small_steps_fit_a_node_of_two_processors(tmp_path: Path) -> None:
    def requests(spec: Mapping[str, Any]) -> dict[str, tuple[Decimal, Decimal]]:
        return {pod.name: (pod.cpus, pod.memory_bytes) for pod in step_pods(spec)}

    spec = load_spec(COMPILED)
    small, usual = requests(with_small_requests(spec)), requests(spec)
    assert all(processors <= Decimal("0.5") and size <= 2 * 10**9 for processors, size in small.values())
    assert small["ppo"] == (Decimal("0.5"), Decimal(2 * 10**9))
    assert small["finish"] == usual["finish"] and usual["finish"][0] < small["ppo"][0], "what is less stays"
    (tmp_path / "o.yaml").write_text("ppo: {cpu: {request: 1500m}}")
    overrides = read_overrides(tmp_path / "o.yaml")
    assert requests(override_for_kfp(with_small_requests(spec), overrides)[0])["ppo"][0] == Decimal("1.5")
