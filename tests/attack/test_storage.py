"""Attacks on artifacts in object storage: racing writers and readers, kills, a faulty connection, hostile manifests.

MLGO_ATTACK_ROUNDS=100 python -m pytest -m attack tests/attack -s
"""

from __future__ import annotations

import json
import os
import random
from datetime import timedelta
from pathlib import Path

import pytest

from components.platform.storage.object_storage import gcs
from components.platform.storage.object_storage import sweep as sweep_module
from components.platform.storage.object_storage.remote import ABANDONED_AFTER_S, read_remote_manifest
from components.platform.storage.object_storage.stores import server_time
from components.platform.storage.object_storage.sweep import sweep
from components.platform.storage.uri import ObjectUri
from tests.attack.actors import Actor, Counts, read, start, write
from tests.attack.proxy import Spoiling, spoiling_proxy
from tests.components.platform.storage.test_hostile_manifest import DATA, HOSTILE, OTHERS, file

pytestmark = pytest.mark.attack

ROUNDS = int(os.environ.get("MLGO_ATTACK_ROUNDS", "1"))
SHARE = 0.12
"""Fraction of the requests with a fault."""


@pytest.fixture
def storage_uri(gs_uri: ObjectUri) -> ObjectUri:
    return gs_uri


def test_racing_and_killed_writers_on_a_faulty_connection(
    storage_uri: ObjectUri,
    storage_host: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts, defects, seed = Counts(), list[str](), random.randrange(1 << 32)
    abandoned = 0
    chance = random.Random(seed)
    spoiling = Spoiling(SHARE, chance)
    tomorrow = timedelta(seconds=ABANDONED_AFTER_S + 3600)
    monkeypatch.setattr(sweep_module, "server_time", lambda uri: server_time(uri) + tomorrow)
    with spoiling_proxy(storage_host, spoiling) as host:
        for number in range(ROUNDS):
            uri = storage_uri / f"round-{number}"
            counts.races += 1

            def begin(who: str, cache: str, act: object, *arguments: object, number: int = number) -> Actor:
                result = tmp_path / f"{number}-{who}.json"
                return start(act, host, tmp_path / f"{number}-{cache}", result, *arguments)  # type: ignore[arg-type]

            def begin_writer(who: str, cache: str, uri: ObjectUri = uri, number: int = number) -> tuple[Actor, Path]:
                begun = tmp_path / f"{number}-{who}-begun"
                return begin(who, cache, write, uri, who, begun), begun

            defects.append(begin_writer("writer-0", "a")[0].count(counts))
            # Machines a and b; the processes of a machine share a cache.
            actors = [begin_writer(f"writer-{i}", "ab"[i % 2])[0] for i in (1, 2, 3, 4)]
            actors += [begin(f"reader-{i}", "ab"[i % 2], read, uri, 4) for i in (1, 2)]
            victims = [begin_writer(f"victim-{i}", "abc"[i % 3]) for i in (5, 6, 7)]
            for victim, begun in victims:
                victim.kill(counts, begun, chance.uniform(0, 0.3))
            defects += [actor.count(counts) for actor in actors]
            defects.append(begin("last", "c", read, uri, 1).count(counts))
            swept = [str(folder.uri) for folder in sweep(uri)]
            abandoned += len(swept)
            left = {
                blob.name.removeprefix(f"{uri.path}/") for blob in gcs.bucket_of(uri).list_blobs(prefix=f"{uri.path}/")
            }
            remote = read_remote_manifest(uri)
            assert left == {"manifest.json", f"{remote.data}/large", f"{remote.data}/{remote.packs[0].name}"}, swept
            defects.append(begin("after", "d", read, uri, 1).count(counts))
    with capsys.disabled():
        print(f"\nraces, seed {seed}: {counts}; {abandoned} abandoned folders swept")
        print(f"{spoiling.passed} requests, spoilt: {dict(spoiling.done)}")
    assert [defect for defect in defects if defect] == []


def test_hostile_manifests_on_a_faulty_connection(
    storage_uri: ObjectUri, storage_host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts, defects, seed = Counts(), list[str](), random.randrange(1 << 32)
    spoiling = Spoiling(SHARE, random.Random(seed))
    blob = gcs.bucket_of(storage_uri).blob(f"{storage_uri.path}/manifest.json")
    cases = {**{name: {"files": files} for name, files in HOSTILE.items()}, **OTHERS}
    with spoiling_proxy(storage_host, spoiling) as host:
        for case, part in random.Random(seed).sample(sorted(cases.items()), min(len(cases), 5 * ROUNDS)):
            blob.upload_from_string(json.dumps({"version": 1, "files": [file("a")], "data": DATA, **part}))
            actor = start(read, host, tmp_path / "cache-of-reader", tmp_path / f"{case}.json", storage_uri, 1)
            before = counts.clear
            defects.append(actor.count(counts))
            if counts.clear == before and not defects[-1]:
                counts.wrongly_accepted += 1
                defects.append(f"{case} was read")
    written = [path for path in (tmp_path / "cache-of-reader").rglob("*") if not path.is_dir() or path.is_symlink()]
    with capsys.disabled():
        print(f"\nhostile manifests, seed {seed}: {counts}; {spoiling.passed} requests, {spoiling.done.total()} spoilt")
    assert [defect for defect in defects if defect] == [] and written == []
