"""policy.so is replaced atomically, and errors name their cause."""

import pytest

from components.core.policy.generated import shared_object
from components.core.policy.generated.codegen import generate
from components.core.policy.generated.native_policy import NativePolicy
from components.platform.errors import UserError


def test_build_replaces_an_older_library(make_policy, clang, tmp_path):
    for seed in (0, 1):
        policy, columns = make_policy(seed, (4,))
        generate(policy, tmp_path)
        shared_object.build_shared_object(tmp_path, clang)
        # A path that was loaded once keeps its library; a copy is loaded separately.
        copy = tmp_path / str(seed)
        copy.mkdir()
        (copy / "policy.so").write_bytes((tmp_path / "policy.so").read_bytes())
        assert abs(NativePolicy(copy).logits(columns) - policy.logits(columns)).max() < 1e-4
    assert sorted(p.name for p in tmp_path.glob("*policy.so*")) == ["policy.so"]


def test_a_failed_compile_leaves_no_files(clang, tmp_path):
    (tmp_path / "policy.cpp").write_text("int broken(")
    with pytest.raises(UserError, match=r"(?s)could not compile.*expected"):
        shared_object.build_shared_object(tmp_path, clang)
    assert [p.name for p in tmp_path.iterdir()] == ["policy.cpp"]


def test_error_names_a_missing_compiler(make_policy, tmp_path):
    generate(make_policy(hidden=())[0], tmp_path)
    with pytest.raises(UserError, match="/nowhere/clang"):
        shared_object.build_shared_object(tmp_path, tmp_path / "nowhere" / "clang")


def test_error_without_a_linker_names_the_package(clang, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_clang = tmp_path / "clang"
    fake_clang.write_bytes(b"")
    with pytest.raises(UserError, match="lld"):
        shared_object.find_linker(fake_clang)


def test_a_linker_next_to_the_compiler_is_preferred(tmp_path):
    for name in ("clang", "ld.lld"):
        (tmp_path / name).write_bytes(b"")
    assert shared_object.find_linker(tmp_path / "clang") == tmp_path / "ld.lld"


@pytest.mark.parametrize("content", [b"", b"\x7fELF and then nothing"])
def test_a_damaged_library_is_refused(tmp_path, content):
    (tmp_path / "policy.so").write_bytes(content)
    with pytest.raises(UserError, match="native policy"):
        NativePolicy(tmp_path)


def test_error_names_a_missing_library(tmp_path):
    with pytest.raises(UserError, match=r"policy\.so"):
        NativePolicy(tmp_path)
