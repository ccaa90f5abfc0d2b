"""KFP component of the training step."""

from kfp import dsl

from components.platform.launcher.declare import step


@dsl.container_component
def ppo(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    trace: dsl.Input[dsl.Dataset],
    warmstart: dsl.Input[dsl.Model],
    problem: str,
    workers: str,
    spot_node_label: str,
    ray_cluster_options: str,
    preset: str,
    minutes: str,
    algorithm: str,
    credit_assignment: str,
    size_of: str,
    gin_bindings: str,
    seed: int,
    oversample_modules: str,
    ppo: dsl.Output[dsl.Artifact],
    policy: dsl.Output[dsl.Model],
    training_metrics: dsl.Output[dsl.Metrics],
):
    """Train a policy: by DQN for inlining, by PPO for register allocation and from a trained policy.

    DQN learns what measured decisions save, PPO changes a policy in small steps where that is hard to predict.
    A retry resumes from the checkpoints in `ppo`. A run with other inputs in the same place starts from scratch.

    Args:
        corpus: Corpus to train on.
        training: Training clang.
        trace: Trace of the default heuristic's decisions.
        warmstart: Policy to start from.
        problem: Decision that the policy makes: `inlining` or `regalloc`.
        workers: Where modules are compiled, KIND[:N]. `rayjob:N` starts a RayJob and follows it.
        spot_node_label: Label (and taint) of the nodes that the RayJob's workers run on.
        ray_cluster_options: Settings of the RayJob that differ from the defaults; see `mlgo ppo --help`.
        preset: Amount of training: `tiny`, `demo` or `full`.
        minutes: Minutes of training. Empty: the preset's.
        algorithm: `ppo`, `dqn` or `es`. Empty: the problem's default; `ppo` from a trained policy.
        credit_assignment: `counterfactual`, `function` or `module`. Empty: the algorithm's default.
        size_of: `linked` or `modules`: which bytes count.
        gin_bindings: Hyperparameters, separated by semicolons. Empty: the defaults.
        seed: Random seed.
        oversample_modules: JSON list of modules that take part in every round, or the state of `mlgo retrain`.
        ppo: Checkpoints and TensorBoard summaries.
        policy: Trained policy.
        training_metrics: Headline metrics.
    """
    return step(
        "ppo",
        {
            "--corpus": corpus.uri,
            "--trust-corpus": True,
            "--toolchain": training.uri,
            "--trace": trace.uri,
            "--warmstart": warmstart.uri,
            "--problem": problem,
            "--workers": workers,
            "--spot-node-label": spot_node_label,
            "--ray-cluster-options": ray_cluster_options,
            "--preset": preset,
            "--minutes": minutes,
            "--algorithm": algorithm,
            "--credit-assignment": credit_assignment,
            "--size-of": size_of,
            "--gin-bindings": gin_bindings,
            "--seed": seed,
            "--oversample-modules": oversample_modules,
            "--fingerprint-root-dir": True,
            "--root-dir": ppo.uri,
            "--output": policy.uri,
        },
        metrics={"report.json:iterations,trained_s,best_iteration,validation_reduction_percent": "training_metrics"},
        work="ppo",
        extends="minutes",
    )
