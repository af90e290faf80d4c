"""Interpolation, baselines and merging of finished runs, from each kind of weights they leave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.runs_for_tests import REWARDS, lines, make_world, run, settings
from tether.config.errors import UserError
from tether.models.interpolation import angle
from tether.records import BASELINES, DRIFT, INTERPOLATION, read_lines
from tether.reports.runs import read_run
from tether.train.after_merge import merge
from tether.train.after_run import initial_baselines, interpolate

LOW = {
    "rewards": {"reward": {"kind": "function", "function": f"{REWARDS}:low"}},
    "updates": 2,
    "checkpoint": {"every": 1, "export": True},
    "evaluation": {"every": 1},
}
LORA = {"model": {"lora": {"rank": 2, "alpha": 8.0}}, "algorithm": {"lr": 0.05}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("finished") / "gpt2", layers=1)


@pytest.fixture(scope="module")
def plain(world: Path) -> Path:
    return run(settings(world, LOW, name="plain"))


@pytest.fixture(scope="module")
def adapted(world: Path) -> Path:
    return run(settings(world, LOW, LORA, name="adapted"))


def copy_of(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder, folder.with_name(name)))


def last(folder: Path) -> dict[str, Any]:
    return [x for x in lines(folder) if x["kind"] == "eval"][-1]


@pytest.mark.parametrize("kept", ["checkpoint", "files"])
@pytest.mark.parametrize("which", ["plain", "adapted"])
def test_a_finished_run_from_its_checkpoint_or_its_files(
    which: str, kept: str, request: pytest.FixtureRequest
) -> None:
    folder = copy_of(request.getfixturevalue(which), f"{which}-{kept}")
    for gone in ["checkpoints"] if kept == "files" else ["policy", "adapter"]:
        shutil.rmtree(folder / gone, ignore_errors=True)
    record = (folder / "record.jsonl").read_bytes()
    hows = ["linear", "slerp"] + (["product"] if which == "adapted" else [])
    found = interpolate(folder, [0.0, 0.5, 1.0], hows)  # type: ignore[arg-type]
    end = last(folder)
    for point in found:
        expected = {0.0: 0.0, 1.0: end["drift"][DRIFT]}.get(point.at)
        if expected is not None:
            assert point.drift == pytest.approx(expected, rel=1e-3, abs=1e-5)
        else:
            assert point.drift > 1e-4
    assert [p.reward for p in found if p.at == 1.0] == pytest.approx([end["reward"]] * len(hows))
    assert (folder / "record.jsonl").read_bytes() == record
    assert len(list(read_lines(folder / INTERPOLATION))) == 3 * len(hows)
    assert len(read_run(folder).baselines) == 3 * len(hows)


def test_both_sources_say_the_same(plain: Path) -> None:
    files = copy_of(plain, "plain-twice")
    shutil.rmtree(files / "checkpoints")
    assert interpolate(plain, [0.5]) == interpolate(files, [0.5])


def test_again_replaces_and_adds(plain: Path) -> None:
    folder = copy_of(plain, "again")
    interpolate(folder, [0.0, 0.5])
    first = (folder / INTERPOLATION).read_text().splitlines()
    interpolate(folder, [0.5, 1.0])
    second = (folder / INTERPOLATION).read_text().splitlines()
    assert [json.loads(x)["at"] for x in second] == [0.0, 0.5, 1.0]
    assert second[:2] == first  # equal bytes: no clock, path or host in it
    interpolate(folder, [0.5], prompts=2)
    assert [p.prompts for p in read_run(folder).baselines] == [4, 4, 2]


def test_baselines_need_no_weights_and_are_what_the_run_records(world: Path, plain: Path) -> None:
    folder = copy_of(plain, "weightless")
    for gone in ("checkpoints", "policy"):
        shutil.rmtree(folder / gone)
    found = initial_baselines(folder, samples=16)
    after = {"after": {"best_of_n": True, "oracle": True, "samples": 16}}
    recorded = run(settings(world, LOW, after, name="recorded"))
    want = [x for x in lines(recorded) if x["kind"] == "baseline"]
    assert list(read_lines(folder / BASELINES)) == want and len(found) == len(want)
    with pytest.raises(UserError, match="has no weights left"):
        interpolate(folder)
    with pytest.raises(UserError, match="has no weights left"):
        merge([folder], folder.with_name("out"))


def test_another_initial_model_is_noticed(world: Path, plain: Path) -> None:
    elsewhere = make_world(world.parent / "other", seed=5, layers=1)
    folder = copy_of(plain, "moved")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace(str(world / "model"), str(elsewhere / "model")))
    with pytest.raises(UserError, match="is not the one it began with"):
        initial_baselines(folder, samples=16)


def test_runs_that_have_no_end(world: Path, plain: Path) -> None:
    folder = copy_of(plain, "endless")
    record = (folder / "record.jsonl").read_text().splitlines()[:-1]
    (folder / "record.jsonl").write_text("\n".join(record) + "\n")
    with pytest.raises(UserError, match="is not finished; to go on: tether resume"):
        interpolate(folder)
    with pytest.raises(UserError, match="product is for adapters"):
        interpolate(plain, how=["product"])
    with pytest.raises(UserError, match=r"after.shares is \[2.0\]"):
        interpolate(plain, [2.0])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    module = AutoModelForCausalLM.from_pretrained(folder)
    return {n: p.detach() for n, p in module.named_parameters()}


def test_merge_by_hand_of_full_weights_and_an_adapter(
    world: Path, plain: Path, adapted: Path, tmp_path: Path
) -> None:
    start, a, b = (weights(f) for f in (world / "model", plain / "policy", adapted / "policy"))
    facts = merge([plain, adapted], tmp_path / "mean", how="linear", weights=[3.0, 1.0], share=0.5)
    out = weights(tmp_path / "mean")
    for n, t in out.items():
        mean = (3 * a[n] + b[n]) / 4
        assert torch.allclose(t, start[n] + 0.5 * (mean - start[n]), atol=1e-6)
    assert [r["weight"] for r in facts["runs"]] == [0.75, 0.25]
    facts = merge([plain, adapted], tmp_path / "sphere")
    out = weights(tmp_path / "sphere")
    for n, t in out.items():
        da, db = a[n] - start[n], b[n] - start[n]
        omega = angle({"x": da}, {"x": db})
        if omega != omega:  # the adapter left this tensor alone: half of the other's change
            assert not bool(db.any())
            assert torch.allclose(t, start[n] + da / 2, atol=1e-6)
            continue
        k = torch.sin(torch.tensor(omega / 2)) / torch.sin(torch.tensor(omega))
        assert torch.allclose(t, start[n] + k * (da + db), atol=1e-5)
    one = angle({n: a[n] - start[n] for n in start}, {n: b[n] - start[n] for n in start})
    assert facts["angles"][0][1] == pytest.approx(one, abs=1e-3) and facts["angles"][0][0] == 0
    text = (tmp_path / "sphere" / "merge.json").read_text()
    assert json.loads(text) == facts and str(world) not in text and "/tmp" not in text
    assert [r["name"] for r in facts["runs"]] == ["plain", "adapted"]
    # What is merged is a model like any other: the next run starts from it.
    nxt = run(settings(world, LOW, name="next", model={"path": str(tmp_path / "sphere")}))
    assert last(nxt)["drift"][DRIFT] > 0


def test_merge_of_one_run_is_its_way_back(world: Path, plain: Path, tmp_path: Path) -> None:
    merge([plain], tmp_path / "all")
    merge([plain], tmp_path / "none", share=0.0)
    final, start = weights(plain / "policy"), weights(world / "model")
    for n, t in weights(tmp_path / "all").items():
        assert torch.allclose(t, final[n], atol=1e-7)
    assert all(torch.equal(t, start[n]) for n, t in weights(tmp_path / "none").items())


def test_t5_merges_and_interpolates(tmp_path: Path) -> None:
    here = make_world(tmp_path, "t5")
    runs = [run(settings(here, LOW, name=f"t5-{s}", seed=s)) for s in (0, 1)]
    facts = merge(runs, tmp_path / "merged", how="slerp_global", share=0.7)
    assert len(facts["runs"]) == 2 and (tmp_path / "merged" / "config.json").is_file()
    found = interpolate(runs[0], [0.5, 1.0], ["slerp_global"])
    assert found[1].drift == pytest.approx(last(runs[0])["drift"][DRIFT], rel=1e-4)


def test_unlike_runs_are_refused(world: Path, plain: Path, tmp_path: Path) -> None:
    other = make_world(tmp_path / "seed", seed=7, layers=1)
    wide = make_world(tmp_path / "wide", width=16, layers=1)
    out = tmp_path / "out"
    with pytest.raises(UserError, match="began with different weights"):
        merge([plain, run(settings(other, LOW, name="other"))], out)
    with pytest.raises(UserError, match="are runs of unlike models"):
        merge([plain, run(settings(wide, LOW, name="wide"))], out)
    again = copy_of(plain, "twin")
    for words, message in (
        ({"weights": [1.0]}, "1 weights for 2 runs"),
        ({"weights": [1.0, 0.0]}, "weights must be above 0"),
        ({"weights": [1.0, float("nan")]}, "weights must be above 0"),
        ({"weights": [1e308, 1e308]}, "no finite sum"),
        ({"share": 1.5}, "the share is 1.5"),
    ):
        with pytest.raises(UserError, match=message):
            merge([plain, again], out, **words)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="named twice"):
        merge([plain, plain], out)
    with pytest.raises(UserError, match="exists and is not empty"):
        merge([plain, again], world)
    assert not out.exists()


def test_merging_into_a_place_that_cannot_be_written(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file/merged: .*choose another folder"):
        merge([plain], tmp_path / "file" / "merged")
