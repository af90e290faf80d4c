"""The programs of docs/performance.md run, in their tiny mode, and write what the page can show."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import (
    ceilings,
    measuring,
    memory,
    overhead,
    rollout,
    sharing,
    step,
    together,
    update,
)
from benchmarks.render import Wrong, read, render
from benchmarks.worlds import PROMPT, World, texts, word_tokenizer
from tests.models_for_tests import tiny


def rows(file: Path) -> dict[str, dict[str, Any]]:
    found = read(file)
    assert render(found)
    assert all(r["card"] == measuring.TINY for r in found["rows"])
    return {r["row"]: r for r in found["rows"]}


def test_sharing_adds_up_what_each_process_does(tmp_path: Path) -> None:
    out = tmp_path / "sharing.json"
    sharing.main(["--tiny", "--only", "2", "--out", str(out)])
    (row,) = rows(out).values()
    assert row["processes"] == 2 and row["mps"] == "no" and min(row["spread_run"]) > 0
    assert row["a_second"] == pytest.approx(row["spread_run"][0] + row["spread_run"][-1])
    assert row["against_one"] > 0


def test_sharing_says_where_the_service_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"is not here; --only 1 2 4 6 goes on"):
        sharing.main(["--tiny", "--only", "2-mps"])


def test_adapters_are_those_that_a_run_trains_or_pefts() -> None:
    from peft.tuners.lora import Linear

    from tether.models.adapted_linear import AdaptedLinear

    for way, layer in (("adapter-ours", AdaptedLinear), ("adapter-peft", Linear)):
        lm, _, run = update.prepared(f"smollm2-{way}", True, 8)
        kinds = {type(m) for m in lm.module.modules() if isinstance(m, Linear)}
        trained = [p for p in lm.module.parameters() if p.requires_grad]
        assert kinds == {layer} and sum(p.numel() for p in trained) < 50_000
        run(0)
        assert all(p.grad is None for p in trained)


def test_step_writes_phases_that_add_up(tmp_path: Path) -> None:
    out = tmp_path / "step.json"
    words = ["--tiny", "--repeats", "1", "--commit", "abc", "--out", str(out)]
    step.main([*words, "--only", "smollm2-ppo-graph", "smollm2-ppo-hf"])
    found = rows(out)
    assert list(found) == ["smollm2-ppo-graph", "smollm2-ppo-hf"]
    for r in found.values():
        parts = [r[f"{k}_s"] for k in ("rollout", "scoring", "learning", "rest")]
        assert r["whole_s"] == pytest.approx(sum(parts)) and min(parts) > 0
        assert r["spread_s"][0] == r["whole_s"] and r["tokens"] <= 8
    # a row of the same commit stays, of another one not
    step.main([*words, "--only", "smollm2-grpo-graph"])
    assert list(rows(out))[-1] == "smollm2-grpo-graph" and len(rows(out)) == 3
    words[words.index("abc")] = "def"
    step.main([*words, "--only", "smollm2-grpo-graph"])
    assert list(rows(out)) == ["smollm2-grpo-graph"]


def test_settings_behind_the_options_reach_the_run_and_the_command(tmp_path: Path) -> None:
    out = tmp_path / "memory.json"
    words = ["--tiny", "--repeats", "1", "--only", "ppo", "--out", str(out)]
    memory.main([*words, "--critic.kind", "shared"])
    assert rows(out)["ppo"]["command"].endswith("--only ppo --critic.kind shared")


def test_rollout_and_update_write_their_rows(tmp_path: Path) -> None:
    out = tmp_path / "rollout.json"
    rollout.main(["--tiny", "--models", "gpt2", "--out", str(out)])
    found = rows(out)
    assert list(found) == ["gpt2-8x4-graph", "gpt2-8x4-hf"]
    graph, hf = found.values()
    assert graph["ratio"] == pytest.approx(hf["whole_ms"] / graph["whole_ms"])
    assert graph["logprob_difference"] < 1e-5 and graph["limit_ms"] > 0
    out = tmp_path / "update.json"
    update.main(["--tiny", "--only", "smollm2-whole-64", "--out", str(out)])
    assert rows(out)["smollm2-whole-64"]["ms"] > 0


@pytest.mark.parametrize("words", [["--bogus", "3"], ["--a.b.c"], ["word", "--a.b.c"]])
def test_a_word_that_is_no_setting_is_refused(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit):
        memory.main(["--tiny", *words])
    assert "is no option and no setting" in capsys.readouterr().err


def test_memory_tells_what_a_tether_adds(tmp_path: Path) -> None:
    out = tmp_path / "memory.json"
    words = ["--tiny", "--repeats", "1", "--only", "ppo", "elastic-cpu", "lora"]
    memory.main([*words, "--out", str(out)])
    found = rows(out)
    assert found["elastic-cpu"]["average"] == "pinned CPU"
    assert found["lora"]["trained"] < found["ppo"]["trained"]
    known = [
        {"row": "ppo", "allocated_gib": 4.0},
        {"row": "elastic-cpu", "allocated_gib": 4.25},
        {"row": "lora", "allocated_gib": 3.0},
        {"row": "elastic-device-recompute", "allocated_gib": 3.0},
    ]
    memory.over_base(known)
    assert [r["extra_gib"] for r in known] == [None, 0.25, None, None]


def test_overhead_compares_neighbours(tmp_path: Path) -> None:
    out = tmp_path / "overhead.json"
    words = ["--tiny", "--pairs", "1", "--only", "elastic-reset", "ema-update-cpu", "nlpo-mask"]
    overhead.main([*words, "--out", str(out)])
    found = rows(out)
    for r in found.values():
        assert r["share_percent"] == pytest.approx(100 * (r["with_s"] / r["base_s"] - 1))
    assert found["elastic-reset"]["event_ms"] > 0 and found["nlpo-mask"]["event_ms"] is None


def test_tethers_on_the_same_weights_leave_the_first_agent_alone(tmp_path: Path) -> None:
    from benchmarks.worlds import Updates, engine, ppo

    world = World(tmp_path, "tiny")
    base = Updates(world.settings(ppo(8, 2, 2), engine("graph")))
    other = base.with_tethers(memory.elastic_reset(**memory.EACH_STEP))
    assert "ema" in other.agent.sets.sets and "ema" not in base.agent.sets.sets
    assert other.agent.sets.sets["policy"] is base.agent.sets.sets["policy"]
    before = [p.clone() for p in base.agent.sets.sets["policy"].values()]
    other.one()
    after = list(base.agent.sets.sets["policy"].values())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert other.agent.sets.counts["ema<-policy"] == 4 and not base.agent.sets.counts


def test_counts_of_a_small_model_by_hand() -> None:
    # 2 layers of width 32, feed-forward 64, 2 heads and as many keys: a layer has four 32 x 32
    # projections, three 32 x 64, two norms of 32; one norm more at the end; 259 words, tied
    lm = tiny("llama")
    s = ceilings.sizes_of(lm)
    heads = lm.config.num_key_value_heads
    layer = 2 * 32 * 32 + 2 * 32 * 16 * heads + 3 * 32 * 64 + 2 * 32
    tables = 1 if lm.config.tie_word_embeddings else 0
    assert s.head == 259 * 32
    assert s.body == 2 * layer + 32, (s.body, layer, tables)
    assert s.kept == 2 * 2 * heads * 16
    assert ceilings.forward(s, rows=3, prompt=5, new=2) == 2 * 3 * (s.body * 7 + s.head * 2)
    step_ = 2 * (s.body + s.head) + 3 * (2 * s.kept * (5 + 1) + 4 * 259)
    assert ceilings.decode_bytes(s, rows=3, prompt=5, new=2) == 2 * step_


def test_a_limit_is_time_for_operations_and_for_bytes() -> None:
    assert ceilings.Ceilings(matrix=10.0, copy=4.0).seconds(20.0, 2.0) == 2.5


def test_counts_of_a_step(tmp_path: Path) -> None:
    algorithm = SimpleNamespace(group_size=2, epochs=3, minibatches=4)
    agent = SimpleNamespace(
        algorithm=algorithm,
        sampling=SimpleNamespace(max_new_tokens=2),
        prompts=5,
        critic=object(),
        microbatch=4,
        old_logprobs="scored",
        evaluation=SimpleNamespace(drift_every=1),
        optimizer=SimpleNamespace(groups={"policy": [torch.zeros(7)], "critic": [torch.zeros(6)]}),
    )
    s = ceilings.Sizes(body=100, head=10, kept=4, vocabulary=11)
    whole, moved, learning = step.counted(SimpleNamespace(agent=agent, sizes=s))
    policy = 2 * 10 * (100 * (PROMPT + 2) + 10 * 2)
    critic = 2 * 10 * 100 * (PROMPT + 2)
    assert learning == 3 * 3 * (policy + critic)
    assert whole == learning + 2 * policy + critic + 2 * 5 * 100 * PROMPT
    assert moved == ceilings.decode_bytes(s, 10, PROMPT, 2) + 3 * 4 * 30 * 13
    agent.old_logprobs, agent.evaluation.drift_every = "sampled", 0  # 4 of 10 rows are checked
    spared, _, _ = step.counted(SimpleNamespace(agent=agent, sizes=s))
    assert spared == pytest.approx(whole - 2 * policy + 0.4 * policy)


def test_prompts_have_their_length_whatever_stands_beside_them() -> None:
    words = word_tokenizer(300)
    for prompt, reference in texts(words, 5, 7):
        assert len(words(prompt)["input_ids"]) == PROMPT and len(words(reference)["input_ids"]) == 7
    with pytest.raises(ValueError, match="100 are needed"):
        texts(word_tokenizer(50), 5, 7)


def test_together_has_every_row_of_its_programs_or_those_asked_for() -> None:
    everything = together.chosen(None)
    assert everything["step"] == list(step.ROWS) and list(everything) == list(together.PROGRAMS)
    assert together.chosen(["memory:lora", "step:gpt2-ppo-hf"]) == {
        "step": ["gpt2-ppo-hf"],
        "memory": ["lora"],
    }


def test_spread_of_values() -> None:
    assert measuring.spread([4.0, 1.0, 2.0, 3.0, 5.0]) == [1.0, 2.0, 4.0, 5.0]
    assert measuring.spread([2.0]) == [2.0] * 4


def test_a_result_file_is_whole_after_every_row(tmp_path: Path) -> None:
    table = {"title": "T", "rows": ["x"], "columns": {"v": "V"}, "text": ""}
    results = measuring.Results("some", tmp_path / "some.json", "abc", [table])
    for name, v in (("b", 1), ("a", 2), ("b", 3)):
        results.add({"kind": "x", "row": name, "v": v, "command": "c"}, ("a", "b"))
        assert read(tmp_path / "some.json")
    found = json.loads((tmp_path / "some.json").read_text())["rows"]
    assert [(r["row"], r["v"]) for r in found] == [("a", 2), ("b", 3)]


def test_rows_of_another_commit_stay_where_that_is_asked_and_say_so(tmp_path: Path) -> None:
    table = {"title": "T", "rows": ["x"], "columns": {"v": "V"}, "text": ""}
    file = tmp_path / "some.json"
    for commit, name, keep in (("aaa", "a", False), ("bbb", "b", True), ("ccc", "c", True)):
        results = measuring.Results("some", file, commit, [table], keep=keep)
        results.add({"kind": "x", "row": name, "v": 1, "command": name})
    found = read(file)
    assert [r.get("commit", found["commit"]) for r in found["rows"]] == ["aaa", "bbb", "ccc"]
    text = render(found)
    assert "at commit ccc; " in text and " At commit aaa: a. At commit bbb: b." in text
    assert "commit bbb" in text.split("Commands of the rows")[1]
    found["rows"][0]["versions"] = found["versions"] | {"torch": "1.0"}
    assert " At commit aaa (torch 1.0): a." in render(found)
    del found["rows"][0]["versions"]
    (tmp_path / "other.json").write_text(json.dumps(found | {"name": "other"}))
    with pytest.raises(Wrong, match="without the versions"):
        read(tmp_path / "other.json")
    measuring.Results("some", file, "ddd", [table]).add(found["rows"][2])
    assert [r["row"] for r in read(file)["rows"]] == ["c"]


def test_notes_written_into_a_file_stay_while_its_commit_does(tmp_path: Path) -> None:
    table = {"title": "T", "rows": ["x"], "columns": {"v": "V"}, "text": ""}
    file = tmp_path / "some.json"

    def notes(commit: str) -> list[str]:
        results = measuring.Results("some", file, commit, [table], ["ours"])
        results.add({"kind": "x", "row": "a", "v": 1, "command": "c"})
        return list(json.loads(file.read_text())["notes"])

    assert notes("abc") == ["ours"]
    found = json.loads(file.read_text()) | {"notes": ["ours", "Tried: nothing."]}
    file.write_text(json.dumps(found))
    assert notes("abc") == ["ours", "Tried: nothing."] and notes("def") == ["ours"]
