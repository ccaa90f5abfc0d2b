"""The rules between parameters, each a function of typed values. `check_values` calls those whose parameters a run has.

Otherwise a late step would refuse them hours later, and on a server nobody would notice at once.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from components.core import problems
from components.core.formats.gin_bindings import parse_gin_bindings
from components.core.formats.policy import PRETRAINED_FOLDERS, PRETRAINED_OF_OUR_FEATURES
from components.core.formats.strategy import (
    EXTERNAL,
    MIN_IR2VEC_MAJOR,
    Strategy,
    check_llvm_source,
    check_strategy,
    release_strategy,
)
from components.core.projects.extraction_options import (
    SOURCES,
    InputType,
    Source,
    ThinLto,
    Unit,
    check_extraction,
)
from components.core.projects.option import CodeKind, code_kind, require_code_kind
from components.core.projects.recipe import locate_recipe
from components.evaluation.config import check_programs
from components.platform.errors import UserError
from components.platform.rayjob.options import parse_settings, parse_spot
from components.platform.storage.uri import USAGE
from components.platform.workers.factory import check_workers
from components.ppo.config import ONLY_CREDIT, algorithms_without_advisors
from pipelines.parameters.parameter import FormatParameter, as_option
from pipelines.parameters.policy_checks import check_extra_policy, check_start_from
from pipelines.parameters.tables import BY_NAME, START_WORDS
from pipelines.retrain.state import load_state

Rule = Callable[..., None]
_RULES: list[tuple[Rule, dict[str, bool]]] = []
"""Each rule, and its parameters: whether it needs them."""


def rule(function: Rule) -> Rule:
    """Register a function `(write, PARAMETER, ...)` that raises UserError for values that no step accepts.

    It gets typed values, None instead of "" where the type is no text. It is not called for a pipeline that lacks one
    of its parameters, unless that has a default.
    """
    _write, *own = inspect.signature(function).parameters.values()
    assert {parameter.name for parameter in own} <= BY_NAME.keys(), function.__name__
    _RULES.append((function, {parameter.name: parameter.default is parameter.empty for parameter in own}))
    return function


def check_rules(values: Mapping[str, Any], write: FormatParameter) -> None:
    """Call every rule that applies to these typed values, by parameter."""
    for function, names in _RULES:
        if all(name in values for name, needed in names.items() if needed):
            function(write, **{name: values[name] for name in names if name in values})


@rule
def exactly_one_source(
    write: FormatParameter, compile_commands: str, corpus: str, recipe: str, input: str = ""
) -> None:
    sources: dict[Source, str] = {
        "compile_commands": compile_commands,
        "corpus": corpus,
        "recipe": recipe,
        "input": input,
    }
    named = [kind for kind, value in sources.items() if value]
    if len(named) != 1:
        raise UserError(
            f"exactly one source of code is needed, {len(named) or 'none'} given",
            f"pass one of {', '.join(write(kind, BY_NAME[kind].example) for kind in sources)}",
        )
    if input:
        kind = code_kind(input)
        if kind is not None and kind[0] != "compile_commands":
            raise UserError(
                f"{write('input', input)} is no list or directory of objects", f"did you mean {write(*kind)}?"
            )
    else:
        require_code_kind(cast(CodeKind, named[0]), sources[named[0]], write)


@rule
def source_has_the_options_of_its_extraction(
    write: FormatParameter,
    problem: str,
    recipe: str,
    corpus: str,
    compile_commands: str,
    input: str,
    input_type: InputType | None,
    thinlto_build: ThinLto | None,
    obj_base_dir: str,
    default_args: str,
    cmd_filter: str,
    unit: Unit,
) -> None:
    given = {"recipe": recipe, "corpus": corpus, "compile_commands": compile_commands, "input": input}
    for source in SOURCES:
        if given[source]:
            check_extraction(
                write, source, problem, unit, input_type, thinlto_build, obj_base_dir, default_args, cmd_filter
            )


@rule
def recipe_exists(write: FormatParameter, recipe: str) -> None:
    # The path of a recipe may exist only where the step runs; a bare name is a built-in recipe everywhere.
    if recipe and "/" not in recipe:
        locate_recipe(recipe)


@rule
def llvm_has_the_strategy(
    write: FormatParameter, strategy: Strategy, llvm_major: int, llvm_source: str = "", sdk: str = ""
) -> None:
    check_strategy(strategy, llvm_major, write("strategy", "{}"), write("llvm_major", "{}"))
    check_llvm_source(strategy, llvm_major, llvm_source, sdk, write("llvm_source", "{}"), write("strategy", "{}"))


@rule
def external_strategy_has_a_clang(write: FormatParameter, strategy: Strategy, clang: str = "") -> None:
    if (strategy == EXTERNAL) != bool(clang):
        raise UserError(
            f"{write('strategy', strategy)} {'with' if clang else 'without'} {write('clang', clang or 'PATH')}",
            f"the training clang that others built goes with {write('strategy', EXTERNAL)}",
        )


@rule
def external_clang_trains(
    write: FormatParameter,
    strategy: Strategy,
    problem: str,
    clang: str,
    algorithm: str | None = None,
    credit_assignment: str | None = None,
) -> None:
    if strategy != EXTERNAL:
        return
    for name, value, possible in (
        ("algorithm", algorithm, algorithms_without_advisors(problem)),
        ("credit_assignment", credit_assignment, ("module",)),
    ):
        if value and value not in possible:
            raise UserError(
                f"{write(name, value)} for {problem} needs a training clang with our advisors, not {clang}",
                f"leave it out, or use {write('strategy', 'sdk')}",
            )


@rule
def external_clang_has_the_features(
    write: FormatParameter, strategy: Strategy, problem: str, clang: str, start_from: str
) -> None:
    lacking = PRETRAINED_OF_OUR_FEATURES.get(problem, ())
    if strategy != EXTERNAL or start_from not in lacking:
        return
    other = next(name for name, folders in PRETRAINED_FOLDERS.items() if problem in folders and name not in lacking)
    raise UserError(
        f"{write('start_from', start_from)}: the pretrained policy for {problem} uses features that LLVM itself, "
        f"and so {clang}, does not have",
        f"pass {write('start_from', other)}, or a policy that was trained with {write('features', 'llvm')}",
    )


@rule
def external_clang_searches_no_plan(
    write: FormatParameter, strategy: Strategy, tune_minutes: float | None = None
) -> None:
    if strategy == EXTERNAL and tune_minutes:
        raise UserError(
            f"{write('tune_minutes', f'{tune_minutes:g}')}: a search for a plan needs a training clang that takes "
            "given decisions",
            f"leave it out, or use {write('strategy', 'sdk')}",
        )


@rule
def plugin_decides_on_the_problem(
    write: FormatParameter, strategy: Strategy, llvm_major: int, problem: str, extra_policy: str = ""
) -> None:
    if release_strategy(strategy, llvm_major) != "plugin":
        return
    possible = problems.names("decided_by_plugin")
    if problem not in possible:
        raise UserError(
            f"{write('problem', problem)}: LLVM lets a plugin decide on {', '.join(possible)} only",
            f"leave {write('strategy', strategy)} out",
        )
    if extra_policy:
        raise UserError(
            f"{write('extra_policy', extra_policy)}: a plugin embeds a policy for {', '.join(possible)} only",
            f"leave it or {write('strategy', strategy)} out",
        )


@rule
def embeddings_have_llvm_and_vocabulary(
    write: FormatParameter,
    features: str | None = None,
    ir2vec_vocab: str = "",
    strategy: str = "",
    llvm_major: int = 0,
) -> None:
    if features == "ir2vec":
        embeddings = write("features", features)
    elif ir2vec_vocab:
        embeddings = write("ir2vec_vocab", ir2vec_vocab)
    else:
        return
    if strategy != "plugin" or llvm_major < MIN_IR2VEC_MAJOR:
        raise UserError(
            f"{embeddings}: IR2Vec's embeddings need LLVM {MIN_IR2VEC_MAJOR}",
            f"pass {write('strategy', 'plugin')} {write('llvm_major', MIN_IR2VEC_MAJOR)}",
        )
    if not ir2vec_vocab:
        raise UserError(
            f"{embeddings}: embeddings need a vocabulary",
            f"pass {write('ir2vec_vocab', 'FILE')}, or {write('ir2vec_vocab', 'random')}",
        )


@rule
def plan_holds_the_problems_decisions(write: FormatParameter, tune_minutes: float | None, problem: str) -> None:
    possible = problems.names("has_plans")
    if tune_minutes and problem not in possible:
        raise UserError(
            f"{write('tune_minutes', f'{tune_minutes:g}')}: a plan holds {', '.join(possible)} decisions, but this run "
            f"is for {problem}",
            f"leave {write('tune_minutes', '')} out",
        )


@rule
def programs_have_their_options(
    write: FormatParameter,
    problem: str,
    recipe: str,
    max_slowdown_percent: float | None = None,
    time_repeats: int = 0,
    relink: str = "yes",
    benchmark: str = "",
    flag_rows: tuple[str, ...] | None = None,
) -> None:
    limit = max_slowdown_percent or None
    check_programs(write, problem, bool(recipe), limit, time_repeats, relink, benchmark, flag_rows)


@rule
def hyperparameters_exist(write: FormatParameter, gin_bindings: str) -> None:
    parse_gin_bindings(gin_bindings)


@rule
def algorithm_learns_from_the_credit(
    write: FormatParameter, algorithm: str | None, credit_assignment: str | None
) -> None:
    only = ONLY_CREDIT.get(algorithm or "")
    if credit_assignment and only and credit_assignment != only:
        raise UserError(
            f"{write('algorithm', algorithm)} learns from {only} credit only, not {credit_assignment}",
            f"pass {write('credit_assignment', only)}",
        )


@rule
def workers_are_described(
    write: FormatParameter, workers: str = "", spot_node_label: str = "", ray_cluster_options: str = ""
) -> None:
    with _as_the_user_wrote_it(write, "workers", "spot_node_label", "ray_cluster_options"):
        if workers:
            check_workers(workers)
        parse_spot(spot_node_label)
        parse_settings(ray_cluster_options)


@rule
def extra_policy_is_for_another_problem(
    write: FormatParameter, extra_policy: str, problem: str, llvm_major: int
) -> None:
    if extra_policy:
        check_extra_policy(extra_policy, problem, llvm_major, write("extra_policy", extra_policy))


@rule
def state_is_for_the_problem(write: FormatParameter, retrain_state: str, problem: str) -> None:
    deployed = load_state(retrain_state).deployed if retrain_state else None
    if deployed is not None and deployed.problem != problem:
        raise UserError(
            f"{write('retrain_state', retrain_state)} deploys a policy for {deployed.problem}, not for {problem}",
            "use another state for each problem",
        )


@rule
def registry_gets_promotions(write: FormatParameter, model_registry: str, retrain_state: str) -> None:
    if not model_registry:
        return
    from pipelines.retrain.registry import parse_registry  # imports what reads evaluations, in a second

    parse_registry(model_registry)
    if not retrain_state:
        raise UserError(
            f"{write('model_registry', model_registry)}: nothing is promoted without a state of retraining",
            f"pass {write('retrain_state', f'{USAGE}.json')}",
        )


@rule
def start_is_for_the_problem(write: FormatParameter, start_from: str, problem: str) -> None:
    if start_from and start_from not in START_WORDS:
        check_start_from(start_from, problem, write("start_from", start_from))
    pretrained = PRETRAINED_FOLDERS.get(start_from)
    if pretrained is not None and problem not in pretrained:
        others = [name for name, folders in PRETRAINED_FOLDERS.items() if problem in folders]
        raise UserError(
            f"{write('start_from', start_from)} is a policy for {', '.join(pretrained)}, and this run is for {problem}",
            f"pass {write('start_from', others[0])}",
        )


@contextmanager
def _as_the_user_wrote_it(write: FormatParameter, *names: str) -> Iterator[None]:
    """Rewrite the options in the errors of checks that steps share: the user gave parameters of these names."""
    try:
        yield
    except UserError as error:
        problem, remedy = error.problem, error.remedy
        for name in names:
            option = re.compile(rf"{re.escape(as_option(name, ''))}(?=\S)")
            problem, remedy = option.sub(write(name, ""), problem), option.sub(write(name, ""), remedy)
        raise UserError(problem, remedy) from None
