"""Tests of parameters that are refused before a run starts or anything is submitted."""

from __future__ import annotations

import pytest

from components.core.console import UserError
from pipelines.spec import COMPILED, load_spec
from pipelines.validation import check_cloud_root, checked_values

SPEC = load_spec(COMPILED)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"features": "all"}, "--param features=all: 'all' is not one of 'extended', 'llvm'"),
        ({"algorithm": "sac"}, "--param algorithm=sac"),
        ({"credit_assignment": "guess"}, "--param credit_assignment=guess"),
        ({"size_of": "files"}, "--param size_of=files"),
        ({"algorithm": "dqn", "credit_assignment": "module"}, "algorithm=dqn learns from counterfactual credit only"),
        ({"gin_bindings": "Adam.rate=1"}, "there are no hyperparameters Adam"),
        ({"targets": "arm"}, "--param targets=arm"),
        ({"tune_minutes": "-1"}, "--param tune_minutes=-1"),
    ],
)
def test_value_that_no_step_accepts_is_refused(given: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        checked_values(SPEC, {"recipe": "demo"} | given)
    assert raised.value.remedy


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"algorithm": "es"},
        {"algorithm": "es", "credit_assignment": "module", "features": "llvm", "size_of": "modules"},
        {"credit_assignment": "function", "gin_bindings": "PpoParameters.num_epochs=4"},
    ],
)
def test_valid_values_are_returned_with_defaults(given: dict[str, str]) -> None:
    values = checked_values(SPEC, {"recipe": "demo"} | given)
    assert given.items() <= values.items() and values["preset"] == "demo"


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
    assert "gs://BUCKET/PATH" in raised.value.remedy
    check_cloud_root("gs://bucket/kfp", vertex=False, rayjob=True)
