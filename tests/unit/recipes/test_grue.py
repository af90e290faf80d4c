"""The recipes of GRUE against RL4LMs' tables (allenai/RL4LMs@97df0bd, task_configs)."""

from __future__ import annotations

from typing import Any

import pytest

from tether.config.catalog import CATALOG
from tether.config.compose import compose, recipe
from tether.integrations.rl4lms_units import rollout, supervised_updates

# new tokens, n_steps, iterations, lr, beta0, target, top_p and mu of the mask
TABLE: dict[str, tuple[Any, ...]] = {
    "grue-imdb-ppo": (48, 128, 50, 1e-6, 0.1, 0.1, None),
    "grue-imdb-nlpo": (48, 128, 50, 1e-6, 0.1, 0.1, (0.9, 5)),
    "grue-imdb-supervised-ppo": (48, 128, 50, 1e-6, 0.1, 0.1, None),
    "grue-imdb-supervised-nlpo": (48, 128, 50, 1e-6, 0.1, 0.1, (0.9, 5)),
    "grue-commongen-ppo": (20, 256, 200, 2e-6, 0.001, 2.0, None),
    "grue-commongen-nlpo": (20, 128, 100, 2e-6, 0.001, 2.0, (0.9, 20)),
    "grue-commongen-supervised-ppo": (20, 128, 100, 2e-6, 0.01, 1.0, None),
    "grue-commongen-supervised-nlpo": (20, 128, 100, 2e-6, 0.01, 1.0, (0.9, 20)),
    "grue-cnn-ppo": (100, 512, 100, 2e-6, 0.001, 0.2, None),
    "grue-cnn-nlpo": (100, 512, 100, 2e-6, 0.001, 0.2, (0.9, 20)),
    "grue-cnn-supervised-ppo": (100, 512, 50, 2e-6, 0.01, 0.2, None),
    "grue-cnn-supervised-nlpo": (100, 512, 50, 2e-6, 0.01, 0.2, (0.9, 30)),
    "grue-totto-ppo": (50, 256, 100, 2e-6, 0.001, 2.0, None),
    "grue-totto-nlpo": (50, 256, 100, 2e-6, 0.001, 2.0, (0.9, 20)),
    "grue-totto-supervised-ppo": (50, 256, 100, 5e-7, 0.01, 0.2, None),
    "grue-totto-supervised-nlpo": (50, 256, 100, 5e-7, 0.01, 0.2, (0.9, 20)),
    "grue-iwslt-ppo": (128, 512, 50, 1e-6, 0.001, 0.2, None),
    "grue-iwslt-nlpo": (128, 512, 50, 1e-6, 0.001, 0.2, (0.5, 20)),
    "grue-iwslt-supervised-ppo": (128, 512, 50, 5e-7, 0.001, 0.2, None),
    "grue-iwslt-supervised-nlpo": (128, 512, 50, 5e-7, 0.001, 0.2, (0.5, 20)),
    "grue-narrativeqa-ppo": (50, 256, 100, 2e-6, 0.001, 1.0, None),
    "grue-narrativeqa-nlpo": (50, 256, 100, 2e-6, 0.001, 1.0, (0.9, 20)),
    "grue-narrativeqa-supervised-ppo": (50, 512, 100, 5e-7, 0.001, 0.2, None),
    "grue-narrativeqa-supervised-nlpo": (50, 256, 100, 5e-7, 0.001, 0.2, (0.9, 20)),
    "grue-dialog-ppo": (20, 128, 50, 1e-6, 0.2, 0.5, None),
    "grue-dialog-nlpo": (20, 128, 100, 1e-6, 0.2, 0.5, (0.9, 20)),
    "grue-dialog-supervised-ppo": (20, 128, 50, 1e-6, 0.2, 0.05, None),
    "grue-dialog-supervised-nlpo": (20, 128, 50, 1e-6, 0.2, 0.05, (0.9, 20)),
}
# rows, passes, batch, lr, weight decay
SUPERVISED = {
    "grue-imdb-supervised": (10_000, 10, 16, 1e-5, 0.0),
    "grue-commongen-supervised": (67_389, 4, 8, 1e-5, 0.01),
    "grue-cnn-supervised": (287_113, 2, 16, 1e-4, 0.1),
    "grue-totto-supervised": (120_761, 5, 8, 1e-4, 0.1),
    "grue-iwslt-supervised": (206_112, 5, 64, 1e-5, 0.1),
    "grue-narrativeqa-supervised": (65_494, 2, 16, 1e-4, 0.1),
    "grue-dialog-supervised": (35_781, 20, 32, 1e-5, 0.0),
}


def test_all_of_them_are_in_the_table() -> None:
    found = {n for n in CATALOG["recipe"] if n.startswith("grue-")}
    assert found == set(TABLE) | set(SUPERVISED)


@pytest.mark.parametrize("name", TABLE)
def test_reinforced(name: str) -> None:
    new, n_steps, updates, lr, beta, target, mask = TABLE[name]
    s = compose(name, overrides=["--reward", "length"])
    near = rollout(10 * n_steps, new, 64)
    assert (s.batch.prompts, s.algorithm["minibatches"]) == (near.prompts, near.minibatches)
    assert (s.sampling.max_new_tokens, s.updates, s.algorithm["lr"]) == (new, updates, lr)
    same = {"epochs": 5, "gamma": 0.99, "gae_lambda": 0.95, "clip_range": 0.2, "vf_coef": 1.0}
    assert {k: s.algorithm[k] for k in same} == same
    kl = s.tethers["kl"]
    assert (kl["coef"], kl["controller"]["target"]) == (beta, target)
    found = s.tethers.get("nlpo_mask")
    assert (found and (found["top_p"], found["refresh"]["n"])) == mask
    warm = "-supervised-" in name
    own = name.rsplit("-", 2 if warm else 1)[0]
    assert (s.model.path == f"runs/{own}-supervised/policy") == warm


@pytest.mark.parametrize("name", SUPERVISED)
def test_supervised(name: str) -> None:
    rows, passes, size, lr, decay = SUPERVISED[name]
    s = compose(name, overrides=["--reward", "length"])
    minibatches = s.algorithm["minibatches"]
    assert s.batch.prompts == size * minibatches
    assert abs(s.updates * minibatches - supervised_updates(rows, passes, size)) <= minibatches / 2
    assert (s.algorithm["lr"], s.optimizer.weight_decay) == (lr, decay)
    assert s.data.task is not None and s.data.task["one_row_a_reference"]


def test_the_name_of_the_run_is_where_the_next_recipe_looks() -> None:
    for name in SUPERVISED:
        next_one = recipe(f"{name}-ppo")["model"]["path"]
        run = compose(name, overrides=["--reward", "length"])
        assert next_one == f"{run.root}/{run.name}/policy"
