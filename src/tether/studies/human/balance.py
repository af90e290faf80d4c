"""Who rates what: an equitable edge colouring of items and forms.

Every form gets the same number of texts and of each method, give or take one, and no rater sees a
prompt twice where there are at least as many forms as methods.
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def spread(items: int, kinds: int, forms: int, rng: random.Random) -> list[list[int]]:
    """Form of each kind of each item, [items][kinds].

    Texts are dealt to the forms in turn, so sizes differ by at most 1 and an item meets a form at
    most ceil(kinds / forms) times. Which kind goes to which of an item's forms is an edge colouring
    of the bipartite multigraph items x forms with `kinds` colours: at an item every kind stands
    once; a form is split into vertices of at most `kinds` edges, each of which has every kind at
    most once, so kinds of a form differ by at most 1.

    Source: König 1916 (a bipartite graph of degree d has a d-colouring); splitting of vertices: de
    Werra, INFOR 9 (1971).

    Raises:
        ValueError: a count below 1, or more forms than texts.
    """
    if min(items, kinds, forms) < 1 or forms > items * kinds:
        raise ValueError(f"{items} items of {kinds} kinds cannot be spread over {forms} forms")
    order = list(range(items))
    names = list(range(forms))
    rng.shuffle(order)
    rng.shuffle(names)
    edges: list[tuple[int, tuple[int, int]]] = []  # item, (form, number of its vertex)
    size = [0] * forms
    for place, item in enumerate(order):
        for k in range(kinds):
            form = (place * kinds + k) % forms
            edges.append((item, (form, size[form] // kinds)))
            size[form] += 1
    colours = _colour(edges, kinds)
    relabel = list(range(kinds))
    rng.shuffle(relabel)
    out = [[-1] * kinds for _ in range(items)]
    for (item, (form, _)), colour in zip(edges, colours, strict=True):
        out[item][relabel[colour]] = names[form]
    return out


def _colour(edges: Sequence[tuple[int, tuple[int, int]]], colours: int) -> list[int]:
    """Proper edge colouring by alternating paths. No vertex has more edges than `colours`."""
    at: dict[object, list[int | None]] = {}
    colour = [-1] * len(edges)
    for e, (item, form) in enumerate(edges):
        left = at.setdefault(("item", item), [None] * colours)
        right = at.setdefault(("form", form), [None] * colours)
        a, b = left.index(None), right.index(None)
        if right[a] is not None:
            _flip(edges, at, colour, ("form", form), a, b)
        colour[e] = a
        left[a] = right[a] = e
    return colour


def _flip(
    edges: Sequence[tuple[int, tuple[int, int]]],
    at: dict[object, list[int | None]],
    colour: list[int],
    start: tuple[str, object],
    a: int,
    b: int,
) -> None:
    """Exchange a and b along the path from `start` that begins with a; then a is free there."""
    path = []
    vertex, wanted = start, a
    while (edge := at[vertex][wanted]) is not None:
        path.append(edge)
        item, form = edges[edge]
        vertex = ("item", item) if vertex[0] == "form" else ("form", form)
        wanted = b if wanted == a else a
    for edge in path:
        for end in (("item", edges[edge][0]), ("form", edges[edge][1])):
            at[end][colour[edge]] = None
    for edge in path:
        colour[edge] = b if colour[edge] == a else a
        for end in (("item", edges[edge][0]), ("form", edges[edge][1])):
            at[end][colour[edge]] = edge
