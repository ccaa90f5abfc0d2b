"""The card of a plan states what was searched, what it gains, and whether it was verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.tune.config import TuneConfig
from components.tune.model_card import write_card

FIGURES: dict[str, Any] = {
    "llvm_version": "19.1.7",
    "corpus": "c" * 64,
    "training_clang": "t" * 64,
    "policy": "",
    "corpus_modules": 80,
    "measured_modules": 80,
    "modules": 12,
    "programs": 0,
    "planned_heuristic_bytes": 150,
    "finished_modules": 3,
    "rounds": 15,
    "heuristic_bytes": 1000,
    "policy_bytes": 1010,
    "plan_bytes": 950,
    "policy_reduction_percent": -1.0,
    "plan_reduction_percent": 5.0,
    "heuristic_linked_bytes": 800,
    "policy_linked_bytes": 780,
    "plan_linked_bytes": 720,
    "policy_linked_reduction_percent": 2.5,
    "plan_linked_reduction_percent": 10.0,
}


def write(directory: Path, figures: dict[str, Any] = FIGURES, **options: Any) -> str:
    config = TuneConfig(directory, directory, directory, directory, directory / "plan", minutes=15.0, **options)
    write_card(directory / "card.md", config, figures)
    return (directory / "card.md").read_text()


def test_card_states_gain_and_coverage(tmp_path: Path) -> None:
    card = write(tmp_path)
    assert card.startswith("# Inlining plan: 10.00% smaller than LLVM's heuristic"), "what the search minimized"
    assert "80 modules" in card
    assert "12 of 80" in card and "3 of them" in card
    assert "| policy | 1,010 | 1.00% larger |" in card and "| plan | 720 | 10.00% smaller |" in card
    assert "15 rounds" in card
    assert f"Corpus `{'c' * 64}`, policy `without manifest`" in card
    assert "Not verified" in card


def test_card_of_programs_says_how_to_link(tmp_path: Path) -> None:
    card = write(tmp_path, FIGURES | {"programs": 80})
    assert "heuristic's" in card and "-Wl,-mllvm,-mlgo-keep-smaller" in card


def test_card_states_what_does_not_compile_and_programs_without_text(tmp_path: Path) -> None:
    nothing = {
        name: None if "percent" in name else 0 for name in FIGURES if name.startswith(("plan", "policy_", "heur"))
    }
    card = write(tmp_path, FIGURES | nothing | {"measured_modules": 78})
    assert "78 of 80" in card and card.startswith("# Inlining plan: not smaller")


def test_card_of_a_search_for_module_sizes_has_one_table(tmp_path: Path) -> None:
    figures = {name: value for name, value in FIGURES.items() if "linked" not in name}
    card = write(tmp_path, figures, size_of="modules")
    assert card.startswith("# Inlining plan: 5.00% smaller than LLVM's heuristic")
    assert "| plan | 950 | 5.00% smaller |" in card and card.count("| bytes | |") == 1


def test_card_states_verification(tmp_path: Path) -> None:
    verified = {"release_modules": 12, "release_as_found": 11, "release_identical_twice": 12}
    card = write(tmp_path, FIGURES | verified)
    assert "11 of the 12" in card and "12 with bit-identical objects" in card
    assert "Not verified" not in card
