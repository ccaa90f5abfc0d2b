"""The KFP pipeline that builds an LLVM SDK, from which the training pipeline links its clangs (its parameter `sdk`).

It is a pipeline of its own, because an SDK is built once for a version of LLVM. Imports kfp, as training.py.
"""

from kfp import dsl

from components.toolchain.component import toolchain_sdk
from pipelines.training import notification, sized


@dsl.pipeline(
    name="mlgo-sdk",
    description="Build LLVM from source: the libraries from which the training pipeline links its clangs.",
)
def sdk_pipeline(
    llvm_source: str = "deb",
    llvm_major: int = 19,
    targets: str = "native",
    projects: str = "",
    definitions: str = "",
    jobs: str = "",
) -> None:
    """Build LLVM from source."""
    with dsl.ExitHandler(notification(), name="build-sdk"):
        sized(toolchain_sdk, cached=False)(  # the content behind `llvm_source` may change
            llvm_source=llvm_source,
            llvm_major=llvm_major,
            targets=targets,
            projects=projects,
            definitions=definitions,
            jobs=jobs,
        )
