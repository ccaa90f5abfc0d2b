"""The parameters of the training that say where its code comes from."""

from __future__ import annotations

import click

from components.core.projects.extraction_options import INPUT_TYPES, THINLTO_BUILDS, UNITS
from components.core.projects.option import COMPILE_COMMANDS, LOCAL_CORPUS, RECIPE
from components.core.projects.recipe import recipe_words
from pipelines.local.cache_inputs import identify_build, identify_input, identify_path, identify_recipe
from pipelines.parameters.parameter import Option, Parameter, Reference

CODE = (
    Parameter(
        "recipe",
        "Projects to fetch and build: a built-in recipe, such as `demo`, `full`, `performance` or `tiny`, or the path "
        "or URI of your own. Containers cannot build Debian packages (`debian`): build such a corpus elsewhere.",
        example="demo",
        option=Option("FILE|URI|NAME", RECIPE),
        reference=Reference(identify_recipe, words=recipe_words, refers_to_files=True),
    ),
    Parameter(
        "corpus",
        "Path or URI of an existing corpus, made by `mlgo corpus` or by mlgo-utils.",
        example="DIR",
        option=Option("DIR", LOCAL_CORPUS),
        reference=Reference(identify_path, step_option="--existing"),
    ),
    Parameter(
        "compile_commands",
        "Path or URI of the compile_commands.json of a finished build with embedded bitcode, see `mlgo corpus "
        "compilers --help`.",
        example="FILE",
        option=Option("FILE|DIR", COMPILE_COMMANDS),
        reference=Reference(identify_build, refers_to_files=True),
    ),
    Parameter(
        "input",
        "Path or URI of what `mlgo corpus extract --input` takes: a list of a build's objects, or a directory; see "
        "{input_type}. With {unit=program} the directory of the compilers of `mlgo corpus compilers --unit program`.",
        example="PATH",
        option=Option("FILE|DIR|URI"),
        reference=Reference(identify_input, refers_to_files=True),
    ),
    Parameter(
        "input_type",
        "Kind of {input}: `json`, a compile_commands.json; `params`, the file of a linker's arguments; `directory`, of "
        ".o files; `bazel_aquery`, JSON of bazel aquery.",
        type=click.Choice(INPUT_TYPES),
        empty="`json`; `directory` for local ThinLTO",
        example="params",
        option=Option(),
    ),
    Parameter(
        "thinlto_build",
        "For {input} or {compile_commands} of a ThinLTO build: `distributed`, objects were compiled with an index; "
        "`local`, lld saved modules and indexes in the directory {input}.",
        type=click.Choice(THINLTO_BUILDS),
        empty="none",
        example="distributed",
        option=Option(),
    ),
    Parameter(
        "obj_base_dir",
        "For {input} or {compile_commands}: path or URI of the directory that names of modules start from; of `params` "
        "and `bazel_aquery` the one that the linker ran in, which they need.",
        empty="none",
        example="DIR",
        option=Option("DIR|URI"),
        reference=Reference(identify_path),
    ),
    Parameter(
        "default_args",
        "For {thinlto_build=local}: arguments that all modules are compiled with, cc1's if they start with -cc1, else "
        "clang's.",
        empty="none",
        example="'-O2 -fPIC'",
        option=Option("ARGUMENTS"),
    ),
    Parameter(
        "cmd_filter",
        "For {input} or {compile_commands}: regular expression; modules none of whose cc1 arguments match it are left "
        "out.",
        empty="the optimization level of the problem",
        example="'^-O2$'",
        option=Option("REGEX"),
    ),
    Parameter(
        "unit",
        "What a module is: `object`; `program`, a linked program or shared library of {recipe}, which names them as "
        "binaries, or of the links in {input}.",
        type=click.Choice(UNITS),
        default="object",
        example="program",
        option=Option(),
    ),
)
"""In the order of the pipeline's signature."""
