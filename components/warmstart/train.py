"""The warmstart step: trace and vocab in, a policy that imitates the heuristic out."""

from __future__ import annotations

import json

import numpy as np
import tensorflow as tf

from components.core import problems
from components.core.formats.embeddings import EMBEDDINGS
from components.core.formats.policy import PolicyInfo, check_features, write_regressed
from components.core.formats.strategy import MIN_IR2VEC_MAJOR, FeatureSet
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.formats.trace import Trace, load_trace
from components.core.formats.vocab import vocab_digest
from components.core.policy.dense import DensePolicy
from components.core.policy.export import export_policy
from components.core.policy.tf import networks
from components.core.policy.tf.tf_errors import explain_resource_exhausted
from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.storage import digest, publish, require_artifact
from components.warmstart.adopt import adopt_policy
from components.warmstart.clone import SAMPLE_DECISIONS, agreement, clone, decide
from components.warmstart.config import HEURISTIC, WarmstartConfig
from components.warmstart.data import load_decisions, require_no_remains, require_vocab
from components.warmstart.report import REPORT, WarmstartReport

TENSORBOARD = "tensorboard"


def train(config: WarmstartConfig) -> WarmstartReport:
    """Train and publish a policy as `config.output`. UserError if inputs do not match."""
    with explain_resource_exhausted(config.output):
        return _train(config)


def _train(config: WarmstartConfig) -> WarmstartReport:
    for directory, kind in ((config.trace, "trace"), (config.toolchain, "toolchain")):
        require_artifact(directory, kind)
    toolchain = load_toolchain(config.toolchain)
    toolchain.require_mode("training")
    trace = load_trace(config.trace)
    problem = trace.problem
    if problem not in toolchain.features:
        raise UserError(f"{config.toolchain} does not know the problem {problem}", "use the toolchain of the trace")
    require_no_remains(trace, config.vocab, toolchain.upstream_features.get(problem))
    if config.start_from != HEURISTIC:
        require_vocab(config.trace, config.vocab)  # not used, but what a user passes by mistake is refused
        return adopt_policy(config, problem, toolchain)
    only = feature_names(config.features, trace, toolchain)
    decisions = load_decisions(config.trace, config.vocab, config.heldout_fraction, config.seed, only)
    check_features(decisions.features, toolchain.features[problem])
    networks.configure(problem, config.gin_bindings, config.gin_files)

    heldout = decisions.heldout
    say(f"{(~heldout).sum()} training decisions, {heldout.sum()} held-out decisions of other modules")
    rows = np.flatnonzero(heldout)[:SAMPLE_DECISIONS]
    sample, sample_action = decisions.observed[rows], decisions.action[rows]
    with publish(config.output, "policy") as partial:
        writer = tf.summary.create_file_writer(str(partial / TENSORBOARD))
        with Progress("cloning the heuristic, epochs", config.epochs) as progress, writer.as_default():

            def on_epoch(number: int, loss: float, policy: DensePolicy) -> None:
                agreed = agreement(policy, sample, sample_action)
                tf.summary.scalar("warmstart/loss", loss, step=number)
                tf.summary.scalar("warmstart/heldout_agreement", agreed, step=number)
                progress.advance(loss=loss, agreement=agreed)

            cloned = clone(config, decisions, on_epoch)
        writer.close()
        chosen, names = decide(cloned.policy, decisions.observed[heldout]), problems.get(problem).policy.action_names
        report = WarmstartReport.compare(
            decisions.action[heldout],
            chosen,
            names,
            training_agreement=agreement(cloned.policy, decisions.observed[~heldout], decisions.action[~heldout]),
            decisions=int((~heldout).sum()),
            heldout_decisions=int(heldout.sum()),
            epochs=config.epochs,
            decisions_per_s=cloned.decisions_per_s,
            training_s=cloned.training_s,
            tracing_s=cloned.tracing_s,
            loss=cloned.loss,
        )
        info = PolicyInfo(
            problem=problem,
            features=decisions.features,
            num_actions=cloned.policy.num_actions,
            trained_by="warmstart",
            vocab_digest=vocab_digest(config.vocab),
            trace_digest=digest(config.trace),
            corpus_digest=decisions.trace.corpus,
            toolchain_digest=digest(config.toolchain),
            llvm_version=toolchain.llvm_version,
            metrics=report.figures(),
            trained_ranges=decisions.ranges,
        )
        export_policy(cloned.policy, partial, toolchain.clang, info, toolchain.directory)
        (partial / REPORT).write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
        write_regressed(partial, config.regressed)
    return report


def feature_names(features: FeatureSet, trace: Trace, toolchain: Toolchain) -> set[str]:
    """Return the names of the features in a feature set. UserError if the toolchain does not have it."""
    logged = {spec.name for spec in trace.features}
    if features == "llvm":
        upstream = toolchain.upstream_features.get(trace.problem)
        if upstream is None:
            raise UserError(
                f"{toolchain.directory} does not say which of its features upstream LLVM has",
                "build the toolchain again",
            )
        return set(upstream)
    if features == "extended":
        return logged - EMBEDDINGS
    if not logged >= EMBEDDINGS:
        raise UserError(
            f"--features ir2vec: the clang in {toolchain.directory} (LLVM {toolchain.llvm_version}) logs no embeddings",
            f"build it with: mlgo toolchain --strategy plugin --llvm-major {MIN_IR2VEC_MAJOR} --mode training "
            "--ir2vec-vocab random; then trace again",
        )
    return logged
