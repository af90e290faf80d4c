"""What a folder holds already, and methods that start from each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.grue.test_plan import plan
from tether.config.errors import UserError
from tether.config.settings import dump
from tether.config.text_values import write_yaml
from tether.studies.grue.cells import cells, jobs
from tether.studies.grue.planning import Asked, plan_of


def test_another_run_in_the_folder_is_named_by_its_settings(tmp_path: Path) -> None:
    def asked(*overrides: str, **more: Any) -> Any:
        words = {"mini": True, "out": tmp_path, "overrides": overrides, **more}
        return jobs(plan_of(Asked(["imdb"], ["ppo"], **words)))

    for _, job in asked():
        job.folder.mkdir(parents=True)
        write_yaml(job.folder / "config.yaml", dump(job.settings))
    asked()
    with pytest.raises(UserError, match=r"ppo-seed0 holds .*\(updates: 6 there, 7 now\): give th"):
        asked("--updates=7")
    with pytest.raises(UserError) as e:
        asked(budgets=[1.0, 2.0])
    assert str(e.value).startswith(
        f"{tmp_path} holds a benchmark with other budgets ([1.0, 2.0, 4.0, 8.0, 16.0] there, "
        "[1.0, 2.0] now), which are the same in all cells"
    )


def test_chains_of_methods(tmp_path: Path) -> None:
    made = {c.method.name: j for c, j in jobs(plan(tmp_path, "ppo+supervised+nlpo", seeds=[0]))}
    assert list(made) == ["zero-shot", "ppo", "ppo+supervised", "ppo+supervised+nlpo"]
    for start, method in (("ppo", "ppo+supervised"), ("ppo+supervised", "ppo+supervised+nlpo")):
        assert made[method].settings.model.path == str(made[start].folder / "policy")
        assert made[method].after == (made[start].name,)


@pytest.mark.parametrize(
    ("more", "option"),
    [({"rewards": ["meteor"]}, "--rewards"), ({"references": ["raw"]}, "--kl-reference")],
)
def test_what_is_trained_once_starts_from_nothing_that_is_repeated(
    more: dict[str, Any], option: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"{option} repeats 'ppo-kl', but not 'ppo-kl\\+superv"):
        cells(plan(tmp_path, "ppo-kl+supervised+ppo-kl", **more))
