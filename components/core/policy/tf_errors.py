"""Separates a full disk from exhausted memory, for which TensorFlow has one error."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from components.core.console import UserError


@contextmanager
def explain_resource_exhausted(directory: Path) -> Iterator[None]:
    """Convert TensorFlow's ResourceExhaustedError into an OSError (ENOSPC) about `directory`, or a UserError."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory)) from error
        raise UserError(
            f"TensorFlow ran out of memory: {error.message}", "free memory, or use smaller batches (--help)"
        ) from error
