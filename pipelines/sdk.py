"""The KFP pipeline that builds an LLVM SDK, from which the training pipeline links its clangs (its parameter `sdk`).

It is a pipeline of its own, because an SDK is built once for a version of LLVM. Imports kfp, as training.py.
"""

from kfp import dsl

from components.toolchain.component import toolchain_sdk
from pipelines.parameters.tables import SDK
from pipelines.tasks import Values, notification, sized
from pipelines.training import pipeline, table_inputs


@pipeline(
    "mlgo-sdk",
    table_inputs(SDK),
    description="Build LLVM from source: the libraries from which the training pipeline links its clangs.",
)
def sdk_pipeline(values: Values) -> None:
    """Build LLVM from source."""
    with dsl.ExitHandler(notification(), name="build-sdk"):
        sized(toolchain_sdk, cached=False)(values)  # the content behind `llvm_source` may change
