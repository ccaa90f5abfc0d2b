"""From the PPO step to a Ray cluster: what the step's RayJob describes is started, as containers, and trains.

KubeRay's operator and Kubernetes are not here. A stand-in (tests/servers/kubernetes_server.py) takes the RayJob, and
`Nodes` does with it what the operator does: the pods' images, users, limits and variables, their `ray start`,
the submission.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.platform.storage import publish
from components.platform.storage.kinds import Kind
from components.platform.storage.object_storage import gcs
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import ObjectUri, mirror
from tests.end_to_end.containers import CAUTIOUS, ROOT, USER, build_images, docker, reference
from tests.servers.kubernetes_server import Cluster, kubernetes_server, make_certificate
from tests.servers.storage_server import storage_server

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

BUCKET = "mlgo-cluster"
LIMIT_BYTES = 2.1e9
AGENT_PORT = 52365
START_S = 60
STEP = """
import sys
from functools import partial
from pathlib import Path
from components.platform.command import run_step
from components.platform.rayjob import kubernetes
from components.ppo import run_on_cluster
from components.ppo.__main__ import main
run_on_cluster.ApiServer = partial(kubernetes.ApiServer, Path(sys.argv.pop(1)))
run_step(main)
"""


@pytest.fixture(scope="module")
def image(daemon: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the image of the nodes from this checkout; an older one on another training image is dropped."""
    images = tmp_path_factory.mktemp("images") / "images.json"
    before = {"tag": "r/i:0", "reference": "r/i@sha256:" + "0" * 64, "bytes": 1, "local_base": False, "base": ""}
    images.write_text(json.dumps(dict.fromkeys(("toolchain", "training", "cluster"), before)))
    build_images(images, "--image", "training")
    assert json.loads(images.read_text()).keys() == {"toolchain", "training"}
    build_images(images, "--image", "cluster")
    built = json.loads(images.read_text())
    revisions = {built[name]["tag"].rpartition(":")[2] for name in ("training", "cluster")}
    assert built["toolchain"] == before and len(revisions) == 1
    return reference(images, "cluster")


class Nodes:
    """A docker network with the nodes of one RayJob, started with the commands that KubeRay would generate."""

    def __init__(self, image: str) -> None:
        self.name = f"mlgo-test-{secrets.token_hex(4)}"
        self.head, self.worker = f"{self.name}-head", f"{self.name}-worker"
        self._image, self._token = image, secrets.token_hex(32)
        docker("network", "create", self.name)
        self.gateway = docker("network", "inspect", self.name, "--format", "{{(index .IPAM.Config 0).Gateway}}").strip()

    def start(self, rayjob: dict[str, Any]) -> None:
        cluster = rayjob["spec"]["rayClusterSpec"]
        assert cluster["authOptions"]["mode"] == "token"
        self._start(self.head, cluster["headGroupSpec"], "--head --dashboard-host=0.0.0.0 --no-monitor")
        (group,) = cluster["workerGroupSpecs"]
        self._start(self.worker, group, f"--address={self.head}:6379")

    def _start(self, name: str, group: dict[str, Any], more: str) -> None:
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        security = pod["securityContext"]
        assert f"{security['runAsUser']}:{security['runAsGroup']}" == USER
        (shm,) = [volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if volume["name"] == "shm"]
        variables = [f"--env={variable['name']}={variable['value']}" for variable in container["env"]]
        settings = " ".join(f"--{name}={value}" for name, value in group["rayStartParams"].items())
        ray = (
            f"ray start {more} --block --dashboard-agent-listen-port={AGENT_PORT} --metrics-export-port=8080 {settings}"
        )
        wait = "" if "--head" in more else f"until ray health-check --address {self.head}:6379; do sleep 1; done; "
        docker(
            "run",
            "--detach",
            "--name",
            name,
            *self._common(),
            "--shm-size",
            shm.replace("Mi", "m"),
            "--memory",
            container["resources"]["limits"]["memory"].replace("Mi", "m"),
            *variables,
            "--entrypoint",
            "/bin/bash",
            self._image,
            "-c",
            f"ulimit -n 65536; {wait}{ray}",
        )

    def submit(self, entrypoint: str) -> str:
        """Run the submitter's command; return its output when the job has succeeded."""
        command = f"ray job submit --address http://{self.head}:8265 -- {entrypoint}"
        return docker("run", "--rm", *self._common(), "--entrypoint", "/bin/bash", self._image, "-c", command)

    def await_health(self, name: str) -> None:
        """Wait until the node is healthy, asking like kubelet: from outside, without a token."""
        address = docker(
            "inspect", name, "--format", '{{(index .NetworkSettings.Networks "' + self.name + '").IPAddress}}'
        ).strip()
        give_up_s = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://{address}:{AGENT_PORT}/api/healthz", timeout=5) as response:
                    assert response.status == 200
                return
            assert time.monotonic() < give_up_s, docker("logs", name)
            time.sleep(0.5)

    def remove(self) -> None:
        docker("rm", "--force", self.head, self.worker, check=False)
        docker("network", "rm", self.name)

    def _common(self) -> tuple[str, ...]:
        return (
            *CAUTIOUS,
            "--network",
            self.name,
            "--env",
            "RAY_AUTH_MODE=token",
            "--env",
            f"RAY_AUTH_TOKEN={self._token}",
        )


@pytest.fixture
def nodes(image: str) -> Iterator[Nodes]:
    nodes = Nodes(image)
    try:
        yield nodes
    finally:
        nodes.remove()


@pytest.fixture
def storage(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve object storage at an address of this machine that containers can reach."""
    with storage_server(BUCKET, "0.0.0.0") as url:
        url = url.replace("127.0.0.1", nodes.gateway)
        monkeypatch.setenv(gcs.EMULATOR_VARIABLE, url)
        monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))
        gcs._client.cache_clear()
        yield url
    gcs._client.cache_clear()


def test_contents_of_the_image(image: str) -> None:
    (description,) = json.loads(docker("image", "inspect", image))
    assert description["Size"] <= LIMIT_BYTES, f"{description['Size'] / 1e9:.2f} GB"
    assert description["Config"]["User"] == USER
    assert description["Config"]["Labels"]["org.opencontainers.image.title"] == "mlgo-pipeline cluster"
    script = """
set -e
bash -lc 'command -v ray python mlgo' && command -v ray python mlgo
cat > /tmp/versions.py << 'END'
import ray, numpy, sys
print(ray.__version__, numpy.__version__, *sys.version_info[:3])
END
python /tmp/versions.py && /opt/mlgo/bin/python /tmp/versions.py
python -c 'import components.platform.workers.ray_worker, aiohttp, pydantic; assert int(pydantic.VERSION[0]) == 2'
! python -c 'import tensorflow' 2> /dev/null
"""
    output = docker("run", "--rm", *CAUTIOUS, "--entrypoint", "/bin/bash", image, "-c", script).splitlines()
    assert output[:3] == output[3:6] == ["/opt/node/bin/ray", "/opt/node/bin/python", "/opt/mlgo/bin/mlgo"]
    assert output[6] == output[7], "pickles and Ray's protocol go from one environment to the other"
    assert "\n  ppo " in docker("run", "--rm", *CAUTIOUS, image, "--help")


def test_ppo_step_trains_on_cluster_of_its_rayjob(
    finished: tuple[Path, str], nodes: Nodes, storage: str, tmp_path: Path
) -> None:
    kinds: dict[str, Kind] = {"corpus": "corpus", "training": "toolchain", "trace": "trace", "warmstart": "policy"}
    for name, kind in kinds.items():
        with publish(mirror(ObjectUri("gs", BUCKET, name)), kind) as partial:
            shutil.copytree(finished[0] / name, partial, dirs_exist_ok=True, symlinks=True)
            (partial / "manifest.json").unlink()
    kubernetes = Cluster([[("Initializing", ""), ("Running", "RUNNING"), ("Complete", "SUCCEEDED")]])
    kubernetes.holds.clear()  # the RayJob stays in its first state
    account = tmp_path / "account"
    account.mkdir()
    certificate = make_certificate(account)
    shutil.copyfile(certificate[0], account / "ca.crt")
    (account / "token").write_text(kubernetes.token)
    command = [
        sys.executable,
        "-c",
        STEP,
        str(account),
        "--workers",
        "rayjob:1",
        "--ray-cluster-options",
        "cpus_per_worker=2",
        "--cluster-image",
        "registry/mlgo-cluster@sha256:" + "0" * 64,
        "--preset",
        "tiny",
        "--iterations",
        "2",
        "--corpus",
        f"gs://{BUCKET}/corpus",
        "--toolchain",
        f"gs://{BUCKET}/training",
        "--trace",
        f"gs://{BUCKET}/trace",
        "--warmstart",
        f"gs://{BUCKET}/warmstart",
        "--root-dir",
        f"gs://{BUCKET}/ppo",
        "--output",
        f"gs://{BUCKET}/policy",
    ]
    with kubernetes_server(kubernetes, *certificate) as port:
        environment = os.environ | {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(port),
            "MLGO_POLL_S": "0.2",
            "MLGO_CACHE_DIR": str(tmp_path / "step"),
        }
        with subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as step:
            try:
                while not kubernetes.jobs:
                    assert step.poll() is None, step.stdout and step.stdout.read()
                    time.sleep(0.1)
                ((_name, entry),) = kubernetes.jobs.items()
                nodes.start(entry["job"])
                nodes.await_health(nodes.head)
                nodes.await_health(nodes.worker)
                said = nodes.submit(entry["job"]["spec"]["entrypoint"])
                assert "best policy: iteration" in said
                kubernetes.holds.set()
                output, _nothing = step.communicate(timeout=60)
            finally:
                step.kill()
    assert step.returncode == 0, output
    assert "Complete, job SUCCEEDED" in output
    # The step has fetched the results of the training, but none of its inputs.
    assert [path.name for path in (tmp_path / "step" / "gs" / BUCKET).iterdir()] == ["policy"]
    policy = fetch(ObjectUri("gs", BUCKET, "policy"))
    assert json.loads((policy / "report.json").read_text())["iterations"] == 2
    # Modules are cached on the workers, which compile them, not on the head.
    assert docker("exec", nodes.head, "ls", "/tmp/mlgo-cache").split() == ["gs"]
    assert "modules" in docker("exec", nodes.worker, "ls", "/tmp/mlgo-cache").split()
    assert docker("exec", nodes.worker, "ls", f"/tmp/mlgo-cache/gs/{BUCKET}").split() == ["training"]
