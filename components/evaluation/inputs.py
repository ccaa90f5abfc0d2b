"""Loads and checks the inputs of an evaluation before anything is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from msgspec import UNSET

from components.core import problems
from components.core.compiler.development_mode.upstream import UpstreamCompiler, compiler_class, require_model
from components.core.formats.corpus import Corpus, Module
from components.core.formats.embeddings import check_vocabulary
from components.core.formats.policy import (
    PRETRAINED,
    PRETRAINED_FOLDERS,
    PRETRAINED_LLVM,
    PRETRAINED_THUMB,
    check_features,
    load_policy_info,
    require_policy,
)
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.objectives import OBJECTIVES, Objective
from components.core.policy.agreement import require_one_policy
from components.core.policy.dense import WEIGHTS_FILE, read_dense
from components.core.policy.generated.shared_object import SHARED_OBJECT
from components.core.policy.pretrained import pretrained_policy, pretrained_problems, same_network
from components.core.projects.recipe import Recipe, load_recipes
from components.evaluation.config import MATCHING, EvaluationConfig
from components.evaluation.measurements import Measurements, read_measurements
from components.evaluation.metrics_types import Metrics, PolicyRole
from components.evaluation.release_policy import find_role, swap_roles
from components.evaluation.report import terminal_report
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage import digest


def heldout_modules(corpus: Corpus) -> tuple[Module, ...]:
    """Return the held-out modules of a corpus. UserError if there are none."""
    modules = corpus.split("heldout")
    if not modules:
        raise UserError(
            f"the corpus in {corpus.directory} has no held-out modules in its splits.json",
            f"split it again: mlgo corpus split --corpus {corpus.directory} --heldout-fraction 0.15",
        )
    return modules


def load_release(directory: Path, policy: Path, training: Toolchain) -> Toolchain:
    """Load the release clang: it must embed `policy` and have the training clang's LLVM version.

    Raises:
        UserError: it is missing, not a release clang, embeds another policy, or has another version.
    """
    release = load_toolchain(directory).require_mode("release")
    if release.llvm_version != training.llvm_version:
        raise UserError(
            f"the release clang in {directory} is LLVM {release.llvm_version}, the training clang in "
            f"{training.directory} is {training.llvm_version}: their code would differ by more than the policy",
            "build both from one LLVM version",
        )
    if digest(policy) not in release.built.get("policies", {}).values():
        raise UserError(
            f"the release clang in {directory} embeds another policy than {policy}",
            f"build one with this policy: mlgo toolchain --mode release --policy {policy}",
        )
    return release


def find_pretrained(name: str, problem: str, training: Path, release: Path | None, earlier: Path | None) -> Path:
    """Return the directory of a pretrained policy, as the training clang loads it or as the release clang embeds it.

    Args:
        earlier: the evaluation by the training clang that is to be completed, if any.

    Raises:
        UserError: there is none for this problem, or the two clangs would need different files of it.
    """
    if earlier is not None:
        raise UserError(
            f"--evaluation and --policy {name}: the training clang of {earlier} loaded other files of a pretrained "
            "policy than a release clang embeds",
            "leave out --evaluation",
        )
    if release is None:
        return pretrained_policy(problem, clang=load_toolchain(training).clang, name=name)
    if not OBJECTIVES[problems.get(problem).objective].sweeps_thresholds:
        raise UserError(
            f"--release-toolchain and --policy {name}: the training clang measures the scores of {problem}, and loads "
            "other files of a pretrained policy than a release clang embeds",
            "leave out --release-toolchain; `mlgo evaluation compare-programs` compares what it builds",
        )
    return pretrained_policy(problem, name=name)


def check_policy(directory: Path, config: EvaluationConfig, training: Toolchain) -> None:
    """Refuse a damaged policy, one for another problem, and one with features that the compiler does not log."""
    require_policy(directory)
    require_one_policy(directory)
    info = load_policy_info(directory)
    if info.problem != config.problem:
        raise UserError(
            f"{directory} is a policy for {info.problem}, not for {config.problem}", "pass the policy of this problem"
        )
    check_features(info.features, training.features.get(config.problem, ()))
    check_vocabulary(info, training)
    if compiler_class(training) is UpstreamCompiler:
        require_model(directory)


@dataclass(frozen=True)
class ReferencePolicy:
    """The policy of --compare-with.

    Attributes:
        origin: as it was named: the artifact, or the name of a pretrained policy.
        directory: the policy as the training clang loads it.
        is_warmstart: whether it is the warmstart policy, because training started from it; it then is not compiled.
    """

    origin: Path | str
    directory: Path
    is_warmstart: bool = False

    @property
    def name(self) -> str:
        """The absolute path of the artifact, or the name of the pretrained policy."""
        return str(self.origin.absolute()) if isinstance(self.origin, Path) else self.origin


def choose_pretrained(config: EvaluationConfig, training: Toolchain, modules: Sequence[Module]) -> str:
    """Return the name of the pretrained policy that could replace the evaluated one.

    That is the one for Thumb-2 if most modules are such code, the one of LLVM's own features if the evaluated policy
    has no others, and otherwise the one of all features.
    """
    thumb = sum(_is_thumb(module) for module in modules)
    if 2 * thumb > len(modules) and config.problem in pretrained_problems(PRETRAINED_THUMB):
        return PRETRAINED_THUMB
    upstream = set(training.upstream_features.get(config.problem) or ())
    same = PRETRAINED_FOLDERS[PRETRAINED_LLVM].get(config.problem) == PRETRAINED_FOLDERS[PRETRAINED].get(config.problem)
    if same or not {feature.name for feature in load_policy_info(config.policy).features} <= upstream:
        return PRETRAINED
    return PRETRAINED_LLVM


def _is_thumb(module: Module) -> bool:
    words = module.arguments()
    return any(flag == "-triple" and triple.startswith("thumb") for flag, triple in pairwise(words))


def find_reference(
    config: EvaluationConfig, training: Toolchain, modules: Sequence[Module] = ()
) -> ReferencePolicy | None:
    """Return the policy of `config.compare_with`, which the training clang can load; None for no comparison.

    A pretrained policy is not compared where this problem has none, and where the training clang lacks its features.

    Args:
        modules: the held-out modules, by which MATCHING chooses.

    Raises:
        UserError: a policy that is not a pretrained one does not fit.
    """
    origin = config.compare_with
    if origin is None:
        return None
    if isinstance(origin, Path):
        check_policy(origin, config, training)
        if not (origin / SHARED_OBJECT).is_file():
            raise UserError(f"{origin} has no {SHARED_OBJECT}, which the training clang loads", "export it again")
        return ReferencePolicy(origin, origin)
    if origin == MATCHING:
        origin = choose_pretrained(config, training, modules)
    if config.problem not in pretrained_problems(origin):
        return None
    if compiler_class(training) is UpstreamCompiler:
        say(f"not compared with the {origin} policy, which has no form that LLVM's own development mode loads")
        return None
    try:
        policy = pretrained_policy(config.problem, clang=training.clang, name=origin)
        check_policy(policy, config, training)
    except UserError as error:
        say(f"not compared with the {origin} policy: {error.problem}")
        return None
    return ReferencePolicy(origin, policy, config.warmstart is not None and _same_weights(config.warmstart, policy))


def _same_weights(one: Path, other: Path) -> bool:
    """Return whether two policies have the same network; False if one has no weights, because it was imported."""
    if not all((policy / WEIGHTS_FILE).is_file() for policy in (one, other)):
        return False
    return same_network(read_dense(one), read_dense(other))


def load_earlier(config: EvaluationConfig) -> tuple[Metrics, Measurements, PolicyRole]:
    """Load metrics.json and measurements of the earlier evaluation, which may have another policy than the trained one.

    Returns:
        The metrics as they are, the measurements of `config.policy`, and its role in that evaluation.

    Raises:
        UserError: that evaluation did not measure the policy.
    """
    assert config.evaluation is not None
    metrics = terminal_report.read_metrics(config.evaluation)
    inputs = metrics.inputs
    role = find_role(digest(config.policy), inputs)
    if role is None:
        raise UserError(
            f"the evaluation in {config.evaluation} evaluated another policy than {config.policy}",
            "pass the evaluation of this policy, or leave --evaluation out",
        )
    if config.warmstart is not None:
        # Evaluations written before digests were recorded say only whether there was a warmstart policy.
        compared = inputs.warmstart_digest
        if compared is UNSET:
            compared = digest(config.warmstart) if inputs.warmstart else None
        if compared != digest(config.warmstart):
            raise UserError(
                f"the evaluation in {config.evaluation} does not compare the warmstart policy {config.warmstart}, "
                "and only the policy is compiled again",
                "leave --warmstart out, or leave --evaluation out",
            )
    return metrics, swap_roles(read_measurements(config.evaluation), role), role


def heldout_recipes(objective: Objective, path: Path, heldout_projects: Sequence[str]) -> tuple[Recipe, ...]:
    """Return the recipes of held-out projects that have the objective's `recipe_field`."""
    field, compared = objective.recipe_field, objective.labels.projects
    chosen = [recipe for recipe in load_recipes(path).projects if recipe.name in heldout_projects]
    if not chosen:
        say(f"{path} describes no wholly held-out project of this corpus: {compared} are not compared")
    lacking = [recipe.name for recipe in chosen if not getattr(recipe, field)]
    if lacking:
        say(f"{path} lists no {field} for {', '.join(lacking)}: {compared} are not compared there")
    return tuple(recipe for recipe in chosen if recipe.name not in lacking)
