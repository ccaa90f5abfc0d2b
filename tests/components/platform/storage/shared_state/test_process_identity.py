"""Whether a process still runs, as another one sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from components.platform.storage.shared_state.process_identity import ProcessIdentity, _started

HIDDEN = """
import os, sys
from dataclasses import replace
from components.platform.storage.shared_state.process_identity import ProcessIdentity
me, started, pid = ProcessIdentity.here(), *map(int, sys.argv[1:])
os.setgid(65534), os.setuid(65534)
print([replace(me, pid=number, started=started).is_running(me) for number in (pid, 2**22 - 1)])
"""


def test_running_dead_and_reused_process_are_told_apart() -> None:
    me = ProcessIdentity.here()
    with subprocess.Popen(["sleep", "60"]) as process:
        started = _started(str(process.pid))
        assert started is not None
        running = replace(me, pid=process.pid, started=started)
        assert running.is_running(me)
        assert replace(running, started=started - 1).is_running(me) is False
        assert running.is_running(replace(me, boot="another machine's")) is None
        process.kill()
    assert running.is_running(me) is False


@pytest.mark.skipif(os.getuid() != 0, reason="mounts /proc")
def test_process_that_proc_hides_is_unknown() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        python = [sys.executable, "-c", HIDDEN, str(_started(str(process.pid))), str(process.pid)]
        mounted = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount -t proc -o hidepid=2 proc /proc && exec "$@"',
            "sh",
            *python,
        ]
        done = subprocess.run(mounted, capture_output=True, text=True)
        process.kill()
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"/proc cannot be mounted here: {done.stderr}")
    assert done.stdout == "[None, False]\n", done.stderr
