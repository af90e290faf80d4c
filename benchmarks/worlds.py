"""Models of a real shape with random weights, prompts of 32 tokens that all differ, a reward that
costs nothing; and whole updates of the library's own loop, one at a time, with their seconds.

    World(folder, "smollm2").settings(ppo(), engine)     # settings of a run
    Updates(settings).one()                              # seconds of one more update, by phase
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.measuring import synchronise

PROMPT, NEW = 32, 64
ROWS = 1024
"""Prompts of the data; a step draws them without repetition."""
SHAPES: dict[str, dict[str, Any]] = {
    "smollm2": {
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "max_position_embeddings": 8192, "tie_word_embeddings": True, "rope_theta": 100000.0,
    },
    "gpt2": {"model_type": "gpt2", "vocab_size": 50257},
    "tiny": {
        "model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 256, "tie_word_embeddings": True,
    },
}  # fmt: skip
"""SmolLM2-135M and GPT-2 124M; `tiny` shows that a program runs."""
REWARD = "benchmarks.worlds:even_share"
QUICK: dict[str, Any] = {
    "model": {"compile": True, "capture": True},
    "batch": {"old_logprobs": "sampled"},
    "evaluation": {"drift_every": 0},
}
"""What a run on a GPU is told for speed: compiled layers, recorded passes, and no scoring pass that
only measures."""
PHASES = ("rollout", "scoring", "reward_wait", "learning")
"""As in a run's timing.jsonl; `rest` is what lies between."""


def even_share(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    """Share of even token ids: a reward with spread that takes no time."""
    return [sum(t % 2 == 0 for t in x) / max(1, len(x)) for x in completion_ids]


def ppo(completions: int = 64, epochs: int = 4, minibatches: int = 4) -> dict[str, Any]:
    """With a critic of its own trunk."""
    algorithm = {"kind": "ppo", "lr": 1e-6, "epochs": epochs, "minibatches": minibatches}
    micro = completions // minibatches
    return {"algorithm": algorithm, "batch": {"prompts": completions, "microbatch": micro}}


def grpo(completions: int = 256, group: int = 8, microbatch: int = 64) -> dict[str, Any]:
    """One epoch, one optimizer step."""
    algorithm = {"kind": "grpo", "lr": 1e-6, "epochs": 1, "minibatches": 1, "group_size": group}
    return {
        "algorithm": algorithm,
        "batch": {"prompts": completions // group, "microbatch": microbatch},
    }


class World:
    """A folder with a model's configuration and tokenizer, and prompts."""

    def __init__(self, folder: Path, shape: str, *, tokenizer: Path | None = None) -> None:
        """tokenizer: folder of one; default: a word for each id of the vocabulary."""
        import transformers

        self.folder, self.shape = folder, shape
        self.new = 8 if shape == "tiny" else NEW
        self.model = folder / "model"
        ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
        if tokenizer is not None:
            words = transformers.AutoTokenizer.from_pretrained(str(tokenizer))
            ends = dict.fromkeys(ends, words.eos_token_id)
            words.pad_token = words.pad_token or words.eos_token
        else:
            words = word_tokenizer(SHAPES[shape]["vocab_size"])
        chosen = {k: v for k, v in SHAPES[shape].items() if k != "model_type"}
        chosen["vocab_size"] = max(chosen["vocab_size"], len(words))
        config = transformers.AutoConfig.for_model(SHAPES[shape]["model_type"], **chosen, **ends)
        config.save_pretrained(self.model)
        words.save_pretrained(self.model)
        self.data = folder / "prompts.jsonl"
        with open(self.data, "w", encoding="utf-8") as f:
            for prompt, reference in texts(words, ROWS, self.new):
                f.write(json.dumps({"prompt": prompt, "reference": reference}) + "\n")

    def settings(self, *layers: Mapping[str, Any], overrides: Sequence[str] = ()) -> Any:
        """`RunSettings`; later layers win, overrides (`--a.b.c VALUE`) over all."""
        import torch

        from tether.config.compose import compose
        from tether.config.layers import merge

        gpu = torch.cuda.is_available()
        if self.shape == "tiny":
            torch.set_num_threads(1)
        base = {
            "name": "benchmark",
            "root": str(self.folder / "runs"),
            "updates": 100_000,
            "model": {
                "path": str(self.model),
                "random_weights": True,
                "device": "cuda" if gpu else "cpu",
                "dtype": "bfloat16" if gpu else "float32",
            },
            "data": {"path": str(self.data), "validation_rows": 8},
            "rewards": {"reward": {"kind": "function", "function": REWARD}},
            "sampling": {"max_new_tokens": self.new},
            "evaluation": {"prompts": 8, "human_rows": 0, "samples": 0},
        }
        if gpu:
            base = merge(base, QUICK)
        return compose(values=merge(base, *layers), overrides=overrides)


def engine(kind: str, **options: Any) -> dict[str, Any]:
    """Of a step. Without CUDA `graph` writes the same steps uncompiled."""
    import torch

    if kind == "graph" and not torch.cuda.is_available():
        options = {"capture": False}
    return {"engine": {"kind": kind, **options}}


def word_tokenizer(vocabulary: int) -> Any:
    """`w17 w4` is ids 17 and 4; 0 ends."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = {"<end>": 0} | {f"w{i}": i for i in range(1, vocabulary)}
    inner = Tokenizer(models.WordLevel(names, unk_token="w1"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=inner, eos_token="<end>", pad_token="<end>")


def texts(tokenizer: Any, rows: int, new: int) -> list[tuple[str, str]]:
    """Prompts of PROMPT tokens and references of `new` tokens: words that are one token each
    wherever they stand. Raises ValueError where the tokenizer has too few."""
    single = [w for w in _words(tokenizer) if len(_ids(tokenizer, f"{w} {w} {w}")) == 3]
    if len(single) < 100:
        raise ValueError(f"the tokenizer has {len(single)} words of one token; 100 are needed")
    rng = random.Random(0)
    out: list[tuple[str, str]] = []
    while len(out) < rows:
        prompt, reference = (" ".join(rng.choices(single, k=n)) for n in (PROMPT, new))
        if len(_ids(tokenizer, prompt)) == PROMPT:
            out.append((prompt, reference))
    return out


def _words(tokenizer: Any) -> list[str]:
    ids = [i for i in range(len(tokenizer)) if i not in tokenizer.all_special_ids]
    words = [tokenizer.decode([i]).strip() for i in ids[:5000]]
    return sorted({w for w in words if w.isalnum() and w.isascii()})


def _ids(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return found


@dataclass(frozen=True)
class Seconds:
    """Of one update."""

    whole: float
    phases: Mapping[str, float]
    tokens: float
    """Mean length of a completion."""

    def __getitem__(self, name: str) -> float:
        if name == "whole":
            return self.whole
        if name == "rest":
            return self.whole - sum(self.phases.values())
        return self.phases[name]


class Updates:
    """Updates of the library's loop, one at a time, without evaluations and checkpoints."""

    def __init__(self, settings: Any, agent: Any = None) -> None:
        """agent: default: a new one; else the loop works on what that agent holds."""
        from tether.train.build import build_agent, build_parts, check_data
        from tether.train.files import RunFiles
        from tether.train.loop import Run

        class Quiet(Run):
            def _evaluate(self, side: str = "", *, common: bool) -> None:
                pass

        self.settings = settings
        if agent is None:
            parts = build_parts(settings)
            check_data(settings, parts)
            agent = build_agent(settings, parts)
        self.agent = agent
        folder = Path(settings.root) / f"{settings.name}-{id(self)}"
        self.run = Quiet([agent], folder, settings, "benchmark")
        assert isinstance(self.run.files, RunFiles)
        self.pool = ThreadPoolExecutor(1)
        _scoring_ends_with_the_device()

    def one(self) -> Seconds:
        """One more update, from the draw of the prompts to its last tick."""
        from tether.train.seeding import seed_user_code

        synchronise()
        start = time.perf_counter()
        seed_user_code(self.settings.seed, self.run.update + 1)
        self.run._learn(self.pool)
        self.run._after_update()
        synchronise()
        whole = time.perf_counter() - start
        last = (self.run.folder / "timing.jsonl").read_text(encoding="utf-8").splitlines()[-1]
        seconds = json.loads(last)["seconds"]
        length = self.agent.measured["rollout/length_tokens.mean"][0]
        return Seconds(whole, {k: seconds[k] for k in PHASES}, length)

    def by_default(self) -> None:
        """A run that is told nothing: the speed settings at their defaults, engine `hf`."""
        from tether.config.parts import build as build_part

        agent = self.agent
        for lm in (agent.lm, *(agent.critic._lm if agent.critic is not None else ())):
            lm.compile = lm.capture = False
        agent.old_logprobs = "scored"
        agent.evaluation = replace(agent.evaluation, drift_every=1)
        agent.engine = build_part("engine", {"kind": "hf"}, "engine")

    def several(self, n: int) -> list[Seconds]:
        return [self.one() for _ in range(n)]

    def with_tethers(
        self, tethers: Mapping[str, Any], places: Mapping[str, str] | None = None
    ) -> Updates:
        """The same model, critic, weights, optimizer and recorded rollouts under other tethers.
        places: weight set -> device, where it is not the policy's."""
        from tether.config.settings import dump, parse
        from tether.train.build import _declare, build_parts, check_data
        from tether.train.own_texts import load_own_texts
        from tether.types import Measured

        settings: Any = parse(dump(self.settings) | {"tethers": dict(tethers)}, "a benchmark")
        parts = build_parts(settings)
        check_data(settings, parts)
        sets = _own_names(self.agent.sets)
        for name, device in (places or {}).items():
            sets.declare(name, device=device)
        _declare(sets, parts.tethers)
        for t in parts.tethers.values():
            t.meet(self.agent.lm.stops)
        agent = replace(
            self.agent,
            tethers=parts.tethers,
            sets=sets,
            measured=Measured(),
            draws=load_own_texts(self.agent.lm, parts.tethers, settings.data, settings.seed),
            version=1,  # at 0 the loop checks that nothing has trained yet
        )
        return Updates(settings, agent)

    @cached_property
    def sizes(self) -> Any:
        from benchmarks.ceilings import sizes_of

        return sizes_of(self.agent.lm)


def _own_names(sets: Any) -> Any:
    """A second collection of the same tensors: what is declared in it, the first one lacks."""
    from tether.models.overlap import Overlap

    out = copy.copy(sets)
    for name in ("_sets", "working", "residents", "buffers", "counts", "_rounded", "_pairs"):
        setattr(out, name, copy.copy(getattr(sets, name)))
    out._overlap = Overlap()
    return out


def _scoring_ends_with_the_device() -> None:
    """The loop's clock is the host's, and scoring only launches; the loop waits for the device
    right after it, in a check. Here the wait is before the clock is read."""
    from tether.train import collect

    if hasattr(collect._scores, "plain"):
        return
    plain = collect._scores

    def waiting(*args: Any) -> Any:
        found = plain(*args)
        synchronise()
        return found

    waiting.plain = plain  # type: ignore[attr-defined]
    collect._scores = waiting  # type: ignore[assignment]
