"""A compile that sleeps, for a simulated cluster. Its workers import this and little else."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.compiler.compile import Request
from components.ppo.sample import SampleModule


@dataclass(frozen=True)
class Asleep:
    """In place of a SampleModule, which travels with it, for it is part of what an iteration sends.

    compile_s: of all samples of a module, by its name. results: directory with a pickled Sampled for each; its number
    there by name in `numbers`.
    """

    sample: SampleModule
    compile_s: Mapping[str, float]
    results: Path
    numbers: Mapping[str, int]

    def __call__(self, request: Request) -> Pickled:
        name = request.module.name
        time.sleep(self.compile_s[name])
        return Pickled((self.results / str(self.numbers[name])).read_bytes())


class Pickled:
    """What is pickled already: making it small is part of the work that is slept through. Arrives as what it was."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._content,)
