"""The KFP pipeline that builds a user's code by the smallest of several compilers and flags, as `mlgo shrink` does.

Imports kfp, as training.py.
"""

from kfp import dsl

from components.shrink.component import shrink
from pipelines.tasks import notification, sized


@dsl.pipeline(
    name="mlgo-shrink",
    description="Build code by several compilers and flags, and keep the smallest result that works.",
)
def shrink_pipeline(
    source: str, command: str = "", check: str = "", release_toolchain: str = "", minutes: float = 0
) -> None:
    """Build code smaller."""
    with dsl.ExitHandler(notification(), name="build-smaller"):
        sized(shrink, cached=False)(  # the content behind `source` may change
            source=source, command=command, check=check, release_toolchain=release_toolchain, minutes=minutes
        )
