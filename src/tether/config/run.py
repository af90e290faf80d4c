"""The settings of a run, without torch: what `tether train` reads, dumps and documents.

One place for each default: here for the house, in the class for an algorithm, tether, reward or
engine. A `Part` is a mapping with `kind` (a catalog name or `file.py:Class`) and that class's
settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

Part = dict[str, Any]
"""{kind: name | file.py:Class | module:Class, **settings of that class}"""


@dataclass(frozen=True)
class Family:
    """Marks a `Part` with the family of the catalog that its `kind` is looked up in."""

    name: str


AlgorithmPart = Annotated[Part, Family("algorithm")]
TetherPart = Annotated[Part, Family("tether")]
RewardPart = Annotated[Part, Family("reward")]
EnvironmentPart = Annotated[Part, Family("environment")]
EnginePart = Annotated[Part, Family("engine")]
TaskPart = Annotated[Part, Family("task")]


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    rank: int = 16
    """Rank of the update BA."""
    alpha: float = 32.0
    """Scale: the update is alpha / rank * BA."""
    targets: Literal["all-linear"] | list[str] = "all-linear"
    """Module names that get an adapter."""
    dtype: Literal["model", "float32"] = "model"
    """Of the adapter as it is computed with: the model's, or float32 beside a bfloat16 model, which
    is slower and rounds less; beside float16 it is float32. Masters are always fp32."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    path: str = ""
    """Hub id or local folder."""
    revision: str | None = None
    """Hub revision (branch, tag or commit)."""
    gguf_file: str | None = None
    """Name of a GGUF file inside `path`."""
    tokenizer: str | None = None
    """Hub id or folder of the tokenizer; default: `path`."""
    dtype: Literal["auto", "bfloat16", "float32", "float16"] = "auto"
    """Of the working weights; auto is bfloat16 where the device has it, else float32. Masters are
    always fp32."""
    device: str = "auto"
    """auto is the first accelerator, else cpu."""
    random_weights: bool = False
    """Start from random weights of the configuration in `path`."""
    adapter: str | None = None
    """Folder of a peft adapter merged into the weights at start (not trained further)."""
    lora: LoraSettings | None = None
    """Train an adapter instead of all weights."""
    dropout: bool = False
    """Leave the model's own dropout on in the update (never in scoring or sampling)."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""
    compile: bool = False
    """Compile the layers of policy, critic and copies of the policy for scoring and the update:
    less time on a GPU, some ten seconds more at the first pass of each kind."""
    capture: bool = False
    """Record passes over a microbatch as CUDA graphs, in scoring and in the update (decoder-only
    models, adapters too; refused where it cannot be done): small microbatches cost more launching
    than computing. A recorded shape keeps the memory of its activations and gradients."""
    copies: Literal["device", "cpu"] = "device"
    """Where weights that do not train (the initial ones, averages) are kept: beside the policy, or
    in pinned CPU memory, where an average is taken while completions are written."""
    trust_remote_code: bool = False
    """Passed to transformers."""


OF_REFERENCE = ("path", "revision", "gguf_file", "adapter", "trust_remote_code")
"""Of a model beside the policy: the settings that say what its weights are."""
Source = str | Mapping[str, Any]
"""Such a model: its path alone, or a mapping of these settings."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    path: str = ""
    """Hub id, folder, or a .jsonl, .jsonl.gz, .csv or .parquet file. With a task: default its hub
    id; `mini` is the small generated set that comes with it."""
    task: TaskPart | None = None
    """Task that builds prompts and references from the rows, and brings defaults for whatever the
    recipe leaves open: splits, reward, sampling, decoding in evaluation (`tether list tasks`)."""
    name: str | None = None
    """Configuration of a hub dataset."""
    revision: str | None = None
    """Hub revision."""
    split: str = "train"
    """Split that trains."""
    validation: str | None = None
    """Split or file of the validation prompts; default: `validation_rows` held out of `split`."""
    test: str | None = None
    """Split or file of the test prompts; default: `test_rows` held out of `split`."""
    validation_rows: int = 256
    """Rows held out where `validation` is absent."""
    test_rows: int = 0
    """Rows held out where `test` is absent; 0 = no test set."""
    prompt: str = "prompt"
    """Column of the prompts: text, or a list of chat messages."""
    reference: str | None = None
    """Column of the human completions (supervised training, human-text gauges)."""
    text: str | None = None
    """Column of whole texts instead of prompt and reference: the first `prompt_tokens` tokens are
    the prompt, what follows is the reference."""
    prompt_tokens: int = 64
    """With `text`: length of the prompt. Shorter texts are dropped and counted."""
    label: str | None = None
    """Column by whose values human-text gauges are split."""
    max_prompt_tokens: int | None = None
    """Default: what the model's positions leave beside `sampling.max_new_tokens`."""
    too_long: Literal["error", "drop", "truncate_left", "truncate_right"] = "error"
    """What happens to a prompt beyond the limit; dropped and cut rows are counted."""
    limit: int | None = None
    """Use the first rows only, after the seeded shuffle."""
    seed: int = 0
    """Of the shuffle before rows are held out: the same for every run of a study."""


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    max_new_tokens: int = 48
    """Horizon T of the token-level MDP."""
    min_new_tokens: int = 0
    """EOS is outside the allowed set before this many tokens (in scoring too)."""
    temperature: float = 1.0
    """Of sampling and of scoring alike (B06); > 0."""
    top_k: int = 0
    """0 = off."""
    top_p: float = 1.0
    """1 = off."""
    greedy: bool = False
    """Evaluation only."""
    stop: list[str] = field(default_factory=list)
    """Further stop tokens, as text of exactly one token each."""
    scored: Literal["sampled", "full"] = "sampled"
    """`sampled`: ratios use the distribution that sampled. `full`: temperature and vocabulary
    untouched, as RL4LMs and the Elastic Reset code score (ratios stay 1 at the first minibatch)."""
    chunk: int = 256
    """Sequences that are generated at once: memory, and which random numbers a sequence gets."""
    allowed_bytes: int = 4 * 2**30
    """Memory budget, in bytes for one rollout on one rank, of the allowed sets where a tether
    narrows the vocabulary: sequences * max_new_tokens * vocabulary / 8 as bits (77 MB for 256 * 48
    * 50,257). Beyond it they are found again in scoring from the mask policy, at one more forward
    pass each time. Sets that cannot be found again are stored whatever this says: top_k, top_p,
    rules on the policy's own logits or on a set that moves within an update, environments, and
    runs with a tether that remembers completions (replay)."""


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    every: int = 5
    """Updates between the common evaluation times; update 0 and the last are always evaluated."""
    prompts: int = 512
    """Validation prompts; the same and with the same sampling seeds at every evaluation."""
    test_prompts: int = 0
    """Test prompts at the end of the run, for the final weights and for the best validation
    checkpoint under each budget; 0 = none."""
    budgets: list[float] = field(default_factory=lambda: [1.0, 2.0, 4.0, 8.0, 16.0])
    """Drift budgets in nats per completion."""
    sampling: SamplingSettings | None = None
    """Default: as in training (B35)."""
    human_rows: int = 64
    """Human texts for perplexity and exact KL on human prefixes; 0 = none."""
    human_tokens: int = 128
    """Their length limit in tokens."""
    domains: dict[str, str] = field(default_factory=dict)
    """name -> text file (.txt, .txt.gz) or dataset file with a `text` column, of another domain."""
    drift_every: int = 1
    """Updates between measurements of KL to the initial model along the training completions, at
    one scoring pass each; 0 = in evaluations, and in the first update (its self-check). A trigger
    or tether that needs it has it at every update all the same."""
    samples: int = 8
    """Completions written to samples.jsonl at every evaluation."""
    test_samples: int | None = None
    """The same on test prompts; default: as `samples`."""
    seed: int = 0
    """Of evaluation sampling, apart from the run's seed."""


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    prompts: int = 64
    """Prompts an update, over all ranks; sequences = prompts * algorithm.group_size."""
    microbatch: int = 16
    """Sequences in one forward and backward pass; changes memory, not numbers."""
    old_logprobs: Literal["scored", "sampled"] = "scored"
    """The old policy's log-probs in ratios: of the scoring pass, or as the engine returned them,
    which saves the pass where nothing else needs it (no KL to another set at this update, no
    critic on the policy's trunk); they differ by the engine's rounding, and the first microbatch
    is scored to check that."""


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    kind: Literal["separate", "shared", "detached", "frozen"] = "separate"
    """separate: a trunk of its own started from the policy. shared: a head on the policy's trunk.
    detached: the same, but value gradients stop at the trunk. frozen: a head on the initial
    trunk."""
    start: str = "policy"
    """What a separate critic starts from: `policy`, or the folder or hub id of a reward model of
    the policy's architecture and vocabulary, whose trunk it takes, and whose score head where that
    has one label or two (then the last label's log-odds); with `policy` its first values are 0."""
    lr: float | None = None
    """Default: the algorithm's."""


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    """Over policy and critic apart; 0 = off."""
    schedule: Literal["constant", "linear"] = "constant"
    """linear falls to 0 over all optimizer steps of the run (B19)."""
    warmup_steps: int = 0
    """Optimizer steps of linear warm-up."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    every: int = 10
    """Updates between checkpoints; the last update always has one. 0 = only at the end."""
    keep: int = 2
    """Complete checkpoints that stay on disk."""
    export: bool = True
    """Write `policy/` (plain `save_pretrained`) at the end."""


How = Literal["linear", "product", "slerp", "slerp_global"]


@dataclass(frozen=True, kw_only=True)
class AfterSettings:
    """What is to be had without training, measured as the last step of a run: the baselines that
    every method has to beat. The first two depend on the initial model alone: in a study one run is
    enough, also later (`tether baselines RUN`). Results are `baseline` lines of the record."""

    best_of_n: bool = False
    """Best-of-n, n = 1, 2, 4 ... 64, of the initial model."""
    oracle: bool = False
    """The oracle frontier: samples of the initial model re-weighted by exp(reward / lambda)."""
    interpolate: bool = False
    """Weights between the initial and the final ones."""
    samples: int = 256
    """Completions a prompt that best-of-n and the oracle share; the oracle is valid to
    log(samples) - 1 nats (evaluation protocol, section 3: 256)."""
    prompts: int | None = None
    """Prompts of both; default: as many as the evaluation has. All of them get `samples`
    completions."""
    shares: list[float] = field(default_factory=lambda: [0.0, 0.25, 0.5, 0.75, 1.0])
    """Shares of the way from the initial (0) to the final weights (1); each is one evaluation."""
    how: list[How] = field(default_factory=lambda: ["linear"])
    """linear: every tensor that trains (of an adapter A and B apart: the product is then not
    linear). product: an adapter's product BA. slerp: on the sphere, whole weights, an angle for
    each tensor; slerp_global: one angle for all."""
    split: Literal["validation", "test"] = "validation"
    """Prompts on which all of it is measured."""


@dataclass(frozen=True, kw_only=True)
class LoggingSettings:
    tensorboard: bool = False
    wandb: str | None = None
    """Project name; None = off. A tracker's failure is a warning, never the run's (B42)."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """A policy run. `tether train` dumps it, resolved, as config.yaml."""

    job: Literal["policy"] = "policy"
    name: str = "run"
    """Folder name under `root`."""
    root: str = "runs"
    """Folder of all runs."""
    method: str = ""
    """Name in tables and plots; default: the algorithm and its tethers."""
    seed: int = 0
    updates: int = 40
    """Rollout + optimise cycles; 0 = the model is evaluated as it is."""
    threads: int | None = None
    """Torch threads of this process; default: torch's own choice."""
    model: ModelSettings = field(default_factory=ModelSettings)
    data: DataSettings = field(default_factory=DataSettings)
    rewards: dict[str, RewardPart] = field(default_factory=dict)
    """name -> reward; several are weighted, added, and logged apart."""
    judges: dict[str, RewardPart] = field(default_factory=dict)
    """name -> a reward function that scores every evaluation and is never a reward."""
    environment: EnvironmentPart = field(default_factory=lambda: {"kind": "single_turn"})
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    engine: EnginePart = field(default_factory=lambda: {"kind": "hf"})
    batch: BatchSettings = field(default_factory=BatchSettings)
    algorithm: AlgorithmPart = field(default_factory=lambda: {"kind": "ppo"})
    critic: CriticSettings = field(default_factory=CriticSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    tethers: dict[str, TetherPart] = field(default_factory=dict)
    """name -> tether; the name is used in overrides, metrics and the checkpoint."""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    after: AfterSettings = field(default_factory=AfterSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)


@dataclass(frozen=True, kw_only=True)
class PairSettings:
    """Columns of preference pairs: two completions of a prompt, one of them chosen."""

    prompt: str | None = "prompt"
    """Column of the prompts: text or chat messages. null: `chosen` and `rejected` are whole texts,
    and what both begin with is the prompt."""
    chosen: str = "chosen"
    """Column of the completions that were preferred: text or chat messages."""
    rejected: str = "rejected"
    """Column of the others."""
    margin: str | None = None
    """Column of numbers: by how much the chosen one should win."""
    too_long: Literal["error", "drop", "cut"] = "error"
    """What happens to a pair with a completion of more than `max_tokens`; dropped and cut pairs are
    counted. A prompt that is too long always loses its beginning, and is counted."""


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """A learned reward: classes of texts or one score from pairs, on a language model's
    backbone."""

    job: Literal["classifier"] = "classifier"
    name: str = "classifier"
    root: str = "runs"
    seed: int = 0
    threads: int | None = None
    model: ModelSettings = field(default_factory=ModelSettings)
    data: DataSettings = field(default_factory=lambda: DataSettings(text="text", label="label"))
    kind: Literal["model", "pairs", "tfidf"] = "model"
    """model: a head with a class for each label, on the backbone. pairs: a head with one score,
    from preferences (Bradley-Terry). tfidf: a bag-of-words judge (no backbone) for evaluation."""
    pairs: PairSettings = field(default_factory=PairSettings)
    """Columns, for kind pairs; data.text, data.prompt and data.label are then not read."""
    half: Literal["all", "first", "second"] = "all"
    """Which half of the shuffled training labels: keep one for a judge."""
    share: float = 1.0
    """Share of the training labels (of that half) that is used; a smaller share is a part of a
    larger one."""
    start_seed: int | None = None
    """Of the new head and adapter; default: `seed`. Runs whose weights are averaged share it."""
    epochs: int = 1
    lr: float = 1e-4
    batch_size: int = 32
    """Texts (or pairs) in one optimizer step."""
    microbatch: int | None = None
    """Texts (or pairs) in one forward and backward pass; default: all of the step. Changes memory,
    not numbers."""
    warmup_ratio: float = 0.05
    weight_decay: float = 0.01
    crop_tokens: tuple[int, int] = (32, 256)
    """Kind model: training texts are random crops of this many tokens, so that short completions
    are in range."""
    max_tokens: int = 512
    """Length limit at evaluation, and of pairs in training too; longer texts keep their end."""
    evaluate_crops: list[int] = field(default_factory=lambda: [112])
    """Kind model: accuracy is also reported on excerpts of these lengths."""
    bins: int = 10
    """Bins of the reliability table."""
