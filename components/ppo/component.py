"""KFP component of the training step."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

ppo = component(
    "ppo",
    "Train a policy: by DQN for inlining, by PPO for register allocation and from a trained policy.\n\n"
    "DQN learns what measured decisions save, PPO changes a policy in small steps where that is hard to predict.\n"
    "A retry resumes from the checkpoints in `ppo`. A run with other inputs in the same place starts from scratch.",
    Port("corpus", "Corpus to train on.", dsl.Input[dsl.Dataset]),
    ("--trust-corpus", True),
    Port("training", "Training clang.", dsl.Input[dsl.Artifact], "--toolchain"),
    Port("trace", "Trace of the default heuristic's decisions.", dsl.Input[dsl.Dataset]),
    Port("warmstart", "Policy to start from.", dsl.Input[dsl.Model]),
    Port("problem", "Decision that the policy makes: `inlining` or `regalloc`."),
    Port("workers", "Where modules are compiled, KIND[:N]. `rayjob:N` starts a RayJob and follows it."),
    Port("spot_node_label", "Label (and taint) of the nodes that the RayJob's workers run on."),
    Port("ray_cluster_options", "Settings of the RayJob that differ from the defaults; see `mlgo ppo --help`."),
    Port("preset", "Amount of training: `tiny`, `demo` or `full`."),
    Port("minutes", "Minutes of training. Empty: the preset's."),
    Port("algorithm", "`ppo`, `dqn` or `es`. Empty: the problem's default; `ppo` from a trained policy."),
    Port("credit_assignment", "`counterfactual`, `function` or `module`. Empty: the algorithm's default."),
    Port("size_of", "`linked` or `modules`: which bytes count."),
    Port("gin_bindings", "Hyperparameters, separated by semicolons. Empty: the defaults."),
    Port("seed", "Random seed.", int),
    Port(
        "oversample_modules",
        "JSON list of modules that take part in every round, or the state of `mlgo retrain`.",
    ),
    ("--fingerprint-root-dir", True),
    Port("ppo", "Checkpoints and TensorBoard summaries.", dsl.Output[dsl.Artifact], "--root-dir"),
    Port("policy", "Trained policy.", dsl.Output[dsl.Model], "--output"),
    Port("training_metrics", "Headline metrics.", dsl.Output[dsl.Metrics], ""),
    metrics={"report.json:iterations,trained_s,best_iteration,validation_reduction_percent": "training_metrics"},
    work="ppo",
    extends="minutes",
)
