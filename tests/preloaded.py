"""Imports what steps that use TensorFlow import; the processes of tests/fork_server.py are forked after that."""

import os
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # as components/ppo/__main__.py does
with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    import components.ppo.step  # noqa: F401
