"""Who rates what: an equitable edge colouring of items and forms.

Every form gets the same number of texts and of each kind, give or take one, and no prompt twice
where there are at least as many forms as kinds: methods, or pairs of methods, of which six have
fifteen.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence


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


def sides(forms: Sequence[Sequence[int]], rng: random.Random) -> list[list[bool]]:
    """Which units are turned round: half of each kind in a form, of each kind in all forms, and of
    all kinds in a form, each give or take one.

    Units of one kind in one form take turns two by two. What is left over, at most one for a kind
    and form, are the edges of a bipartite graph, whose vertices are split in twos: an edge
    colouring with two colours gives each of the two its own.

    Args:
        forms: kinds of the units of each form.
    """
    out = [[False] * len(kinds) for kinds in forms]
    left: list[tuple[int, int, int]] = []  # kind, form, place of its unit
    for form, kinds in enumerate(forms):
        places: dict[int, list[int]] = {}
        for place, kind in enumerate(kinds):
            places.setdefault(kind, []).append(place)
        for kind, mine in places.items():
            rng.shuffle(mine)
            for place in mine[: len(mine) // 2]:
                out[form][place] = True
            if len(mine) % 2:
                left.append((kind, form, mine[-1]))
    rng.shuffle(left)  # decides which are split off together
    of_kind: Counter[int] = Counter()
    of_form: Counter[int] = Counter()
    edges = []
    for kind, form, _ in left:
        edges.append(((kind, of_kind[kind] // 2), (form, of_form[form] // 2)))
        of_kind[kind] += 1
        of_form[form] += 1
    turned = rng.randrange(2)
    for (_, form, place), colour in zip(left, _colour(edges, 2), strict=True):
        out[form][place] = colour == turned
    return out


def _colour(edges: Sequence[tuple[Hashable, Hashable]], colours: int) -> list[int]:
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
    edges: Sequence[tuple[Hashable, Hashable]],
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
