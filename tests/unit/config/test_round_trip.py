"""parse(dump(x)) == x, as values and through YAML text, for any settings."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tether.config.catalog import CATALOG, kinds
from tether.config.compose import compose
from tether.config.describe import part_description, settings_description
from tether.config.errors import UserError
from tether.config.run import RunSettings
from tether.config.settings import dump, fingerprint, parse, read
from tether.config.text_values import parse_yaml, to_yaml, write_yaml
from tether.config.types_as_text import (
    DictType,
    ListType,
    PartType,
    SettingsType,
    TupleType,
    UnionType,
    resolve,
)

NUMBERS = st.floats(1e-6, 0.99)
LEAVES = {
    int: st.integers(1, 10**6),
    float: NUMBERS | st.integers(1, 1).map(float),
    str: st.text(max_size=12) | st.sampled_from(["null", "1e-4", "yes", "007", "2020-01-01", "~"]),
    bool: st.booleans(),
    Any: st.none() | st.text(max_size=5),
}
FIXED = {
    "job",
    "name",
    "minibatches",
    "critic_minibatches",
    "group_size",
    "greedy",
    "min_new_tokens",
}


def values(hint: Any, depth: int = 2) -> st.SearchStrategy[Any]:
    """Plain values that a field of this type takes."""
    if isinstance(hint, UnionType):
        return st.one_of([values(m, depth) for m in hint.members])
    if hint is None:
        return st.none()
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if isinstance(hint, SettingsType):
        return some(settings_description(hint.name)["fields"], depth - 1)
    if isinstance(hint, PartType):
        names = [hint.kind] if hint.kind else sorted(kinds(hint.family))
        return st.sampled_from(names).flatmap(lambda k: part(hint.family, k, depth - 1))
    if isinstance(hint, ListType):
        return st.lists(values(hint.item, depth), max_size=3)
    if isinstance(hint, DictType):
        return st.dictionaries(st.text(max_size=6), values(hint.item, depth), max_size=2)
    if isinstance(hint, TupleType):
        if hint.repeated:
            return st.lists(values(hint.items[0], depth - 1), max_size=2 if depth > 0 else 0)
        return st.tuples(*[values(i, depth) for i in hint.items]).map(list)
    return LEAVES.get(hint, st.text(max_size=5))


def some(fields: dict[str, Any], depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """A few of the fields, the rest at their defaults."""
    if depth < 0:
        return st.just({})
    optional = {n: values(resolve(f["type"]), depth) for n, f in fields.items() if n not in FIXED}
    return st.fixed_dictionaries({}, optional=optional)


def part(family: str, kind: str, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    fields = part_description(family, kind)["fields"]
    return some(fields, depth).map(lambda f: {"kind": kind, **f})


RUNS = some(settings_description("RunSettings")["fields"], 2)
CLASSIFIERS = some(settings_description("ClassifierSettings")["fields"], 2).map(
    lambda m: {**m, "job": "classifier"}
)


@settings(max_examples=80, deadline=None)
@given(RUNS | CLASSIFIERS)
def test_any_settings(mapping: dict[str, Any]) -> None:
    mapping.pop("batch", None)  # must divide into the algorithm's minibatches
    try:
        x = parse(mapping)
    except UserError as e:
        # what fits together is refused by rules of its own (test_errors, unit/train/test_after)
        together = ("must be", "more than", "after.", "name two columns", "cannot stand beside")
        assume(not any(words in str(e) for words in together))
        raise
    plain = dump(x)
    assert parse(plain) == x
    assert dump(parse(plain)) == plain
    text = to_yaml(plain)
    assert parse_yaml(text, "x") == plain
    assert parse(parse_yaml(text, "x")) == x


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_yaml_text_of_any_values(value: Any) -> None:
    assert parse_yaml(to_yaml({"v": value}), "x") == {"v": value}


def test_every_recipe() -> None:
    for name in CATALOG["recipe"]:
        x = compose(name)
        assert parse(parse_yaml(to_yaml(dump(x)), name)) == x


def test_numbers_in_files_may_be_written_with_an_exponent() -> None:
    assert parse_yaml("a: 1e-4\nb: 1E5\nc: .5e3\nd: '1e-4'", "x") == {
        "a": 1e-4,
        "b": 1e5,
        "c": 500.0,
        "d": "1e-4",
    }


def test_fingerprint_ignores_where_a_run_lies() -> None:
    a = compose("ppo", overrides=["--name", "a", "--root", "x"])
    b = compose("ppo", overrides=["--name", "b"])
    c = compose("ppo", overrides=["--name", "a", "--seed", "1"])
    assert fingerprint(a) == fingerprint(b) == fingerprint(dump(a))
    assert fingerprint(a) != fingerprint(c)
    assert len(fingerprint(a)) == 16


def test_an_adapter_of_before_the_setting_is_what_it_was(tmp_path: Path) -> None:
    """Its run resumes with fp32 adapters, under the hash that its checkpoints have."""
    mapping = dump(compose("ppo", overrides=["--model.lora.rank", "4"]))
    assert mapping["model"]["lora"].pop("dtype") == "model"
    write_yaml(tmp_path / "config.yaml", mapping)
    then = read(tmp_path)
    assert isinstance(then, RunSettings) and then.model.lora is not None
    assert then.model.lora.dtype == "float32"
    assert fingerprint(then) == fingerprint(mapping)
    now = compose("ppo", overrides=["--model.lora.rank", "4"])
    assert fingerprint(now) != fingerprint(then)
    write_yaml(tmp_path / "config.yaml", dump(now))
    assert read(tmp_path) == now
