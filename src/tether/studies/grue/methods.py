"""Methods of the benchmark by name: `zero-shot`, `supervised`, `ppo`, `supervised+ppo`.

A method is a recipe of the library, or a tether of it beside plain PPO; `A+B` is B from the final
weights of A, and `A+B+C` is C from those of `A+B`. Only `zero-shot` has no recipe: the model as it
is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tether.config.catalog import CATALOG
from tether.config.compose import recipe as recipe_mapping
from tether.config.errors import UserError
from tether.config.layers import normalised
from tether.config.nearest import unknown
from tether.config.parts import Place, as_part
from tether.config.sections import check_sections

ZERO_SHOT = "zero-shot"
DEFAULT = (ZERO_SHOT, "supervised", "ppo", "nlpo", "supervised+ppo", "supervised+nlpo")
PLAIN = "ppo"
"""The recipe that a tether named as a method is added to."""
BASELINES = "baselines"
"""What the runs are called that train nothing and measure what costs no training."""
GRUE = "grue-"
"""Beginning of the recipes of single tasks, which are reached by task and method."""


@dataclass(frozen=True)
class Method:
    """One row of the leaderboard."""

    name: str
    recipe: str
    """Catalog name of a recipe or a tether, or `file.py:function`; empty = zero-shot."""
    start: str = ""
    """Method whose final weights it starts from; empty = the model as it is."""


def parse(names: Iterable[str]) -> dict[str, Method]:
    """Name -> method, in order; a start that is not named comes before the first that needs it.

    Raises UserError: a name that is no recipe (with the nearest), a method that is named twice.
    """
    found: dict[str, Method] = {}
    asked = [n.strip() for n in names]
    twice = next((n for n in asked if asked.count(n) > 1), None)
    if twice is not None:
        raise UserError(f"--methods names '{twice}' twice")
    if not any(asked):
        raise UserError("--methods is empty: give names with commas, such as zero-shot,ppo")
    for name in asked:
        _add(name, found)
    return found


def _add(name: str, found: dict[str, Method]) -> None:
    if name in found:
        return
    start, plus, last = name.rpartition("+")
    if plus and (not start or not last):
        raise UserError(f"--methods: '{name}' is not A+B, a method from another's final weights")
    if plus and ZERO_SHOT in (start, last):
        raise UserError(f"--methods: '{name}': zero-shot trains nothing; write the method alone")
    if start:
        _add(start, found)
    found[name] = Method(name, "" if last == ZERO_SHOT else recipe_of(last), start)


def recipe_of(name: str) -> str:
    """The catalog's spelling of a method's recipe (`elastic_reset` is `elastic-reset`).

    Raises UserError with the nearest name.
    """
    if ":" in name:
        return name
    recipes = [r for r in CATALOG["recipe"] if not r.startswith(GRUE)]
    for place in (recipes, CATALOG["tether"]):
        same = next((r for r in place if _folded(r) == _folded(name)), None)
        if same is not None:
            return same
    raise unknown("method", name, [ZERO_SHOT, *recipes, *CATALOG["tether"]], "--methods")


def _folded(name: str) -> str:
    return name.replace("-", "_").lower()


def mapping_of(recipe: str) -> dict[str, Any]:
    """Settings of a method's recipe, or of plain PPO with a tether.

    Raises UserError for a recipe that trains no policy.
    """
    if recipe in CATALOG["tether"] and recipe not in CATALOG["recipe"]:
        return {**recipe_mapping(PLAIN), "tethers": {recipe: {"kind": recipe}}}
    mapping = recipe_mapping(recipe)
    if mapping.get("job", "policy") != "policy":
        raise UserError(f"--methods: '{recipe}' is a {mapping['job']} recipe; it trains no policy")
    check_sections(mapping, f"the recipe {recipe}")
    algorithm = as_part("algorithm", mapping.get("algorithm", {}), Place("algorithm", recipe))
    return {**mapping, "algorithm": {"kind": PLAIN, **algorithm}}


def check_named(
    method: Method, brought: Mapping[str, Any], settings: Mapping[str, Any], where: str
) -> None:
    """Raises UserError where settings make of a method what its row is not called after: another
    algorithm, or none of the tethers that it brings."""
    kind = brought["algorithm"]["kind"]
    found = (settings.get("algorithm") or {}).get("kind", kind)
    if found != kind:
        raise UserError(
            f"{where} make it {found}: a row is called after what it trains, {kind} here; leave "
            "algorithm.kind out and name another method (--methods)"
        )
    own, left = (_kinds(s.get("tethers") or {}) for s in (brought, settings))
    lost = [n for n in own if left.get(n) != own[n]]
    if own and len(lost) == len(own):
        raise UserError(
            f"{where} leave none of the tethers of {method.name} ({', '.join(own)}), which its row "
            f"is called after; name another method (--methods {PLAIN})"
        )
    if named := [n for n in lost if _words(str(own[n])) & _words(method.name)]:
        raise UserError(
            f"{where} leave out {', '.join(named)}, which the row {method.name} is called after; "
            "name another method (--methods)"
        )


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", name.lower())) - {""}


def _kinds(tethers: Any) -> dict[str, Any]:
    return {n: t.get("kind") for n, t in normalised({"tethers": tethers})["tethers"].items()}


def changed(mapping: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a mapping whose values the base does not have."""
    return {k: v for k, v in mapping.items() if base.get(k) != v}
