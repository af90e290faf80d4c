"""Bad input: one line that names the place and the mend, and nothing on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.models_for_tests import byte_tokenizer
from tests.runs_for_tests import MAIN, REWARDS, lines, make_world, run, settings
from tether.config.errors import UserError

KL = {"kl": {"kind": "kl"}}


def every(n: int, unit: str = "update") -> dict[str, Any]:
    reset = {"kind": "every", "n": n, "unit": unit}
    return {"tethers": {"er": {"kind": "elastic_reset", "reset": reset}}}


def function(name: str) -> dict[str, Any]:
    return {"rewards": {"reward": {"kind": "function", "function": f"{REWARDS}:{name}"}}}


SUPERVISED = {"algorithm": None, "rewards": {"reward": None}}
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown set": (
        {"tethers": {"kl": {"kind": "kl", "reference": "emma"}}},
        r"tethers\.kl: nothing keeps a weight set 'emma'; add a tether that does",
    ),
    "two keepers": (
        {
            "tethers": {
                k: {"kind": "elastic_reset", "reset": {"kind": "every", "n": 2}} for k in ("a", "b")
            }
        },
        r"tethers\.b: tethers\.a already moves the weight set 'ema'",
    ),
    "reset in updates": (
        every(7),
        r"tethers\.er\.reset is due first after 7 updates, and the run ends after 6: it would "
        r"never happen; lower it \(--tethers\.er\.reset\.n\) or raise --updates",
    ),
    "reset in optimizer steps": (
        every(25, "minibatch"),
        r"tethers\.er\.reset is due first after 25 optimizer steps, and the run ends after 24",
    ),
    "reset in epochs": (every(13, "epoch"), r"due first after 13 epochs, .* ends after 12"),
    "kl with supervised": (
        {"tethers": KL},
        r"tethers\.kl acts on reward only, and the algorithm 'supervised' does not look there",
    ),
    "minimum length with supervised": (
        {"tethers": {"min": {"kind": "min_length", "tokens": 2}}},
        r"tethers\.min acts on sampling only, and the algorithm 'supervised' does not look there",
    ),
    "rewards nobody computes": (
        {"algorithm": {"writer": "data"}},
        r"algorithm\.writer is data, but 'ppo' learns from rewards",
    ),
    "no reward": ({"rewards": {"reward": None}}, r"rewards: the algorithm 'ppo' needs at least"),
    "prompt too long": (
        {"data": {"max_prompt_tokens": 8}},
        r"data: the prompt of row \d+ has \d+ tokens, the limit is 8; set data\.too_long",
    ),
    "no room for a prompt": (
        {"sampling": {"max_new_tokens": 64}},
        r"sampling\.max_new_tokens 64 leaves no room for a prompt in the model's 64 positions",
    ),
    "no file": ({"data": {"path": "nowhere.jsonl"}}, r"nowhere\.jsonl"),
    "missing column": (
        {"data": {"prompt": "promt"}},
        r"no column 'promt' in the split 'train' .* did you mean 'prompt'\?",
    ),
    "reward's column": (
        {"rewards": {"reward": {"kind": "function", "function": "tests.unit.train.bad:wants"}}},
        r"cannot|no module|needs the column",
    ),
    "all rows held out": (
        {"data": {"validation_rows": 16}},
        r"16 rows are to be held out but .* has 16; lower data\.validation_rows",
    ),
    "no validation": ({"data": {"validation_rows": 0}}, r"there are no validation prompts; name"),
    "no test split": (
        {"evaluation": {"test_prompts": 4}},
        r"evaluation\.test_prompts is 4 but there is no test split; name data\.test",
    ),
    "no model": ({"model": {"path": "./nowhere"}}, r"model\.path: there is no folder '\./nowhere'"),
    "no wandb": ({"logging": {"wandb": "x"}}, r"logging\.wandb needs the package wandb: pip"),
    "controller of an exact KL loss with supervised": (
        {
            "tethers": {
                "kl": {"kind": "kl_loss", "estimator": "exact", "controller": {"kind": "rl4lms"}}
            }
        },
        r"tethers\.kl\.controller follows the KL along the policy's own samples",
    ),
    "controller where the initial model writes": (
        {
            "algorithm": {"kind": "filtered_supervised", "lr": 1e-3},
            "tethers": {"kl": {"kind": "kl", "controller": {"kind": "rl4lms"}}},
        },
        r"'filtered_supervised' initial writes: the coefficient would never change",
    ),
    "rehearsal longer than the model": (
        {
            "tethers": {
                "r": {
                    "kind": "rehearsal",
                    "tokens": 64,
                    "data": {"path": "PROMPTS", "reference": "reference"},
                }
            }
        },
        r"tethers\.r\.tokens 64 leaves no room for a prompt in the model's 64 positions; use",
    ),
    "the second of two triggers": (
        {
            "tethers": {
                "er": {
                    "kind": "elastic_reset",
                    "reset": {
                        "kind": "any_of",
                        "triggers": [
                            {"kind": "every", "n": 2},
                            {"kind": "every", "n": 90, "unit": "minibatch"},
                        ],
                    },
                }
            }
        },
        r"tethers\.er\.reset\.triggers\.1 is due first after 90 optimizer steps",
    ),
    "replay in one update": (
        {"updates": 1, "evaluation": {"every": 1}, "tethers": {"r": {"kind": "replay"}}},
        r"tethers\.r uses what earlier updates wrote, and this run has one update",
    ),
    "a critic to clear without a critic": (
        {
            "algorithm": {"kind": "rloo", "group_size": 2, "lr": 1e-3},
            "tethers": {"er": {"kind": "elastic_reset", "critic": "clear", "reset": {"n": 2}}},
        },
        r"tethers\.er\.critic is clear, and the algorithm 'rloo' has no critic",
    ),
    "controllers to clear without a controller": (
        {"tethers": {"r": {"kind": "reset_to_init", "controllers": "clear", "reset": {"n": 2}}}},
        r"tethers\.r\.controllers: no tether has a controller",
    ),
    "a memory to clear without events": (
        {"tethers": {"r": {"kind": "replay", "at_event": "clear"}}},
        r"tethers\.r\.at_event: no tether moves the policy's weights",
    ),
    "a minimum longer than the longest": (
        {"tethers": {"m": {"kind": "min_length", "tokens": 50}}},
        r"tethers\.m\.tokens is 50, more than sampling\.max_new_tokens",
    ),
    "a floor of the whole vocabulary": (
        {"tethers": {"m": {"kind": "nlpo_mask", "mask": "initial", "floor": 259}}},
        r"tethers\.m\.nlpo_mask\.floor 259 would allow every token: the vocabulary has 258",
    ),
    "a mask of the whole vocabulary": (
        {"tethers": {"m": {"kind": "nlpo_mask", "mask": "initial", "top_k": 300}}},
        r"tethers\.m\.nlpo_mask\.top_k 300 would allow every token",
    ),
    "top-k of the whole vocabulary": (
        {"sampling": {"top_k": 259}},
        r"^sampling\.top_k 259 would allow every token: the vocabulary has 259; lower it, or",
    ),
    "top-k of the whole vocabulary in evaluation": (
        {"evaluation": {"sampling": {"top_k": 400}}},
        r"^evaluation\.sampling\.top_k 400 would allow every token",
    ),
    "controller without a coefficient": (
        {"tethers": {"kl": {"kind": "kl", "coef": 0.0, "controller": {"kind": "ziegler"}}}},
        r"kl\.coef is 0: a controller multiplies it",
    ),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("refuse"), layers=1)


def refused(chosen: Any, message: str) -> str:
    """Refused with one line, and nothing was written."""
    with pytest.raises(UserError, match=message) as caught:
        run(chosen)
    assert "\n" not in str(caught.value)
    assert not (Path(chosen.root) / chosen.name).exists()
    return str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_refused_at_start(world: Path, name: str, monkeypatch: Any) -> None:
    change, message = CASES[name]
    if "wandb" in name:
        import importlib.util

        if importlib.util.find_spec("wandb") is not None:
            pytest.skip("wandb is installed")
    if "supervised" in name:
        change = {**change, "algorithm": {"kind": "supervised"}, "rewards": {"reward": None}}
        chosen = _supervised(world, change)
    else:
        text = json.dumps(change).replace("PROMPTS", str(world / "prompts.jsonl"))
        chosen = _whole(world, json.loads(text))
    refused(chosen, message)


def _whole(world: Path, change: dict[str, Any]) -> Any:
    """Another algorithm does not keep PPO's settings."""
    from tests.runs_for_tests import mapping
    from tether.config.settings import parse

    found = mapping(world, change, name="refused")
    if change.get("algorithm", {}).get("kind"):
        found["algorithm"] = change["algorithm"]
    return parse(found, "a test")


def _supervised(world: Path, change: dict[str, Any]) -> Any:
    from tests.runs_for_tests import mapping
    from tether.config.settings import parse

    whole = mapping(world, change, name="refused")
    whole["algorithm"] = {"kind": "supervised", "lr": 1e-3}
    return parse(whole, "a test")


def test_a_reset_on_the_last_step_is_accepted(world: Path) -> None:
    for n, unit in ((6, "update"), (24, "minibatch"), (12, "epoch")):
        folder = run(settings(world, every(n, unit), name=f"last-{unit}"))
        assert [x["update"] for x in lines(folder) if x["kind"] == "event"] == [6]


def test_a_batch_that_does_not_divide(world: Path, monkeypatch: Any) -> None:
    with pytest.raises(UserError, match=r"nearest batch\.prompts: 4 or 6"):
        settings(world, batch={"prompts": 5})
    monkeypatch.setattr("tether.train.build.world_size", lambda: 3)
    chosen = settings(world, name="refused", batch={"prompts": 4})
    refused(chosen, "batch.prompts 4 does not divide over 3 processes; use 3")


def test_an_empty_dataset(world: Path, tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_text("")
    refused(settings(world, data={"path": str(file)}, name="refused"), "has no rows|is empty")


def test_a_tokenizer_without_eos(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    byte_tokenizer(eos=False).save_pretrained(world / "model")
    refused(settings(world, name="refused"), "has no EOS token, so no completion could end")


def test_a_tokenizer_without_pad_trains(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    byte_tokenizer(pad=False).save_pretrained(world / "model")
    assert lines(run(settings(world, MAIN, updates=3)))[-1]["kind"] == "end"


def test_a_reward_that_needs_a_missing_column(world: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def wants(completions, refrence, **_):\n    return [0.0] * 4\n")
    part = {"rewards": {"reward": {"function": f"{file}:wants"}}}
    refused(settings(world, part, name="refused"),
            "needs the column 'refrence'; did you mean 'reference'")  # fmt: skip


def test_a_wrong_count_is_one_line(world: Path) -> None:
    with pytest.raises(UserError, match="returned 3 values for 4 samples") as caught:
        run(settings(world, function("one_too_few"), name="count"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", ["file", "other files", "complete", "unfinished", "another"])
def test_a_path_that_exists(world: Path, what: str) -> None:
    chosen = settings(world, name=f"taken-{what.replace(' ', '-')}", updates=1)
    folder = Path(chosen.root) / chosen.name
    folder.parent.mkdir(exist_ok=True)
    if what == "file":
        folder.write_text("mine")
    elif what == "other files":
        folder.mkdir()
        (folder / "thesis.tex").write_text("mine")
    elif what == "unfinished":
        _stop_early(settings(world, name=folder.name, updates=1))
    elif what == "complete":
        run(chosen)
    else:
        run(settings(world, name=folder.name, updates=1, seed=1))
    before = _contents(folder)
    words = {
        "file": "is a file; choose another name",
        "other files": "holds files that are no run; choose another name",
        "complete": "already holds this run; to go on: tether resume",
        "unfinished": "already holds this run; to go on: tether resume",
        "another": "holds another run; choose another name",
    }
    with pytest.raises(UserError, match=words[what]):
        run(chosen)
    assert _contents(folder) == before


def _stop_early(chosen: Any) -> None:
    def progress(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(chosen, progress=progress)


def _contents(folder: Path) -> Any:
    if folder.is_file():
        return folder.read_bytes()
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_empty_folder_is_free(world: Path) -> None:
    chosen = settings(world, name="free", updates=1)
    (Path(chosen.root) / "free").mkdir(parents=True)
    assert lines(run(chosen))[-1]["kind"] == "end"


def test_only_the_first_rank_asks_whether_the_folder_is_free(world: Path, monkeypatch: Any) -> None:
    """Rank 1 may come when rank 0 has made the folder already."""
    from tether.train import run as module

    asked: list[Any] = []
    monkeypatch.setattr(module, "refuse_taken", asked.append)
    monkeypatch.setenv("RANK", "1")
    run(settings(world, name="rank1", updates=1))
    assert asked == []


def test_a_failed_start_is_resumable(world: Path, tmp_path: Path) -> None:
    """A reward that raises in the first evaluation, then is repaired."""
    from tether.train.run import resume

    file = tmp_path / "mine.py"
    lines_of_file = (
        "import pathlib",
        "def f(completions, **_):",
        "    healed = pathlib.Path(__file__).with_name('healed').exists()",
        "    return [len(x) / healed for x in completions]",
    )
    file.write_text("\n".join(lines_of_file))
    part = {"rewards": {"reward": {"function": f"{file}:f"}}}
    with pytest.raises(UserError, match="raised ZeroDivisionError"):
        run(settings(world, part, name="broken", updates=2))
    (tmp_path / "healed").touch()
    rows = lines(resume(world / "runs" / "broken", say=lambda _: None))
    assert [x["kind"] for x in rows].count("start") == 1 and rows[-1]["kind"] == "end"


def test_samples_of_a_constrained_policy_are_two_points(world: Path) -> None:
    """Reports read the exported one; the constrained one stands beside it, with its own k1."""
    from tether.reports.runs import read_run

    change = {"tethers": {"min": {"kind": "min_length", "tokens": 3}}}
    folder = run(settings(world, change, name="min", updates=2))
    points = [x for x in lines(folder) if x["kind"] == "eval"]
    assert [x["policy"] for x in points] == ["exported", "constrained"] * 2
    assert "drift/kl_initial.exact_nats_per_seq" in points[-2]["drift"]
    assert "drift/kl_initial.k1_nats_per_seq" in points[-1]["drift"]
    assert points[-1]["metrics"]["text/length_tokens"] >= 3
    assert [p.policy for p in read_run(folder).validation()] == ["exported"] * 2
    rows = [json.loads(x) for x in (folder / "samples.jsonl").read_text().splitlines()]
    assert {x["policy"] for x in rows} == {"exported", "constrained"}


def test_the_critics_minibatches_divide_too(world: Path) -> None:
    with pytest.raises(UserError, match=r"4 sequences.* do not divide into 3 critic_minibatches"):
        _whole(world, {"algorithm": {"kind": "trpo", "critic_minibatches": 3}})


@pytest.mark.parametrize("where", ["sampling", "evaluation.sampling"])
def test_a_top_p_that_is_1_in_fp32(world: Path, where: str) -> None:
    part: dict[str, Any] = {"sampling": {"top_p": 1 - 2e-8}}
    with pytest.raises(UserError, match=rf"^{where}\.top_p .* is 1 in fp32 and would allow every"):
        _whole(world, {"evaluation": part} if where.startswith("evaluation") else part)
