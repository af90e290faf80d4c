"""The processes of `benchmarks.vs_trl`: one trainer each, which takes one step whenever it is told.

A step is everything from one end of a step to the next, data and log lines included, up to the end
of the device's work. TRL's trainers run their own `train()`; a callback holds it between steps.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.measuring import say, synchronise
from benchmarks.workers import Parent
from benchmarks.worlds import NEW, even_share

WARM_UP = 3
TINY = {"completions": 8, "group": 4, "minibatches": 2, "epochs": 2, "new": 8}
SIZES = {
    "grpo": {"completions": 256, "group": 8, "minibatches": 4, "epochs": 1, "new": NEW},
    "ppo": {"completions": 64, "group": 1, "minibatches": 4, "epochs": 4, "new": NEW},
}
"""minibatches: of PPO optimizer steps an epoch; of GRPO pieces of the one optimizer step."""


class Held:
    """Steps on command: `ended` after each, which reports it and waits for the next `go`."""

    def __init__(self, parent: Parent, **about: Any) -> None:
        import torch

        self.parent, self.about, self.done = parent, about, 0
        self.gpu = torch.cuda.is_available()
        self.start = time.perf_counter()

    def ended(self, tokens: float | None) -> None:
        """tokens: mean length of a completion, where the trainer says it."""
        import torch

        synchronise()
        seconds = time.perf_counter() - self.start
        self.done += 1
        say(f"{self.about['who']}: step {self.done} in {seconds:.2f} s")
        if self.done == WARM_UP:
            if self.gpu:
                torch.cuda.reset_peak_memory_stats()
            self.parent.tell(ready=True, **self.about)
        elif self.done > WARM_UP:
            peak = torch.cuda.max_memory_allocated() / 2**30 if self.gpu else None
            self.parent.tell(seconds=seconds, peak_gib=peak, tokens=tokens)
        if self.done >= WARM_UP and self.parent.hear() != "go":
            os._exit(0)  # a trainer in the middle of its run has no other way out
        self.start = time.perf_counter()


def ours(algorithm: str, folder: Path, tiny: bool, settings: list[str], parent: Parent) -> None:
    """tether's loop, engine `graph`."""
    from benchmarks.worlds import Updates, engine, grpo, ppo
    from tether.config.compose import compose
    from tether.config.layers import merge

    z = TINY if tiny else SIZES[algorithm]
    if algorithm == "grpo":
        method = grpo(z["completions"], z["group"], z["completions"] // z["minibatches"])
    else:
        method = ppo(z["completions"], z["epochs"], z["minibatches"])
    base = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    updates = Updates(compose(values=merge(base, method, engine("graph")), overrides=settings))
    held = Held(parent, who=f"tether {algorithm}")
    while True:
        held.ended(updates.one().tokens)


def theirs(side: str, folder: Path, tiny: bool, parent: Parent) -> None:
    """side: grpo-hf, grpo-continuous or ppo."""
    from importlib.metadata import version

    import torch
    import transformers

    gpu = torch.cuda.is_available()
    algorithm = side.split("-")[0]
    z = TINY if tiny else SIZES[algorithm]
    held = Held(parent, who=f"TRL {version('trl')} {side}", version=version("trl"))

    class Hold(transformers.TrainerCallback):
        tokens: float | None = None

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            self.tokens = (logs or {}).get("completions/mean_length", self.tokens)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            held.ended(self.tokens)

    words = transformers.AutoTokenizer.from_pretrained(folder / "model")
    lines = (folder / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(x)["prompt"] for x in lines]
    common: dict[str, Any] = {
        "output_dir": str(folder / side), "report_to": "none", "save_strategy": "no",
        "disable_tqdm": True, "learning_rate": 1e-6, "lr_scheduler_type": "constant",
        "bf16": gpu, "use_cpu": not gpu, "gradient_checkpointing": False, "temperature": 1.0,
        "logging_steps": 1, "seed": 0,
    }  # fmt: skip
    build = {"grpo": _grpo, "ppo": _ppo}[algorithm]
    build(Trl(side, str(folder / "model"), z, common, words, prompts, Hold())).train()


@dataclass(frozen=True)
class Trl:
    """What both of TRL's trainers are made of."""

    side: str
    model: str
    """Folder of the weights."""
    sizes: dict[str, int]
    common: dict[str, Any]
    """Settings that both know."""
    tokenizer: Any
    prompts: list[str]
    hold: Any
    """Callback that reports a step and waits."""


def _grpo(t: Trl) -> Any:
    import trl as module
    from datasets import Dataset

    trl: Any = module

    micro = t.sizes["completions"] // t.sizes["minibatches"]
    more: dict[str, Any] = {}
    if t.side == "grpo-continuous":
        # TRL's default of half of the card would leave the processes beside it too little.
        more = {
            "use_transformers_continuous_batching": True,
            "transformers_continuous_batching_config": {"max_memory_percent": 0.2},
        }
    config = trl.GRPOConfig(
        **t.common, **more, per_device_train_batch_size=micro,
        gradient_accumulation_steps=t.sizes["minibatches"], num_generations=t.sizes["group"],
        max_completion_length=t.sizes["new"], loss_type="grpo", max_steps=1_000_000,
    )  # fmt: skip
    trainer: Any = trl.GRPOTrainer
    return trainer(
        t.model, reward_funcs=even_share, args=config, processing_class=t.tokenizer,
        train_dataset=Dataset.from_dict({"prompt": t.prompts}), callbacks=[t.hold],
    )  # fmt: skip


def _ppo(t: Trl) -> Any:
    import torch
    import transformers
    from datasets import Dataset
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    z = t.sizes
    config = PPOConfig(
        **t.common, per_device_train_batch_size=z["completions"], gradient_accumulation_steps=1,
        num_mini_batches=z["minibatches"], num_ppo_epochs=z["epochs"], response_length=z["new"],
        stop_token="eos", num_sample_generations=0, total_episodes=1_000_000 * z["completions"],
    )  # fmt: skip
    causal, scorer = (
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForSequenceClassification,
    )
    ids = [t.tokenizer(p, add_special_tokens=False)["input_ids"] for p in t.prompts]
    # With transformers 5 its `bf16` reaches no forward pass but where `accelerate launch` says so,
    # and then neither generation nor scoring: weights in bf16 are its way to bf16 throughout.
    dtype = torch.bfloat16 if t.common["bf16"] else torch.float32
    return PPOTrainer(
        args=config, processing_class=t.tokenizer,
        model=causal.from_pretrained(t.model, dtype=dtype),
        ref_model=causal.from_pretrained(t.model, dtype=dtype),
        value_model=scorer.from_pretrained(t.model, num_labels=1, dtype=dtype),
        reward_model=even_last(), train_dataset=Dataset.from_dict({"input_ids": ids}),
        callbacks=[t.hold],
    )  # fmt: skip


def even_last() -> Any:
    """What TRL's PPO takes for a reward model, without the cost of one: 1 for an even last id."""
    from torch import nn

    class Backbone(nn.Module):
        def forward(self, input_ids: Any, **_: Any) -> Any:
            return SimpleNamespace(hidden_states=[(input_ids % 2 == 0).float()[..., None]])

    class Even(nn.Module):
        base_model_prefix = "backbone"

        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.score = Backbone(), nn.Identity()

    return Even()
