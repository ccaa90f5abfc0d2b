"""The bytes of a module that its link keeps."""

from components.core.objectives.size import bytes_kept


def test_shared_functions_count_by_the_share_that_the_link_keeps() -> None:
    assert bytes_kept(100, {"own": 10, "in_two": 20, "in_four": 40}, {"in_two": 2, "in_four": 4, "elsewhere": 3}) == 60
    assert bytes_kept(100, {"own": 10}, {}) == 100
