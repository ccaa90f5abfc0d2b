"""Tests of parameters that are refused before a run starts or anything is submitted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from pipelines.parameters.check import checked_values, describe_llvm_build
from pipelines.parameters.on_server import (
    IMAGE_LLVM_MAJOR,
    check_cloud_root,
    check_llvm_in_images,
    check_places_on_server,
    check_recipe_in_images,
)
from pipelines.parameters.parameter import as_option
from pipelines.spec import COMPILED, COMPILED_PIPELINES, load_spec

ROOT = Path(__file__).parents[3]
SPEC, SDK = load_spec(COMPILED), load_spec(COMPILED_PIPELINES["sdk"])
EXTERNAL = {"strategy": "external", "clang": "/usr/bin/clang", "features": "llvm"}


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"features": "all"}, "--param features=all: 'all' is not one of 'extended', 'llvm'"),
        ({"preset": ""}, "--param preset=: '' is not one of 'tiny', 'demo', 'full'"),
        ({"algorithm": "sac"}, "--param algorithm=sac"),
        ({"credit_assignment": "guess"}, "--param credit_assignment=guess"),
        ({"size_of": "files"}, "--param size_of=files"),
        ({"algorithm": "dqn", "credit_assignment": "module"}, "algorithm=dqn learns from counterfactual credit only"),
        ({"gin_bindings": "Adam.rate=1"}, "there are no hyperparameters Adam"),
        ({"targets": "arm"}, "--param targets=arm"),
        ({"workers": "locl"}, "--param workers='locl' is not known"),
        ({"spot_node_label": "gke"}, "--param spot_node_label='gke' is not of the form"),
        ({"ray_cluster_options": "x=1"}, "--param ray_cluster_options=x=1: there is no setting"),
        ({"tune_minutes": "-1"}, "--param tune_minutes=-1"),
        ({"flag_rows": "icf"}, "--param flag_rows=icf: there is no row 'icf'; choose among default, "),
        ({"model_registry": "kubeflow"}, "'kubeflow' is neither vertex:PROJECT/REGION nor a URL"),
        ({"model_registry": "vertex:p/r"}, "nothing is promoted without a state"),
        (EXTERNAL | {"algorithm": "dqn"}, "--param algorithm=dqn for inlining needs a training clang with our"),
        (EXTERNAL | {"problem": "regalloc", "algorithm": "ppo"}, "--param algorithm=ppo for regalloc needs a training"),
        (EXTERNAL | {"credit_assignment": "function"}, "--param credit_assignment=function for inlining needs"),
        (EXTERNAL | {"start_from": "pretrained"}, "--param start_from=pretrained: .* /usr/bin/clang, does not have"),
    ],
)
def test_value_that_no_step_accepts_is_refused(parameters: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        checked_values(SPEC, {"recipe": "demo"} | parameters)
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({}, "exactly one source of code is needed, none given"),
        ({"input": "a", "recipe": "demo"}, "exactly one source of code is needed, 2 given"),
        ({"recipe": "demo", "input_type": "params"}, "--param input_type=params is not for --param recipe"),
        ({"corpus": "gs://b/c", "unit": "program"}, "--param unit=program is not for --param corpus"),
        ({"input": "a", "input_type": "object"}, "--param input_type=object: 'object' is not one of"),
        ({"input": "a", "input_type": "params"}, "start from the directory that the linker ran in"),
        ({"input": "a", "thinlto_build": "thin"}, "--param thinlto_build=thin: 'thin' is not one of"),
        ({"input": "a", "cmd_filter": "["}, r"--param cmd_filter=\[ is not a regular expression"),
        ({"input": str(ROOT / "components/core/projects/recipes/tiny.yaml")}, "is no list or directory of objects"),
    ],
)
def test_inputs_of_an_extraction_are_checked_before_a_run(parameters: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        checked_values(SPEC, parameters)
    assert raised.value.remedy


def test_paths_of_an_extraction_must_be_where_steps_see_them(tmp_path: Path) -> None:
    (tmp_path / "obj").mkdir()
    for name in ("input", "obj_base_dir"):
        with pytest.raises(UserError, match=f"--param {name}=.* is a path of this machine"):
            check_places_on_server({name: str(tmp_path / "obj")}, ())
        check_places_on_server({name: "gs://bucket/build"}, ())
        check_places_on_server({name: str(tmp_path / "obj")}, (str(tmp_path),))


@pytest.mark.parametrize("start", ["pretrained", "pretrained-thumb"])
def test_pretrained_policy_for_an_external_clang_is_named(start: str) -> None:
    with pytest.raises(UserError, match=f"start_from={start}: ") as raised:
        checked_values(SPEC, {"recipe": "demo"} | EXTERNAL | {"start_from": start})
    assert "--param start_from=pretrained-llvm" in raised.value.remedy


def test_pretrained_policy_for_one_problem_is_refused_for_another() -> None:
    values = {"recipe": "performance", "problem": "regalloc", "start_from": "pretrained-thumb"}
    with pytest.raises(
        UserError, match="start_from=pretrained-thumb is a policy for inlining, and this run is for regalloc"
    ):
        checked_values(SPEC, values)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"algorithm": "es"},
        {"algorithm": "", "credit_assignment": "", "features": ""},
        {"algorithm": "es", "credit_assignment": "module", "features": "llvm", "size_of": "modules"},
        {"credit_assignment": "function", "gin_bindings": "PpoParameters.num_epochs=4"},
        EXTERNAL | {"algorithm": "ppo", "credit_assignment": "module", "start_from": "heuristic"},
        EXTERNAL | {"problem": "regalloc", "algorithm": "es", "start_from": "pretrained"},
        EXTERNAL | {"start_from": "pretrained-llvm"},
    ],
)
def test_valid_values_are_returned_with_defaults(parameters: dict[str, str]) -> None:
    values = checked_values(SPEC, {"recipe": "demo"} | parameters)
    assert parameters.items() <= values.items() and values["preset"] == "demo"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("compile_commands", __file__),
        ("recipe", __file__),
        ("corpus", "runs/corpus"),
        ("start_from", "nowhere"),
        ("llvm_source", "llvm-project"),
        ("llvm_source", "debian-llvm"),
        ("ir2vec_vocab", "random-vocabulary.json"),
        ("corpus", "heuristic"),
    ],
)
def test_path_of_this_machine_is_refused_on_server(name: str, path: str) -> None:
    with pytest.raises(UserError, match=f"--param {name}={path} is a path of this machine") as raised:
        check_places_on_server({name: path}, ["/mnt"])
    assert "gs://BUCKET/PATH" in raised.value.remedy and "--overrides" in raised.value.remedy


def test_places_that_steps_on_server_see_are_accepted() -> None:
    parameters = {
        "recipe": "demo",
        "corpus": "gs://bucket/corpus",
        "llvm_source": "git:llvmorg-19.1.7",
        "sdk": "/opt/llvm",
    }
    check_places_on_server(parameters | {"start_from": "pretrained", "extra_policy": ""}, [])
    check_places_on_server({"compile_commands": __file__}, [str(Path(__file__).parent)])
    check_places_on_server({"llvm_source": "deb", "ir2vec_vocab": "random", "start_from": "heuristic"}, [])


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"targets": "X86,"}, "--param targets=X86,: 'X86,' is neither native nor all nor a list"),
        ({"definitions": "LTO"}, "--param definitions=LTO: 'LTO' is not NAME=VALUE"),
        ({"definitions": "A='-O1"}, "has no closing quote"),
        ({"jobs": "0"}, "--param jobs=0"),
        ({"llvm_major": "18"}, "works with LLVM 19 or 22, not 18"),
        ({"llvm_major": "22"}, "Debian has no source package of LLVM 22"),
        ({"projects": "polly"}, "--llvm-source deb fetches only LLVM, clang and lld"),
        ({"recipe": "demo"}, "no parameter 'recipe'"),
        ({"definitions": "BUILD_SHARED_LIBS=ON"}, "linking our clangs needs BUILD_SHARED_LIBS=OFF"),
        ({"definitions": "LLVM_ENABLE_PROJECTS=polly"}, "LLVM_ENABLE_PROJECTS: clang and lld are needed"),
    ],
)
def test_invalid_parameters_of_sdk_pipeline_are_refused(parameters: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        checked_values(SDK, parameters)


def test_parameters_of_sdk_pipeline_are_those_of_llvms_build() -> None:
    tree = {"llvm_source": "gs://b/llvm-project", "llvm_major": "22", "projects": "polly,clang-tools-extra"}
    for parameters in ({}, {"targets": "X86,ARM", "definitions": "A=1 B='-O1 -g;x'", "jobs": "64"}, tree):
        checked_values(SDK, parameters)
    with pytest.raises(UserError, match="is a path of this machine"):
        check_places_on_server(checked_values(SDK, {"llvm_source": "llvm-project"}), [])


def test_volumes_of_stored_pipeline_may_have_any_absolute_path() -> None:
    check_places_on_server({"compile_commands": __file__, "recipe": "demo"}, None)
    with pytest.raises(UserError, match="--param corpus=runs/corpus is a path of this machine") as raised:
        check_places_on_server({"corpus": "runs/corpus"}, None)
    assert "--overrides" not in raised.value.remedy


def test_relative_external_clang_is_refused_on_server() -> None:
    for clang in (sys.executable, "clang-19", ""):
        check_places_on_server({"clang": clang}, [])
    with pytest.raises(UserError, match=r"--param clang=\.\./llvm/build/bin/clang is relative"):
        check_places_on_server({"clang": "../llvm/build/bin/clang"}, [])


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"strategy": "plugin"}, "strategy=plugin with LLVM 19: a plugin runs in an installed clang"),
        (
            {"strategy": "plugin", "llvm_major": "22"},
            "strategy=plugin with LLVM 22: a plugin runs in an installed clang",
        ),
        ({"strategy": "external", "llvm_major": "22"}, "strategy=external with LLVM 22: a plugin runs in"),
        ({"llvm_major": 22.0, "llvm_source": "git:llvmorg-22.1.8"}, "llvm_major=22: the images have LLVM 19 only"),
        ({"targets": "all"}, "targets=all: the images have the code generator of their own processor only"),
        ({"llvm_major": 22, "targets": "all"}, "targets=all: the images have LLVM 19 only and the code generator of"),
    ],
)
def test_llvm_that_the_images_lack_is_refused(parameters: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        check_llvm_in_images(parameters)
    assert "mlgo run" in raised.value.remedy
    command = raised.value.remedy.partition("--pipeline sdk ")[2].partition(",")[0].split()
    checked_values(SDK, dict(word.split("=", 1) for word in command[1::2]))  # what the remedy says is accepted


def test_llvm_of_the_images_and_sdks_in_storage_are_accepted() -> None:
    accepted: tuple[dict[str, Any], ...] = (
        {},
        {"strategy": "external"},
        {"llvm_major": 22.0, "sdk": "gs://bucket/sdk", "targets": "all"},
    )
    for parameters in accepted:
        check_llvm_in_images(parameters)
    packages = (ROOT / "docker" / "requirements" / "apt-toolchain.txt").read_text()
    assert f"\nllvm-{IMAGE_LLVM_MAJOR}-dev=" in packages


@pytest.mark.parametrize("recipe", ["debian", "debian-performance"])
def test_debian_packages_are_not_built_in_containers_of_steps(recipe: str) -> None:
    with pytest.raises(UserError, match=rf"--param recipe={recipe} builds Debian packages \(.* more\)") as raised:
        check_recipe_in_images({"recipe": recipe})
    assert f"mlgo corpus obtain --recipe {recipe}" in raised.value.remedy
    assert "--param corpus=gs://" in raised.value.remedy


def test_recipe_of_one_debian_package_is_refused_by_its_content(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("name: p\nsource: {path: .}\nbuild: debian\n")
    with pytest.raises(UserError, match=r"builds Debian packages \(p\)"):
        check_recipe_in_images({"recipe": str(own)})


@pytest.mark.parametrize("recipe", ["", "demo", "full", "performance", "/recipes/on-a-volume.yaml"])
def test_other_recipes_are_left_to_the_step(recipe: str) -> None:
    check_recipe_in_images({"recipe": recipe})


@pytest.mark.parametrize("root", ["gs://bucket/kfp", "minio://mlpipeline/v2/artifacts", "s3://bucket/kfp?region=eu-1"])
def test_kfp_accepts_what_its_launcher_copies(root: str) -> None:
    check_cloud_root(root, vertex=False)


@pytest.mark.parametrize("root", ["", "minio://mlpipeline/v2", "s3://bucket/kfp", "/runs/1", "gs://bucket"])
def test_vertex_accepts_cloud_storage_only(root: str) -> None:
    with pytest.raises(UserError, match=r"gs://BUCKET/PATH"):
        check_cloud_root(root)
    check_cloud_root("gs://bucket/kfp")


@pytest.mark.parametrize("root", ["minio://", "minio://mlpipeline", "s3://B/a", "oci://registry/a", "/runs/1"])
def test_invalid_root_on_kfp_is_named(root: str) -> None:
    with pytest.raises(UserError) as raised:
        check_cloud_root(root, vertex=False)
    assert root in raised.value.problem and "://BUCKET/PATH" in raised.value.remedy


@pytest.mark.parametrize("root", ["minio://mlpipeline/v2", "s3://bucket/kfp"])
def test_rayjob_needs_cloud_storage(root: str) -> None:
    with pytest.raises(UserError, match=r"workers=rayjob.*nodes of a Ray cluster") as raised:
        check_cloud_root(root, vertex=False, rayjob=True)
    assert "--artifact-root" in raised.value.remedy and "gs://BUCKET/PATH" in raised.value.remedy
    check_cloud_root("gs://bucket/kfp", vertex=False, rayjob=True)


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({}, "--features llvm"),
        ({"start_from": "pretrained"}, "--start-from pretrained-llvm"),
        ({"features": "llvm"}, ""),
        ({"start_from": "pretrained-llvm"}, ""),
        ({"start_from": "runs/mine/policy"}, ""),
        ({"problem": "regalloc"}, ""),
        ({"strategy": "external", "clang": "clang", "features": "llvm"}, ""),
    ],
)
def test_policy_that_llvms_build_cannot_embed_is_said_before_training(values: dict[str, str], remedy: str) -> None:
    run = {"problem": "inlining", "start_from": "heuristic", "features": "extended", **values}
    remark = describe_llvm_build(run, as_option)
    assert remark.endswith(remedy) and bool(remark) == bool(remedy)
