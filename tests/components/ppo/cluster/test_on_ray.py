"""Training on Ray: the same rewards as with local workers, also if nodes or object storage fail."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from components.platform.storage import publish
from components.platform.storage.kinds import Kind
from components.platform.storage.object_storage import s3
from components.platform.storage.uri import ObjectUri, mirror
from components.platform.workers.settings import NODE_SETTINGS
from tests.components.platform.workers.conftest import Nodes
from tests.components.ppo.runs import ITERATIONS, LEARNING_BY_DEFAULT, command_line, train
from tests.servers.s3_server import Behaviour, s3_server
from tests.servers.storage_server import Faults
from tests.support.buckets import use_s3
from tests.support.fork_server import ForkedStep
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

BUCKET = "mlgo-ray"


@LEARNING_BY_DEFAULT
def test_training_with_local_ray(inputs, first, tmp_path):
    report = train([*inputs, "--workers", "ray"], tmp_path, fresh=True)
    assert report["mean_rewards"] == first[1]["mean_rewards"]
    assert report["validation_history"] == first[1]["validation_history"]


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """S3 that fails one request in 20, whoever makes it; everything that starts from here on knows it."""
    faults = Faults()
    with s3_server(BUCKET, Behaviour(faults)) as url:
        use_s3(url, monkeypatch)
        monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "here"))
        for name, value in NODE_SETTINGS.items():
            monkeypatch.setenv(name, value)
        yield faults
    s3._client.cache_clear()


def in_bucket(directory: Path, name: str, kind: Kind) -> str:
    uri = ObjectUri("s3", BUCKET, name)
    with publish(mirror(uri), kind) as partial:
        subprocess.run(["cp", "-a", f"{directory}/.", partial], check=True)
        (partial / "manifest.json").unlink(missing_ok=True)
    return str(uri)


def weights(policy: Path) -> dict[str, bytes]:
    """Content of the files of a policy that do not record times."""
    of_times = ("manifest.json", "policy.json", "report.json")
    return {path.name: path.read_bytes() for path in policy.iterdir() if path.is_file() and path.name not in of_times}


@pytest.mark.parametrize("inputs", ["ppo"], indirect=True, scope="session")
def test_training_survives_lost_workers_and_failing_object_storage(artifacts, inputs, first, bucket, tmp_path):
    """Each iteration loses a worker or a node. The trainer is paused, then killed and started again. All is on S3."""
    kinds: dict[str, Kind] = {"corpus": "corpus", "toolchain": "toolchain", "trace": "trace", "warmstart": "policy"}
    uris = {name: in_bucket(artifacts[name], name, kind) for name, kind in kinds.items()}
    bucket.every = 20
    cache = tmp_path / "trainer"
    run = "run"
    root = cache / "s3" / BUCKET / run / "@" / run
    nodes = Nodes(tmp_path / "nodes")

    def start() -> ForkedStep:
        more = {**uris, "workers": f"ray:{nodes.address}", "root_dir": f"s3://{BUCKET}/{run}"}
        options = [*inputs, *command_line(more | {"output": tmp_path / "policy"})]
        return ForkedStep("ppo", *options, environment={"MLGO_CACHE_DIR": str(cache)})

    def await_iteration(number: int) -> None:
        manifests = "checkpoints/[0-9]*/manifest.json"
        wait_until(
            lambda: any(int(path.parent.name[:6]) >= number for path in root.glob(manifests)),
            process=trainer,
            timeout_s=120,
        )

    def lose_worker() -> None:
        """A worker that has died already takes seconds to be replaced."""
        os.kill(wait_until(nodes.workers, process=trainer, timeout_s=120)[0], signal.SIGKILL)

    try:
        nodes.add()
        victim = nodes.add()
        trainer = start()
        for iteration in range(1, ITERATIONS):
            await_iteration(iteration)
            if iteration == 1:
                nodes.kill(victim)
                nodes.add()
            else:
                lose_worker()
            if iteration == 2:
                trainer.send_signal(signal.SIGSTOP)
                time.sleep(2)
                trainer.send_signal(signal.SIGCONT)
            if iteration == 3:
                trainer.kill()
                trainer.communicate()
                trainer = start()
        said = trainer.communicate(timeout=180)[0]
    finally:
        trainer.kill()
        nodes.shutdown()
    assert trainer.returncode == 0 and "resuming after iteration " in said, said
    assert bucket.failed > 5
    report = json.loads((tmp_path / "policy" / "report.json").read_text())
    assert report["mean_rewards"] == first[1]["mean_rewards"] and len(report["mean_rewards"]) == ITERATIONS
    assert report["validation_history"] == first[1]["validation_history"]
    assert weights(tmp_path / "policy") == weights(first[0] / "policy")
    assert report["quarantine"]["modules"] == []
    for number in range(3):
        assert not (nodes.cache(number) / "s3" / BUCKET / "corpus").exists()  # modules came one by one
    assert list((nodes.cache(0) / "modules").rglob("*.bc"))
