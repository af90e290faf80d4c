"""Adapters over models and optional packages: what they compute, and what they say they need."""

from __future__ import annotations

import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.models_for_tests import EOS, PAD, VOCAB, byte_tokenizer
from tether.config.errors import UserError
from tether.config.parts import build
from tether.metrics.base import Metric, Samples
from tether.metrics.bertscore import BertScore
from tether.metrics.bleurt import Bleurt
from tether.metrics.mauve import Mauve
from tether.metrics.sentence_pairs import load_pair_model
from tether.metrics.spice import Spice
from tether.metrics.summac import SummaC, SummaCConv, histograms


def save_bert(folder: Path, labels: list[str] | None = None, seed: int = 0) -> Path:
    """A random BERT of two layers that reads bytes."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, pad_token_id=PAD, eos_token_id=EOS,
    )  # fmt: skip
    if labels is None:
        model: Any = transformers.BertModel(config)
    else:
        config.num_labels = len(labels)
        config.id2label = dict(enumerate(labels))
        model = transformers.BertForSequenceClassification(config)
        model.classifier.weight.data.mul_(30)
    model.eval().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def test_bert_score_is_greedy_cosine_matching(tmp_path: Path) -> None:
    pytest.importorskip("bert_score", reason="bert-score is absent")
    folder = str(save_bert(tmp_path / "bert"))
    metric = BertScore(model=folder, layer=2, device="cpu")
    metric.check()
    texts = ["a cat", "", "dogs bark"]
    references = [["the cat sat", "a dog"], ["x"], ["dogs bark"]]
    result = metric(Samples(texts, references))

    model, tokenizer = transformers.AutoModel.from_pretrained(folder), byte_tokenizer()

    def vectors(text: str) -> torch.Tensor:
        with torch.no_grad():
            out = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        return torch.nn.functional.normalize(out, dim=-1)

    def f1(text: str, reference: str) -> float:
        cosine = vectors(text) @ vectors(reference).T
        p, r = cosine.max(1).values.mean(), cosine.max(0).values.mean()
        return float(2 * p * r / (p + r))

    want = [max(f1("a cat", r) for r in references[0]), 0.0, 1.0]
    assert result.per_sample == pytest.approx(want, abs=1e-5)
    assert 0.0 < want[0] < 0.999
    assert result.settings["layer"] == 2 and "device" not in result.settings


def test_bert_score_keeps_its_bounds() -> None:
    """Of one token against three, by the library's own formula. Cosines .2, -.2, -.54: P = .2,
    R = -.18, F = 2 P R / (P + R) = -3.6; .2, -.2, -.66: R = -.22, F = 4.4."""
    library = pytest.importorskip("bert_score", reason="bert-score is absent")

    def measured(*cosines: float) -> list[float]:
        text = torch.tensor([[[1.0, 0.0]]])
        rows = [[c, math.sqrt(1 - c * c)] for c in cosines]
        found = library.utils.greedy_cos_idf(
            torch.tensor([rows]), torch.ones(1, 3), torch.ones(1, 3),
            text, torch.ones(1, 1), torch.ones(1, 1),
        )  # fmt: skip
        return [float(x) for x in found]

    below, above = measured(0.2, -0.2, -0.54), measured(0.2, -0.2, -0.66)
    assert below == pytest.approx([0.2, -0.18, -3.6], rel=1e-3)
    assert above == pytest.approx([0.2, -0.22, 4.4], rel=1e-3)
    metric = BertScore(model="given", layer=2)
    low, high = metric.bounds
    assert low <= below[2] and above[2] <= high
    assert metric.best == 1.0  # of a text that is its reference


def test_bert_score_rescaled(tmp_path: Path) -> None:
    """(x - b) / (1 - b): 1 stays 1; x with three quarters of the way from it to 1 below b gets -3,
    which no cosine is."""
    pytest.importorskip("bert_score", reason="bert-score is absent")
    folder = str(save_bert(tmp_path / "bert"))
    texts, references = ["a cat", "dogs bark"], [["the engine stood"], ["dogs bark"]]
    plain = BertScore(model=folder, layer=2, device="cpu")
    other = BertScore(model=folder, layer=2, device="cpu")
    found = plain(Samples(texts, references))
    other.prepare()
    assert found.per_sample is not None
    b = (3 + found.per_sample[0]) / 4
    other._scorer._rescale_with_baseline = True
    other._scorer._baseline_vals = torch.tensor([b, b, b])  # the file of a published encoder
    got = other(Samples(texts, references)).per_sample or []
    assert got == pytest.approx([-3.0, 1.0], abs=1e-3)
    assert other.bounds[0] <= got[0] and other.best == 1.0


def test_bert_score_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bert_score", reason="bert-score is absent")
    with pytest.raises(UserError, match="needs `model`"):
        BertScore().check()
    with pytest.raises(UserError, match="needs `layer` for somewhere"):
        BertScore(model="somewhere").check()
    with pytest.raises(UserError, match="somewhere cannot be read as an encoder"):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        BertScore(model="/nowhere/somewhere", layer=1).prepare()


def test_bleurt_reads_reference_and_text(tmp_path: Path) -> None:
    folder = str(save_bert(tmp_path / "bleurt", ["score"]))
    metric = Bleurt(model=folder, device="cpu", batch_size=2)
    texts, references = ["a cat", "dogs", ""], [["the cat", "a dog sat"], ["dogs bark"], ["x"]]
    got = metric(Samples(texts, references)).per_sample
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = byte_tokenizer()

    def alone(reference: str, text: str) -> float:
        with torch.no_grad():
            return float(model(**tokenizer(reference, text, return_tensors="pt")).logits[0, 0])

    want = [max(alone(r, t) for r in rs) for t, rs in zip(texts, references, strict=True)]
    assert got == pytest.approx(want, abs=1e-5)
    assert alone("the cat", "a cat") != pytest.approx(alone("a cat", "the cat"), abs=1e-4)
    with pytest.raises(UserError, match="has 2 outputs, not one"):
        Bleurt(model=str(save_bert(tmp_path / "two", ["a", "b"])), device="cpu").prepare()


class Entails:
    """P(entailment) 1 where the sentence occurs in the premise, P(contradiction) 1 for `not`."""

    labels = ["CONTRADICTION", "neutral", "Entailment"]
    version = "of this test"

    def logits(self, pairs: list[tuple[str, str]], batch_size: int) -> torch.Tensor:
        out = torch.full((len(pairs), 3), -50.0)
        for i, (premise, sentence) in enumerate(pairs):
            column = 2 if sentence in premise else 0 if "not" in sentence else 1
            out[i, column] = 50.0
        return out


def test_summac_by_hand() -> None:
    metric = SummaC(model="given", prefix="Summarize: ")
    metric._model = Entails()
    document = "Summarize: It rained. We ran. We sat."
    texts = ["We ran.", "We ran. It is not so.", "We flew.", "", "We ran. We flew."]
    result = metric(Samples(texts, None, [document] * 5))
    # best premise of each sentence: 1; 1 and -1; 0; none; 1 and 0
    assert result.per_sample == pytest.approx([1.0, 0.0, 0.0, 0.0, 0.5])
    assert metric(Samples(["We ran."], None, ["Summarize: "])).per_sample == [0.0]
    milder = SummaC(model="given", contradiction=False)
    milder._model = Entails()
    assert milder(Samples(texts[1:2], None, [document])).per_sample == pytest.approx([0.5])


def test_metrics_that_read_prompts_say_so() -> None:
    """In one line, before a model is loaded."""
    classifier = {"path": "/nowhere"}
    for part in (
        {"kind": "summac", "model": "/nowhere"},
        {"kind": "classifier", "classifier": classifier},
        {"kind": "preference", "model": {"kind": "classifier", **classifier}},
        {"kind": "preference", "model": {"kind": "repeat_penalty"}},
        {"kind": "preference", "model": {"kind": "metric", "metric": "summac"}},
        {"kind": "intent_accuracy", "classifier": classifier},
    ):
        metric = build("metric", part)
        assert metric.needs_prompts
        line = f"^{part['kind']} reads the prompts, and none are given$"
        with pytest.raises(UserError, match=line):
            metric(Samples(["a"], None, None, {"intent": [1]}))
    for part in (
        {"kind": "classifier", "classifier": {**classifier, "reads": "completion"}},
        {"kind": "preference", "model": {"kind": "lexicon", "path": "x", "reads": "completion"}},
        {"kind": "preference", "model": {"kind": "length", "unit": "words"}},
        {"kind": "preference", "model": {"kind": "contains", "words": ["x"]}},
        {"kind": "preference", "model": {"kind": "metric", "metric": "distinct_1"}},
        {"kind": "intent_accuracy", "classifier": classifier, "reads": "completion"},
        {"kind": "rouge_l"},
    ):
        assert not build("metric", part).needs_prompts


def test_summac_wants_an_nli_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs entailment and contradiction"):
        SummaC(model=str(save_bert(tmp_path / "m", ["good", "bad"])), device="cpu").prepare()


def save_convolution(file: Path, **changed: torch.Tensor) -> Path:
    """-1/2 for a document sentence in the first bin, 2 for one in the last, 8 for one in the
    eighth."""
    bins = torch.zeros(1, 23)
    bins[0, 0], bins[0, 7], bins[0, -1] = -0.5, 8.0, 2.0
    weights = {
        "mlp.weight": bins, "mlp.bias": torch.tensor([0.25]),
        "layer_final.weight": torch.tensor([[0.0, 0.0, 0.0], [0.2, 0.3, 0.5]]),
        "layer_final.bias": torch.tensor([0.0, 0.1]),
    }  # fmt: skip
    torch.save(weights | changed, file)
    return file


def test_summac_conv_by_hand(tmp_path: Path) -> None:
    file = save_convolution(tmp_path / "conv.bin")
    metric = SummaCConv(model="given", weights=str(file), prefix="Summarize: ")
    metric._model = Entails()
    document = "Summarize: It rained. We ran. We sat."
    texts = ["We ran.", "We flew.", "We ran. We flew.", "", "We flew. " * 10 + "We ran."]
    result = metric(Samples(texts, None, [document] * 5))
    # entailed by one of three: r = 2 - 2/2 + 1/4 = 1.25, logit .1 + r; by none: r = -3/2 + 1/4;
    # the mean of both: r = 0; the eleventh sentence does not count
    logits = [1.35, -1.15, 0.1, None, -1.15]
    want = [0.0 if x is None else 1 / (1 + math.exp(-x)) for x in logits]
    assert result.per_sample == pytest.approx(want)
    assert metric(Samples(["We ran."], None, ["Summarize: "])).per_sample == [0.0]
    assert f"|weights={file}" in result.signature and "contradiction" not in result.signature


def test_bins_of_summac_conv() -> None:
    p = torch.tensor([[0.0, 0.3701], [0.0099, 0.3699], [0.0101, 0.9001], [0.9951, 1.0]])
    found = histograms(p)
    first = [2, 1, *[0] * 20, 1]
    second = [0] * 23
    second[6] = second[7] = second[8] = second[22] = 1  # [.13, .37), [.37, .9), [.9, .91), the last
    assert found.tolist() == [first, second]


def test_summac_conv_says_what_it_needs(tmp_path: Path) -> None:
    needs = r"summac_conv_vitc_sent_perc_e\.bin of github\.com/tingofurro/summac"
    with pytest.raises(UserError, match=f"needs `weights`: the file {needs}"):
        SummaCConv(model="given").check()
    with pytest.raises(UserError, match=f"there is no file /nowhere/x; take {needs}"):
        SummaCConv(model="given", weights="/nowhere/x").check()
    text = tmp_path / "text.bin"
    text.write_text("no weights")
    other = save_convolution(tmp_path / "even50.bin", **{"mlp.weight": torch.zeros(1, 50)})
    for file, said in ((text, "cannot be read"), (other, r"convolution over 23 bins")):
        with pytest.raises(UserError, match=said) as e:
            SummaCConv(model="given", weights=str(file)).prepare()
        assert "\n" not in str(e.value)


def test_a_pair_model_that_is_not_there() -> None:
    with pytest.raises(UserError, match="bleurt: /nowhere/x cannot be read"):
        load_pair_model("bleurt", "/nowhere/x", "cpu", "a checkpoint")


def test_mauve_hands_over_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def compute_mauve(**given: Any) -> Any:
        asked.update(given)
        return types.SimpleNamespace(mauve=0.25)

    module = types.ModuleType("mauve")
    module.compute_mauve = compute_mauve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mauve", module)
    result = Mauve(model="gpt2")(Samples(["a", "", "b"], [["x", "y"], ["z"], ["w"]]))
    assert (result.value, result.per_sample) == (0.25, None)
    assert (asked["p_text"], asked["q_text"]) == (["x", "z", "w"], ["a", "b"])
    assert Mauve(model="gpt2").no_reward == "it has a value for a corpus only"


def test_spice_hands_over_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs:
        def compute_score(self, references: Any, texts: Any) -> Any:
            assert references == {0: ["a cat", "cats"], 2: ["x"]} and texts == {
                0: ["cat"],
                2: ["y"],
            }
            return 0.3, [{"All": {"f": 0.6}}, {"All": {"f": float("nan")}}]

    monkeypatch.setattr(Spice, "check", lambda self: None)
    monkeypatch.setattr(Spice, "_library", lambda self: types.SimpleNamespace(Spice=Theirs))
    result = Spice()(Samples(["cat", "", "y"], [["a cat", "cats"], ["b"], ["x"]]))
    assert result.per_sample == [0.6, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "module", "line"),
    [
        ("rouge_1", "rouge_score", "pip install rouge-score"),
        ("sacre_bleu", "sacrebleu", "pip install sacrebleu"),
        ("meteor", "nltk.tokenize", "pip install nltk"),
        ("bert_score", "bert_score", 'pip install "tether-rl\\[bertscore\\]"'),
        ("mauve", "mauve", "pip install mauve-text"),
        ("spice", "pycocoevalcap.spice", "pip install pycocoevalcap"),
    ],
)
def test_a_missing_package_is_one_line(
    name: str, module: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    metric: Metric = build("metric", name)
    with pytest.raises(UserError, match=line):
        metric.check()


@pytest.mark.parametrize("name", ["bleurt", "summac", "summac_conv"])
def test_a_missing_model_is_one_line(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} needs `model`: the folder or hub id of"):
        build("metric", name).check()


def test_spice_needs_its_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = types.SimpleNamespace(__file__=str(tmp_path / "spice.py"))
    monkeypatch.setattr(Spice, "_library", lambda self: library)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/java")
    with pytest.raises(UserError, match=r"spice needs Stanford CoreNLP 3\.6\.0"):
        Spice().check()
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match="spice needs Java"):
        Spice().check()
