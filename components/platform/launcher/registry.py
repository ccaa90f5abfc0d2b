"""The registry of steps and of the pipeline's tasks: what each one is, and what it runs on.

The components, the pipelines, the command `mlgo` and tests read it. Imports nothing: kfp's environment reads it, too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A step: a package with a command line.

    Attributes:
        module: the package, "components.vocab".
        images: keys of the images that have what it needs.
        help: what `mlgo --help` says of it; "" if it is no command of its own.
    """

    module: str
    images: tuple[str, ...]
    help: str = ""


@dataclass(frozen=True)
class Task:
    """A task of a pipeline: a component that runs a step with some arguments.

    Attributes:
        step: key of STEPS.
        image: key of the image that it runs in.
        hours: time limit.
        cpus, memory_gb: limits; half of them is requested.
    """

    step: str
    image: str
    hours: float
    cpus: int
    memory_gb: int


_TRAINING = ("training", "cluster")
_LLVM = ("toolchain", "clang")

STEPS = {
    "toolchain": Step(
        "components.toolchain",
        (*_LLVM, "sdk"),
        "Build a training clang, a release clang that embeds a policy, or LLVM's libraries.",
    ),
    "corpus": Step("components.corpus", _LLVM, "Turn code into a corpus: bitcode and compile command of each module."),
    "trace": Step(
        "components.trace",
        _TRAINING,
        "Record every decision of the default heuristic, or export a trace for ml-compiler-opt.",
    ),
    "vocab": Step("components.vocab", _TRAINING, "Compute the quantiles of each feature of a trace."),
    "warmstart": Step("components.warmstart", _TRAINING, "Train a policy that imitates the default heuristic."),
    "ppo": Step(
        "components.ppo",
        _TRAINING,
        "Train a policy by reinforcement learning (DQN, PPO, ES), starting from the warmstart.",
    ),
    "policy": Step("components.policy", _TRAINING, "Explain the decisions of a policy, export or import it."),
    "log": Step("components.log", _TRAINING, "Show the decisions in a compiler's training log."),
    "interactive": Step(
        "components.interactive", _TRAINING, "Answer a compile by a policy, through LLVM's interactive mode."
    ),
    "evaluation": Step("components.evaluation", _LLVM, "Measure a policy on held-out code."),
    "tune": Step(
        "components.tune",
        _LLVM,
        "Search for the inlining decisions that make one program smallest: a plan for the release clang.",
    ),
    "shrink": Step(
        "components.shrink", ("clang",), "Build your code smaller: by the smallest of several compilers and flags."
    ),
    "forecast": Step(
        "components.forecast", _LLVM, "Estimate how much smaller the pretrained policy makes your program."
    ),
    "retrain": Step("pipelines.retrain", ("toolchain",)),
    "smoke": Step("pipelines.smoke", ("toolchain", "training")),
    "finish": Step("pipelines.finish", ("toolchain",)),
}
"""Name of a step -> the step. Those with a help are commands of `mlgo`."""

TASKS = {
    "toolchain-training": Task("toolchain", "toolchain", hours=2, cpus=4, memory_gb=8),
    "toolchain-release": Task("toolchain", "toolchain", hours=2, cpus=4, memory_gb=8),
    # Thousands of compiles, and links of 4 GB each. The jobs that run at a time follow the limits.
    "toolchain-sdk": Task("toolchain", "sdk", hours=24, cpus=32, memory_gb=64),
    "corpus": Task("corpus", "toolchain", hours=6, cpus=4, memory_gb=8),
    "trace": Task("trace", "training", hours=6, cpus=4, memory_gb=8),
    "vocab": Task("vocab", "training", hours=1, cpus=1, memory_gb=4),
    "warmstart": Task("warmstart", "training", hours=6, cpus=2, memory_gb=8),
    "ppo": Task("ppo", "training", hours=72, cpus=8, memory_gb=16),
    "evaluation": Task("evaluation", "toolchain", hours=6, cpus=4, memory_gb=8),
    "select-policy": Task("evaluation", "toolchain", hours=1, cpus=1, memory_gb=4),
    "release-report": Task("evaluation", "toolchain", hours=6, cpus=4, memory_gb=8),
    "tune": Task("tune", "toolchain", hours=24, cpus=8, memory_gb=16),
    "shrink": Task("shrink", "clang", hours=24, cpus=8, memory_gb=16),
    "promote": Task("retrain", "toolchain", hours=6, cpus=4, memory_gb=8),
    "record-refusal": Task("retrain", "toolchain", hours=1, cpus=1, memory_gb=2),
    "finish": Task("finish", "toolchain", hours=1, cpus=1, memory_gb=2),
    **{
        name: Task("smoke", image, hours=0.25, cpus=1, memory_gb=2)
        for name, image in {
            "check-toolchain": "toolchain",
            "check-training": "training",
            "check-ray": "training",
            "check-retry": "toolchain",
            "unreachable": "toolchain",
            "smoke-report": "toolchain",
        }.items()
    },
}
"""Name of a task, which is its component's -> the task."""


def steps_in(image: str) -> tuple[str, ...]:
    """Return the steps that are commands of an image."""
    return tuple(name for name, step in STEPS.items() if step.help and image in step.images)
