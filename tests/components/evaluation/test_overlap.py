"""Tests of functions that several held-out modules define."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.core.compiler.objects.function_digests import FunctionDigests
from components.core.compiler.objects.function_sizes import FunctionSizes
from components.evaluation.overlap import Overlap, OverlapCounter


def functions(strong: Sequence[str] = (), **bytes_: int) -> FunctionSizes:
    """Return an object's functions: name -> bytes, weak ones unless they are `strong`."""
    zeros, size = np.zeros(len(bytes_), np.int64), np.array(list(bytes_.values()), np.int64)
    return FunctionSizes(
        names=list(bytes_),
        weak=np.array([name not in strong for name in bytes_], bool),
        entry=np.arange(len(bytes_), dtype=np.int32),
        instructions=size,
        unwind=zeros,
        exceptions=zeros,
        jump_tables=zeros,
        remainder={},
        sections={},
        text_size_bytes=int(size.sum()),
        bodies=size.astype(np.uint64),
    )


def count(*compiles: tuple[str, FunctionSizes, FunctionSizes]) -> Overlap:
    """Return the overlap of modules of one project each: project, functions under the heuristic and the policy."""
    counter = OverlapCounter(FunctionDigests())
    modules = [f"m{index}" for index in range(len(compiles))]
    for module, (_, baseline, policy) in zip(modules, compiles, strict=True):
        counter.add_baseline(module, baseline)
        counter.add_policy(module, policy)
    overlap = counter.overlap(modules, [project for project, *_ in compiles])
    assert overlap is not None
    return overlap


def test_weak_function_of_several_modules_is_divided_among_them_in_its_project() -> None:
    both, one, none = functions(f=30, g=10), functions(f=30), functions()
    overlap = count(("p", both, one), ("p", one, one), ("p", one, none), ("q", one, one))
    assert overlap.repeated is not None and overlap.repeated_policy is not None
    assert overlap.repeated.tolist() == [20, 20, 20, 0]
    assert overlap.repeated_policy.tolist() == [15, 15, 0, 0], "the third module has it no longer"
    assert overlap.functions.tolist() == [40, 30, 30, 30]


def test_definitions_with_other_instructions_are_of_one_function() -> None:
    overlap = count(("p", functions(f=30), functions(f=30)), ("p", functions(f=30), functions(f=50)))
    assert overlap.repeated_policy is not None
    assert overlap.repeated_policy.tolist() == [15, 25], "a link keeps one of them"


def test_function_with_a_strong_name_is_in_the_link_as_often_as_in_objects() -> None:
    one = functions(strong=["f"], f=30, g=10)
    overlap = count(("p", one, one), ("p", one, one))
    assert overlap.repeated is not None
    assert overlap.repeated.tolist() == [5, 5]


def test_files_of_earlier_versions_do_not_have_repeated_functions() -> None:
    document = count(("p", functions(f=30), functions(f=30))).to_json()
    assert Overlap.from_json(document).to_json() == document
    earlier = Overlap.from_json({name: column for name, column in document.items() if "repeated" not in name})
    assert earlier.repeated is earlier.repeated_policy is None
    assert earlier.of(np.array([True])).figures(np.array([True])).function_bytes == 30
