"""Tests of the images, run by hand as README.md says, and by the pipeline with artifacts in object storage."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from components.platform.launcher.images import IMAGES, STEPS
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.kfp_local import KFP_LOCAL, ROOT_VARIABLE
from components.platform.storage.uri import ObjectUri
from components.toolchain.sdk import find_sdk
from components.toolchain.sdk_build import DESCRIPTION
from pipelines.local.runners.docker import LABEL
from pipelines.spec import COMPILED, load_spec, with_images
from tests.end_to_end.chain import reused, run_until
from tests.end_to_end.containers import CAUTIOUS, ROOT, USER, docker, reference
from tests.servers.storage_server import storage_server
from tests.support.llvm_project import write_llvm_project

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]

BUCKET = "mlgo-images"
LIMITS_BYTES = {"toolchain": 1.2e9, "sdk": 1.2e9, "training": 1.4e9}


@pytest.fixture(scope="module")
def storage() -> Iterator[str]:
    with storage_server(BUCKET) as url:
        yield url


@pytest.fixture(scope="module")
def environment(storage: str, container_cache: Path) -> dict[str, str]:
    """Return the environment of runs whose steps are containers with artifacts in the bucket."""
    return os.environ | {"STORAGE_EMULATOR_HOST": storage, "MLGO_CACHE_DIR": str(container_cache)}


def pipeline(run: Path, images: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "pipelines",
        "pipeline",
        "run",
        "--runner",
        "docker",
        "--images",
        str(images),
        "--param",
        "recipe=tiny",
        "--param",
        "preset=tiny",
        "--param",
        "release_if=always",
        "--param",
        "gin_bindings=PpoParameters.num_epochs=2;actor_network.fc_layer_params=(32,16)",
        "--output",
        str(run),
        "--pipeline-root",
        f"gs://{BUCKET}/runs/{run.name}",
    ]


def container(image: str, *arguments: str, storage: str = "", mounts: tuple[Path, ...] = ()) -> tuple[int, str]:
    """Run a container with minimal privileges; return its exit status and output."""
    command = ["docker", "run", "--rm", *CAUTIOUS, "--network", "host"]
    command += ["-e", f"STORAGE_EMULATOR_HOST={storage}"] if storage else []
    for mount in mounts:
        command += ["-v", f"{mount}:/data"]
    done = subprocess.run([*command, image, *arguments], capture_output=True, text=True, timeout=900, check=False)
    return done.returncode, done.stdout + done.stderr


def test_sizes_labels_and_users_of_images(images: Path) -> None:
    for name, limit in LIMITS_BYTES.items():
        inspected = subprocess.run(
            ["docker", "image", "inspect", reference(images, name)], capture_output=True, text=True, check=True
        )
        (image,) = json.loads(inspected.stdout)
        assert image["Size"] <= limit, f"{name}: {image['Size'] / 1e9:.2f} GB"
        assert image["Config"]["User"] == USER
        labels = image["Config"]["Labels"]
        assert labels["org.opencontainers.image.revision"] == labels["org.opencontainers.image.revision"].strip() != ""
        assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_help_of_images_and_steps(images: Path) -> None:
    status, said = container(reference(images, "training"), "--help")
    assert status == 0 and "\n  vocab " in said and "\n  toolchain " not in said
    status, said = container(reference(images, "training"), "vocab", "--help")
    assert status == 0 and "--trace" in said
    status, said = container(reference(images, "toolchain"), "vocab", "--help")
    assert status == 1 and "the image mlgo-toolchain does not have the command vocab" in said
    assert "use the image mlgo-training" in said
    status, said = container(reference(images, "training"), "retrain", "--help")
    assert status == 1 and "use the image mlgo-toolchain" in said
    status, said = container(reference(images, "toolchain"), "retrain", "--help")
    assert status == 0 and "\n  submit " in said and "\n  run " not in said
    status, said = container(reference(images, "sdk"), "toolchain", "--help")
    assert status == 0 and "--mode sdk --llvm-source" in said


LLVMS_NEEDS = """
find_package(Python3 3.8 REQUIRED COMPONENTS Interpreter)
find_package(ZLIB REQUIRED)
find_package(LibXml2 REQUIRED)
find_library(ZSTD zstd REQUIRED)
find_library(EDIT edit REQUIRED)
"""


def test_sdk_pipeline_builds_llvm_in_its_image(images: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """A small project in place of LLVM looks for what LLVM's build needs."""
    source = write_llvm_project(tmp_path / "llvm-project")
    with (source / "llvm" / "CMakeLists.txt").open("a") as project:
        project.write(LLVMS_NEEDS)
    parameters = {"llvm_source": source, "targets": "X86,ARM", "definitions": "CMAKE_CXX_FLAGS='-O1 -g0' MORE=1"}
    command = [sys.executable, "-m", "pipelines", "pipeline", "run", "--pipeline", "sdk", "--runner", "docker"]
    command += ["--images", str(images), "--output", str(tmp_path / "run")]
    command += [f"--param={name}={value}" for name, value in parameters.items()]
    tmp_path.chmod(0o755)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[finish] the pipeline ended: SUCCEEDED" in done.stdout
    assert find_sdk(19, tmp_path / "run" / "sdk").version == "19.1.9"
    built = json.loads((tmp_path / "run" / "sdk" / DESCRIPTION).read_text())["cmake"]
    assert (
        built["LLVM_TARGETS_TO_BUILD"] == "X86;ARM" and built["CMAKE_CXX_FLAGS"] == "-O1 -g0" and built["MORE"] == "1"
    )
    assert built["CMAKE_CXX_COMPILER"] == "/usr/bin/clang++-19" and built["LLVM_USE_LINKER"] == "lld"
    assert built["LLVM_CCACHE_BUILD"] == "ON"


def test_smoke_test_runs_in_its_images(images: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """With artifacts in a bucket, which the steps write themselves."""
    command = [sys.executable, "-m", "pipelines", "pipeline", "run", "--pipeline", "smoke", "--runner", "docker"]
    command += ["--images", str(images), "--output", str(tmp_path / "run")]
    command += ["--pipeline-root", f"gs://{BUCKET}/runs/{tmp_path.name}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[finish] the pipeline ended: SUCCEEDED" in done.stdout
    table = [line for line in done.stdout.splitlines() if line.startswith("[smoke-report] ")]
    for what in ("image (toolchain): mlgo-toolchain,", "image (training): mlgo-training,", "clang (toolchain)"):
        assert any(f"works      {what}" in line for line in table), what
    for what in ("TensorFlow (training)", "root (toolchain): gs://", "root (training): gs://", "/dev/shm (training)"):
        assert any(f"works      {what}" in line for line in table), what


def test_sdk_image_refuses_missing_source(images: Path) -> None:
    arguments = ("toolchain", "--mode", "sdk", "--llvm-source", "/nowhere", "--output", "/tmp/sdk")
    status, said = container(reference(images, "sdk"), *arguments)
    assert status == 1 and "--llvm-source /nowhere: /nowhere is not an LLVM source tree" in said


def test_toolchain_image_has_one_code_generator(images: Path) -> None:
    arguments = ("toolchain", "--mode", "training", "--targets", "all", "--output", "/tmp/training")
    status, said = container(reference(images, "toolchain"), *arguments)
    assert status == 1 and "only has the code generator of this machine" in said and "--mode sdk --targets all" in said


def test_each_image_has_only_what_it_needs(images: Path) -> None:
    def python(name: str, code: str) -> tuple[int, str]:
        command = ["docker", "run", "--rm", "--entrypoint", "python", reference(images, name), "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stderr

    assert python("toolchain", "import tensorflow")[0] == 1
    assert python("training", "import kfp")[0] == 1
    assert python("training", "import shutil, sys; sys.exit(bool(shutil.which('clang-19')))") == (0, "")
    status, said = python("training", "import tensorflow, tf_agents")
    assert status == 0, said


WITHOUT_BYTECODE = """
import importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
modules = [module for module in sys.modules.values() if (getattr(module, "__file__", None) or "").endswith(".py")]
modules = [module for module in modules if module.__file__.startswith(sys.prefix + "/")]
print(len(modules), *(module.__name__ for module in modules if not os.path.exists(module.__cached__)))
"""


@pytest.mark.parametrize(
    ("name", "modules", "fewest"),
    [
        ("training", ("components.ppo.train", "components.warmstart.train", "components.trace.collect"), 3000),
        ("toolchain", ("components.evaluation.evaluate", "components.toolchain.make", "boto3"), 300),
    ],
)
def test_images_have_the_bytecode_of_what_steps_load(
    name: str, modules: tuple[str, ...], fewest: int, images: Path
) -> None:
    command = ["docker", "run", "--rm", *CAUTIOUS, "--entrypoint", "python", reference(images, name)]
    done = subprocess.run(
        [*command, "-c", WITHOUT_BYTECODE, *modules], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    count, *without = done.stdout.split()
    assert int(count) > fewest and not without


@pytest.mark.parametrize("name", LIMITS_BYTES)
def test_images_contain_no_build_times(name: str, images: Path) -> None:
    """Checks logs, caches and the user's entry; the builder sets the times of files (docs/pipeline.md)."""
    script = "find /var/log /var/cache/ldconfig -newer /etc/debian_version -type f -size +0; grep ^mlgo: /etc/shadow"
    command = ["docker", "run", "--rm", "--user", "0", "--entrypoint", "sh", reference(images, name), "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "mlgo:!::0:99999:7:::\n"


COUNT = """
import subprocess
from pathlib import Path
from components.core.projects.speed.counters import find_counter
counter, figures = find_counter(), Path("/tmp/figures")
subprocess.run([*counter.command(figures), "/bin/true"], check=True)
print(counter.name, counter.read(figures).instructions)
"""


def test_toolchain_image_counts_instructions(images: Path) -> None:
    """It uses what the image keeps of valgrind if the machine has no performance counters."""
    image = reference(images, "toolchain")
    command = ["docker", "run", "--rm", *CAUTIOUS, "--entrypoint", "python", image, "-c", COUNT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 10_000


@pytest.fixture(scope="module")
def resumed(
    images: Path, environment: dict[str, str], container_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """Return a run in containers that was killed during PPO, and what it said until PPO resumed.

    Its artifacts are in the bucket. The last steps run in containers in test_compose.py and in KFP's local runner.
    """
    run = tmp_path_factory.mktemp("containers") / "run"
    mirror = container_cache / "containers" / "gs" / BUCKET / "runs" / run.name
    command = pipeline(run, images)
    run_until(
        "[ppo] training:", command, lambda: any(mirror.rglob("checkpoints/*/manifest.json")), environment=environment
    )
    line = "[ppo] resuming after iteration"
    return run, run_until(line, command, signal_number=signal.SIGTERM, environment=environment)


def test_killed_run_resumes(resumed: tuple[Path, str]) -> None:
    run, output = resumed
    assert {"toolchain-training", "corpus", "trace", "vocab", "warmstart"} == set(reused(output))
    assert re.search(r"removing the container \S+ of a killed run", output)
    assert "[ppo] resuming after iteration" in output
    left = docker("ps", "--quiet", "--filter", f"label={LABEL}={run}")
    assert left == "", docker("ps")


def test_steps_run_by_hand_on_uris_and_mounted_directory(
    resumed: tuple[Path, str], images: Path, storage: str, tmp_path: Path
) -> None:
    root = f"gs://{BUCKET}/runs/{resumed[0].name}"
    by_hand = f"{root}-by-hand"
    toolchain, training = reference(images, "toolchain"), reference(images, "training")
    status, said = container(
        toolchain, "corpus", "import", "--input", f"{root}/corpus", "--output", f"{by_hand}/corpus", storage=storage
    )
    assert status == 0, said[-4000:]
    tmp_path.chmod(0o777)
    os.chown(tmp_path, *map(int, USER.split(":")))
    status, said = container(
        training,
        "trace",
        "export",
        "--trace",
        f"{root}/trace",
        "--output",
        "/data/tfrecord",
        storage=storage,
        mounts=(tmp_path,),
    )
    assert status == 0, said
    assert (tmp_path / "tfrecord" / "manifest.json").stat().st_uid == 1000


def test_kfp_local_runner_runs_compiled_pipeline(
    images: Path, container_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keeps artifacts on MinIO, as KFP does by default.

    Checks the artifacts of the last steps, because that runner's status is unreliable (see tests/servers/kfp_local.py).
    """
    python = ROOT / ".venv-pipelines" / "bin" / "python"
    built = json.loads(images.read_text())
    spec = with_images(load_spec(COMPILED), {IMAGES[key]: built[key]["tag"] for key in STEPS})
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(spec))
    root = tmp_path / "minio" / "mlpipeline"
    root.mkdir(parents=True)
    os.chown(root, *map(int, USER.split(":")))
    tmp_path.chmod(0o755)
    parameters = {"recipe": "tiny", "preset": "tiny", "release_if": "always"}
    command: list[str | Path] = [
        python,
        "-m",
        "tests.servers.kfp_local",
        tmp_path / "pipeline.yaml",
        root,
        container_cache / "containers",
        json.dumps(parameters),
    ]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:]
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))

    def artifact(name: str) -> Path:
        (directory,) = root.glob(f"*/{name}")
        return fetch(ObjectUri(KFP_LOCAL, "minio", directory.relative_to(tmp_path / "minio").as_posix()))

    report = artifact("release-report/release_report") / "metrics.json"
    assert json.loads(report.read_text())["policy_compiled_by"] == "release"
    clang = artifact("toolchain-release/release") / "bin" / "clang"
    source = tmp_path / "one.c"
    source.write_text("static int f(int x) { return x + 1; }\nint g(int x) { return f(f(x)); }\n")
    compiling: list[str | Path] = [
        clang,
        "-Oz",
        "-mllvm",
        "-enable-ml-inliner=release",
        "-c",
        source,
        "-o",
        tmp_path / "one.o",
    ]
    subprocess.run(compiling, check=True, timeout=60)
