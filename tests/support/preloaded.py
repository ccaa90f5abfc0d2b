"""Imports what steps that use TensorFlow import; fork_server.py forks its processes after that."""

import os
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # as components/ppo/__main__.py does
with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    import components.ppo.step  # noqa: F401
