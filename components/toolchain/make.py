"""Makes a toolchain artifact: finds the SDK and the source, builds, installs and probes a clang, and publishes it."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from components.core import problems
from components.core.compiler import probe
from components.core.compiler.advisor import Advisor
from components.core.compiler.clang_programs import llvm_binutils
from components.core.compiler.development_mode.external_clang import inspect_clang
from components.core.formats.embeddings import uses_embeddings
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import IMPORTED, PolicyInfo, check_features, load_policy_info, require_policy
from components.core.formats.strategy import EXTERNAL, MIN_IR2VEC_MAJOR
from components.core.formats.toolchain import (
    CAPABILITIES,
    FILE_NAME,
    PLUGIN,
    Toolchain,
    digest_of_clang,
    load_toolchain,
    read_clang_version,
)
from components.core.policy.agreement import require_one_policy
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage import digest, publish
from components.platform.storage.uri import display_path
from components.toolchain.build import build, build_plugin, build_tree, read_allocator
from components.toolchain.config import Embed, ToolchainConfig
from components.toolchain.ir2vec.plugin import prepare_embeddings
from components.toolchain.sdk import Sdk, apt_line, find_sdk, require_all_targets
from components.toolchain.source import fetch_source_files, find_bundled_source

LINKS = ("clang++", "clang-cpp", "clang-cl")
"""Names that select another mode of clang's driver. `install` adds clang-<major>, the name that distributions use."""
CMAKE_FILE = "toolchain.cmake"
_DRIVERS = (("C", "clang"), ("CXX", "clang++"), ("ASM", "clang"))
LINKER = "ld.lld"
"""Linker in bin/ of a release toolchain, with the same policies as its clang."""


def make_toolchain(config: ToolchainConfig) -> Toolchain:
    """Build the clang or plugin that `config` describes and publish it as `config.output`.

    Raises:
        UserError: a part of the SDK, the source or the policy is missing or does not match; a build failed.
    """
    if config.strategy == EXTERNAL:
        return _wrap_external(config)
    sdk = find_sdk(config.llvm_major, config.sdk, config.strategy)
    policies = _check_policies(config)
    make = _make_plugin if config.strategy == "plugin" else _make_clang
    with publish(config.output, "toolchain") as partial:
        built = {"strategy": config.strategy, **make(config, sdk, policies, partial)}
        built["clang_version"] = read_clang_version(sdk.clang)
        say("probing the new clang")
        toolchain = _describe(partial, config, policies, sdk, built)
        (partial / FILE_NAME).write_text(json.dumps(toolchain.to_json(), indent=1) + "\n")
    say(f"{config.mode} clang {sdk.version}: {display_path(config.output / 'bin' / 'clang')}")
    for problem in policies:
        say(f"{problem}: {_how_to_use(problem, config.strategy)}")
    if config.mode == "release" and config.strategy == "plugin":
        plugin = display_path(config.output / "lib" / PLUGIN)
        say(f"the installed {sdk.clang.name} does the same with these flags and -fpass-plugin={plugin}")
    return load_toolchain(config.output)


def _how_to_use(problem: str, strategy: str) -> str:
    if problem == "inlining" and strategy == "sdk":
        return "on at -Os and -Oz, off with --no-default-config"
    return " ".join([problems.get(problem).optimization, *Advisor("release").flags(problem, None, None)])


def _wrap_external(config: ToolchainConfig) -> Toolchain:
    """Publish a toolchain whose bin/clang runs a training clang that others built, where that is now."""
    external = inspect_clang(config.clang, config.llvm_major, config.problem)
    with publish(config.output, "toolchain") as partial:
        install_wrapper(external.clang, partial)
        # The digest of the clang makes steps run again that used another one at the same path.
        built = {"strategy": EXTERNAL, "clang": str(external.clang), "clang_sha256": digest_of_clang(external.clang)}
        built["clang_version"] = read_clang_version(external.clang)
        toolchain = Toolchain(
            partial,
            "training",
            external.version,
            external.triple,
            external.features,
            built,
            upstream_features={p: tuple(spec.name for spec in s) for p, s in external.upstream_features.items()},
            capabilities=frozenset(),
        )
        (partial / FILE_NAME).write_text(json.dumps(toolchain.to_json(), indent=1) + "\n")
    say(f"training clang {external.version}, built by others: {external.clang}, logs {', '.join(external.features)}")
    return load_toolchain(config.output)


def _make_clang(config: ToolchainConfig, sdk: Sdk, policies: Mapping[str, Path], output: Path) -> dict[str, str]:
    """Link a clang, install it into `output`, and return how it was built."""
    if config.targets == "all":
        require_all_targets(sdk)
    bundled = find_bundled_source(sdk)
    source = bundled or fetch_source_files(config.llvm_source, sdk, config.cache)
    with (
        build_tree(config.cache, sdk, source, config.targets) as tree,
        _copy_policies(tree, policies, config.embed) as copies,
    ):
        executable = build(tree, config.mode, sdk, source, config.targets, config.jobs, copies, config.embed)
        install(executable, sdk, output)
        install_binutils(sdk, output)
        if config.mode == "release":
            install_openmp(sdk, output)
        malloc = read_allocator(tree)
    if config.mode == "release" and not (sdk.resource_directory / "lib").is_dir():
        lacking = "install them and build it again" if config.sdk else apt_line({f"libclang-rt-{sdk.major}-dev"})
        say(f"no run-time libraries of sanitizers, coverage and profiles, before it is built again: {lacking}")
    if malloc != "jemalloc":
        say(f"the clang is 5% slower without jemalloc; install it with: {apt_line({'libjemalloc-dev'})}")
    origin = "sdk" if bundled else config.llvm_source
    return {"llvm_source": origin, "targets": config.targets, "malloc": malloc, "lld": find_linker(config, sdk, output)}


def find_linker(config: ToolchainConfig, sdk: Sdk, output: Path) -> str:
    """Return "yes" or "no": whether a toolchain has a linker of its own. Say it if a release toolchain has none."""
    if (output / "bin" / LINKER).exists():
        return "yes"
    if config.mode == "release":
        remedy = "pass --sdk one with them" if config.sdk else f"install them: {apt_line({f'liblld-{sdk.major}-dev'})}"
        say(f"no {LINKER} with the policies, which LTO needs: the LLVM SDK lacks lld's libraries; {remedy}")
    return "no"


def _make_plugin(config: ToolchainConfig, sdk: Sdk, policies: Mapping[str, Path], output: Path) -> dict[str, str]:
    """Build a plugin, install it into `output` with a launcher of the installed clang, and return how it was built."""
    with (
        build_tree(config.cache, sdk, None, config.targets) as tree,
        _copy_policies(tree, policies, config.embed) as copies,
    ):
        header, vocabulary = prepare_embeddings(config, sdk, policies, tree, output)
        build_plugin(tree, config.mode, sdk, config.jobs, copies, header)
        install_plugin(tree, config.mode, sdk, output)
    return {"clang": str(sdk.clang), "targets": "all", **vocabulary}


def _describe(
    directory: Path, config: ToolchainConfig, policies: Mapping[str, Path], sdk: Sdk, built: dict[str, Any]
) -> Toolchain:
    clang = directory / "bin" / "clang"
    features: dict[str, tuple[FeatureSpec, ...]] = {}
    for problem, policy in policies.items():
        info = load_policy_info(policy)
        features[problem] = info.features
        check_embedded(info, probe.read_supported_features(clang, problem), config.embed)
        probe.check_release(clang, problem)
    if policies:
        built |= {"embed": config.embed, "policies": {name: digest(policy) for name, policy in policies.items()}}
        return Toolchain(directory, config.mode, sdk.version, probe.read_triple(clang), features, built)
    upstream: dict[str, tuple[str, ...]] = {}
    for problem in problems.names("decided_by_plugin" if config.strategy == "plugin" else ""):
        features[problem] = probe.read_logged_features(clang, problem)
        # In release mode a training clang uses LLVM's own advisors.
        upstream[problem] = tuple(spec.name for spec in probe.read_supported_features(clang, problem))
    capabilities = CAPABILITIES - {"program_decisions"} if config.strategy == "plugin" else CAPABILITIES
    return Toolchain(
        directory, config.mode, sdk.version, probe.read_triple(clang), features, built, upstream, capabilities
    )


def check_embedded(info: PolicyInfo, compiler_features: Sequence[FeatureSpec], embed: Embed) -> None:
    """Raise UserError unless a clang that has `compiler_features` can decide with a policy in the form `embed`.

    TensorFlow's AOT class does not have the values of optional features: those that a clang does not set are 0.
    """
    if embed == "cpp":
        check_features(info.features, compiler_features, info.optional_features)
        return
    names = {spec.name for spec in compiler_features}
    if assumed := [name for name in info.optional_features if name not in names]:
        raise UserError(
            f"this compiler lacks {', '.join(assumed)}, for which the policy cannot assume values with --embed {embed}",
            "use --embed cpp",
        )
    check_features(info.features, compiler_features)


def embedded_files(problem: str, embed: Embed) -> tuple[str, ...]:
    """Return the files of a policy that a release clang is built from, relative to the policy's directory."""
    if embed == "cpp":
        return ("policy.h", "policy.cpp")
    model = problems.get(problem).llvm.model_class
    return (f"aot/{model}.h", f"aot/{model}.o", "aot/libtf_xla_runtime.a")


def _check_policies(config: ToolchainConfig) -> dict[str, Path]:
    """Return problem -> policy. UserError if two policies are for the same problem, or one lacks a file to embed."""
    policies: dict[str, Path] = {}
    for policy in config.policies:
        require_policy(policy)
        require_one_policy(policy)
        info = load_policy_info(policy)
        problem = problems.get(info.problem).name
        if uses_embeddings(info.features) and (config.strategy != "plugin" or config.llvm_major < MIN_IR2VEC_MAJOR):
            raise UserError(
                f"{policy} reads IR2Vec embeddings, which LLVM {config.llvm_major} in a toolchain of --strategy "
                f"{config.strategy} does not have",
                f"pass --strategy plugin --llvm-major {MIN_IR2VEC_MAJOR}",
            )
        if config.strategy == "plugin" and not problems.get(problem).decided_by_plugin:
            raise UserError(
                f"{policy} is a policy for {problem}, and LLVM lets a plugin decide on "
                f"{', '.join(problems.names('decided_by_plugin'))} only",
                "omit it, or pass --strategy sdk",
            )
        if problem in policies:
            raise UserError(f"{policies[problem]} and {policy} are both policies for {problem}", "pass one of them")
        policies[problem] = policy
        for name in embedded_files(problem, config.embed):
            if not (policy / name).is_file():
                remedy = "export the policy with its AOT form (see mlgo policy --help), or use --embed cpp"
                if config.embed == "cpp":
                    imported = info.trained_by == IMPORTED
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


def install_plugin(tree: Path, mode: str, sdk: Sdk, into: Path) -> None:
    """Create bin/ and lib/ in `into` from the build tree of the plugin.

    bin/clang runs the clang of the SDK, which must be installed at the same place where the toolchain is used.
    """
    for folder in ("bin", "lib"):
        (into / folder).mkdir(parents=True)
    shutil.copy2(tree / f"{mode}-plugin" / PLUGIN, into / "lib" / PLUGIN)
    shutil.copy2(tree / "launcher", into / "bin" / "clang")
    _link_names(sdk, into)


def install_wrapper(clang: Path, into: Path) -> None:
    """Create bin/clang in `into`, a script that runs `clang`, which finds its headers where it is installed."""
    (into / "bin").mkdir(parents=True)
    _write_launcher(into / "bin" / "clang", clang)


def _write_launcher(path: Path, program: Path) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} "$@"\n')
    path.chmod(0o755)


def install_binutils(sdk: Sdk, into: Path) -> None:
    """Create llvm-ar, llvm-nm, llvm-ranlib and llvm-strip in bin/ of `into`, and toolchain.cmake.

    They run those of the SDK, where it is installed. CMake takes the ones next to the compiler; without them it takes
    those of whatever LLVM it finds, which may not read objects of LTO.
    """
    tools = llvm_binutils(sdk.clang)
    for name, program in tools.items():
        _write_launcher(into / "bin" / f"llvm-{name}", program)
    lines = ["# For cmake --toolchain: this clang, and LLVM's binutils."]
    lines += [
        f'set(CMAKE_{language}_COMPILER "${{CMAKE_CURRENT_LIST_DIR}}/bin/{clang}")' for language, clang in _DRIVERS
    ]
    lines += [f'set(CMAKE_{name.upper()} "${{CMAKE_CURRENT_LIST_DIR}}/bin/llvm-{name}")' for name in tools]
    (into / CMAKE_FILE).write_text("\n".join(lines) + "\n")


def install_openmp(sdk: Sdk, into: Path) -> None:
    """Create lib/libomp.so in `into`, a linker script that names the SDK's library, if that is installed.

    With -fopenmp clang looks for -lomp in lib/ next to its bin/ (addOpenMPRuntimeLibraryPath in CommonArgs.cpp), and
    for omp.h in its resource directory, where Debian's package libomp-<major>-dev has it. An SDK whose libraries are in
    a directory of the target is left out.
    """
    library = sdk.prefix / "lib" / "libomp.so"
    if library.is_file():
        (into / "lib" / library.name).write_text(f'INPUT("{library}")\n')


def _link_names(sdk: Sdk, into: Path) -> None:
    for name in (*LINKS, f"clang-{sdk.major}"):
        (into / "bin" / name).symlink_to("clang")


def install(executable: Path, sdk: Sdk, into: Path) -> None:
    """Create bin/ and lib/clang/<major>/ in `into`; clang finds its headers and run-time libraries in the latter.

    A linker that was built next to a release clang becomes bin/ld.lld, which clang prefers to the system's.

    The executable is moved, across file systems copied. The headers, the sanitizers' lists and, for a release clang,
    the run-time libraries of this machine's architecture are copied from the resource directory, with symbolic links
    resolved.
    """
    (into / "bin").mkdir(parents=True)
    shutil.move(executable, into / "bin" / "clang")
    _link_names(sdk, into)
    linker = executable.with_name(LINKER)
    if executable.name == "release" and linker.is_file():
        shutil.move(linker, into / "bin" / LINKER)
    resources = into / "lib" / "clang" / str(sdk.major)
    for folder in ("include", "share"):
        if (sdk.resource_directory / folder).is_dir():
            shutil.copytree(sdk.resource_directory / folder, resources / folder)
    # From the package libclang-rt-<major>-dev, which clang-<major> only recommends: a plain compiler works without it.
    if executable.name == "release" and (sdk.resource_directory / "lib").is_dir():
        shutil.copytree(sdk.resource_directory / "lib", resources / "lib", ignore=_other_architectures)


def _other_architectures(_directory: str, names: list[str]) -> set[str]:
    """Return the files named libclang_rt.<name>-<architecture>.<kind> of other architectures than this machine's."""
    ours = f"-{platform.machine()}."
    return {name for name in names if "clang_rt." in name and "-" in name and ours not in name}
