"""What hostile but honest users gave it: one line each, or the right numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models_for_tests import byte_tokenizer
from tests.runs_for_tests import agent_of, lines, make_world, run, settings
from tether.cli.main import main
from tether.config.errors import UserError
from tether.config.folder import refuse_taken
from tether.config.settings import parse
from tether.train.update import PolicyLearner
from tether.types import Clock, Move

ODD = str(Path(__file__).parents[2] / "odd_rewards.py")


def odd(name: str) -> dict[str, Any]:
    return {"rewards": {"reward": {"kind": "function", "function": f"{ODD}:{name}"}}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("odd"), layers=1)


def test_a_folder_without_tokenizer_files_is_refused(world: Path, tmp_path: Path) -> None:
    for file in (world / "model").iterdir():
        if not file.name.startswith("tokenizer") and file.name != "special_tokens_map.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(UserError, match=r"model\.tokenizer|EOS"):
        agent_of(settings(world, model={"path": str(tmp_path)}))


def test_a_tokenizer_that_reads_nothing_is_refused() -> None:
    from tether.models.loading import check_reads

    class Empty:
        unk_token_id = 3

        def __init__(self, ids: list[int]) -> None:
            self.ids = ids

        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            return {"input_ids": self.ids}

    for ids in ([], [3, 3]):
        with pytest.raises(UserError, match="reads no word of a plain text"):
            check_reads(Empty(ids), "x")
    check_reads(byte_tokenizer(), "x")


def test_a_language_model_is_no_classifier(world: Path) -> None:
    from tether.models.classifier_loading import load_classifier

    with pytest.raises(UserError, match=r"lacks 'score\.weight': it is no trained classifier"):
        load_classifier(str(world / "model"), device="cpu")


def test_user_code_may_change_its_lists(world: Path) -> None:
    folder = run(settings(world, odd("eats_its_lists"), name="eats", updates=2))
    scores = [x["metrics"]["reward/score.mean"] for x in lines(folder) if x["kind"] == "update"]
    assert len(scores) == 2 and all(s > 0 for s in scores)


def test_numbers_beyond_fp32_are_named(world: Path) -> None:
    with pytest.raises(UserError, match=r"sample 1 of 4.*finite number of at most 1e\+18"):
        run(settings(world, odd("too_large"), name="large", updates=1))


def test_a_gradient_that_is_not_finite_ends_the_run(world: Path) -> None:
    agent = agent_of(settings(world, odd("steep")))
    learner = PolicyLearner(agent, agent.algorithm, lambda unit: [], Clock, 0)
    before = {n: t.clone() for n, t in agent.sets.sets["policy"].items()}
    first = next(iter(agent.sets.sets["policy"].values()))
    first.grad = torch.full_like(first, float("nan"))
    with pytest.raises(UserError, match=r"update 1: the gradient of the policy is nan"):
        learner.step()
    assert all(torch.equal(t, before[n]) for n, t in agent.sets.sets["policy"].items())


def test_what_rewards_log_is_kept(world: Path) -> None:
    folder = run(settings(world, odd("talkative"), name="talks", updates=2))
    samples = [json.loads(x) for x in (folder / "samples.jsonl").read_text().splitlines()]
    assert samples and all(s["extra"]["words"] == len(s["completion"].split()) for s in samples)
    evaluations = [x for x in lines(folder) if x["kind"] == "eval"]
    assert all(x["metrics"]["reward/log.calls"] == 1.0 for x in evaluations)


@pytest.mark.parametrize("column", ["prompt", "reference"])
def test_half_a_surrogate_pair_names_its_row(world: Path, tmp_path: Path, column: str) -> None:
    file = tmp_path / "p.jsonl"
    rows = [{"prompt": f"a film {i}", "reference": " good"} for i in range(12)]
    rows[7][column] = "a \ud83d film"
    file.write_text("\n".join(json.dumps(r) for r in rows))
    with pytest.raises(UserError, match=rf"row 8, column '{column}': character 3 is half"):
        agent_of(settings(world, data={"path": str(file)}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a \ud83d", r"row 2, column 'text': character 3 is half"),
        (None, "row 2.* (holds None|has no text)"),
    ],
)
def test_texts_of_a_domain_and_of_a_classifier_are_read_first(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Any, message: str
) -> None:
    """Before a model is loaded."""
    import tether.train.build
    from tether.train.classifier import _ClassJob

    file = tmp_path / "d.jsonl"
    rows = [{"text": x, "label": i % 2} for i, x in enumerate(["a b", text, "c d", "e f"])]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    monkeypatch.delattr(tether.train.build, "load_language_model")
    with pytest.raises(UserError, match=rf"evaluation\.domains\.mine: .*{message}"):
        agent_of(settings(world, {"evaluation": {"domains": {"mine": str(file)}}}))
    data = {"path": str(file), "text": "text", "label": "label", "validation_rows": 1}
    classes = parse({"job": "classifier", "kind": "model", "data": data}, "a test")
    with pytest.raises(UserError, match=message):
        _ClassJob(classes)  # type: ignore[arg-type]


def test_a_chat_template_that_fails_is_one_line() -> None:
    from tether.models.tokenizing import encode_prompt

    tokenizer = byte_tokenizer()
    for template in ("{{ raise_exception('no system role') }}", "{% for m in"):
        tokenizer.chat_template = template
        with pytest.raises(UserError, match="chat template fails on a prompt"):
            encode_prompt(tokenizer, [{"role": "user", "content": "hello"}])


def test_a_root_that_is_a_file_is_refused(world: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(UserError, match="is a file; choose another folder of runs"):
        refuse_taken(settings(world, root=str(tmp_path / "runs" / "deeper")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": {"betas": [1.5, 2]}}, r"optimizer\.betas.*must be in \[0, 1\)"),
        ({"sampling": {"temperature": float("inf")}}, r"sampling\.temperature"),
        ({"algorithm": {"lr": float("inf")}}, r"algorithm\.lr"),
    ],
)
def test_numbers_out_of_range(world: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings(world, change)


def test_the_meta_device_is_refused(world: Path) -> None:
    with pytest.raises(UserError, match="meta"):
        agent_of(settings(world, model={"device": "meta"}))


def test_options_and_words_in_any_order(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(world / "model")
    assert main(["generate", model, "--max-new-tokens", "3", "a film", "-n", "1"]) == 0
    assert "a film" in capsys.readouterr().out


def test_a_reference_that_is_not_there_says_where(world: Path) -> None:
    with pytest.raises(UserError, match=r"the weights 'reference'.*nowhere"):
        agent_of(settings(world, tethers={"kl": {"kind": "kl", "model": "./nowhere"}}))


def test_one_process_at_a_time_writes_a_folder(tmp_path: Path) -> None:
    from tether.train.lock import writing

    refused = pytest.raises(UserError, match=r"another process \(number \d+\) is writing")
    with writing(tmp_path), refused, writing(tmp_path):
        pass
    with writing(tmp_path):  # it is free again
        pass


def test_a_run_in_progress_is_not_resumed(world: Path) -> None:
    from tether.train.lock import writing
    from tether.train.run import resume

    folder = run(settings(world, name="live", updates=2))
    text = (folder / "record.jsonl").read_text().splitlines(keepends=True)
    (folder / "record.jsonl").write_text("".join(text[:-1]))
    with writing(folder), pytest.raises(UserError, match="another process"):
        resume(folder, say=lambda _: None)


def test_a_model_with_missing_tensors_is_refused(world: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for file in (world / "model").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    gone = next(k for k in weights if ".0." in k or "layers" in k or ".h." in k)
    del weights[gone]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"lacks 1 tensors of its own architecture"):
        agent_of(settings(world, model={"path": str(tmp_path)}))
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(UserError, match=r"model\.path: cannot load"):
        agent_of(settings(world, model={"path": str(tmp_path)}))


def test_a_reference_with_another_vocabulary_is_refused(world: Path, tmp_path: Path) -> None:
    for file in (world / "model").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    body = json.loads((tmp_path / "tokenizer.json").read_text())
    vocab = body["model"]["vocab"]
    a, b = list(vocab)[10:12]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    (tmp_path / "tokenizer.json").write_text(json.dumps(body))
    with pytest.raises(UserError, match=r"has another tokenizer than the policy.*2 tokens differ"):
        agent_of(settings(world, tethers={"kl": {"kind": "kl", "model": str(tmp_path)}}))


def test_a_reward_that_applied_to_nothing_has_no_mean(world: Path) -> None:
    rewards = {
        "reward": {"kind": "length", "target": 4},
        "never": {"kind": "function", "function": f"{ODD}:never"},
    }
    folder = run(settings(world, name="never", updates=2, rewards=rewards))
    rows = [x["metrics"] for x in lines(folder) if x["kind"] == "update"]
    assert all("reward/never.mean" not in m and "reward/reward.mean" in m for m in rows)


def test_evaluation_sampling_is_as_in_training_where_it_says_nothing(world: Path) -> None:
    s = settings(world, evaluation={"sampling": {"greedy": True}})
    assert s.evaluation.sampling is not None and s.evaluation.sampling.greedy
    assert s.evaluation.sampling.max_new_tokens == s.sampling.max_new_tokens == 5


def test_a_metric_that_nobody_measures_is_named(world: Path) -> None:
    trigger = {"kind": "drift_budget", "metric": "drift/kl_initial.exact_nats_per_sequence"}
    tethers = {"er": {"kind": "elastic_reset", "reset": trigger}}
    with pytest.raises(UserError, match=r"did you mean 'drift/kl_initial\.exact_nats_per_seq'"):
        run(settings(world, name="metric", updates=2, tethers=tethers))


def test_without_a_usable_checkpoint_a_resume_says_so(world: Path) -> None:
    from tether.train.run import resume

    folder = run(settings(world, name="damaged", updates=2))
    text = (folder / "record.jsonl").read_text().splitlines(keepends=True)
    (folder / "record.jsonl").write_text("".join(text[:-1]))
    for marker in folder.glob("checkpoints/*/COMPLETE"):
        marker.write_text("{}")
    with pytest.raises(UserError, match=r"no usable checkpoint .*its marker is damaged"):
        resume(folder, say=lambda _: None)


def test_a_run_goes_on_when_the_reader_of_its_lines_left(world: Path, tmp_path: Path) -> None:
    import os

    from tests.forked import ROOT, launch
    from tests.runs_for_tests import mapping
    from tether.config.text_values import write_yaml

    write_yaml(tmp_path / "run.yaml", mapping(world, name="piped", updates=3))
    pipe, errors = tmp_path / "pipe", tmp_path / "errors"
    os.mkfifo(pipe)
    words = ["-m", "tether", "train", "--config", str(tmp_path / "run.yaml")]
    running = launch(words, pipe, folder=ROOT, env={}, errors=errors)
    with open(pipe, encoding="utf-8") as reader:
        assert reader.readline()
    assert running.wait() == 0, errors.read_text()
    assert lines(world / "runs" / "piped")[-1]["kind"] == "end"


def test_a_horizon_that_is_too_short_is_one_line(world: Path) -> None:
    controller = {"kind": "ziegler", "horizon": 0.5}
    tethers = {"kl": {"kind": "kl", "coef": 0.1, "controller": controller}}
    with pytest.raises(UserError, match=r"ziegler\.horizon 0\.5 is too short for 4 sequences"):
        run(settings(world, name="horizon", updates=2, tethers=tethers))


def test_objects_that_a_resume_could_not_find_are_refused() -> None:
    import tether

    with pytest.raises(UserError, match="data must be a folder, a file or a hub id, not a list"):
        tether.settings("ppo", model="m", data=[{"prompt": "a"}], reward="length")


def test_a_move_goes_a_share_of_the_way(world: Path) -> None:
    agent = agent_of(settings(world))
    for by in (5.0, -0.1):
        with pytest.raises(ValueError, match="from 0 to 1"):
            agent.sets.apply([Move("policy", toward="initial", by=by)])


def test_a_damaged_record_is_named(world: Path) -> None:
    from tether.reports.runs import read_run

    folder = run(settings(world, name="record", updates=2))
    with open(folder / "record.jsonl", "ab") as f:
        f.write(b"{ no json\n")
    with pytest.raises(UserError, match=r"record\.jsonl is damaged"):
        read_run(folder)


def test_generate_asks_as_the_run_did(world: Path, tmp_path: Path) -> None:
    from tether.train.run import generate

    for file in (world / "model").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}U:{{ m['content'] }}|{% endfor %}"
    tokenizer.save_pretrained(tmp_path)
    plain = generate(tmp_path, ["U:hello|"], greedy=True, max_new_tokens=4)
    assert generate(tmp_path, ["hello"], greedy=True, max_new_tokens=4) != plain
    row = {"prompt": [{"role": "user", "content": "x"}]}
    (tmp_path / "samples.jsonl").write_text(json.dumps(row) + "\n")
    assert generate(tmp_path, ["hello"], greedy=True, max_new_tokens=4) == plain


def test_a_comparison_looks_at_its_inputs_first(world: Path, tmp_path: Path) -> None:
    command = ["compare", "ppo", "ppo-kl", "--seeds", "1", "--folder", str(tmp_path / "study")]
    model = ["--model", str(world / "model"), "--data", str(world / "prompts.jsonl")]
    assert main([*command, *model, "--reward", f"{ODD}:nevr"]) == 2
    assert main([*command, *model, "--reward", f"{ODD}:never", "--data.prompt", "promt"]) == 2
    assert not (tmp_path / "study").exists()
