"""Parts: class lookup, construction, and back; a user's class is treated like ours."""

import sys
import textwrap

import pytest

from tether.config import catalog
from tether.config.catalog import address_of, kind_of, kinds, load
from tether.config.compose import compose
from tether.config.describe import describe, field_docs, part_description
from tether.config.errors import UserError
from tether.config.parts import build, check, dump
from tether.config.settings import dump as dump_settings
from tether.config.settings import parse

USER = '''
    from __future__ import annotations
    from dataclasses import dataclass, field
    from pathlib import Path
    from tether.tethers.base import Tether
    from tether.tethers.triggers import Every, Trigger

    @dataclass
    class Weekly(Tether):
        """Resets on Sundays. Rarely."""
        when: Trigger = field(default_factory=lambda: Every(7))
        also: tuple[Trigger, ...] = ()
        period: int = 7
        """Days between resets."""
        where: Path | None = None

        def __post_init__(self) -> None:
            if self.period < 1:
                raise ValueError("period must be at least 1 day")

    def score(completions, **columns):
        return [float(len(c)) for c in completions]

    class Plain:
        pass
'''


@pytest.fixture
def user(tmp_path, monkeypatch) -> str:
    (tmp_path / "mine.py").write_text(textwrap.dedent(USER))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield "mine.py:Weekly"
    for name in set(sys.modules) - before:
        if name.startswith("_tether_file_") or name == "mine":
            del sys.modules[name]


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (f, k)
        for f in ("algorithm", "tether", "trigger", "controller", "reward", "engine", "metric")
        for k in kinds(f)
    ],
)
def test_ours_come_back(family: str, kind: str) -> None:
    """dump is the inverse of build, for every class of the catalog at its defaults."""
    full = check(family, {"kind": kind})
    try:
        made = build(family, {"kind": kind})
    except UserError as e:  # a class that has no usable default says what it needs
        assert kind in ("any_of", "all_of"), e
        return
    assert kind_of(family, type(made)) == kind
    assert dump(made, family) == full


def test_nested_parts() -> None:
    part = {
        "kind": "elastic_reset",
        "decay": 0.9,
        "reset": {
            "kind": "any_of",
            "triggers": [{"kind": "every", "n": 3}, {"kind": "drift_budget", "budget": 2}],
        },
        "average": {"n": 2, "unit": "minibatch"},
    }
    made = build("tether", part)
    assert type(made.reset).__name__ == "AnyOf" and type(made.average).__name__ == "Every"
    assert [type(t).__name__ for t in made.reset.triggers] == ["Every", "DriftBudget"]
    assert isinstance(made.reset.triggers, tuple) and made.average.n == 2
    assert build("tether", dump(made, "tether")) == made
    assert dump(made, "tether") == check("tether", part)


def test_a_field_of_one_class_takes_no_other() -> None:
    with pytest.raises(UserError, match=r"average must be of kind 'every', not 'drift_budget'"):
        check("tether", {"kind": "elastic_reset", "average": {"kind": "drift_budget"}})


def test_errors_name_the_place() -> None:
    with pytest.raises(UserError) as caught:
        build("tether", {"kind": "kl", "coeff": 0.1}, "tethers.kl")
    assert str(caught.value) == "unknown key 'coeff' in tethers.kl; did you mean 'coef'?"
    with pytest.raises(UserError) as caught:
        check("tether", {"kind": "elastic_reset", "reset": {"kind": "every", "m": 1}}, "tethers.er")
    assert (
        str(caught.value) == "unknown key 'm' in tethers.er.reset; there are: kind, n, start, unit"
    )


def test_what_a_class_refuses_is_one_line_with_its_place(user: str) -> None:
    with pytest.raises(UserError) as caught:
        build("tether", {"kind": user, "period": 0}, "tethers.w")
    assert str(caught.value) == "tethers.w: period must be at least 1 day"


def test_a_users_class_is_dumped_overridden_and_built_like_ours(user: str) -> None:
    words = [f"--tethers.w.kind={user}", "--tethers.w.period", "3", "--tethers.w.when.n", "2"]
    s = compose("ppo", overrides=words)
    part = s.tethers["w"]
    assert part["kind"] == user and part["period"] == 3 and part["where"] is None
    assert part["when"]["kind"] == "every" and part["when"]["n"] == 2
    assert parse(dump_settings(s)) == s
    made = build("tether", part)
    assert made.period == 3 and made.when.n == 2
    assert dump(made, "tether") == part
    with pytest.raises(
        UserError, match=r"unknown key 'perod' in tethers.w .*; did you mean 'period'"
    ):
        compose("ppo", overrides=[*words, "--tethers.w.perod", "1"])


def test_a_users_class_has_help(user: str) -> None:
    found = part_description("tether", user)
    assert found["summary"] == "Resets on Sundays. Rarely."
    assert found["fields"]["period"] == {"type": "int", "doc": "Days between resets.", "default": 7}
    assert found["fields"]["also"]["type"] == "tuple[Part['trigger'], ...]"
    assert found["fields"]["where"]["type"] == "Path | None"


def test_one_file_is_one_module(user: str) -> None:
    assert load("tether", user) is load("tether", "mine.py:Weekly")
    import importlib

    sys.path.insert(0, "")
    importlib.invalidate_caches()
    again = load("tether", "mine:Weekly")
    assert kind_of("tether", load("tether", user)) == user
    assert again.__name__ == "Weekly"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("mine.py:Weakly", "unknown name 'Weakly' in mine.py; did you mean 'Weekly'"),
        ("nowhere.py:A", "there is no file 'nowhere.py'"),
        ("no_such_module:A", "there is no module 'no_such_module'"),
        ("mine.py:", "is not an address; write file.py:NAME"),
        ("mine.py:Plain", "must be a dataclass: its fields are its settings"),
        ("bad.py:A", "bad.py in tethers.w fails on import: ZeroDivisionError"),
        ("needy.py:A", "needy.py in tethers.w fails on import: ModuleNotFoundError"),
    ],
)
def test_a_users_class_that_cannot_be_had(user: str, kind: str, message: str, tmp_path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n")
    (tmp_path / "needy.py").write_text("import no_such_package\n")
    with pytest.raises(UserError, match=message):
        check("tether", {"kind": kind}, "tethers.w")


def test_a_function_is_no_kind(user: str) -> None:
    said = "rewards.f: 'mine.py:score' is a function; .* give the function alone, FILE.py:NAME"
    with pytest.raises(UserError, match=said):
        build("reward", {"kind": "mine.py:score"}, "rewards.f")


def test_functions_are_recorded_by_address(user: str) -> None:
    score = load("reward", "mine.py:score")
    assert address_of(score) == "mine.py:score"
    with pytest.raises(UserError, match=r"cannot be found again .* define it with a name"):
        address_of(lambda x: x)
    with pytest.raises(UserError, match=r"must be a class or a function with a name"):
        address_of(3)


def test_an_instance_must_be_of_the_family() -> None:
    with pytest.raises(UserError, match=r"'tether.tethers.kl:KLPenalty' is a tether, not a reward"):
        build("reward", {"kind": "tether.tethers.kl:KLPenalty"})


def test_docs_of_inherited_fields() -> None:
    from tether.algorithms.ppo import PPO

    docs = field_docs(PPO)
    assert docs["group_size"] and docs["clip_range"]
    assert describe(PPO)["fields"]["lr"]["type"] == "float"


def test_families_are_known_by_name() -> None:
    with pytest.raises(UserError, match=r"unknown family 'tethers' in the catalog; did you mean"):
        catalog.names("tethers")


def test_changes_without_a_kind_lie_on_the_fields_default() -> None:
    """`every: {n: 2}` in a file is `--every.n 2`: the clock stays that of the field."""
    pull = build("tether", {"kind": "elastic_pull", "every": {"n": 2}})
    assert (pull.every.n, pull.every.unit) == (2, "minibatch")
    reset = build("tether", {"kind": "elastic_reset", "reset": {"n": 5}})
    assert (reset.reset.n, reset.reset.unit) == (5, "update")
    other = check("tether", {"kind": "elastic_reset", "reset": {"kind": "drift_budget"}})
    assert other["reset"]["kind"] == "drift_budget" and "n" not in other["reset"]
    whole = build("tether", {"kind": "elastic_pull", "every": {"kind": "every", "n": 2}})
    assert whole.every.unit == "update", "a part that says its kind starts from its own defaults"
