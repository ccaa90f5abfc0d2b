"""The inputs of a training: the policy to start from, and modules with their baselines and weights."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.replay.command_line import require_replayable
from components.core.compiler.source_language import source_language
from components.core.formats.corpus import Module, load_corpus
from components.core.formats.embeddings import check_vocabulary
from components.core.formats.policy import POLICY_JSON, PolicyInfo, check_features, load_policy_info
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.formats.trace import load_trace, read_columns, read_modules, read_object_counts
from components.core.objectives import OBJECTIVES, Objective
from components.core.objectives.objective import Outcome
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.tf.observation import observations
from components.platform.errors import UserError
from components.ppo.config import TrainingConfig
from components.ppo.module_sampler import oversampled, read_oversampling, sampling_weights

MIN_VALIDATION = 24
"""Modules on which a validation is made at least; where fewer were set aside, training modules fill up.

Fine-tuning on yaml-cpp (34 modules): on the five that were set aside one decision moves the figure by five points, and
the starting policy was delivered for three seeds of four.
"""
MIN_OF_LANGUAGE, MIN_FRACTION = 6, 0.1
"""The same for each language of at least this fraction of the training modules: C loses what C++ hides."""
ENTROPY_DECISIONS = 20_000
"""Decisions of the trace on which the entropy of the warmstart and the scale of the inputs are measured."""


@dataclass(frozen=True)
class TrainingData:
    """Inputs of a training.

    Attributes:
        warmstart: the policy to start from, as it was written.
        info: the warmstart's policy.json; without origin if it has none.
        baselines: module -> outcome under the heuristic, for every module with decisions.
        modules: name -> training module.
        validation: modules that select the best policy, at least MIN_VALIDATION if there are as many.
        weights: training module -> weight in the choice of an iteration's modules.
        compile_s: module -> seconds of its compile in the trace.
        definition_counts: project -> function -> number of objects that define it; empty if the bytes of all count.
        calibration_observations: float32 [N, *S], observations of up to ENTROPY_DECISIONS decisions of the trace.
    """

    toolchain: Toolchain
    objective: Objective
    warmstart: DensePolicy
    info: PolicyInfo
    baselines: dict[str, Outcome]
    modules: dict[str, Module]
    validation: list[Module]
    weights: dict[str, float]
    compile_s: dict[str, float]
    definition_counts: dict[str, dict[str, int]]
    calibration_observations: NDArray[np.float32]


def load_training_data(config: TrainingConfig) -> TrainingData:
    """Read the inputs of a training. UserError if they do not fit together, or have too few modules."""
    problem = problems.get(config.problem)
    corpus = load_corpus(config.corpus)
    toolchain = load_toolchain(config.toolchain).require_mode("training")
    if (traced := load_trace(config.trace).problem) != problem.name:
        problem_of_trace = f"the trace in {config.trace} is for the problem {traced}, not {problem.name}"
        raise UserError(problem_of_trace, f"pass --problem {traced}")
    warmstart = read_dense(config.warmstart)
    check_features(warmstart.features, toolchain.features.get(problem.name, ()))
    info = PolicyInfo(problem.name, warmstart.features, warmstart.num_actions, trained_by="")
    if (config.warmstart / POLICY_JSON).exists():
        info = load_policy_info(config.warmstart)
        check_vocabulary(info, toolchain)
    objective = OBJECTIVES[problem.objective]
    baselines = objective.baselines(config.trace)
    table = read_modules(config.trace)
    modules = {m.name: m for m in corpus.split("train") if m.name in baselines}
    validation = [m for m in corpus.split("validation") if m.name in baselines]
    if not modules or not validation:
        raise UserError(
            f"the corpus in {config.corpus} has {len(modules)} training and {len(validation)} validation "
            f"modules that are in the trace; both are needed",
            "split the corpus again (mlgo corpus split) or trace it again",
        )
    validation += _fill_up(modules, validation)
    require_replayable([*modules.values(), *validation], config.allowed_options)
    linked = config.size_of == "linked" and config.credit_assignment == "counterfactual"
    return TrainingData(
        toolchain=toolchain,
        objective=objective,
        warmstart=warmstart,
        info=info,
        baselines=baselines,
        modules=modules,
        validation=validation,
        weights=_weights(config, table, modules),
        compile_s=dict(zip(table["module"].tolist(), table["compile_s"].tolist(), strict=True)),
        definition_counts=read_object_counts(config.trace) if linked and objective.uses_function_sizes else {},
        calibration_observations=_sample_observations(config, warmstart),
    )


def _fill_up(modules: Mapping[str, Module], validation: Sequence[Module]) -> list[Module]:
    """Return training modules that complete the validation modules, always the same.

    A language of at least MIN_FRACTION of the training modules has MIN_OF_LANGUAGE validation modules, if there are as
    many, and all have MIN_VALIDATION.
    """
    ranked = sorted(modules.values(), key=lambda m: hashlib.sha256(m.name.encode()).digest())
    languages = {m.name: source_language(m.arguments(), m.name) for m in (*ranked, *validation)}
    present = Counter(languages[module.name] for module in validation)
    chosen: list[Module] = []
    for language, count in sorted(Counter(languages[module.name] for module in ranked).items()):
        missing = MIN_OF_LANGUAGE - present[language] if count >= MIN_FRACTION * len(ranked) else 0
        chosen += [module for module in ranked if languages[module.name] == language][: max(0, missing)]
    others = [module for module in ranked if module not in chosen]
    return chosen + others[: max(0, MIN_VALIDATION - len(validation) - len(chosen))]


def _weights(config: TrainingConfig, table: dict[str, NDArray[Any]], modules: Mapping[str, Module]) -> dict[str, float]:
    is_trained = np.isin(table["module"], list(modules))
    names = table["module"][is_trained].tolist()
    bitcode_bytes = np.array([modules[name].bitcode.stat().st_size for name in names])
    by_name = dict(zip(names, sampling_weights(table["decisions"][is_trained], bitcode_bytes).tolist(), strict=True))
    selected = oversampled(read_oversampling(config.oversampling), by_name) if config.oversampling else ()
    by_name |= dict.fromkeys(selected, 1.0)
    return by_name


def _sample_observations(config: TrainingConfig, policy: DensePolicy) -> NDArray[np.float32]:
    columns = read_columns(config.trace, [feature.name for feature in policy.features])
    decisions = len(columns[policy.features[0].name])
    rows = np.random.default_rng(0).permutation(decisions)[:ENTROPY_DECISIONS]
    sampled = {name: column[rows] for name, column in columns.items()}
    return observations(problems.get(policy.problem), policy.features, policy.buckets, sampled)
