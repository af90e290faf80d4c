"""Every mistake is one line that says what, where, and how to mend it."""

from pathlib import Path

import pytest

from tether.config.catalog import CATALOG, load_object
from tether.config.compose import compose
from tether.config.errors import UserError
from tether.config.layers import split
from tether.config.nearest import FOREIGN, nearest, unknown
from tether.config.settings import parse
from tether.config.text_values import parse_yaml, read_yaml

MESSAGES = {
    "--updats 3": "unknown key 'updats' in the command line; did you mean 'updates'?",
    "--data.splitt x": "unknown key 'splitt' in data of the command line; did you mean 'split'?",
    "--lr 1e-3": "unknown key 'lr' in the command line; it stands at 'algorithm.lr'",
    "--learning_rate 1": (
        "unknown key 'learning_rate' in the command line; another library's name: "
        "here it is 'algorithm.lr'"
    ),
    "--algorithm.num_generations 4": (
        "unknown key 'num_generations' in algorithm of the command line; another library's name: "
        "here it is 'algorithm.group_size'"
    ),
    "--beta .1": (
        "unknown key 'beta' in the command line; another library's name: "
        "here it is 'tethers.kl.coef'"
    ),
    "--algorithm.lr fast": "algorithm.lr in {recipe} is 'fast', not a number",
    "--algorithm.lr true": "algorithm.lr in {recipe} is True, not a number",
    "--algorithm.kind pppo": (
        "unknown algorithm 'pppo' in algorithm of {recipe}; did you mean 'ppo'?"
    ),
    "--model.dtype bf16": (
        "model.dtype in {recipe} is 'bf16', not one of auto, bfloat16, float32, float16; "
        "did you mean 'bfloat16'?"
    ),
    "--tethers.foo.coef 1": (
        "there is no tether named 'foo' yet; add --tethers.foo.kind KIND "
        f"(one of {', '.join(CATALOG['tether'])}, or file.py:Class)"
    ),
    "--tethers.kl.kind kll": "unknown tether 'kll' in tethers.kl of {recipe}; did you mean 'kl'?",
    "--reward lenght": "unknown reward 'lenght' in --reward; did you mean 'length'?",
    "--reward rouge_1": (
        "unknown reward 'rouge_1' in --reward; it is a metric, metrics are rewards too: "
        "--rewards.NAME.kind metric --rewards.NAME.metric rouge_1"
    ),
    "--reward rouge-l": (
        "unknown reward 'rouge-l' in --reward; did you mean the metric 'rouge_l'? "
        "metrics are rewards too: --rewards.NAME.kind metric --rewards.NAME.metric rouge_l"
    ),
    "--rewards.x.kind rouge_1": (
        "unknown reward 'rouge_1' in rewards.x of {recipe}; it is a metric, metrics are rewards "
        "too: {{kind: metric, metric: rouge_1}}"
    ),
    "--judges.x rouge_1": (
        "unknown reward 'rouge_1' in judges.x of the command line; it is a metric, metrics are "
        "rewards too: {{kind: metric, metric: rouge_1}}"
    ),
    "--seed 1.5": "seed in {recipe} is 1.5, not a whole number",
    "--optimizer.betas .9": "optimizer.betas in {recipe} is [0.9], not a list of 2 (a number each)",
    "--batch.prompts 255": (
        "batch.prompts 255 x algorithm.group_size 1 = 255 sequences in {recipe} do not divide into "
        "4 minibatches; nearest batch.prompts: 252 or 256"
    ),
    "--sampling.temperature 0": (
        "sampling.temperature in {recipe} is 0.0, must be greater than 0; "
        "evaluation.sampling.greedy decodes greedily"
    ),
    "--updates -1": "updates in {recipe} is -1, must be at least 0",
    "--sampling.top_p 1.5": "sampling.top_p in {recipe} is 1.5, must be in (0, 1]",
    "--sampling hot": (
        "sampling of the command line is a mapping; set its parts: --sampling.KEY VALUE"
    ),
    "--name a/b": "name in {recipe} is 'a/b', must name a folder under root",
    "--updates.x 3": "updates of the command line is a whole number: there is no 'x' inside it",
}


@pytest.mark.parametrize("words", MESSAGES, ids=lambda w: w.split()[0][2:])
def test_message(words: str) -> None:
    expected = MESSAGES[words].format(recipe="the recipe ppo + the command line")
    with pytest.raises(UserError) as caught:
        compose("ppo", overrides=words.split())
    assert str(caught.value) == expected


def test_a_file_is_named(tmp_path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("updats: 3\n")
    with pytest.raises(UserError) as caught:
        parse(read_yaml(file), "run.yaml")
    assert str(caught.value) == "unknown key 'updats' in run.yaml; did you mean 'updates'?"


def test_messages_are_one_line() -> None:
    assert str(UserError("two\nlines  and\tspace")) == "two lines and space"


def test_yaml_errors_name_line_and_column() -> None:
    with pytest.raises(UserError, match=r"^run.yaml line 2, column 1: .*'seed' stands twice"):
        parse_yaml("seed: 1\nseed: 2\n", "run.yaml")
    with pytest.raises(UserError, match=r"^run.yaml line 1, column \d+: not valid YAML"):
        parse_yaml("a: [1, 2", "run.yaml")
    with pytest.raises(UserError, match=r"there is no configuration file 'nowhere.yaml'"):
        read_yaml("nowhere.yaml")


def test_a_file_that_is_no_mapping(tmp_path) -> None:
    (tmp_path / "x.yaml").write_text("- 1\n")
    with pytest.raises(UserError, match=r"must hold a mapping .* not a list"):
        read_yaml(tmp_path / "x.yaml")


def test_a_metric_as_a_reward_in_a_file() -> None:
    wanted = "it is a metric, metrics are rewards too: {kind: metric, metric: rouge_1}"
    with pytest.raises(UserError, match=f"unknown reward 'rouge_1' in rewards.x; {wanted}"):
        parse({"rewards": {"x": "rouge_1"}}, "run.yaml")


def test_words_that_are_no_options() -> None:
    with pytest.raises(UserError, match=r"'seed' is not an option; overrides are written --a.b.c"):
        split(["seed", "3"])


def test_unknown_job() -> None:
    with pytest.raises(UserError, match=r"unknown job 'polisy' in f.yaml; did you mean 'policy'"):
        parse({"job": "polisy"}, "f.yaml")


def test_nearest() -> None:
    assert nearest("updats", ["updates", "seed"]) == "updates"
    assert nearest("elastic-reset", ["kl", "elastic_reset"]) == "elastic_reset"
    assert nearest("zzz", ["updates", "seed"]) is None


def test_unknown_lists_what_there_is() -> None:
    assert str(unknown("tether", "zzz", ["b", "a"], "")) == "unknown tether 'zzz'; there are: a, b"
    assert str(unknown("recipe", "zzz", [], "x")) == "unknown recipe 'zzz' in x; there are none"


def test_words_of_other_libraries_lead_to_keys_we_have() -> None:
    """Every answer but those with a free name is a key that exists, or one of a later method."""
    from tether.config.describe import paths

    ours = {*paths(), "NAME"}
    for word, answer in FOREIGN.items():
        head = answer.split(" ")[0]
        assert head in ours or head.split(".")[0] in ours, (word, answer)
        if head.startswith(("algorithm.", "sampling.", "data.", "batch.", "evaluation.")):
            assert head in ours or head == "algorithm.kind", (word, answer)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--sampling.chunk 99999999999999999999", r"sampling\.chunk .* must be below 2\^63"),
        ("--updates 9223372036854775808", r"updates .* must be below 2\^63"),
        ("--seed -9223372036854775809", r"seed .* must be below 2\^63"),
        (f"--name {'x' * 201}", r"name .* has 201 bytes; a folder's name has at most 200"),
        (f"--name {'猫' * 67}", r"name .* has 201 bytes"),
        ("--name a\0b", r"name .* is 'a\\x00b', must be printable text"),
        ("--root a\0b", r"root .* is 'a\\x00b', must be printable text"),
    ],
)
def test_what_no_folder_and_no_count_can_be(words: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as e:
        compose("toy", overrides=words.split(" "))
    assert "\n" not in str(e.value)


def test_a_huge_batch_is_answered_at_once() -> None:
    """The nearest numbers that divide are computed, not looked for."""
    with pytest.raises(UserError, match=r"prompts: 99999999999998 or 100000000000000"):
        compose("toy", overrides=["--batch.prompts", "99999999999999",
                                  "--algorithm.minibatches", "2"])  # fmt: skip
    with pytest.raises(UserError, match=r"nearest batch\.prompts: 3$"):
        words = "--batch.prompts 1 --algorithm.minibatches 6 --algorithm.kind rloo"
        compose("toy", overrides=[*words.split(), "--algorithm.group_size", "2"])


def test_a_script_that_exits_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(UserError, match=r"exits.py.* fails on import: SystemExit: 3"):
        load_object(f"{tmp_path}/exits.py:f")


@pytest.mark.parametrize("code", [130, 143])
def test_a_signal_during_an_import_is_no_fault_of_the_module(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study would list the run as failed, and not repeat it. A module that leaves by itself with
    such a code has failed."""
    leave = f"from tether.config.errors import Terminated\nraise Terminated({code})\n"
    (tmp_path / f"stopped_{code}.py").write_text(leave)
    (tmp_path / f"left_{code}.py").write_text(f"raise SystemExit({code})\n")
    with pytest.raises(UserError, match="fails on import: SystemExit"):
        load_object(f"{tmp_path}/left_{code}.py:f")
    monkeypatch.syspath_prepend(tmp_path)
    for address in (f"{tmp_path}/stopped_{code}.py:f", f"stopped_{code}:f"):
        with pytest.raises(SystemExit) as caught:
            load_object(address)
        assert caught.value.code == code
