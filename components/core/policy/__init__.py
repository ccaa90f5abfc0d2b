"""Policies: their networks, their forms on disk, and the agreement between these."""

import contextlib
import warnings

# Said when Python compiles tf-agents: at its first import, and at each where nothing can be written, as in a container.
warnings.filterwarnings("ignore", '"is(?: not)?" with a literal', SyntaxWarning, module=".*/tf_agents/")

with contextlib.suppress(ImportError):  # gym comes with tf-agents, which steps without TensorFlow do not install
    import gym_notices.notices  # type: ignore[import-untyped]

    # Importing gym, as tf-agents does, would tell every user of every command that gym is unmaintained.
    gym_notices.notices.notices.clear()
