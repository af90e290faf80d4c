"""Reward models from pairs: they learn, are equal when repeated, and are never overwritten."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from tests.conftest import SHARED
from tests.models_for_tests import byte_tokenizer, tiny_module
from tests.runs_for_tests import make_world, quiet, run, settings
from tests.unit.models.test_classifier import encoder
from tether.config.errors import UserError
from tether.config.run import ClassifierSettings
from tether.config.settings import parse
from tether.models.classifier_loading import load_classifier
from tether.models.dropout import FACT, rates_of
from tether.rewards.batch import RewardBatch
from tether.rewards.classifier import ClassifierReward
from tether.tasks.preferences import load_pairs
from tether.train.head_fit import fit, part_of, start_classifier
from tether.train.pairwise import _fit
from tether.train.reward_average import average
from tether.train.run import resume, train

ASSETS = Path(__file__).parents[3] / "src" / "tether" / "studies" / "quickstart_assets"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("pairs"))
    for kind in ("t5", "bart", "marian"):
        tiny_module(kind, sharp=2.0).save_pretrained(folder / kind)
        byte_tokenizer().save_pretrained(folder / kind)
    encoder(folder / "roberta", "roberta")
    with open(folder / "pairs.jsonl", "w", encoding="utf-8") as f:
        for i in range(96):
            good, bad = f"zz {i % 7}", f"qq {i % 5}" + "." * (i % 3)
            row = {"prompt": f"q{i} ", "chosen": good, "rejected": bad, "margin": i % 3 / 2}
            f.write(json.dumps(row) + "\n")
    return folder


def chosen(world: Path, name: str, **changes: Any) -> ClassifierSettings:
    mapping: dict[str, Any] = {
        "job": "classifier", "kind": "pairs", "name": name, "root": str(world / "runs"),
        "threads": 1,
        "data": {"path": str(world / "pairs.jsonl"), "text": None, "label": None,
                 "validation_rows": 16, "test_rows": 16},
        "model": {"path": str(world / "model"), "device": "cpu", "dtype": "float32"},
        "lr": 3e-3, "epochs": 3, "batch_size": 8,
    }  # fmt: skip
    mapping["model"] |= changes.pop("model", {})
    found = parse(mapping | changes, "a test")
    assert isinstance(found, ClassifierSettings)
    return found


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def weights(folder: Path) -> bytes:
    (file,) = (folder / "classifier").glob("*.safetensors")
    return file.read_bytes()


KINDS = {
    "gpt2": {},
    "gpt2-lora": {"lora": {"rank": 4}},
    "t5": {"path": "t5"},
    "t5-lora": {"path": "t5", "lora": {"rank": 4}},
    "bart": {"path": "bart"},
    "roberta": {"path": "roberta"},
    "roberta-lora": {"path": "roberta", "lora": {"rank": 4}},
}


@pytest.mark.parametrize("name", KINDS)
def test_it_learns_is_saved_and_is_a_reward(world: Path, name: str) -> None:
    model = dict(KINDS[name])
    if "path" in model:
        model["path"] = str(world / model["path"])
    folder = run(chosen(world, name, model=model))
    found = results(folder)
    for split in ("validation", "test"):
        assert found[split]["accuracy"] >= 0.9 and found[split]["auc"] >= 0.9
        assert {"ece", "bins"} == set(found[split]["calibration"])
        assert found[split]["rows"] == 16
    assert found["train_rows"] == 64
    reward = ClassifierReward(path=str(folder), device="cpu")
    reward.prepare()
    batch = RewardBatch(["q7 ", "q7 "], ["zz 1", "qq 1"], [[1], [1]])
    good, bad = reward(batch)
    assert good > bad
    raw = load_classifier(str(folder / "classifier"), device="cpu").logits(["q7 zz 1", "q7 qq 1"])
    assert [good, bad] == pytest.approx(raw[:, 0].tolist(), abs=1e-6)
    normal = ClassifierReward(path=str(folder), device="cpu", normalise="validation")
    moments = found["scores"]["validation"]
    assert normal(batch)[0] == pytest.approx((good - moments["mean"]) / moments["std"], abs=1e-5)


def test_the_stored_moments_are_of_all_completions(world: Path) -> None:
    folder = run(chosen(world, "moments"))
    held = load_pairs(chosen(world, "x").data, chosen(world, "x").pairs)["validation"].pairs
    model = load_classifier(str(folder), device="cpu")
    scores = model.logits([t for p in held for t in p.texts])[:, 0].double()
    found = results(folder)["scores"]["validation"]
    assert found["completions"] == 32
    assert found["mean"] == pytest.approx(float(scores.mean()), abs=1e-5)
    assert found["std"] == pytest.approx(float(scores.var(correction=0).sqrt()), abs=1e-5)
    with pytest.raises(UserError, match=r"unknown set 'validaton'.*did you mean 'validation'"):
        ClassifierReward(path=str(folder), device="cpu", normalise="validaton").prepare()


def test_equal_runs_are_equal_and_seeds_differ(world: Path) -> None:
    a, b = run(chosen(world, "same-a")), run(chosen(world, "same-b"))
    c = run(chosen(world, "other", seed=1))
    assert weights(a) == weights(b) and results(a) == results(b)
    assert weights(a) != weights(c)


def test_microbatches_change_nothing(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 pairs in steps of 24: the last step has 16, and microbatches of 5 do not divide either."""

    def gradients(micro: int | None) -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []

        def step(self: Any, lrs: dict[str, float], step: int) -> dict[str, float]:
            grads = [p.grad for p in self.groups["model"] if p.grad is not None]
            seen.append(torch.cat([g.flatten() for g in grads]))
            self.zero()
            return {"model": 0.0}

        monkeypatch.setattr("tether.train.head_fit.MasterOptimizer.step", step)
        s = replace(chosen(world, "x"), batch_size=24, microbatch=micro, epochs=1)
        model = start_classifier(s, ["score"])
        _fit(model, load_pairs(s.data, s.pairs)["train"].pairs, s, quiet)
        return seen

    whole, parts = gradients(None), gradients(5)
    assert len(whole) == len(parts) == 3
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(b, a, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("margin", [None, "margin"])
def test_the_first_step_has_the_gradient_of_the_formula(world: Path, margin: str | None) -> None:
    """One step of one batch of all pairs, without momentum's memory: by autograd on the formula."""
    s = chosen(world, "x", pairs={"margin": margin})
    s = replace(s, batch_size=64, epochs=1, lr=1e-9, weight_decay=0.0)
    model = start_classifier(s, ["score"])
    pairs = load_pairs(s.data, s.pairs)["train"].pairs
    seen: list[torch.Tensor] = []
    head = model.core.score.weight
    head.register_hook(lambda g: seen.append(g.clone()))
    _fit(model, pairs, s, quiet)
    chosen_, rejected = (
        model.forward(*model.batch(model.encode([p.texts[k] for p in pairs])))[:, 0] for k in (0, 1)
    )
    asked = torch.tensor([p.margin for p in pairs])
    assert sorted(set(asked.tolist())) == ([0.0, 0.5, 1.0] if margin else [0.0])
    want = torch.log1p(torch.exp(asked - (chosen_ - rejected))).mean()
    (gradient,) = torch.autograd.grad(want, head)
    torch.testing.assert_close(seen[0], gradient, atol=1e-6, rtol=1e-4)


def test_nothing_is_overwritten_and_a_stopped_run_goes_on(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = chosen(world, "kept")
    folder = run(s)
    before = weights(folder), (folder / "results.json").read_bytes()
    with pytest.raises(UserError, match="already holds this run"):
        run(s)
    with pytest.raises(UserError, match="holds another run"):
        run(replace(s, lr=1.0))
    resume(folder, say=quiet)
    assert (weights(folder), (folder / "results.json").read_bytes()) == before
    (folder / "results.json").unlink()  # as a kill after the model was saved leaves it
    with pytest.raises(UserError, match="tether resume"):
        run(s)
    resume(folder, say=quiet)
    assert (weights(folder), (folder / "results.json").read_bytes()) == before


def test_completions_are_never_cut_in_silence(world: Path, tmp_path: Path) -> None:
    rows = [json.loads(x) for x in (world / "pairs.jsonl").read_text().splitlines()[:40]]
    rows[3]["chosen"] = "z" * 40
    rows[5]["prompt"] = "p" * 40
    file = tmp_path / "long.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    data = {"path": str(file), "text": None, "label": None, "validation_rows": 0}
    base = replace(chosen(world, "long"), max_tokens=24, root=str(tmp_path))
    long = parse(
        {**json.loads(json.dumps({"job": "classifier", "kind": "pairs", "name": "long"})),
         "root": str(tmp_path), "data": data, "max_tokens": 24, "epochs": 1, "threads": 1,
         "model": {"path": base.model.path, "device": "cpu", "dtype": "float32"}}
    )  # fmt: skip
    assert isinstance(long, ClassifierSettings)
    with pytest.raises(UserError, match=r"row 4 has 40 tokens, the reward model reads 24: raise"):
        train(long, say=quiet)
    for how, left, note in (("drop", 39, "dropped_too_long"), ("cut", 40, "completions_cut")):
        s = replace(long, name=how, pairs=replace(long.pairs, too_long=how))
        found = results(train(s, say=quiet))
        assert found["train_rows"] == left and found["notes"]["train"][note] == 1
        assert found["notes"]["train"]["texts_cut"] >= 2  # both texts of the long prompt
    reward = ClassifierReward(path=str(tmp_path / "drop"), device="cpu")
    batch = RewardBatch(["q"], ["z" * 25], [[1]])
    with pytest.raises(UserError, match="would lose its beginning; raise max_tokens"):
        reward(batch)
    # a longer prompt loses its own beginning, and the completion is whole
    short = RewardBatch(["p" * 99 + "q"], ["z" * 20], [[1]])
    assert reward(short) == reward(RewardBatch(["pppq"], ["z" * 20], [[1]]))


def test_a_split_without_a_pair_that_fits_is_refused(world: Path) -> None:
    s = chosen(world, "tiny", max_tokens=2, pairs={"too_long": "drop"})
    with pytest.raises(UserError, match=r"every pair of .* has a completion of more than 2 tokens"):
        run(s)


def test_notes_count_what_a_share_leaves_out(world: Path, tmp_path: Path) -> None:
    """80 pairs are left for training; of the half of 40 a share of .25 are 10, one too long."""
    rows = [json.loads(x) for x in (world / "pairs.jsonl").read_text().splitlines()]
    data = {"path": str(tmp_path / "noted.jsonl"), "text": None, "label": None,
            "validation_rows": 16}  # fmt: skip
    s = chosen(world, "noted", half="second", share=0.25, epochs=1, data=data, max_tokens=24,
               pairs={"too_long": "drop"}, root=str(tmp_path))  # fmt: skip
    (tmp_path / "noted.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    used = load_pairs(s.data, s.pairs)["train"].pairs[part_of(80, "second", 0.25)]
    rows[used[3].row - 1]["chosen"] = "z" * 40
    (tmp_path / "noted.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    found = results(run(s))
    assert found["notes"]["train"] == {
        "rows": 80, "not_in_half_or_share": 70, "dropped_too_long": 1,
    }  # fmt: skip
    assert found["train_rows"] == 9
    assert found["notes"]["validation"] == {"rows": 16}


def test_shares_are_nested_and_halves_apart() -> None:
    rows = list(range(10))
    assert rows[part_of(10, "first")] == [0, 1, 2, 3, 4]
    assert rows[part_of(10, "second")] == [5, 6, 7, 8, 9]
    assert rows[part_of(10, "second", 0.4)] == [5, 6]
    assert rows[part_of(10, "all", 0.01)] == [0]
    assert rows[part_of(3, "first")] == [0] and rows[part_of(3, "second")] == [1, 2]
    with pytest.raises(UserError, match="1 training rows have no 'first' half"):
        part_of(1, "first")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gradient_that_is_not_finite_is_refused(dtype: torch.dtype) -> None:
    """The loss is finite, at 0, where the square root's slope is not; the weights stay."""
    module = torch.nn.Linear(1, 1, bias=False).to(dtype)
    torch.nn.init.zeros_(module.weight)

    def losses(items: Sequence[int]) -> torch.Tensor:
        return module.weight.float().sqrt().expand(len(items), 1)[:, 0]

    settings = ClassifierSettings(batch_size=2, warmup_ratio=0.0)
    with pytest.raises(UserError, match=r"norm of the gradient is inf at step 1 of 1; lower lr"):
        fit(module, 2, settings, lambda index, _: index, losses, quiet)
    assert module.weight.item() == 0


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_the_average_of_weights(world: Path, tmp_path: Path, lora: Any) -> None:
    tag = "lora" if lora else "full"
    runs = [
        run(chosen(world, f"warm-{tag}-{i}", seed=i, start_seed=7, model={"lora": lora}))
        for i in (0, 1)
    ]
    out = average(runs, tmp_path / "out", weights=[1, 3], say=quiet)
    parts = [load_classifier(str(r), device="cpu") for r in runs]
    for m in parts:
        if lora:
            m.module = m.module.merge_and_unload()  # type: ignore[operator]
    heads = [m.core.score.weight for m in parts]
    got = load_classifier(str(out), device="cpu")
    assert rates_of(AutoConfig.from_pretrained(out / "classifier")) == parts[0].facts[FACT] != {}
    torch.testing.assert_close(got.core.score.weight, 0.25 * heads[0] + 0.75 * heads[1])
    name = "transformer.h.0.attn.c_attn.weight"
    deep = [dict(m.core.named_parameters())[name] for m in parts]
    torch.testing.assert_close(
        dict(got.core.named_parameters())[name], 0.25 * deep[0] + 0.75 * deep[1]
    )
    assert results(out)["validation"]["accuracy"] >= 0.9
    assert ClassifierReward(path=str(out), device="cpu", normalise="test").scale[1] > 0
    facts = json.loads((out / "average.json").read_text())
    assert [r["weight"] for r in facts["runs"]] == [0.25, 0.75]
    with pytest.raises(UserError, match="exists and is not empty"):
        average(runs, out, say=quiet)


def test_three_members_by_hand(world: Path, tmp_path: Path) -> None:
    """Members of 1, 2 and 6 times some weights: their mean has 3 times them, at the weights 1, 2
    and 5 it has (1 + 4 + 30) / 8 times them, and each member counts, whatever its place."""
    first = run(chosen(world, "warm-three", epochs=1))
    (name,) = (f.name for f in (first / "classifier").glob("*.safetensors"))
    base = load_file(first / "classifier" / name)
    folders = []
    for factor in (1.0, 2.0, 6.0):
        folder = tmp_path / f"of-{factor:g}"
        shutil.copytree(first, folder)
        scaled = {n: factor * t for n, t in base.items()}
        save_file(scaled, folder / "classifier" / name, metadata={"format": "pt"})
        folders.append(folder)

    def averaged(order: list[int], weights: list[float] | None) -> dict[str, torch.Tensor]:
        out = tmp_path / f"out-{order}-{weights}"
        average([folders[i] for i in order], out, weights=weights, say=quiet)
        facts = json.loads((out / "average.json").read_text())
        assert sum(r["weight"] for r in facts["runs"]) == pytest.approx(1.0)
        return load_file(out / "classifier" / name)

    for order, weights, factor in (
        ([0, 1, 2], None, 3.0), ([2, 0, 1], None, 3.0),
        ([0, 1, 2], [1.0, 2.0, 5.0], 35 / 8), ([2, 1, 0], [0.5, 0.2, 0.1], 35 / 8),
    ):  # fmt: skip
        got = averaged(order, weights)
        assert got.keys() == base.keys()
        for n, t in got.items():
            torch.testing.assert_close(t, factor * base[n], rtol=1e-6, atol=1e-7)


def test_an_average_refuses_what_does_not_belong_together(world: Path, tmp_path: Path) -> None:
    a = run(chosen(world, "apart-0", seed=0))
    b = run(chosen(world, "apart-1", seed=1))
    with pytest.raises(UserError, match="began with different weights; average runs with one"):
        average([a, b], tmp_path / "out", say=quiet)
    with pytest.raises(UserError, match="two or more runs"):
        average([a], tmp_path / "out", say=quiet)
    with pytest.raises(UserError, match="named twice"):
        average([a, a], tmp_path / "out", say=quiet)
    with pytest.raises(UserError, match="3 weights for 2 runs"):
        average([a, b], tmp_path / "out", weights=[1, 1, 1], say=quiet)
    with pytest.raises(UserError, match="no complete run"):
        average([a, world], tmp_path / "out", say=quiet)
    other = run(chosen(world, "apart-2", start_seed=0, pairs={"too_long": "cut"}))
    with pytest.raises(UserError, match="differ in pairs"):
        average([a, other], tmp_path / "out", say=quiet)
    same = shutil.copytree(run(chosen(world, "apart-3", seed=3, start_seed=0)), tmp_path / "same")
    note = same / "classifier" / "classifier.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "labels": ["other"]}))
    with pytest.raises(UserError, match="have their classes in different orders, score and other"):
        average([a, same], tmp_path / "out", say=quiet)
    assert not (tmp_path / "out").exists()


def test_a_critic_starts_from_the_run(world: Path) -> None:
    folder = run(chosen(world, "critic"))
    reward = {"kind": "classifier", "path": str(folder), "device": "cpu"}
    done = run(
        settings(world, name="tuned", updates=1, critic={"start": str(folder)},
                 rewards={"reward": reward})
    )  # fmt: skip
    assert (done / "record.jsonl").is_file()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": {"chosen": "chosn"}}, "no column 'chosn'.*did you mean 'chosen'"),
        ({"pairs": {"chosen": "x", "rejected": "x"}}, "are both 'x': name two columns"),
        ({"share": 0}, "share in a test is 0, must be above 0"),
        ({"microbatch": 0}, "microbatch in a test is 0"),
        ({"model": {"path": "marian"}}, "no classification head for marian models"),
        ({"lr": 1e30}, "the loss is .* lower lr"),
    ],
)
def test_bad_input_is_one_line(world: Path, changes: dict[str, Any], message: str) -> None:
    if "model" in changes:
        changes = {"model": {"path": str(world / "marian")}}
    with pytest.raises(UserError, match=message) as e:
        run(chosen(world, "bad", **changes))
    assert "\n" not in str(e.value)
    shutil.rmtree(world / "runs" / "bad", ignore_errors=True)


@pytest.mark.skipif(
    not (SHARED / "data" / "stackexchange_pairs").is_dir(),
    reason="../shared/data/stackexchange_pairs is absent",
)
def test_real_pairs_give_a_report(tmp_path: Path) -> None:
    """No claim on quality: 100 pairs and a model of a million parameters."""
    pairs = SHARED / "data" / "stackexchange_pairs" / "pairs.parquet"
    s = parse(
        {"job": "classifier", "kind": "pairs", "name": "real", "root": str(tmp_path), "threads": 1,
         "data": {"path": str(pairs), "text": None, "label": None, "validation_rows": 50,
                  "limit": 50},
         "pairs": {"too_long": "cut"}, "max_tokens": 96, "lr": 1e-3,
         "model": {"path": str(ASSETS / "model"), "device": "cpu", "dtype": "float32"}}
    )  # fmt: skip
    found = results(train(s, say=quiet))  # type: ignore[arg-type]
    held = found["validation"]
    assert 50 <= held["rows"] <= 60 and 0 <= held["accuracy"] <= 1
    assert sum(b["rows"] for b in held["calibration"]["bins"]) == held["rows"]
    assert 0.4 < held["length_bias"]["winner_longer"] < 0.9
    assert found["notes"]["train"]["completions_cut"] > 0
