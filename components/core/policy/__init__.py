"""Policies: networks, forms on disk, and the check that all forms agree."""

import contextlib
import warnings

# Python warns when it compiles tf-agents: at the first import, or at each one if it cannot cache, as in a container.
warnings.filterwarnings("ignore", '"is(?: not)?" with a literal', SyntaxWarning, module=".*/tf_agents/")

with contextlib.suppress(ImportError):  # gym comes with tf-agents, which steps without TensorFlow do not install
    import gym_notices.notices  # type: ignore[import-untyped]

    # Importing gym, as tf-agents does, would print in every command that gym is unmaintained.
    gym_notices.notices.notices.clear()
