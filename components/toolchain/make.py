"""Makes a toolchain artifact: finds the SDK and the source, builds, installs and probes a clang, and publishes it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.console import UserError, say
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import IMPORTED, check_features, load_policy_info
from components.core.formats.strategy import PLUGIN_PROBLEMS
from components.core.formats.toolchain import FILE_NAME, Toolchain, load_toolchain
from components.core.storage import digest, publish, require_artifact
from components.core.storage.uri import display_path
from components.toolchain import probe
from components.toolchain.build import allocator, build, build_plugin, build_tree
from components.toolchain.config import Embed, ToolchainConfig
from components.toolchain.install import LINKER, install, install_plugin
from components.toolchain.sdk import Sdk, apt_line, find_sdk, require_all_targets
from components.toolchain.source import bundled_source, llvm_source


def make_toolchain(config: ToolchainConfig) -> Toolchain:
    """Build the clang or plugin that `config` describes and publish it as `config.output`.

    Raises:
        UserError: a part of the SDK, the source or the policy is missing or does not match; a build failed.
    """
    sdk = find_sdk(config.llvm_major, config.sdk, config.strategy)
    policies = _check_policies(config)
    make = _make_plugin if config.strategy == "plugin" else _make_clang
    with publish(config.output) as partial:
        built = {"strategy": config.strategy, **make(config, sdk, policies, partial)}
        say("probing the new clang")
        toolchain = _describe(partial, config, policies, sdk, built)
        (partial / FILE_NAME).write_text(json.dumps(toolchain.to_json(), indent=1) + "\n")
    say(f"{config.mode} clang {sdk.version}: {display_path(config.output / 'bin' / 'clang')}")
    for problem in policies:
        flags = [problems.get(problem).optimization, *Advisor("release").flags(problem, None, None)]
        say(f"{problem}: {' '.join(flags)}")
    return load_toolchain(config.output)


def _make_clang(config: ToolchainConfig, sdk: Sdk, policies: Mapping[str, Path], output: Path) -> dict[str, str]:
    """Link a clang, install it into `output`, and return how it was built."""
    if config.targets == "all":
        require_all_targets(sdk)
    bundled = bundled_source(sdk)
    source = bundled or llvm_source(config.llvm_source, sdk, config.cache)
    with (
        build_tree(config.cache, sdk, source, config.targets) as tree,
        _copy_policies(tree, policies, config.embed) as copies,
    ):
        executable = build(tree, config.mode, sdk, source, config.targets, config.jobs, copies, config.embed)
        install(executable, sdk, output)
        malloc = allocator(tree)
    if malloc != "jemalloc":
        say(f"the clang is 5% slower without jemalloc; install it with: {apt_line({'libjemalloc-dev'})}")
    lld = "yes" if (output / "bin" / LINKER).exists() else "no"
    origin = "sdk" if bundled else config.llvm_source
    return {"llvm_source": origin, "targets": config.targets, "malloc": malloc, "lld": lld}


def _make_plugin(config: ToolchainConfig, sdk: Sdk, policies: Mapping[str, Path], output: Path) -> dict[str, str]:
    """Build a plugin, install it into `output` with a launcher of the installed clang, and return how it was built."""
    with (
        build_tree(config.cache, sdk, None, config.targets) as tree,
        _copy_policies(tree, policies, config.embed) as copies,
    ):
        build_plugin(tree, config.mode, sdk, config.jobs, copies)
        install_plugin(tree, config.mode, sdk, output)
    return {"clang": str(sdk.clang), "targets": "all"}


def _describe(
    directory: Path, config: ToolchainConfig, policies: Mapping[str, Path], sdk: Sdk, built: dict[str, Any]
) -> Toolchain:
    clang = directory / "bin" / "clang"
    features: dict[str, tuple[FeatureSpec, ...]] = {}
    for problem, policy in policies.items():
        features[problem] = load_policy_info(policy).features
        check_features(features[problem], probe.known_features(clang, problem))
        probe.check_release(clang, problem)
    if policies:
        built |= {"embed": config.embed, "policies": {name: digest(policy) for name, policy in policies.items()}}
        return Toolchain(directory, config.mode, sdk.version, probe.triple(clang), features, built)
    upstream: dict[str, tuple[str, ...]] = {}
    for problem in PLUGIN_PROBLEMS if config.strategy == "plugin" else problems.names():
        features[problem] = probe.logged_features(clang, problem)
        # In release mode a training clang uses LLVM's own advisors.
        upstream[problem] = tuple(spec.name for spec in probe.known_features(clang, problem))
    return Toolchain(directory, config.mode, sdk.version, probe.triple(clang), features, built, upstream)


def embedded_files(problem: str, embed: Embed) -> tuple[str, ...]:
    """Return the files of a policy that a release clang is built from, relative to the policy's directory."""
    if embed == "cpp":
        return ("policy.h", "policy.cpp")
    model = problems.get(problem).llvm.model_class
    return (f"aot/{model}.h", f"aot/{model}.o", "aot/libtf_xla_runtime.a")


def _check_policies(config: ToolchainConfig) -> dict[str, Path]:
    """Return problem -> policy.

    Raises:
        UserError: two policies are for the same problem, or one lacks a file to embed.
    """
    policies: dict[str, Path] = {}
    for policy in config.policies:
        require_artifact(policy, "policy")
        problem = problems.get(load_policy_info(policy).problem).name
        if config.strategy == "plugin" and problem not in PLUGIN_PROBLEMS:
            raise UserError(
                f"{policy} is a policy for {problem}, and LLVM lets a plugin decide on {PLUGIN_PROBLEMS[0]} only",
                "omit it, or pass --strategy sdk",
            )
        if problem in policies:
            raise UserError(f"{policies[problem]} and {policy} are both policies for {problem}", "pass one of them")
        policies[problem] = policy
        for name in embedded_files(problem, config.embed):
            if not (policy / name).is_file():
                remedy = "export the policy with its AOT form (see mlgo policy --help), or use --embed cpp"
                if config.embed == "cpp":
                    imported = load_policy_info(policy).trained_by == IMPORTED
                    remedy = "use --embed tf-aot: the policy was imported" if imported else "export the policy again"
                raise UserError(f"{policy} has no {name}, which --embed {config.embed} needs", remedy)
    return policies


@contextmanager
def _copy_policies(tree: Path, policies: Mapping[str, Path], embed: Embed) -> Iterator[dict[str, Path]]:
    """Yield copies of the embedded files below the build tree, in directories named by their content (see `build`)."""
    copies = {problem: _copy_policy(tree / "policies", problem, policy, embed) for problem, policy in policies.items()}
    try:
        yield copies
    finally:
        if copies:
            for other in (tree / "policies").iterdir():
                if other not in copies.values():
                    shutil.rmtree(other, ignore_errors=True)


def _copy_policy(policies: Path, problem: str, policy: Path, embed: Embed) -> Path:
    files = [policy / name for name in embedded_files(problem, embed)]
    if embed == "tf-aot":
        files = sorted(path for path in (policy / "aot").rglob("*") if path.is_file())
    identity = hashlib.sha256()
    for path in files:
        identity.update(path.read_bytes())
    directory = policies / identity.hexdigest()[:16]
    for path in files:
        copy = directory / path.relative_to(policy)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copyfile(path, copy)
    return directory
