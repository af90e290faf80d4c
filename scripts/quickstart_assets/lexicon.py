"""A bag-of-words sentiment lexicon: logistic regression of the asked mood on words."""

from __future__ import annotations

from collections import Counter

import torch
from texts import Row, words


def fit(rows: list[Row], size: int = 400, least: int = 40) -> dict[str, float]:
    """word -> weight in [-1, 1] of the `size` most telling words.

    L2-regularised logistic regression of positive against negative on word presence; only words
    seen in at least `least` texts. Weights are divided by the largest, so that 1 is the word that
    praises most.
    """
    rows = [row for row in rows if row["mood"] in ("positive", "negative")]
    seen = Counter(w for row in rows for w in set(words(row["text"])))
    vocabulary = sorted(w for w, n in seen.items() if n >= least and len(w) > 2)
    place = {w: i for i, w in enumerate(vocabulary)}
    x = torch.zeros(len(rows), len(vocabulary))
    for i, row in enumerate(rows):
        for w in words(row["text"]):
            if w in place:
                x[i, place[w]] = 1.0
    y = torch.tensor([float(row["mood"] == "positive") for row in rows])
    weight = torch.zeros(len(vocabulary), requires_grad=True)
    bias = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ weight + bias, y)
        loss = loss + 2e-4 * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    learned = weight.detach()
    share = ((x @ learned + bias.detach() > 0) == (y > 0.5)).float().mean()
    print(f"lexicon: {len(vocabulary)} words, training accuracy {share:.3f}")
    order = learned.abs().argsort(descending=True)[:size].tolist()
    top = float(learned.abs().max())
    found = {vocabulary[i]: round(float(learned[i]) / top, 3) for i in order}
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
