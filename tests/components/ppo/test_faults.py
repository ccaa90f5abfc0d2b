"""Interrupted trainings with real compiles resume, and their rewards equal those of an uninterrupted training.

Each of the eleven interruptions is compared, iteration by iteration, with the same uninterrupted training, on measured
flips. A training on sampled compiles is killed in cluster/test_on_ray.py.
"""

import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from components.platform.storage.object_storage import gcs, s3
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.shared_state.versioned_json import read_versioned, write_versioned
from components.platform.storage.uri import parse_location
from components.ppo.checkpointing.checkpoint import STATE
from tests.components.ppo.runs import LEARNING_BY_DEFAULT, train
from tests.servers.kfp_launcher import KfpLauncher
from tests.servers.s3_server import CREDENTIALS, s3_server
from tests.servers.storage_server import Faults
from tests.support.buckets import local_bucket, use_s3
from tests.support.fork_server import ForkedStep
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.tf, LEARNING_BY_DEFAULT]

ITERATIONS = 8
ALL = range(1, ITERATIONS + 1)
DEADLINE_S = 300


class Run:
    """A training in a process of its own. cache: each machine has one."""

    started: ClassVar[list[ForkedStep]] = []

    def __init__(self, inputs, root, where: Path, *more, cache: Path | None = None):
        self.root, self.where = root, where
        self.cache = cache or where / "cache"
        arguments = [*inputs, "--iterations", ITERATIONS, "--root-dir", root, "--output", where / "policy", *more]
        self.process = ForkedStep("ppo", *arguments, environment={"MLGO_CACHE_DIR": str(self.cache)})
        self.started.append(self.process)

    def until(self, condition):
        """Wait until `condition` is true while the process runs; return its value."""
        return wait_until(condition, process=self.process, timeout_s=DEADLINE_S, every_s=0.002)

    def end(self, number=None):
        """Send the signal, if any; return the output of the process after its end."""
        if number is not None:
            self.process.send_signal(number)
        return "".join(self.process.communicate(timeout=DEADLINE_S))

    def report(self):
        said = self.end()
        assert self.process.returncode == 0, said
        return json.loads((self.where / "policy" / "report.json").read_text())

    def learned(self):
        return learned(self.report(), self.root)


def learned(report, root):
    """Return the results by which finished trainings are compared: rewards, validations, digest of the last weights."""
    digest = read_versioned(f"{root}/latest.json").content["policy"]
    return report["mean_rewards"], report["validation_history"], report["best_iteration"], digest


def iteration(root: Path) -> int:
    """Return the iteration of the newest checkpoint, 0 without a checkpoint."""
    try:
        return json.loads((root / "latest.json").read_text()).get("iteration", 0)
    except OSError:
        return 0


def mirror(cache: Path) -> Path:
    """Return the local mirror of gs://trainings/run."""
    return cache / "gs" / "trainings" / "run" / "@" / "run"


def steps(directory: Path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = [e for path in sorted(directory.glob("*tfevents*")) for e in EventFileLoader(str(path)).Load()]
    tag = "reward_distribution/mean"
    steps_of_events = sorted(event.step for event in events for value in event.summary.value if value.tag == tag)
    rows = [line.split(",") for line in (directory / "training.csv").read_text().splitlines()[1:]]
    assert [int(row[0]) for row in rows if row[2]] == steps_of_events
    return steps_of_events


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    while Run.started:
        process = Run.started.pop()
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    """Directory of the uninterrupted training."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def undisturbed(inputs, whole):
    result = learned(train([*inputs, "--iterations", ITERATIONS], whole, fresh=True), whole / "root")
    assert len(result[0]) == ITERATIONS and len(set(result[0])) > 1
    assert steps(whole / "policy" / "tensorboard") == [*ALL]
    return result


@pytest.fixture
def bucket(monkeypatch):
    faults = Faults()
    with local_bucket("trainings", monkeypatch, faults=faults):
        yield faults


def test_kills_at_random_moments_and_while_publishing(inputs, undisturbed, tmp_path):
    chance = random.Random(7)
    root, done = tmp_path / "root", []
    for kill in range(5):
        run = Run(inputs, root, tmp_path, "--iterations", "99")
        before = iteration(root)
        run.until(lambda before=before: iteration(root) > before)
        if kill in (1, 3):  # half of a checkpoint is there
            run.until(lambda: list(root.glob("checkpoints/.*.partial-*")))
        else:
            time.sleep(chance.uniform(0, 0.4))
        said = run.end(signal.SIGKILL)
        assert run.process.returncode == -signal.SIGKILL, said
        done.append(iteration(root))
        assert before == 0 or f"resuming after iteration {before}" in said
    assert done[0] >= 1 and done == sorted(set(done)), "each began where the one before was killed, and came further"
    assert done[-1] < ITERATIONS
    assert Run(inputs, root, tmp_path).learned() == undisturbed
    assert steps(root / "tensorboard") == [*ALL]
    assert len(list((root / "checkpoints").iterdir())) == 3 and not list(root.glob("checkpoints/.*"))


def test_signal_keeps_the_last_iteration(inputs, undisturbed, tmp_path):
    root = tmp_path / "root"
    for number, seldom, status in ((signal.SIGTERM, 100, 143), (signal.SIGINT, 1, 130)):
        run = Run(inputs, root, tmp_path, "--checkpoint-every", str(seldom), "--iterations", "99")
        before = iteration(root)
        if seldom > 1:  # nothing is published by itself
            run.until(lambda: sum(path.stat().st_size for path in root.glob("tensorboard/[!.]*")) > 3000)
            assert iteration(root) == 0
        else:
            run.until(lambda before=before: iteration(root) > before)
        began = time.monotonic()
        said = run.end(number)
        assert time.monotonic() - began < 20
        assert run.process.returncode == status and "Traceback" not in said, said
        assert iteration(root) > before and f"the state after iteration {iteration(root)} is saved in {root}" in said
        assert "run the same command again to continue" in said
        assert json.loads((root / "latest.json").read_text())["released"]
    assert iteration(root) < ITERATIONS
    assert Run(inputs, root, tmp_path).learned() == undisturbed


def test_root_directory_in_a_bucket_on_two_machines(inputs, undisturbed, tmp_path, bucket):
    """The second training is refused. The first is killed, resumes on the second machine, and loses a checkpoint."""
    root, one, two = "gs://trainings/run", tmp_path / "one", tmp_path / "two"
    first = Run(inputs, root, tmp_path, cache=one)
    first.until(lambda: list(mirror(one).glob("checkpoints/000003-*/manifest.json")))
    first.process.send_signal(signal.SIGSTOP)
    second = Run(inputs, root, tmp_path, cache=two)
    said = second.end()
    assert second.process.returncode == 1 and f"another training is running in {root}" in said, said
    first.end(signal.SIGKILL)
    second = Run(inputs, root, tmp_path, "--iterations", "99", cache=two)
    second.until(lambda: list(mirror(two).glob("checkpoints/*/manifest.json")))
    said = second.end(signal.SIGTERM)
    assert second.process.returncode == 143, said
    # Damage the checkpoint in the bucket: mirrors are verified against it.
    newest = read_versioned(f"{root}/latest.json").content["checkpoints"][-1]
    uri: Any = parse_location(f"{root}/checkpoints/{newest}")
    for blob in gcs.bucket_of(uri).list_blobs(prefix=f"{uri.path}/data/"):
        if blob.name.endswith(STATE):
            blob.upload_from_string(b"{}")
    shutil.rmtree(two)
    third = Run(inputs, root, tmp_path, cache=two)
    assert third.learned() == undisturbed
    assert steps(mirror(two) / "tensorboard") == steps(tmp_path / "policy" / "tensorboard") == [*ALL]


def test_lost_pod_on_kfp_resumes_below_the_artifact_root(inputs, tmp_path, monkeypatch):
    """KFP's root is one that its launcher copies, and from which nothing is left of a lost pod."""
    task = "mlgo-training/7e1c0a52-8f0b-4a55-9a0e-3f2c7f1f5d11/ppo/0b9d3c1e-2f60-4d0e-8f7a-6f1f3a2b4c5d"
    uris = {name: f"minio://kfp-training/v2/artifacts/{task}/{name}" for name in ("ppo", "policy")}
    outputs = {name: {"artifacts": [{"name": name, "uri": uri}]} for name, uri in uris.items()}
    document = json.dumps({"outputs": {"artifacts": outputs, "outputFile": str(tmp_path / "output_metadata.json")}})
    options = ["--artifact-root", "s3://kfp-training/mlgo", "--executor-input", document, "--work", "ppo", "ppo"]
    more = ["--iterations", 6, "--root-dir", uris["ppo"], "--output", uris["policy"]]
    command = ["python", "-m", "components.platform.launcher", *options, *map(str, (*inputs, *more))]
    root = f"s3://kfp-training/mlgo/{task}/ppo"
    with s3_server("kfp-training") as url:
        use_s3(url, monkeypatch)
        launcher = KfpLauncher(url, tmp_path / "pods", variables={"AWS_ENDPOINT_URL_S3": url, **CREDENTIALS})
        lost, _pod = launcher.start(command)
        latest = f"{root}/latest.json"
        wait_until(lambda: (read_versioned(latest).content or {}).get("iteration"), process=lost, timeout_s=DEADLINE_S)
        lost.kill()
        lost.communicate()
        done = launcher.run(command)
        assert done.returncode == 0 and "resuming after iteration " in done.stdout, done.stdout + done.stderr
        assert launcher.downloaded == launcher.uploaded == []
        uri: Any = parse_location(launcher.recorded["policy"]["metadata"]["location"])
        assert json.loads((fetch(uri) / "report.json").read_text())["iterations"] == 6
        lease = read_versioned(f"{root}/latest.json").content or {}
        assert lease["released"] and lease["published"] == str(uri)
        s3._client.cache_clear()


def test_suspended_training_is_replaced_and_notices(inputs, undisturbed, tmp_path, bucket):
    """The first machine is suspended, and its process counts as dead."""
    root = "gs://trainings/run"
    first = Run(inputs, root, tmp_path, cache=tmp_path / "one")
    first.until(lambda: list(mirror(tmp_path / "one").glob("checkpoints/000002-*/manifest.json")))
    first.process.send_signal(signal.SIGSTOP)
    lease = read_versioned(f"{root}/latest.json")
    write_versioned(f"{root}/latest.json", {**lease.content, "started": 1}, lease)  # as of a dead process
    (tmp_path / "second").mkdir()
    second = Run(inputs, root, tmp_path / "second", cache=tmp_path / "two")
    second.until(lambda: list(mirror(tmp_path / "two").glob("checkpoints/*/manifest.json")))
    first.process.send_signal(signal.SIGCONT)
    said = first.end()
    assert first.process.returncode == 1 and f"another training has taken over {root}" in said, said
    assert "Traceback" not in said and not (tmp_path / "policy").exists()
    assert second.learned() == undisturbed


def test_object_storage_that_fails_then_hangs(inputs, undisturbed, tmp_path, bucket):
    root = "gs://trainings/run"
    bucket.every, bucket.times = 3, 60
    run = Run(inputs, root, tmp_path)
    run.until(lambda: list(mirror(run.cache).glob("checkpoints/000003-*/manifest.json")))
    assert 10 < bucket.failed < 60
    bucket.silent.set()
    time.sleep(1)
    began = time.monotonic()
    said = run.end(signal.SIGTERM)
    assert time.monotonic() - began < 20
    assert run.process.returncode == 143 and "Traceback" not in said, said
    assert "run the same command again" in said
    bucket.silent.clear()
    assert Run(inputs, root, tmp_path).learned() == undisturbed
    assert bucket.failed == 60, "it failed, and recovered"


def test_changed_inputs_are_refused_or_start_a_new_folder(inputs, undisturbed, whole, tmp_path):
    root = shutil.copytree(whole / "root", tmp_path / "root")
    other = Run(inputs, root, tmp_path, "--samples", "2")
    said = other.end()
    assert other.process.returncode == 1 and "was started with --samples 3 (now 2)" in said, said
    Run(inputs, root, tmp_path, "--samples", "2", "--iterations", "1", "--fingerprint-root-dir").report()
    assert len(list(root.glob("*/latest.json"))) == 1 and iteration(root) == ITERATIONS
