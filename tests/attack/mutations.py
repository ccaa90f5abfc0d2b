"""Mutates files from a seed, and reads them under limits of time and memory: tests of parsers of hostile bytes.

MLGO_ATTACK_ROUNDS multiplies the number of inputs, MLGO_ATTACK_SEED makes others.
"""

from __future__ import annotations

import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Literal

ROUNDS = int(os.environ.get("MLGO_ATTACK_ROUNDS", "1"))
SEED = int(os.environ.get("MLGO_ATTACK_SEED", "1"))
TIME_LIMIT_S = 5.0
MEMORY_LIMIT_BYTES = 512 << 20


def mutate(data: bytes, draw: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return other bytes: bits flipped, numbers replaced, pieces cut, repeated, moved, and taken from `others`."""
    content = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        size, how = len(content), draw.random()
        at = _offset(size, draw)
        if not size or how < 0.06:
            del content[at:]
        elif how < 0.2:
            content[at] ^= 1 << draw.randrange(8)
        elif how < 0.3:
            content[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif how < 0.75:
            width = draw.choice((2, 4, 4, 8, 8))
            order: Literal["little", "big"] = "little" if draw.random() < 0.7 else "big"
            at -= at % draw.choice((1, 4, 8))
            value = int.from_bytes(content[at : at + width], order)
            limit = 1 << 8 * width
            numbers = (0, 1, size, size - at, limit - 1, limit // 2, limit // 2 - 1, 1 << draw.randrange(8 * width))
            value = draw.choice((*numbers, value + draw.randint(-9, 9), value * 2, draw.randrange(size), ~value))
            content[at : at + width] = (value % limit).to_bytes(width, order)[: size - at]
        elif how < 0.8:
            del content[at : at + draw.choice((1, 4, 8, 24, 64, draw.randrange(1, size + 1)))]
        else:
            source = draw.choice(others) if others and draw.random() < 0.5 else data
            begin = _offset(len(source), draw)
            piece = source[begin : begin + draw.choice((1, 4, 8, 24, 64, 1000, len(source)))]
            end = at + draw.choice((0, len(piece), len(piece), size))  # inserted, in place of others, up to the end
            content[at:end] = piece
    return bytes(content)


def _offset(size: int, draw: random.Random) -> int:
    """Return an offset, often one in a header or in tables at the end."""
    begin, end = draw.choice(((0, 64), (0, 512), (size * 3 // 4, size), (0, size)))
    return draw.randrange(min(begin, max(size - 1, 0)), max(min(end, size), 1))


@contextmanager
def limits(seconds: float = TIME_LIMIT_S, memory_bytes: int = MEMORY_LIMIT_BYTES) -> Iterator[Callable[[], None]]:
    """Fail what takes more processor time than `seconds` or maps `memory_bytes` more; yields a function that starts the
    time again."""

    def too_slow(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {seconds} s")

    def restart() -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)

    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + memory_bytes, hard))
    try:
        yield restart
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))
        signal.signal(signal.SIGVTALRM, handler)


def read_mutations(
    read: Callable[[bytes], object], inputs: Sequence[bytes], count: int, refusals: tuple[type[Exception], ...]
) -> Counter[str]:
    """Read `count` mutations of each round, and return how many were "read" and "refused", by one of `refusals`.

    Any other exception fails the test; its note says which input it was.
    """
    counts = Counter[str]()
    with limits() as restart:
        for number in range(count * ROUNDS):
            draw = random.Random(f"{SEED}/{number}")
            content = mutate(draw.choice(inputs), draw, inputs)
            restart()
            try:
                read(content)
                counts["read"] += 1
            except refusals:
                counts["refused"] += 1
            except BaseException as error:
                error.add_note(f"MLGO_ATTACK_SEED={SEED}, input {number} of {len(content)} bytes: {content[:200]!r}")
                raise
            if (number + 1) % 10_000 == 0:
                print(number + 1, dict(counts), flush=True)
    assert min(counts["read"], counts["refused"]) >= count * ROUNDS // 200, counts
    return counts
