"""KFP's declaration of what runs last, however the pipeline ended."""

from kfp import dsl

from components.launcher.images import IMAGES


@dsl.container_component
def finish(status: dsl.PipelineTaskFinalStatus):  # type: ignore[no-untyped-def]
    """Says how the pipeline ended, in its log and to the webhook of `mlgo pipeline submit --notify-secret`."""
    return dsl.ContainerSpec(
        image=IMAGES["toolchain"],
        command=["python", "-m", "components.launcher.finish"],
        args=["--status", status],
    )
