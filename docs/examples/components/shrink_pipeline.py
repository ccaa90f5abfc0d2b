"""A build pipeline that keeps the smallest build of a source archive, and lists its programs.

    mlgo pipeline components --images build/images.json --output components
    python shrink_pipeline.py components IMAGE shrink.yaml    # IMAGE has a shell

Needs kfp 2.17, and the image clang.
"""

import sys

from kfp import compiler, components, dsl

FOLDER, IMAGE, OUTPUT = sys.argv[1:]
shrink = components.load_component_from_file(f"{FOLDER}/shrink/component.yaml")


@dsl.container_component
def list_files(shrunk: dsl.Input[dsl.Artifact], listing: dsl.Output[dsl.Markdown]):
    script = 'mkdir -p "$(dirname "$1")" && cd "$0" && find . -type f -exec ls -l {} + > "$1"'
    return dsl.ContainerSpec(image=IMAGE, command=["sh", "-c", script], args=[shrunk.path, listing.path])


@dsl.pipeline(name="smallest-build")
def pipeline(source: str, command: str = ""):
    smallest = shrink(source=source, command=command).set_cpu_limit("8").set_memory_limit("16G")
    list_files(shrunk=smallest.outputs["shrunk"])


compiler.Compiler().compile(pipeline, OUTPUT)
