"""One step of a run, as the runner sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Step:
    """A command that reads artifacts and writes one.

    Invariants: `name` and `output` are unique in a chain; every value of `inputs` is the output of an earlier step.

    Attributes:
        name: what the user sees; also the name of the log and of the step's state.
        output: name of the artifact's directory in the run's directory.
        module: run as `python -m <module> <arguments>`; its package is the step's code.
        arguments: command-line arguments; an argument `{x}` stands for the directory of input `x`, `{output}` for the
            artifact's directory, `{work}` for the step's working directory.
        inputs: the artifacts it reads, by the names of their directories, which are also their placeholders.
        facts: anything else that the result depends on and the arguments do not show (content of a file that is
            named on the command line, version of a program that the step calls): text, compared for equality.
        work: name of a working directory that survives a kill: the step continues there what an interrupted run of
            the same step began. Empty for a step that starts anew each time.
        extends: flags whose change lets a resuming step go on in its old working directory (a longer budget).
    """

    name: str
    output: str
    module: str
    arguments: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    work: str = ""
    extends: tuple[str, ...] = ()

    def argv(self, run: Path) -> list[str]:
        """The arguments with every placeholder replaced by a directory of the run `run`."""
        places = {f"{{{name}}}": str(run / name) for name in self.inputs}
        places |= {"{output}": str(run / self.output), "{work}": str(run / self.work)}
        return [places.get(argument, argument) for argument in self.arguments]

    def start_arguments(self) -> tuple[str, ...]:
        """The arguments without the flags in `extends` and their values: what a working directory stands for."""
        kept: list[str] = []
        skip = False
        for argument in self.arguments:
            if skip:
                skip = False
            elif argument in self.extends:
                skip = True
            else:
                kept.append(argument)
        return tuple(kept)
