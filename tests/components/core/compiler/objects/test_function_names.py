"""Names of functions for people."""

from __future__ import annotations

import pytest

from components.core.compiler.objects.function_names import demangle, shorten, without_lambda_numbers

LONG = "std::map<std::string, std::vector<int, std::allocator<int>>>::find(std::string const&, int) const"


def test_demangled_names_have_one_line_each() -> None:
    names = ["_ZN5table3Row3sumEi", "main", "odd\nname", "\x1b[31m", ""]
    assert demangle(names) == ["table::Row::sum(int)", "main", "odd\\nname", "\\x1b[31m", ""]
    assert demangle([]) == []


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (200, LONG),
        (90, "std::map<std::string, std::vector<int, std::allocator<int>>>::find(…) const"),
        (40, "std::map<…>::find(…) const"),
        (12, "std::map<…>…"),
    ],
)
def test_parameters_are_left_out_before_arguments_of_templates(width: int, expected: str) -> None:
    short = shorten(LONG, width)
    assert len(short) <= width and short.startswith("std::map<")
    assert short == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("YAML::operator<<(YAML::Emitter&, YAML::Node const&)", "YAML::operator<<(…)"),
        ("Long<int>::operator->(Argument, Argument, Argument)", "Long<int>::operator->(…)"),
        ("(anonymous namespace)::f(Argument, Argument, Arg)", "(anonymous namespace)::f(…)"),
        ("Callable<int, char>::operator()(Argument, Argument) const", "Callable<…>::operator()(…) const"),
    ],
)
def test_brackets_that_are_part_of_a_name_remain(name: str, expected: str) -> None:
    assert shorten(name, 34) == expected


def test_lambdas_of_gcc_and_clang_have_one_name() -> None:
    gcc, clang = demangle(
        [
            "_ZNSt17_Function_handlerIFvvEZ4mainEUlvE_E9_M_invokeERKSt9_Any_data",
            "_ZNSt17_Function_handlerIFvvEZ4mainE3$_0E9_M_invokeERKSt9_Any_data",
        ]
    )
    assert gcc != clang
    assert without_lambda_numbers(gcc) == without_lambda_numbers(clang)
    assert without_lambda_numbers("main::{lambda(int (*)(int))#2}::operator()(int) const") == (
        "main::{lambda}::operator()"
    )
    assert without_lambda_numbers("f(int)") == "f(int)"
