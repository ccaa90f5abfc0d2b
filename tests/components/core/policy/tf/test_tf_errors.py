"""TensorFlow's errors of files are the same as Python's."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest
import tensorflow as tf

from components.core.policy.tf.tf_errors import explain_resource_exhausted


def test_limit_of_file_sizes_is_an_os_error(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught, explain_resource_exhausted(tmp_path):
            tf.io.write_file(str(tmp_path / "f"), b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG and caught.value.filename == str(tmp_path)


def test_other_errors_of_tensorflow_stay(tmp_path: Path) -> None:
    with pytest.raises(tf.errors.NotFoundError), explain_resource_exhausted(tmp_path):
        tf.io.read_file(str(tmp_path / "nowhere"))
