"""Makes a toolchain artifact: SDK, source, build, install, probe, published at the end as a whole."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components import problems
from components.console import UserError, say
from components.formats.features import FeatureSpec
from components.formats.policy import check_features, load_policy_info
from components.formats.toolchain import FILE_NAME, Toolchain, load_toolchain
from components.storage import digest, publish, require_artifact
from components.storage.uri import shown
from components.toolchain import probe
from components.toolchain.build import allocator, build, build_tree
from components.toolchain.config import ToolchainConfig
from components.toolchain.install import install
from components.toolchain.sdk import Sdk, apt_line, find_sdk, require_all_targets
from components.toolchain.source import llvm_source

_EMBEDDED = {
    "cpp": ("policy.h", "policy.cpp"),
    "tf-aot": ("aot/InlinerSizeModel.h", "aot/InlinerSizeModel.o", "aot/libtf_xla_runtime.a"),
}
"""The files of a policy that a release clang is built from."""


def make_toolchain(config: ToolchainConfig) -> Toolchain:
    """Builds the clang that `config` describes and publishes it as `config.output`.

    Raises:
        UserError: something of the SDK, the source or the policy is missing or does not fit; a build failed.
    """
    sdk = find_sdk(config.llvm_major, config.sdk)
    if config.targets == "all":
        require_all_targets(sdk)
    if config.policy:
        _check_policy(config, config.policy)
    source = llvm_source(config.llvm_source, sdk, config.cache)
    with publish(config.output) as partial:
        with build_tree(config.cache, sdk, source, config.targets) as tree, _kept_policy(tree, config) as policy:
            executable = build(
                tree, config.mode, sdk, source, config.targets, config.jobs, policy=policy, embed=config.embed
            )
            install(executable, sdk, partial)
            malloc = allocator(tree)
        if malloc != "jemalloc":
            say(f"without jemalloc the clang is 5% slower; to have it: {apt_line({'libjemalloc-dev'})}")
        say("probing the new clang")
        toolchain = _describe(partial, config, sdk, malloc)
        (partial / FILE_NAME).write_text(json.dumps(toolchain.to_json(), indent=1) + "\n")
    say(f"{config.mode} clang {sdk.version}: {shown(config.output / 'bin' / 'clang')}")
    return load_toolchain(config.output)


def _describe(directory: Path, config: ToolchainConfig, sdk: Sdk, malloc: str) -> Toolchain:
    clang = directory / "bin" / "clang"
    built = {"strategy": "sdk", "llvm_source": config.llvm_source, "targets": config.targets, "malloc": malloc}
    features: dict[str, tuple[FeatureSpec, ...]]
    if config.policy:
        policy = load_policy_info(config.policy)
        check_features(policy.features, probe.known_features(clang, policy.problem))
        probe.check_release(clang, policy.problem)
        features = {policy.problem: policy.features}
        built |= {"embed": config.embed, "policy_digest": digest(config.policy)}
    else:
        features = {problem: probe.logged_features(clang, problem) for problem in problems.names()}
    return Toolchain(directory, config.mode, sdk.version, probe.triple(clang), features, built)


def _check_policy(config: ToolchainConfig, policy: Path) -> None:
    require_artifact(policy, "policy")
    problems.get(load_policy_info(policy).problem)
    for name in _EMBEDDED[config.embed]:
        if not (policy / name).is_file():
            remedy = "export the policy with its AOT form (python -m components.policy --help), or use --embed cpp"
            if config.embed == "cpp":
                remedy = "make the policy again"
            raise UserError(f"{policy} has no {name}, which --embed {config.embed} needs", remedy)


@contextmanager
def _kept_policy(tree: Path, config: ToolchainConfig) -> Iterator[Path | None]:
    """A copy of what is embedded, under a name that says its content (see `build`), below the build tree."""
    if config.policy is None:
        yield None
        return
    files = [config.policy / name for name in _EMBEDDED[config.embed]]
    if config.embed == "tf-aot":
        files = sorted(path for path in (config.policy / "aot").rglob("*") if path.is_file())
    identity = hashlib.sha256()
    for path in files:
        identity.update(path.read_bytes())
    policies = tree / "policies"
    kept = policies / identity.hexdigest()[:16]
    for path in files:
        copy = kept / path.relative_to(config.policy)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copyfile(path, copy)
    try:
        yield kept
    finally:
        for other in policies.iterdir():
            if other != kept:
                shutil.rmtree(other, ignore_errors=True)
