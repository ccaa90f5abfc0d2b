"""Runs interleavings of the protocol of shared state, by their seeds:

python -m tests.protocol --seeds 0:100000
python -m tests.protocol --seeds 4711:4712 --trace
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import sys
import tempfile
import traceback
from pathlib import Path

from tests.protocol.interleaving import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:1000", help="FIRST:END")
    parser.add_argument("--trace", action="store_true", help="print what the code says, and where an error came from")
    options = parser.parse_args()
    first, end = map(int, options.seeds.split(":"))
    failed: list[int] = []
    logging.disable(logging.CRITICAL)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # handing over to a thread of another processor is slow
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for seed in range(first, end):
            try:
                with contextlib.redirect_stdout(sys.stdout if options.trace else io.StringIO()):
                    run(seed, Path(directory))
            except BaseException as error:
                failed.append(seed)
                print(f"{seed}: {type(error).__name__}: {error}", flush=True)
                if options.trace or isinstance(error, KeyboardInterrupt):
                    traceback.print_exc()
                    raise SystemExit(1) from None
            if (seed + 1 - first) % 1000 == 0:
                print(f"{seed + 1 - first} interleavings, {len(failed)} failed", flush=True)
    print(f"{end - first} interleavings, {len(failed)} failed")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
