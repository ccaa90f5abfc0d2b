"""KFP component of the exit handler, which runs last, whether or not the pipeline succeeded."""

from kfp import dsl

from components.platform.launcher.images import IMAGES
from components.platform.launcher.registry import STEPS, TASKS


# Without KFP's PipelineTaskFinalStatus: KFP passes the state RUNNING for most runs that succeeded, and no error; it
# cannot compute it after a node was lost, so that this step would fail; and servers before 2.14 refuse it.
@dsl.container_component
def finish(run_id: str):  # type: ignore[no-untyped-def]
    """Report how the pipeline ended, in its log, to the webhook of `mlgo pipeline submit --notify-secret`, and as the
    status of the commit of `--commit-secret`.

    Args:
        run_id: ID of the run.
    """
    return dsl.ContainerSpec(
        image=IMAGES[TASKS["finish"].image],
        command=["python", "-m", STEPS["finish"].module],
        args=["--run-id", run_id],
    )
