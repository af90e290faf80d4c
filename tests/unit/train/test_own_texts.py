"""Own texts of tethers: what is refused, which rows are drawn, how they are padded, and that their
settings can be written like all others."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.models_for_tests import some_sequences, tiny
from tests.runs_for_tests import agent_of, lines, make_world, mapping, metrics, run, settings
from tether.cli.helping import keys
from tether.config.compose import compose
from tether.config.errors import UserError
from tether.config.json_schema import json_schema
from tether.config.parts import build
from tether.config.run import DataSettings
from tether.config.settings import dump, parse
from tether.config.text_values import parse_yaml, to_yaml
from tether.models.scoring import score
from tether.tethers.base import Place, Tether
from tether.tethers.rehearsal import Rehearsal
from tether.tethers.replay import Replay
from tether.train.build import build_parts, check_data
from tether.train.own_texts import check_own_texts, fitted, load_own_texts
from tether.train.run import train
from tether.types import LossOutput, Minibatch, OwnText, Scores


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("own"))
    with open(folder / "texts.jsonl", "w", encoding="utf-8") as f:
        for i in range(10):
            f.write(json.dumps({"q": f"q{i}", "a": f" a{i}"}) + "\n")
    return folder


def data(world: Path, **change: Any) -> dict[str, Any]:
    return {"path": str(world / "texts.jsonl"), "prompt": "q", "reference": "a", **change}


def checked(world: Path, *changes: dict[str, Any], **own: Any) -> None:
    part = {"tethers": {"mine": {"kind": "rehearsal", "data": data(world), **own}}}
    chosen = settings(world, part, *changes)
    check_data(chosen, build_parts(chosen))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"path": ""}, "data.path is empty: give a hub id, a folder or a file"),
        ({"reference": None}, "the text that trains is missing: name its column in data.text"),
        ({"reference": "b"}, "no column 'b' in the split 'train'"),
        ({"text": "whole"}, "no column 'whole'"),
        ({"prompt": "p"}, "no column 'p'"),
        ({"path": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"validation_rows": 3}, "data.validation_rows has no effect here"),
        ({"test": "test"}, "data.test has no effect here"),
        ({"label": "q"}, "data.label has no effect here"),
    ],
)
def test_bad_data_are_refused_in_one_line(world: Path, change: dict[str, Any], words: str) -> None:
    checked(world)
    with pytest.raises(UserError) as e:
        checked(world, data=data(world, **change))
    assert str(e.value).startswith("tethers.mine: ") and words in str(e.value)
    assert "\n" not in str(e.value)


def test_held_out_texts_may_not_be_rehearsed(world: Path) -> None:
    held = str(world / "texts.jsonl")
    with pytest.raises(
        UserError, match=r"those of the run's data.validation, which must not train"
    ):
        check_own_texts(
            {"mine": Rehearsal(data=DataSettings(**data(world)))},
            DataSettings(path=str(world / "prompts.jsonl"), validation=held),
        )
    named = DataSettings(path="some/set", split="validation", text="t")
    with pytest.raises(UserError, match=r"those of the run's data.validation"):
        check_own_texts(
            {"mine": Rehearsal(data=named)}, DataSettings(path="some/set", validation="validation")
        )


def test_rows_held_out_by_the_run_are_never_drawn(world: Path) -> None:
    """16 rows, 4 of them held out for validation and 2 for tests: the others are all drawn."""
    same = {"path": str(world / "prompts.jsonl"), "reference": "reference"}
    own = {"kind": "rehearsal", "rows": 5, "tokens": 30, "data": same}
    agent = agent_of(
        settings(world, {"tethers": {"r": own}}, {"data": {"test_rows": 2, "seed": 7}})
    )

    def texts(sequences: Any) -> set[str]:
        return {
            agent.lm.tokenizer.decode(c[m].tolist()).removesuffix("</s>")
            for c, m in zip(sequences.completion, sequences.completion_mask, strict=True)
        }

    drawn: set[str] = set()
    for position in range(12):
        drawn |= texts(agent.draws["r"](position))
    columns = {k: set(t.columns["reference"]) for k, t in agent.tasks.items()}
    assert len(columns["validation"]) == 4 and len(columns["train"]) == 10
    assert drawn == columns["train"]


def test_a_draw_is_a_function_of_its_position(world: Path) -> None:
    lm = tiny()
    tether = {"r": Rehearsal(data=DataSettings(**data(world)), rows=4, tokens=2)}
    first, second = (load_own_texts(lm, tether, DataSettings(), 0)["r"] for _ in range(2))
    a, b = first(3), first(4)
    assert torch.equal(second(3).prompt, a.prompt)
    assert not torch.equal(a.prompt, b.prompt)
    assert a.completion.shape == (4, 2), "cut at `tokens`"
    other = load_own_texts(lm, tether, DataSettings(), 1)["r"]
    assert not torch.equal(other(3).prompt, a.prompt)


def test_too_few_texts_are_said_and_recorded(world: Path) -> None:
    """12 texts: 12 a draw hold each once, 13 do not; the same of prompts."""
    own = {"path": str(world / "prompts.jsonl"), "reference": "reference"}
    for rows, said in ((12, 0), (13, 1)):
        part = {"tethers": {"r": {"kind": "rehearsal", "rows": rows, "tokens": 9, "data": own}}}
        heard: list[str] = []
        folder = train(settings(world, part, name=f"few-{rows}", updates=1), say=heard.append)
        words = "tethers.r draws 13 texts of 12: every optimizer step repeats some of them"
        assert heard.count(words) == said
        [start] = [x for x in lines(folder) if x["kind"] == "start"]
        notes = start["notes"]["tethers.r"]
        assert (notes["texts"], notes["texts_a_draw"]) == (12, rows)
    heard = []
    train(settings(world, name="few-prompts", updates=1, batch={"prompts": 16}), say=heard.append)
    assert "batch.prompts is 16 of 12: every update repeats some of them" in heard


def test_metrics_of_two_tethers_of_a_class_stand_apart(world: Path) -> None:
    """Two of one estimator on one set, and one that takes the name of the algorithm's loss."""
    tethers = {
        "near": {"kind": "kl_loss", "coef": 0.1},
        "far": {"kind": "kl_loss", "coef": 2.0},
        "own": {"kind": f"{__file__}:Namesake"},
    }
    folder = run(settings(world, {"tethers": tethers}, name="apart", updates=2))
    last = metrics(folder)[-1]
    near, far = (last[f"tether/{n}/kl_initial.k3_nats_per_token"] for n in ("near", "far"))
    assert near == far > 0, "one KL, weighed differently"
    assert last["tether/own/policy_loss"] == pytest.approx(7.0)
    assert abs(last["update/policy_loss"]) < 1
    assert not [k for k in last if k.startswith("update/kl_initial")]


@dataclass
class Namesake(Tether):
    """A loss of 0 whose metric has the name of the algorithm's."""

    acts_on: ClassVar[frozenset[Place]] = frozenset({"loss"})

    def loss(self, minibatch: Minibatch, fresh: Scores) -> LossOutput:
        weights = minibatch.weights
        return LossOutput((0 * fresh.logprobs).sum(), {"policy_loss": 7 * weights.sum()})


@pytest.mark.parametrize("kind", ["gpt2", "t5", "bart"])
def test_prompts_padded_on_the_wrong_side_score_the_same(kind: str) -> None:
    lm = tiny(kind, sharp=3.0)
    s = some_sequences(lm)
    flipped = replace(
        s,
        prompt=torch.stack([torch.cat([p[~m], p[m]]) if lm.seq2seq else torch.cat([p[m], p[~m]])
                            for p, m in zip(s.prompt, s.prompt_mask, strict=True)]),
        prompt_mask=s.prompt_mask.flip(1),
    )  # fmt: skip
    assert not torch.equal(flipped.prompt, s.prompt)
    junk = torch.where(flipped.prompt_mask, flipped.prompt, 7)
    got = fitted(lm, OwnText(replace(flipped, prompt=junk))).sequences
    for name in ("prompt", "prompt_mask", "completion", "completion_mask"):
        assert torch.equal(getattr(got, name), getattr(s, name)), name
    with torch.no_grad():
        assert torch.equal(score(lm, got).free_logprobs, score(lm, s).free_logprobs)


def test_texts_in_memory_need_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    check_own_texts({"replay": Replay()}, DataSettings())
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="2 processes would remember different ones") as e:
        check_own_texts({"replay": Replay()}, DataSettings())
    assert "\n" not in str(e.value)


def test_texts_in_memory_need_an_algorithm_that_writes(world: Path) -> None:
    change = {"algorithm": {"kind": "supervised"}, "tethers": {"replay": {"kind": "replay"}}}
    with pytest.raises(UserError, match="the algorithm 'supervised' writes nothing"):
        build_parts(settings(world, change))


# ---- a settings class inside a tether
def test_the_command_line_reaches_into_the_data() -> None:
    words = ["--tethers.rehearsal.data.path", "texts.jsonl"]
    words += ["--tethers.rehearsal.data.text", "007", "--tethers.rehearsal.data.prompt_tokens", "1"]
    run = compose("ppo", overrides=[*words, "--model", "m", "--data", "d"])
    own = run.tethers["rehearsal"]  # type: ignore[union-attr]
    assert own["data"]["path"] == "texts.jsonl" and own["data"]["text"] == "007"
    assert own["data"]["prompt_tokens"] == 1 and own["data"]["split"] == "train"
    assert build("tether", own).data == DataSettings(
        path="texts.jsonl", text="007", prompt_tokens=1
    )


def test_it_goes_through_yaml(world: Path) -> None:
    part = {"kind": "rehearsal", "data": data(world)}
    chosen = parse(mapping(world, {"tethers": {"r": part}}), "a test")
    assert parse(parse_yaml(to_yaml(dump(chosen)), "text"), "again") == chosen


def test_an_instance_from_python_is_recorded(world: Path) -> None:
    given = Rehearsal(data=DataSettings(**data(world)), rows=3)
    chosen = parse({**mapping(world), "tethers": [given]}, "a test")
    assert build("tether", chosen.tethers["rehearsal"]) == given  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pth": "x"}, "pth"),
        ({"prompt_tokens": "many"}, "tethers.r.data.prompt_tokens"),
        ("texts.jsonl", "tethers.r.data"),
    ],
)
def test_mistakes_in_it_are_named(world: Path, change: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) as e:
        parse(mapping(world, {"tethers": {"r": {"kind": "rehearsal", "data": change}}}), "a test")
    assert "\n" not in str(e.value)
    with pytest.raises(UserError, match=r"set its parts: --tethers.rehearsal.data.KEY VALUE"):
        compose("ppo", overrides=["--tethers.rehearsal.data", "texts.jsonl"])


def test_help_and_schema_show_its_keys(world: Path) -> None:
    chosen = parse(mapping(world, {"tethers": {"r": {"kind": "rehearsal", "data": data(world)}}}))
    shown = {path: (value, doc) for path, value, _, doc in keys(dump(chosen), "RunSettings")}
    assert shown["tethers.r.data.reference"][0] == "a"
    assert "human completions" in shown["tethers.r.data.reference"][1]
    schema = json_schema()
    parts = schema["$defs"]["part_tether"]["anyOf"]
    mine = next(p for p in parts if p["properties"]["kind"].get("const") == "rehearsal")
    assert mine["properties"]["data"]["$ref"] == "#/$defs/DataSettings"
    assert "prompt_tokens" in schema["$defs"]["DataSettings"]["properties"]
