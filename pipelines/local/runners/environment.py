"""Identifies what a step's result depends on in the environment of a process: installed packages and variables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata

WITHOUT_EFFECT = frozenset(
    {
        # Transport.
        *("boto3", "botocore", "docker", "google-api-core", "google-auth", "google-auth-oauthlib", "google-cloud-core"),
        *("google-cloud-storage", "google-crc32c", "google-resumable-media", "googleapis-common-protos", "grpcio"),
        *("kubernetes", "proto-plus", "requests", "tensorflow-io-gcs-filesystem", "urllib3"),
        # Processes and user interface.
        *("click", "filelock", "kfp", "ray", "rich", "termcolor"),
        # Pictures, and games that TF-Agents brings.
        *("gym", "gym-notices", "matplotlib", "pillow", "pygame", "tensorboard"),
        # Installation.
        *("packaging", "setuptools", "typing-extensions", "wheel"),
    }
)
"""Distributions that cannot change the content of an artifact, neither can what only they need."""
VARIABLES = (
    # The floating-point operations of TensorFlow, and the code that its compiler makes of a policy.
    *("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "TF_DETERMINISTIC_OPS", "TF_ENABLE_ONEDNN_OPTS"),
    *("TF_XLA_FLAGS", "XLA_FLAGS"),
    # The options and headers of each clang, the compiler of a build's own programs, and dates in objects.
    *("CCC_OVERRIDE_OPTIONS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "LIBRARY_PATH"),
    *("CC", "CXX", "SOURCE_DATE_EPOCH"),
    "MLGO_RELEASE_TOOLCHAIN",
)
"""Environment variables that change results. Not among them: locale and time zone, numbers of threads, and limits."""


def identify_packages(modules: Iterable[str]) -> tuple[str, ...]:
    """Return Python's version and "NAME VERSION" of the distributions that these top-level modules are of, and of those
    that they need; modules that are not installed are left out."""
    waiting = [name for module in modules for name in _distributions_of_modules().get(module, ())]
    versions: dict[str, str] = {}
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in versions or name in WITHOUT_EFFECT:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another system, say
        versions[name] = distribution.version
        requirements = (requirement for requirement in distribution.requires or () if "extra ==" not in requirement)
        waiting += [match[0] for requirement in requirements if (match := re.match(r"[\w.-]+", requirement))]
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    return (python, *(f"{name} {version}" for name, version in sorted(versions.items())))


def identify_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return "NAME=value" of the variables that change results."""
    return tuple(f"{name}={environment[name]}" for name in VARIABLES if name in environment)


@cache
def _distributions_of_modules() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()
