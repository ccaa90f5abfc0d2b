"""Which --pipeline-root the steps on a server can share."""

from __future__ import annotations

import pytest

from components.core.console import UserError
from pipelines.validation import check_cloud_root


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
