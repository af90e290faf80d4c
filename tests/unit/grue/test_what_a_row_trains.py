"""Every algorithm trains on as many samples as the others of a task, and a row is called after what
it trains, whatever the settings file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.grue.test_plan import plan
from tether.config.catalog import CATALOG
from tether.config.errors import UserError
from tether.config.settings import dump
from tether.studies.grue.cells import cells, jobs, settings_of
from tether.studies.grue.methods import mapping_of
from tether.studies.grue.planning import Asked, plan_of
from tether.studies.grue.scoring import completions_trained
from tether.studies.grue.terms import TASKS, Terms
from tether.train.build import build_parts


@pytest.mark.parametrize("task", TASKS)
def test_every_algorithm_fits_the_terms_of_every_task(task: str, tmp_path: Path) -> None:
    """As a method: its parts can be built, and it has the samples of PPO."""
    names = sorted(CATALOG["algorithm"])
    p = plan(tmp_path, *names, tasks=(task,), seeds=[0])
    made = {c.method.name: settings_of(p, c) for c in cells(p)}
    ppo = made["ppo"]
    for name in names:
        algorithm = build_parts(made[name]).algorithm
        if not algorithm.uses_rewards:
            continue
        more = completions_trained(dump(made[name])) - completions_trained(dump(ppo))
        assert abs(more) < ppo.updates * algorithm.group_size, name
        steps = (1, 1) if algorithm.one_step else (ppo.algorithm["epochs"], algorithm.minibatches)
        assert (algorithm.epochs, algorithm.minibatches) == steps


def test_the_critic_of_trpo_has_the_minibatches_that_it_is_given(tmp_path: Path) -> None:
    terms = Terms(methods={"trpo": {"algorithm": {"critic_minibatches": 9}}})
    p = plan(tmp_path, "trpo", tasks=("imdb",), seeds=[0], terms=terms)
    assert jobs(p)[1][1].settings.algorithm["critic_minibatches"] == 9
    terms = Terms(methods={"trpo": {"algorithm": {"critic_minibatches": 4}}})
    with pytest.raises(UserError, match="do not divide into 4 critic_minibatches"):
        jobs(plan(tmp_path, "trpo", tasks=("imdb",), seeds=[0], terms=terms))


def _own(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(f"def own():\n    return {{'algorithm': {algorithm}}}\n")


@pytest.mark.parametrize("form", ["'rloo'", "{'kind': 'rloo'}"])
def test_a_group_that_nobody_writes_is_a_group(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _own(form, tmp_path, monkeypatch)
    p = plan(tmp_path, "mine.py:own", "rloo", "ppo", seeds=[0])
    found = {c.method.name: dump(settings_of(p, c)) for c in cells(p)}
    assert found["mine.py:own"]["algorithm"] == found["rloo"]["algorithm"]
    assert found["mine.py:own"]["batch"] == found["rloo"]["batch"]
    assert completions_trained(found["mine.py:own"]) == 128 * 200
    assert completions_trained(found["ppo"]) == 129 * 200


def test_a_group_beyond_all_completions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _own("{'kind': 'grpo'}", tmp_path, monkeypatch)  # 64 of each prompt
    with pytest.raises(
        UserError, match=r"group_size of the settings of imdb/mine.* is 64, more tha"
    ):
        jobs(plan(tmp_path, "mine.py:own", tasks=("imdb",)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tuned: {algorithm: {kind: rloo}}", "settings of imdb/ppo-seed0 make it rloo: a row is c"),
        ("tuned: {algorithm: rloo}", "settings of imdb/ppo-seed0 make it rloo"),
        ("methods: {ppo: {algorithm: {kind: grpo}}}", "imdb/ppo-seed0 make it grpo"),
        ("all: {algorithm: {kind: ppo}}", "imdb/zero-shot make it ppo"),
        (
            "methods: {nlpo: {tethers: {kl: null, nlpo_mask: null}}}",
            "nlpo-seed0 leave none of the teth",
        ),
        ("methods: {nlpo: {tethers: null}}", "nlpo-seed0 leave none of the tethers"),
        ("tuned: {tethers: null}\nmethods: {nlpo: {tethers: null}}", "leave none of the tethers"),
        (
            "methods: {nlpo: {tethers: {nlpo_mask: null}}}",
            "nlpo-seed0 leave out nlpo_mask, which the row nlpo is called after",
        ),
        ("methods: {kl: {tethers: {kl: {kind: kl_loss}}}}", "leave none of the tethers of kl"),
        ("tunned: {updates: 3}", "unknown key 'tunned' .*did you mean 'tuned'"),
        ("tuned: 3", "'tuned' must be a mapping"),
        ("metrics: rouge_1", "'metrics' must be a list of metrics"),
        ("tasks: {imbd: {}}", "unknown task 'imbd' .*did you mean 'imdb'"),
        ("methods: {npo: {}}", "unknown method 'npo'"),
        ("tuned: {algorithm: {clip_rnge: 0.1}}", "unknown key 'clip_rnge'"),
        ("methods: {ppo: null}", "methods: 'ppo' must be a mapping, not None"),
        ("methods: {ppo: 3}", "methods: 'ppo' must be a mapping, not 3"),
        ("parts: {x: {}}", "parts: 'x' says no kind; add kind: METRIC"),
        ("parts: {x: 3}", "parts: 'x' must be a metric with its settings, not 3"),
        ("parts: {x: {kind: 3}}", "parts, x: kind is 3, not the name of a metric"),
        ("parts: {rouge_1: {maximum: abc}}", "parts, rouge_1: maximum is 'abc', not a number"),
        ("parts: {rouge_1: {maximum: .nan}}", "parts, rouge_1: maximum is nan, not a number"),
        ("all: {evaluation: 3}", "evaluation of .*, all must be a mapping of settings, not 3"),
        (
            "all: {evaluation: null}",
            "evaluation of .*, all must be a mapping of settings, not None",
        ),
        (
            "tuned: {evaluation: {sampling: 3}}",
            "evaluation.sampling of .*, tuned must be a mapping",
        ),
        ("all: {after: [oracle]}", r"after of .*, all must be a mapping of settings, not \['ora"),
        ("tasks: {imdb: {all: {after: 3}}}", "after of .*, tasks.imdb, all must be a mapping"),
        ("tuned: {algorithm: 3}", "algorithm of .*, tuned must be a mapping"),
        ("tuned: {algorithm: null}", "algorithm of .*, tuned must be a mapping"),
        ("tuned: {algorithm: [ppo]}", "algorithm of .*, tuned must be a mapping"),
        ("methods: {ppo: {tethers: 3}}", "tethers of .*, methods, ppo must be a mapping"),
        ("tuned: {batch: 3}", "batch of .*, tuned must be a mapping"),
        ("tuned: {batch: {prompts: many}}", "batch.prompts in the settings of imdb/.* is 'many'"),
        ("tuned: {algorithm: {minibatches: x}}", "algorithm.minibatches in .*ppo-seed0 is 'x'"),
        ("methods: {ppo: {algorithm: {group_size: y}}}", "algorithm.group_size in .* is 'y'"),
        ("methods: {ppo: {data: {task: 3}}}", "data.task of .*, methods, ppo must be a mapping"),
    ],
)
def test_settings_that_are_no_settings(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text + "\n")
    with pytest.raises(UserError, match=said):
        jobs(plan_of(Asked(["imdb"], ["ppo", "nlpo", "kl"], mini=True, settings=file)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--algorithm", "rloo"], "make it rloo"),
        (["--algorithm.kind", "rloo"], "make it rloo"),
        (["--algorithm", "null"], "algorithm of the settings of imdb/.* must be a mapping"),
        (["--tethers", "null"], "leave none of the tethers of nlpo"),
    ],
)
def test_the_command_line_makes_no_other_method(words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        jobs(plan_of(Asked(["imdb"], ["nlpo"], mini=True, overrides=words)))


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("{'algorithm': 3}", "algorithm of the recipe mine.py:own must be a mapping"),
        ("{'data': 3}", "data of the recipe mine.py:own must be a mapping"),
    ],
)
def test_a_recipe_of_ones_own_that_is_none(
    returned: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(f"def own():\n    return {returned}\n")
    with pytest.raises(UserError, match=said):
        mapping_of("mine.py:own")


def test_forms_that_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric of the catalog is its own kind, `after: null` asks for nothing, a stated kind is the
    method's own, and tethers may be a list."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def own():\n    return {'tethers': ['kl', 'elastic_reset']}\n")
    file = tmp_path / "settings.yaml"
    file.write_text(
        "tuned: {after: null, algorithm: {kind: ppo}}\n"
        "methods: {'mine.py:own': {tethers: {kl: null}}}\n"
        "parts: {rouge_1: {stemmer: false, maximum: 1}, x: rouge_2}\n"
    )
    p = plan_of(Asked(["imdb"], ["ppo", "mine.py:own"], mini=True, settings=file))
    made = [j.settings for _, j in jobs(p)]
    assert [list(s.tethers) for s in made] == [[], [], ["elastic_reset"]]
    parts: dict[str, Any] = dict(p.terms["imdb"].parts)
    assert parts["rouge_1"] == {"kind": "rouge_1", "stemmer": False, "maximum": 1}
    assert parts["x"] == {"kind": "rouge_2"}
