"""Which settings differ, by name and with both values."""

from __future__ import annotations

from tether.config.differences import LONGEST, differences, told


def test_names_and_both_values() -> None:
    there = {"name": "a", "root": "x", "updates": 6, "tethers": {"kl": {"coef": 0.1}}, "gone": 1}
    now = {"name": "b", "root": "y", "updates": 8, "tethers": {"kl": {"coef": 0.2}}, "new": [1]}
    found = differences(there, now)
    assert found == {
        "updates": "6 there, 8 now",
        "tethers.kl.coef": "0.1 there, 0.2 now",
        "new": "not set there, [1] now",
        "gone": "1 there, not set now",
    }
    assert told(found) == (
        "updates: 6 there, 8 now; tethers.kl.coef: 0.1 there, 0.2 now; "
        "new: not set there, [1] now; and 1 more"
    )


def test_parts_and_long_values() -> None:
    found = differences({"a": None, "b": "x" * 200, "c": 1}, {"a": {"kind": "kl"}, "b": "", "c": 1})
    assert found["a"] == 'null there, {"kind": "kl"} now' and "c" not in found
    assert len(found["b"]) < LONGEST + 30
    assert not differences({"a": (1, 2)}, {"a": [1, 2]})
