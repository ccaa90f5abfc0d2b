"""Searches for a plan, verifies it, and publishes it."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from components.core.compiler.advisor import POLICY_FILES, Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import PLAN_FILE, PlannedModule, plan_flags, write_plan
from components.core.compiler.probe import without_outliner
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.compiler.replay.command_line import require_replayable
from components.core.formats.corpus import Module, load_corpus
from components.core.formats.embeddings import check_vocabulary
from components.core.formats.policy import check_features, load_policy_info
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.objectives.size import reduction_percent
from components.core.policy.agreement import require_one_policy
from components.core.policy.dense import read_dense
from components.core.policy.export import export_fast
from components.core.projects.flags.compare import why_not_delivered
from components.core.projects.flags.request import RowsRequest
from components.core.projects.flags.types import CompilerOfRow, FlagsComparison
from components.platform.console import Progress, say
from components.platform.console.escape import csv_text
from components.platform.console.interrupts import continues_when_rerun
from components.platform.console.shutdown_deadline import shutdown_deadline
from components.platform.errors import UserError
from components.platform.storage import digest, publish
from components.platform.storage.directory import make_directory, remove_if_unused
from components.platform.storage.manifest import MANIFEST
from components.platform.storage.shared_state.published_work import record_publication
from components.platform.storage.shared_state.root_lease import LeaseLost, RootLease
from components.platform.storage.uri import display_path
from components.platform.workers import make_pool
from components.tune.climb import list_changes, list_decisions, starting_advisor
from components.tune.config import TuneConfig
from components.tune.model_card import MARKDOWN, write_card
from components.tune.search import Workbench, search
from components.tune.state import ModuleState, SearchDirectory, search_folder

METRICS, BY_MODULE = "tune.json", "modules.csv"
_PROBLEM = "inlining"


def tune(config: TuneConfig) -> dict[str, Any]:
    """Search, and publish the plan as `config.output`; return the content of its tune.json.

    Raises:
        UserError: an input is missing, damaged or does not fit the others; too many modules do not compile.
    """
    toolchain = load_toolchain(config.toolchain).require_mode("training")
    toolchain.require_capability("forced_decisions", "a search for a plan")
    release = _load_release(config, toolchain)
    if config.link is not None:
        if release is None:
            raise UserError(
                "programs are linked by a release clang with the plan, and none is given", "pass --release-toolchain"
            )
        config.link.check(release, ("stock", "plan"))
    corpus = load_corpus(config.corpus)
    require_replayable(corpus.modules, config.allowed_options)
    _check_programs(config, corpus.modules, toolchain)
    _check_policy(config.policy, toolchain)
    # One poison module must not end the search of a program with so few that this is more than the allowed fraction.
    quarantine = Quarantine(config.max_failed_fraction, len(corpus), min_allowed=1)
    compiler = Compiler(toolchain.clang, _PROBLEM, config.timeout_s, config.allowed_options)
    inputs = _identify_inputs(config)
    folder = search_folder(config.root_dir, inputs)
    with (
        continues_when_rerun(),
        shutdown_deadline(),
        remove_if_unused(folder),
        _take_lease(folder) as lease,
        record_publication(lease, config.output),
        publish(config.output, "plan") as partial,
        _make_loadable(config.policy, toolchain.clang) as policy,
        closing(make_pool(config.workers)) as pool,
    ):
        directory = SearchDirectory(lease, inputs)
        bench = Workbench(compiler, policy, pool, quarantine)
        with _publish_at_the_end(directory):
            states = search(config, bench, corpus.modules, directory)
        if not states:
            raise UserError("the time limit was reached before the first round of any module", "give more --minutes")
        modules = [module for module in corpus.modules if module.name in states and states[module.name].rounds]
        planned = _confirm_plans(bench, modules, states)
        if not planned:
            raise UserError("no module compiled to the size that was found", "search again, see the messages above")
        states = _keep_confirmed(states, planned, quarantine)
        major = int(toolchain.llvm_version.split(".")[0])
        decisions = [PlannedModule(states[name].source, planned[name]) for name in sorted(planned)]
        write_plan(partial / PLAN_FILE, decisions, major)
        built = {}
        if release is not None:
            in_plan = [module for module in modules if module.name in planned]
            built = _verify(release, config, partial / PLAN_FILE, in_plan, states, bench)
        if config.link is not None:
            assert release is not None
            linked = _link(config.link, release, partial, config.output)
            built |= {"linked": msgspec.to_builtins(linked)}
        figures = _summarize(config, toolchain, len(corpus), states, planned, quarantine) | built
        (partial / METRICS).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        _write_csv(partial / BY_MODULE, states)
        write_card(partial / MARKDOWN, config, figures)
        lease.update()  # a search that lost its lease publishes nothing
    return figures


def _check_programs(config: TuneConfig, modules: Sequence[Module], toolchain: Toolchain) -> None:
    program = next((module.name for module in modules if module.is_program()), None)
    if program is None:
        return
    if config.link is not None:
        raise UserError(
            f"{program} is a whole program, and rows of flags are built with plans of files only",
            "omit --build, or --recipe and --row, and link with the plan and -mlgo-keep-smaller",
        )
    if "program_decisions" not in toolchain.capabilities:
        raise UserError(
            f"{program} is a whole program, and the training clang in {display_path(toolchain.directory)}, a plugin or "
            "of an earlier version, cannot search its decisions",
            "make one with mlgo toolchain --mode training --strategy sdk, or search a corpus of objects",
        )


def _take_lease(folder: Path) -> RootLease:
    make_directory(folder)
    return RootLease(folder, "search", results="modules/*.json")


@contextmanager
def _publish_at_the_end(directory: SearchDirectory) -> Iterator[None]:
    """Publish the state when the block ends, also if it is interrupted or fails."""
    try:
        yield
    except LeaseLost:
        raise
    except BaseException:
        try:
            directory.publish()
        except UserError as error:
            say(f"warning: the last rounds are not saved: {error.problem}")
        raise
    directory.publish()


def _load_release(config: TuneConfig, training: Toolchain) -> Toolchain | None:
    if config.release_toolchain is None:
        return None
    release = load_toolchain(config.release_toolchain).require_mode("release")
    embedded = release.built.get("policies", {}).get(_PROBLEM)
    if embedded is None or release.llvm_version != training.llvm_version:
        raise UserError(
            f"the clang in {display_path(config.release_toolchain)} is LLVM {release.llvm_version} with policies for "
            f"{', '.join(release.built.get('policies', {})) or 'nothing'}, but the plan is for inlining with LLVM "
            f"{training.llvm_version}",
            "mlgo toolchain --mode release --policy DIR, with the policy that the search starts from",
        )
    if (config.policy / MANIFEST).exists() and embedded != digest(config.policy):
        say(
            f"warning: the clang in {display_path(config.release_toolchain)} embeds another policy than "
            f"{display_path(config.policy)}, and it decides about calls that the plan does not list"
        )
    return release


def _check_policy(policy: Path, toolchain: Toolchain) -> None:
    require_one_policy(policy)
    info = load_policy_info(policy)
    if info.problem != _PROBLEM:
        raise UserError(
            f"{display_path(policy)} is a policy for {info.problem}, but plans are for inlining",
            "name an inlining policy",
        )
    check_features(info.features, toolchain.features.get(_PROBLEM, ()))
    check_vocabulary(info, toolchain)


def _identify_inputs(config: TuneConfig) -> dict[str, str]:
    """Return what determines the result. A saved search is found by its digest, so the names do not change."""
    artifacts = {"corpus": config.corpus, "training clang": config.toolchain, "policy": config.policy}
    return {
        **{name: digest(path) if (path / MANIFEST).exists() else "" for name, path in artifacts.items()},
        "size_of": config.size_of,
    }


@contextmanager
def _make_loadable(policy: Path, clang: Path) -> Iterator[Path]:
    """Yield the policy in the form that the training clang loads; compile it if necessary."""
    if all((policy / name).is_file() for name in POLICY_FILES):
        yield policy
        return
    with TemporaryDirectory(prefix="mlgo-policy-") as directory:
        export_fast(read_dense(policy), Path(directory), clang)
        yield Path(directory)


def _compile_planned(compiler: Compiler, request: Request) -> tuple[int, int, ForcedDecisions]:
    """Compile a module with the decisions found, and again with the decisions that a plan lists forced: of a program
    what differs from LLVM's heuristic. Return the text size of both in bytes, and the decisions."""
    (base,) = compiler(request).samples
    is_program = request.module.is_program()
    decisions = ForcedDecisions.of(list_changes(base)) if is_program else list_decisions(base)
    again = Request(request.module, request.advisor, forced=(decisions,))
    return base.text_size_bytes, compiler(again).samples[0].text_size_bytes, decisions


def _confirm_plans(
    bench: Workbench, modules: Sequence[Module], states: Mapping[str, ModuleState]
) -> dict[str, ForcedDecisions]:
    """Return the plan's decisions of each module for which a compile confirms the size that was found."""
    policy = Advisor("policy", policy=bench.policy, log=True)
    requests = [
        Request(module, starting_advisor(module, policy), forced=(ForcedDecisions.of(states[module.name].changed),))
        for module in modules
    ]
    planned: dict[str, ForcedDecisions] = {}
    decide = partial(_compile_planned, bench.compiler)
    with Progress("compiling with the plan", len(requests)) as progress:
        for request, (size, again, decisions) in compile_all(bench.pool, decide, requests, bench.quarantine, progress):
            name = request.module.name
            if size == again == states[name].size_bytes:
                planned[name] = decisions
            else:
                searched = states[name].size_bytes
                say(f"{name} is left out of the plan: found {searched} bytes, compiled to {size} and {again}")
    return planned


def _keep_confirmed(
    states: Mapping[str, ModuleState], planned: Mapping[str, ForcedDecisions], quarantine: Quarantine
) -> dict[str, ModuleState]:
    """Return the states of the modules that compile; those that are not in the plan have the sizes of the start."""
    kept = {name: state for name, state in states.items() if name not in quarantine}
    for name, state in kept.items():
        if name not in planned:
            kept[name] = replace(state, size_bytes=state.start_bytes, linked_bytes=state.start_linked_bytes, changed={})
        elif state.is_program:
            kept[name] = replace(state, changed=planned[name].actions())  # without what the search only pinned
    return kept


def _compile_twice(compiler: Compiler, request: Request) -> tuple[int, bool]:
    """Return a module's text size in bytes, and whether both objects are identical."""
    first, second = (compiler(request).samples[0] for _ in range(2))
    return first.text_size_bytes, first.object_digest == second.object_digest


def _verify(
    release: Toolchain,
    config: TuneConfig,
    plan: Path,
    modules: Sequence[Module],
    states: Mapping[str, ModuleState],
    bench: Workbench,
) -> dict[str, Any]:
    """Compile with the plan; count the modules with the size that was found, and those with identical objects.

    The search compiles files without the outliner, which the release clang has, and programs with it.
    """
    twice = partial(_compile_twice, Compiler(release.clang, _PROBLEM, config.timeout_s, config.allowed_options))
    flags, of_files = tuple(plan_flags(plan)), without_outliner(release.clang)
    requests = [
        Request(
            module,
            Advisor("release"),
            extra_flags=flags if module.is_program() else (*flags, *of_files),
            want_digest=True,
        )
        for module in modules
    ]
    as_found = identical = 0
    with Progress("compiling with the release clang and the plan", len(requests)) as progress:
        for request, (size, same) in compile_all(bench.pool, twice, requests, bench.quarantine, progress):
            searched = states[request.module.name].size_bytes
            if size != searched:
                say(f"{request.module.name}: found {searched} bytes, the release clang makes {size} with the plan")
            as_found += size == searched
            identical += same
    return {"release_modules": len(modules), "release_as_found": as_found, "release_identical_twice": identical}


def _link(request: RowsRequest, release: Toolchain, directory: Path, output: Path) -> FlagsComparison:
    """Link the programs with the plan in `directory`, which is published as `output`.

    Raises:
        UserError: they are not smaller than by stock clang and than by the policy alone, or cannot be built.
    """
    baselines: tuple[CompilerOfRow, ...] = ("stock", "policy")
    compared = request.compare(release, directory / "build", directory / PLAN_FILE, (*baselines, "plan"))
    for against in baselines:
        if (reason := why_not_delivered(compared, "plan", against)) is not None:
            raise UserError(
                f"the plan is not published: {reason}",
                "use that row, search longer (the search continues from where it is), or choose --row among those that "
                "your build can use; mlgo evaluation flags shows all rows",
            )
    unpublished, published = (str((place / PLAN_FILE).absolute()) for place in (directory, output))
    for project in compared.projects:
        project.build = project.build.replace(unpublished, published)
    return compared


def _summarize(
    config: TuneConfig,
    toolchain: Toolchain,
    corpus_modules: int,
    states: Mapping[str, ModuleState],
    planned: Collection[str],
    quarantine: Quarantine,
) -> dict[str, Any]:
    """Return the content of tune.json; bytes are sums over all modules that compile, in the plan or not."""
    by_name = [state for _, state in sorted(states.items())]
    text = [[s.heuristic_bytes, s.policy_bytes, s.size_bytes] for s in by_name]
    linked = [[s.heuristic_linked_bytes, s.policy_linked_bytes, s.linked_bytes] for s in by_name]
    return {
        "version": 1,
        "problem": _PROBLEM,
        "llvm_version": toolchain.llvm_version,
        **{name.replace(" ", "_"): value for name, value in _identify_inputs(config).items()},
        "corpus_modules": corpus_modules,
        "measured_modules": len(states),
        "programs": sum(state.is_program for state in by_name),
        "unreached_modules": sum(not state.rounds for state in by_name),
        "modules": len(planned),
        "planned_heuristic_bytes": sum(states[name].heuristic_bytes for name in planned),
        "finished_modules": sum(states[name].finished for name in planned),
        "rounds": sum(state.rounds for state in by_name),
        **_compare_sizes("", text),
        **(_compare_sizes("linked_", linked) if config.size_of == "linked" else {}),
        "quarantine": quarantine.to_json(),
    }


def _compare_sizes(prefix: str, sizes: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Return the figures of the modules' sizes in bytes under LLVM's heuristic, the policy and the plan."""
    heuristic, policy, plan = (round(sum(column)) for column in zip(*sizes, strict=True))
    return {
        f"heuristic_{prefix}bytes": heuristic,
        f"policy_{prefix}bytes": policy,
        f"plan_{prefix}bytes": plan,
        f"policy_{prefix}reduction_percent": reduction_percent(heuristic, policy),
        f"plan_{prefix}reduction_percent": reduction_percent(heuristic, plan),
        f"plan_over_policy_{prefix}percent": reduction_percent(policy, plan),
    }


def _write_csv(path: Path, states: Mapping[str, ModuleState]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        sides = ("heuristic", "policy", "plan")
        columns = [f"{side}_{kind}bytes" for kind in ("", "linked_") for side in sides]
        writer.writerow(["module", *columns, "changed_decisions", "rounds"])
        for name, state in sorted(states.items()):
            text = [state.heuristic_bytes, state.policy_bytes, state.size_bytes]
            linked = [state.heuristic_linked_bytes, state.policy_linked_bytes, state.linked_bytes]
            writer.writerow(
                [csv_text(name), *text, *(round(size) for size in linked), len(state.changed), state.rounds]
            )
