"""Import of a corpus that another tool made: a complete, split copy; the original is not changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.core.formats.corpus import Corpus, Module, load_corpus, write_description
from components.core.formats.splits import Splits, write_splits
from components.corpus.__main__ import main
from components.platform.errors import UserError
from components.platform.storage import verify
from tests.components.corpus.mlgo_utils import files

MakeCorpus = Callable[[Path, dict[str, str]], Corpus]


@pytest.fixture
def foreign(tmp_path: Path, make_corpus: MakeCorpus) -> Path:
    """Return a corpus of four modules as extract_ir writes it, without a manifest and a split."""
    sources = {f"app/{name}.c": f"int {name}(int x) {{ return x + {ord(name)}; }}\n" for name in "abcd"}
    corpus = make_corpus(tmp_path / "foreign", sources).directory
    for path in ("manifest.json", "splits.json"):
        (corpus / path).unlink(missing_ok=True)
    return corpus


def import_corpus(source: Path, output: Path, *more: str) -> None:
    main(["import", "--input", str(source), "--output", str(output), *more], standalone_mode=False)


def test_modules_are_copied_byte_for_byte_and_split(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(foreign)
    monkeypatch.chdir(tmp_path)
    import_corpus(Path(foreign.name), Path("corpus"))
    assert files(foreign) == before
    verify(tmp_path / "corpus")
    imported = load_corpus(tmp_path / "corpus")
    assert [m.name for m in imported] == [m.name for m in load_corpus(foreign)]
    for module in imported:
        for path in (module.bitcode, module.cmd):
            assert path.read_bytes() == before[str(path.relative_to(imported.directory))]
    assert len(imported.splits().train) > 0


@pytest.mark.parametrize(("problem", "level", "other"), [("regalloc", "-O2", "-Oz"), ("inlining", "-Oz", "-O2")])
def test_corpus_of_another_optimization_level_is_refused(
    foreign: Path, tmp_path: Path, problem: str, level: str, other: str
) -> None:
    def compile_at(level: str, module: Module) -> None:
        module.cmd.write_bytes(re.sub(rb"\0-O[z23]\0", f"\0{level}\0".encode(), module.cmd.read_bytes()))

    obtained = tmp_path / "corpus"
    modules = load_corpus(foreign).modules
    for module in modules:
        compile_at(other, module)
    command = ["obtain", "--existing", str(foreign), "--problem", problem, "--output", str(obtained)]
    done = CliRunner().invoke(main, command)
    assert isinstance(done.exception, UserError) and "of the 4" in done.exception.problem
    assert f"at {level}" in done.exception.remedy and not obtained.exists()
    compile_at(level, modules[0])
    done = CliRunner().invoke(main, command)
    assert done.exception is None and "3 of 4" in done.output
    assert len(load_corpus(obtained)) == 4


def test_split_is_kept_unless_options_request_another(foreign: Path, tmp_path: Path) -> None:
    names = [module.name for module in load_corpus(foreign)]
    mine = Splits(7, tuple(names[:1]), tuple(names[1:2]), tuple(names[2:]))
    write_splits(foreign, mine)
    import_corpus(foreign, tmp_path / "kept")
    assert load_corpus(tmp_path / "kept").splits() == mine
    import_corpus(foreign, tmp_path / "other", "--seed", "3", "--heldout-fraction", "0.25")
    assert load_corpus(tmp_path / "other").splits() != mine


def test_missing_file_is_reported_and_nothing_is_written(foreign: Path, tmp_path: Path) -> None:
    victim = load_corpus(foreign).modules[2]
    victim.bitcode.unlink()
    with pytest.raises(UserError, match=rf"{victim.name}.bc"):
        import_corpus(foreign, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_global_command_override_is_kept(foreign: Path, tmp_path: Path) -> None:
    names = [module.name for module in load_corpus(foreign)]
    for module in load_corpus(foreign):
        module.cmd.unlink()
    write_description(foreign, names, command_override=["-cc1", "-Oz"])
    import_corpus(foreign, tmp_path / "corpus")
    assert all(m.arguments() == ("-cc1", "-Oz") for m in load_corpus(tmp_path / "corpus"))


def test_modules_of_a_project_are_limited_and_keep_their_part(foreign: Path, tmp_path: Path) -> None:
    write_splits(foreign, Splits(0, ("app/a.c.o",), ("app/b.c.o",), ("app/c.c.o", "app/d.c.o")))
    import_corpus(foreign, tmp_path / "two", "--max-modules-per-project", "2")
    two = load_corpus(tmp_path / "two")
    verify(tmp_path / "two")
    assert len(two) == 2
    whole = load_corpus(foreign).splits()
    for part in ("train", "validation", "heldout"):
        assert set(two.splits().part(part)) == {m.name for m in two} & set(whole.part(part))
    import_corpus(foreign, tmp_path / "three", "--max-modules-per-project", "3")
    assert {m.name for m in two} < {m.name for m in load_corpus(tmp_path / "three")}, "a larger limit adds modules"
    import_corpus(foreign, tmp_path / "all", "--max-modules-per-project", "9")
    assert len(load_corpus(tmp_path / "all")) == 4
