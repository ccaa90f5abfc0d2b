"""Separates what the machine lacks from exhausted memory; for a full disk and for memory TensorFlow has one error."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from components.platform.errors import UserError

_OF_FILES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.EIO)


@contextmanager
def explain_resource_exhausted(directory: Path) -> Iterator[None]:
    """Convert TensorFlow's errors of files into OSErrors about `directory`, a ResourceExhaustedError into a UserError.

    TensorFlow's errors have no errno, but contain its text.
    """
    try:
        yield
    except tf.errors.OpError as error:
        for number in _OF_FILES:
            if os.strerror(number) in str(error):
                raise OSError(number, os.strerror(number), str(directory)) from error
        if not isinstance(error, tf.errors.ResourceExhaustedError):
            raise
        raise UserError(
            f"TensorFlow ran out of memory: {error.message}", "free memory, or use smaller batches (--help)"
        ) from error
