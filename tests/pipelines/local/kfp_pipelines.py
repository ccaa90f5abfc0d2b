"""Small pipelines with constructs that the local runners do not support.

`python kfp_pipelines.py DIR`, in the environment `pipelines`, compiles each to DIR/NAME.yaml.
"""

import sys
from collections.abc import Callable
from typing import List, Optional  # noqa: UP035 (what kfp reads of a signature)

from kfp import compiler, dsl

IMAGE = "mlgo-toolchain"
PIPELINES = {}


@dsl.container_component
def make(made: dsl.Output[dsl.Artifact], value: dsl.OutputPath(str), x: str = "1"):
    return dsl.ContainerSpec(image=IMAGE, command=["python"], args=["--x", x, "--made", made.uri, "--value", value])


@dsl.container_component
def read(made: dsl.Input[dsl.Artifact], out: dsl.Output[dsl.Artifact]):
    return dsl.ContainerSpec(image=IMAGE, command=["python"], args=["--made", made.uri, "--out", out.uri])


@dsl.container_component
def tell(x: str):
    return dsl.ContainerSpec(image=IMAGE, command=["python"], args=["--x", x])


@dsl.container_component
def other(x: str, another: dsl.Output[dsl.Artifact]):
    return dsl.ContainerSpec(image=IMAGE, command=["python"], args=["--x", x, "--another", another.uri])


@dsl.container_component
def maybe(x: Optional[str] = None):  # noqa: UP007, UP045, RUF100
    return dsl.ContainerSpec(image=IMAGE, command=["python"], args=[dsl.IfPresentPlaceholder("x", ["--x", x])])


@dsl.container_component
def in_command(x: str):
    return dsl.ContainerSpec(image=IMAGE, command=["python", x])


@dsl.container_component
def metadata(made: dsl.Input[dsl.Artifact]):
    return dsl.ContainerSpec(image=IMAGE, command=["python"], args=[made.metadata["k"]])


@dsl.container_component
def collect(made: dsl.Input[List[dsl.Artifact]]):  # noqa: UP006
    return dsl.ContainerSpec(image=IMAGE, command=["python"], args=[made])


@dsl.component(base_image=IMAGE)
def function(x: str) -> str:
    return x


@dsl.pipeline
def inner(x: str = "1") -> dsl.Artifact:
    return make(x=x).outputs["made"]


def pipeline(define: Callable[..., None]) -> None:
    PIPELINES[define.__name__] = dsl.pipeline(name=define.__name__.replace("_", "-"))(define)


@pipeline
def loop():
    with dsl.ParallelFor(["1", "2"]) as x:
        tell(x=x)


@pipeline
def loop_over_a_parameter(x: List[str] = ["1"]):  # noqa: B006, UP006
    with dsl.ParallelFor(x) as item:
        tell(x=item)


@pipeline
def collected():
    with dsl.ParallelFor(["1", "2"]) as x:
        task = other(x=x)
    collect(made=dsl.Collected(task.outputs["another"]))


@pipeline
def imported():
    read(made=dsl.importer(artifact_uri="gs://b/x", artifact_class=dsl.Artifact).output)


@pipeline
def one_of():
    made = make()
    with dsl.If(made.outputs["value"] == "1"):
        first = other(x="1")
    with dsl.Else():
        second = other(x="2")
    read(made=dsl.OneOf(first.outputs["another"], second.outputs["another"]))


@pipeline
def passed_on():
    tell(x=make().outputs["value"])


@pipeline
def greater_than():
    with dsl.If(make().outputs["value"] > "1"):
        tell(x="1")


@pipeline
def on_a_parameter(x: str = "1"):
    with dsl.If(x == "1"):
        tell(x="1")
    with dsl.Else():
        other(x="2")


@pipeline
def python_function():
    function(x="1")


@pipeline
def optional_argument():
    maybe()


@pipeline
def parameter_in_a_command():
    in_command(x="1")


@pipeline
def of_metadata():
    metadata(made=make().outputs["made"])


@pipeline
def environment():
    tell(x="1").set_env_variable("A", "b")


@pipeline
def name_of_the_job():
    tell(x=dsl.PIPELINE_JOB_NAME_PLACEHOLDER)


@pipeline
def failures_ignored():
    tell(x="1").after(make()).ignore_upstream_failure()


@pipeline
def output_of_a_pipeline():
    read(made=inner().output)


@pipeline
def same_name_within():
    make()
    inner()


@pipeline
def nested_conditions():
    made = make()
    with dsl.If(made.outputs["value"] == "1"):
        task = other(x="2")
        with dsl.If(made.outputs["value"] != "3"):
            read(made=task.outputs["another"])


@pipeline
def after_a_pipeline():
    tell(x="2").after(inner())


if __name__ == "__main__":
    for name, defined in PIPELINES.items():
        compiler.Compiler().compile(defined, f"{sys.argv[1]}/{name}.yaml")
