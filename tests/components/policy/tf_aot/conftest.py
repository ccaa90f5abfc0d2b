"""Random policies, as for the other forms of a policy."""

from tests.components.core.policy.conftest import make_policy as make_policy
