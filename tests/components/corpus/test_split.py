"""The split of a corpus is a partition by source, independent of the order and the directory of its modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.core.formats.bitcode_symbols import ModuleSymbols, read_symbols
from components.core.formats.corpus import Corpus, Module
from components.core.formats.splits import Splits, read_splits
from components.corpus.split import SplitConfig, split_modules
from components.corpus.write_split_and_report import describe, write_split
from components.platform.errors import UserError


def write(directory: Path, contents: dict[str, str]) -> list[Module]:
    for name, content in contents.items():
        path = directory / f"{name}.bc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return [Module(name, directory) for name in contents]


CORPORA = st.dictionaries(
    st.tuples(st.sampled_from("pqr"), st.integers(0, 60)).map(lambda t: f"{t[0]}/{t[1]}.o"),
    st.integers(0, 40).map(str),
    min_size=1,
)


@given(CORPORA, st.integers(0, 3), st.floats(0, 0.5), st.floats(0, 0.4), st.sets(st.sampled_from("pqr"), max_size=2))
@example({"p/0.o": "2", "p/1.o": "0", "p/2.o": "1"}, 2, 0.5, 0.0625, set())
def test_any_split_is_a_partition_by_content(
    tmp_path_factory: pytest.TempPathFactory,
    contents: dict[str, str],
    seed: int,
    validation: float,
    heldout: float,
    projects: set[str],
) -> None:
    modules = write(tmp_path_factory.mktemp("corpus"), contents)
    present = tuple(sorted(projects & {module.project for module in modules}))
    config = SplitConfig(validation, heldout, present, seed)
    heldout_contents = {contents[module.name] for module in modules if module.project in present}
    splits = split_modules(modules, config)
    if heldout_contents >= set(contents.values()):
        assert sorted(splits.heldout) == sorted(contents) and not splits.train and not splits.validation
        return
    parts = [splits.train, splits.validation, splits.heldout]
    assert sorted(name for part in parts for name in part) == sorted(contents)
    train_set, validation_set, heldout_set = ({contents[name] for name in part} for part in parts)
    assert not train_set & validation_set and not train_set & heldout_set and not validation_set & heldout_set
    assert all(module.name in splits.heldout for module in modules if module.project in present)
    assert splits.train and splits.heldout_projects == present
    rest = len(set(contents.values()) - heldout_contents)
    if rest >= 3:
        assert bool(splits.validation) == (validation > 0)
        assert (len(heldout_set - heldout_contents) > 0) == (heldout > 0)
        assert len(heldout_set - heldout_contents) <= max(1, 1.5 * heldout * rest)
        assert len(validation_set) <= max(1, 1.5 * validation * rest)
    assert split_modules(modules[::-1], config).train == splits.train[::-1]


def test_split_depends_only_on_content_and_seed(tmp_path: Path) -> None:
    contents = {f"p/{i}.o": f"content {i}" for i in range(50)}
    here = split_modules(write(tmp_path / "here", contents), SplitConfig())
    renamed = {f"q/{name}": text for name, text in contents.items()}
    there = split_modules(write(tmp_path / "there", renamed), SplitConfig())
    assert there.heldout == tuple(f"q/{name}" for name in here.heldout)
    assert 30 <= len(here.train) <= 46 and 2 <= len(here.validation) <= 7 and 3 <= len(here.heldout) <= 11
    assert split_modules(write(tmp_path / "here", contents), SplitConfig(seed=1)).heldout != here.heldout


def test_modules_remain_in_their_parts_when_others_are_added(tmp_path: Path) -> None:
    contents = {f"p/{i}.o": f"content {i}" for i in range(200)}
    modules = write(tmp_path, contents)
    for seed in range(5):
        few, many = (split_modules(modules[:count], SplitConfig(seed=seed)) for count in (120, 200))
        for part in ("train", "validation", "heldout"):
            assert set(few.part(part)) <= set(many.part(part))


def test_content_of_a_heldout_project_is_held_out_everywhere(tmp_path: Path) -> None:
    contents = {f"p/{i}.o": f"{i}" for i in range(20)} | {"q/same.o": "3", "q/own.o": "own"}
    config = SplitConfig(heldout_fraction=0, heldout_projects=("q",))
    splits = split_modules(write(tmp_path, contents), config)
    assert splits.heldout == ("p/3.o", "q/same.o", "q/own.o")


def test_unknown_heldout_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'zlib'") as caught:
        split_modules(write(tmp_path, {"lz4/a.o": "a"}), SplitConfig(heldout_projects=("zlib",)))
    assert "lz4" in caught.value.remedy


@pytest.mark.parametrize(("validation", "heldout"), [(-0.1, 0.1), (0.1, 1.1), (0.6, 0.5), (float("nan"), 0.1)])
def test_invalid_fractions_are_refused(validation: float, heldout: float) -> None:
    with pytest.raises(UserError):
        SplitConfig(validation, heldout)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_corpus_to_evaluate_on_is_all_held_out(tmp_path: Path, count: int) -> None:
    modules = write(tmp_path, {f"p/{i}.o": str(i) for i in range(count)})
    splits = split_modules(modules, SplitConfig(heldout_fraction=1))
    assert sorted(splits.heldout) == [module.name for module in modules] and not splits.train + splits.validation


def test_split_without_training_modules_is_refused(tmp_path: Path) -> None:
    modules = write(tmp_path, {f"p/{i}.o": str(i) for i in range(3)})
    with pytest.raises(UserError, match="2 held out"):
        split_modules(modules, SplitConfig(validation_fraction=0.05, heldout_fraction=0.9))


def test_names_that_held_out_modules_share_are_told(
    make_corpus: Callable[[Path, dict[str, str]], Corpus], tmp_path: Path
) -> None:
    shared = (
        "__attribute__((noinline)) inline int shared(int x) { return x * 31; } static int mine(int x) { return x; }\n"
    )
    sources = {name: f"{shared}int {name}(int x) {{ return shared(mine(x)); }}" for name in ("one", "two", "three")}
    corpus = make_corpus(tmp_path, {f"p/{name}.cpp": text for name, text in sources.items()})
    one, two, three = (module.name for module in corpus)
    text = describe(corpus.directory, write_split(corpus.directory, Splits(0, (two, three), (), (one,))))
    assert text.endswith("1 are held out; the other modules define 50% of their names, too")
    alone = write_split(corpus.directory, Splits(0, (), (), (one, two, three)))
    assert describe(corpus.directory, alone).endswith("3 are held out")


def test_symbols_of_each_module_are_read_once(
    make_corpus: Callable[[Path, dict[str, str]], Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = make_corpus(tmp_path, {f"p/{name}.c": f"int {name}(void) {{ return 1; }}" for name in ("a", "b", "c")})
    read = []

    def counting(content: bytes) -> ModuleSymbols:
        read.append(content)
        return read_symbols(content)

    monkeypatch.setattr("components.corpus.write_split_and_report.read_symbols", counting)
    monkeypatch.setattr("components.core.compiler.source_groups.read_symbols", counting)
    split = write_split(corpus.directory, SplitConfig())
    assert split.splits == read_splits(corpus.directory, [module.name for module in corpus])
    assert sorted(read) == sorted(module.bitcode.read_bytes() for module in corpus)
