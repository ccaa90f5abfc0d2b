"""A pipeline with three steps of mlgo-pipeline and one of its own: which callees does LLVM's heuristic refuse most?

    mlgo pipeline components --images build/images.json --output components
    python trace_pipeline.py components IMAGE trace.yaml      # IMAGE has Python and pyarrow

Needs kfp 2.17.
"""

import sys

from kfp import compiler, components, dsl

FOLDER, IMAGE, OUTPUT = sys.argv[1:]
corpus, toolchain, trace = (
    components.load_component_from_file(f"{FOLDER}/{name}/component.yaml")
    for name in ("corpus", "toolchain-training", "trace")
)

REFUSED = """
import collections, pathlib, sys
from pyarrow import parquet

files = sorted(pathlib.Path(sys.argv[1]).glob("trace-*.parquet"))
rows = parquet.read_table(files, columns=["callee"], filters=[("action", "=", 0)])
counts = collections.Counter(rows["callee"].to_pylist()).most_common(20)
table = pathlib.Path(sys.argv[2])
table.parent.mkdir(parents=True, exist_ok=True)
table.write_text("\\n".join(["| callee | refused |", "|---|---|", *(f"| {name} | {n} |" for name, n in counts)]))
"""


@dsl.container_component
def most_refused(trace: dsl.Input[dsl.Dataset], table: dsl.Output[dsl.Markdown]):
    return dsl.ContainerSpec(image=IMAGE, command=["python", "-c", REFUSED], args=[trace.path, table.path])


@dsl.pipeline(name="most-refused-callees")
def pipeline(recipe: str = "demo"):
    code = corpus(recipe=recipe)
    clang = toolchain()
    decisions = trace(corpus=code.outputs["corpus"], training=clang.outputs["training"])
    for task in (code, clang, decisions):
        task.set_cpu_limit("4").set_memory_limit("8G")
    most_refused(trace=decisions.outputs["trace"])


compiler.Compiler().compile(pipeline, OUTPUT)
