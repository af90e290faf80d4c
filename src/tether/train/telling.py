"""What a run says of itself while it works: for people, never for the record."""

from __future__ import annotations

from tether.records import DRIFT, EvalPoint
from tether.train.agent import Agent


def described(agent: Agent, updates: int) -> list[str]:
    """Model, dtype, device and the length of the run."""
    f, a = agent.lm.facts, agent.algorithm
    trained = "all" if f["trainable"] == f["parameters"] else f"{f['trainable'] / 1e6:.2f} M"
    held = {k: len(t) for k, t in agent.tasks.items()}
    asked = {"validation": agent.evaluation.prompts, "test": agent.evaluation.test_prompts}
    fewer = {k: n for k, n in asked.items() if k in held and held[k] < n}
    return [
        f"model: {f['model_type']}, {f['parameters'] / 1e6:.1f} M parameters ({trained} trained), "
        f"{f['dtype']} on {f['device']}",
        "prompts: "
        + ", ".join(
            f"{n} {k}" + (f" (evaluation asks for {fewer[k]})" if k in fewer else "")
            for k, n in held.items()
        ),
        *_rewarded(agent),
        *_repeated(agent),
        f"{updates} updates x {a.epochs} epochs x {a.minibatches} minibatches = "
        f"{agent.optimizer.total_steps} optimizer steps",
    ]


def _rewarded(agent: Agent) -> list[str]:
    """A line for each reward and judge that has something to say: which class counts."""
    judges = agent.judges.rewards if agent.judges is not None else {}
    parts = {f"reward {k}": r for k, r in agent.rewards.rewards.items()}
    parts |= {f"judge {k}": r for k, r in judges.items()}
    return [f"{name}: {r.told}" for name, r in parts.items() if r.told]


def _repeated(agent: Agent) -> list[str]:
    """A line for all that is drawn more than once at a time, because there is too little of it."""
    out = []
    if agent.prompts > (n := len(agent.tasks["train"])):
        out.append(f"batch.prompts is {agent.prompts} of {n}: every update repeats some of them")
    for name, texts in agent.draws.items():
        if texts.repeats:
            out.append(
                f"tethers.{name} draws {texts.rows} texts of {len(texts.task)}: every optimizer"
                " step repeats some of them"
            )
    return out


def words(agent: Agent, points: list[EvalPoint]) -> str:
    """The rollout's reward, and what was evaluated since the last line, with the first update the
    weights before it too: reward and drift of the same weights, both sides of an event."""
    score = agent.measured.get("reward/score.mean")
    out = [] if score is None else [f"rollout reward {score[0]:.3f}"]
    out += [
        f"evaluation{_when(p)}: reward {p.reward:.3f}, drift {p.drift[DRIFT]:.2f} nats"
        for p in points
        if p.policy == "exported" and DRIFT in p.drift
    ]
    return "; ".join(out)


def _when(point: EvalPoint) -> str:
    if point.side:
        return f" {point.side} an event"
    return " before training" if point.update == 0 else ""
