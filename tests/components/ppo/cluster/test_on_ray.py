"""Training on Ray: the same rewards as with local workers, also if nodes or object storage fail."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from components.platform.storage import publish
from components.platform.storage.kinds import Kind
from components.platform.storage.object_storage import gcs
from components.platform.storage.uri import ObjectUri, mirror
from components.platform.workers.settings import NODE_SETTINGS
from tests.components.platform.workers.conftest import Nodes
from tests.components.ppo.runs import ITERATIONS, LEARNING_BY_DEFAULT, train
from tests.servers.storage_server import Faults, storage_server

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

BUCKET = "mlgo-ray"


def with_options(inputs, **options):
    """The same arguments but for those."""
    options_by_name = dict(zip(inputs[::2], inputs[1::2], strict=True))
    options_by_name |= {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    return [word for pair in options_by_name.items() for word in pair]


def test_training_with_local_ray(inputs, first, tmp_path):
    report = train(with_options(inputs, workers="ray"), tmp_path, fresh=True)
    assert report["mean_rewards"] == first[1]["mean_rewards"]
    assert report["validation_history"] == first[1]["validation_history"]


@LEARNING_BY_DEFAULT
def test_cancelled_modules_of_an_iteration_are_reported(inputs, tmp_path):
    command = [sys.executable, "-m", "components.ppo", *with_options(inputs, min_completed_fraction=0.5, iterations=2)]
    command += ["--root-dir", tmp_path / "root", "--output", tmp_path / "policy"]
    said = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
    ended = r"iteration ended with 1 of 2 modules; cancelled: app/m\d\.cpp\.o \((\d+) bytes, (\S+) s in"
    left_out = re.findall(ended, said)
    assert len(left_out) == 2 and all(int(size) > 0 and float(seconds) > 0 for size, seconds in left_out)


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """Every third request to it fails, for a while; everything that starts from here on knows it."""
    faults = Faults()
    with storage_server(BUCKET, faults=faults) as url:
        monkeypatch.setenv(gcs.EMULATOR_VARIABLE, url)
        monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "here"))
        for name, value in NODE_SETTINGS.items():
            monkeypatch.setenv(name, value)
        gcs._client.cache_clear()
        yield faults
    gcs._client.cache_clear()


def in_bucket(directory: Path, name: str, kind: Kind) -> str:
    uri = ObjectUri("gs", BUCKET, name)
    with publish(mirror(uri), kind) as partial:
        subprocess.run(["cp", "-a", f"{directory}/.", partial], check=True)
        (partial / "manifest.json").unlink(missing_ok=True)
    return str(uri)


def test_training_survives_lost_node_and_failing_object_storage(inputs, first, bucket, tmp_path):
    """Everything is in the bucket; nodes share nothing with the trainer, and every third request of anybody fails."""
    paths = dict(zip(inputs[::2], inputs[1::2], strict=True))
    kinds: dict[str, Kind] = {"corpus": "corpus", "toolchain": "toolchain", "trace": "trace", "warmstart": "policy"}
    uris = {name: in_bucket(Path(paths[f"--{name}"]), name, kind) for name, kind in kinds.items()}
    nodes = Nodes(tmp_path / "nodes")
    try:
        nodes.add()
        victim = nodes.add()
        bucket.every, bucket.times = 3, 150
        options = with_options(
            inputs, **uris, workers=f"ray:{nodes.address}", root_dir=f"gs://{BUCKET}/ppo", output=tmp_path / "policy"
        )
        environment = os.environ | {"MLGO_CACHE_DIR": str(tmp_path / "trainer")}
        trainer = subprocess.Popen(
            [sys.executable, "-m", "components.ppo", *map(str, options)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        checkpoints = tmp_path / "trainer" / "gs" / BUCKET / "ppo" / "@" / "ppo" / "checkpoints"
        end = time.monotonic() + 120
        while not list(checkpoints.glob("*/manifest.json")) and trainer.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        nodes.kill(victim)
        said = trainer.communicate(timeout=180)[0]
    finally:
        nodes.shutdown()
    assert trainer.returncode == 0, said
    assert bucket.failed > 50
    report = json.loads((tmp_path / "policy" / "report.json").read_text())
    assert report["mean_rewards"] == first[1]["mean_rewards"] and len(report["mean_rewards"]) == ITERATIONS
    assert report["validation_history"] == first[1]["validation_history"]
    assert report["quarantine"]["modules"] == []
    for number in range(2):
        assert not (nodes.cache(number) / "gs" / BUCKET / "corpus").exists()  # modules came one by one
    assert list((nodes.cache(0) / "modules").rglob("*.bc"))
