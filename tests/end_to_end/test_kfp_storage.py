"""Steps of the compiled pipeline whose artifacts KFP keeps on MinIO: KFP's launcher copies them, steps do not."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.platform.storage import require_artifact
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import parse_location
from pipelines.local.ir import steps_of
from pipelines.local.step import RunLocations, Step
from pipelines.parameters.check import checked_values
from pipelines.spec import load_spec
from tests.servers.kfp_launcher import ROOT, KfpLauncher
from tests.servers.s3_server import s3_server
from tests.support.buckets import use_s3

COMPILED = ROOT / "pipelines" / "compiled" / "training.yaml"
BUCKET = "mlpipeline"
RUN = f"{BUCKET}/v2/artifacts/mlgo-training/7e1"
MODULES = 40
"""More than 64 files, so that the corpus is packed."""


@pytest.fixture
def server(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server(BUCKET) as url:
        use_s3(url, monkeypatch)
        yield url


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """The compile_commands.json of a build with embedded bitcode."""
    directory = tmp_path / "build"
    directory.mkdir()
    commands = []
    for number in range(MODULES):
        source = directory / f"m{number}.c"
        source.write_text(
            f"static int twice{number}(int x) {{ return 2 * x; }}\n"
            f"int use{number}(int x) {{ return twice{number}(x) + twice{number}(x + {number}); }}\n"
        )
        arguments = ["clang-19", "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", source.name, "-o", f"m{number}.o"]
        subprocess.run(arguments, cwd=directory, check=True, timeout=60)
        commands.append({"directory": str(directory), "file": source.name, "command": " ".join(arguments)})
    (directory / "compile_commands.json").write_text(json.dumps(commands))
    return directory / "compile_commands.json"


@pytest.mark.toolchain
@pytest.mark.parametrize("scheme", ["minio", "s3"])
def test_steps_exchange_artifacts_that_kfp_copies(
    scheme: str, server: str, build: Path, training_toolchain: Path, tmp_path: Path
) -> None:
    spec = load_spec(COMPILED)
    values = checked_values(spec, {"compile_commands": str(build), "preset": "tiny", "workers": "local:2"})
    steps = {step.name: step for step in steps_of(spec, values)}
    locations = RunLocations(f"{scheme}://{RUN}", str(tmp_path / "files"))
    launcher = KfpLauncher(server, tmp_path / "pods")

    def run(step: Step) -> None:
        (tmp_path / "files" / step.name).mkdir(parents=True, exist_ok=True)
        done = launcher.run(step.argv(locations))
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    run(steps["corpus"])
    packs = [key for key in launcher.uploaded if "/@packs/" in key]
    assert len(launcher.uploaded) == 2 and len(packs) == 1, "KFP copies a manifest and a pack, not each module"
    publish_toolchain(launcher, locations, training_toolchain)
    run(steps["trace"])
    run(steps["vocab"])
    recorded = json.loads((tmp_path / "files" / "trace" / "executor_output.json").read_text())
    (reported,) = recorded["artifacts"]["trace"]["artifacts"]
    assert reported["uri"] == f"{scheme}://{RUN}/trace", "KFP keeps its own URI"
    assert reported["metadata"]["modules"] > 0
    for name, files in (("corpus", "corpus_description.json"), ("trace", "trace.json"), ("vocab", None)):
        # With credentials, the same artifacts are ordinary ones in object storage.
        uri = parse_location(f"s3://{RUN}/{name}")
        manifest = require_artifact(fetch(uri), name, verify_content=True)  # type: ignore[arg-type]
        assert manifest.files and (files is None or files in {entry.name for entry in manifest.files})


def publish_toolchain(launcher: KfpLauncher, locations: RunLocations, toolchain: Path) -> None:
    """Publish a finished training clang as the step that builds it does."""
    code = (
        "import os, shutil, sys\n"
        "from components.platform.launcher.kfp_locations import resolve_locations\n"
        "from components.platform.launcher.executor import parse_executor_input\n"
        "from components.platform.storage import publish\n"
        "from components.platform.storage.uri import mirror, parse_location\n"
        "_flag, document, output, source = sys.argv[1:]\n"
        "(output,) = resolve_locations([output], parse_executor_input(document), '')\n"
        "with publish(mirror(parse_location(output)), 'trace') as directory:\n"
        "    ignored = shutil.ignore_patterns('manifest.json')\n"
        "    shutil.copytree(source, directory, symlinks=True, dirs_exist_ok=True, ignore=ignored)\n"
    )
    uri = locations.artifact("training")
    document = json.dumps({"outputs": {"artifacts": {"training": {"artifacts": [{"name": "training", "uri": uri}]}}}})
    done = launcher.run(["python", "-c", code, "--executor-input", document, uri, str(toolchain)])
    assert done.returncode == 0, done.stderr[-3000:]
    shutil.rmtree(launcher.pods)
