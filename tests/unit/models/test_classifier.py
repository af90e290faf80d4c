"""The learned reward: any padding, any thread, full or adapter folders, ordinary models."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import processors
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from tests.models_for_tests import EOS, PAD, VOCAB, byte_tokenizer, tiny_module
from tether.config.errors import UserError
from tether.config.run import LoraSettings, ModelSettings
from tether.models.classifier import TextClassifier
from tether.models.classifier_loading import build_classifier, load_classifier, save_classifier
from tether.models.dropout import rates_of

TEXTS = ["good", "", "a rather longer text that says more", "no"]


def backbone(folder: Path, kind: str = "gpt2") -> str:
    tiny_module(kind, sharp=3.0).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


def built(folder: Path, kind: str = "gpt2", lora: LoraSettings | None = None) -> TextClassifier:
    settings = ModelSettings(path=backbone(folder, kind), device="cpu", lora=lora)
    return build_classifier(settings, ["neg", "pos"], seed=1)


def learned(c: Any, trainable: dict[str, Any], lr: float, steps: int) -> list[int]:
    """The labels that it gives good and bad once it was shown that they are 1 and 0."""
    optimizer = torch.optim.Adam(trainable.values(), lr=lr)
    ids, mask = c.batch(c.encode(["good", "bad"]))
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(c.forward(ids, mask), torch.tensor([1, 0]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found: list[int] = c.probabilities(["good", "bad"]).argmax(1).tolist()
    return found


def saved_and_loaded(c: Any, folder: Path) -> Any:
    save_classifier(c, folder)
    return load_classifier(str(folder), device="cpu")


@pytest.mark.parametrize("kind", ("gpt2", "llama", "opt"))
@pytest.mark.parametrize("lora", (None, LoraSettings(rank=2)))
def test_a_new_classifier_learns_saves_and_loads(tmp_path: Path, kind: str, lora) -> None:  # type: ignore[no-untyped-def]
    c = built(tmp_path / "lm", kind, lora)
    trainable = {n: p for n, p in c.module.named_parameters() if p.requires_grad}
    if lora:
        assert all("lora" in n or n.endswith("score.weight") for n in trainable)
    assert any(n.endswith("score.weight") for n in trainable)
    assert learned(c, trainable, 1e-2, 30) == [1, 0]
    again = saved_and_loaded(c, tmp_path / "out")
    assert torch.equal(again.logits(TEXTS), c.logits(TEXTS))
    assert again.labels == ["neg", "pos"]
    size = sum(f.stat().st_size for f in (tmp_path / "out").glob("*.safetensors"))
    assert (size < 40_000) == (lora is not None)
    with pytest.raises(UserError, match="not empty"):
        save_classifier(c, tmp_path / "out")


def test_a_full_folder_is_an_ordinary_transformers_model(tmp_path: Path) -> None:
    c = built(tmp_path / "lm", "llama")
    save_classifier(c, tmp_path / "out")
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    ids, mask = c.batch(c.encode(["good"]))
    want = plain(input_ids=ids, attention_mask=mask.long()).logits
    torch.testing.assert_close(c.forward(ids, mask), want)
    assert plain.config.id2label == {0: "neg", 1: "pos"}


def test_an_adapter_on_other_weights_is_refused(tmp_path: Path) -> None:
    c = built(tmp_path / "lm", lora=LoraSettings(rank=2))
    save_classifier(c, tmp_path / "out")
    tiny_module("gpt2", seed=9).save_pretrained(tmp_path / "other")
    byte_tokenizer().save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="lacks the weights that it was trained on"):
        load_classifier(str(tmp_path / "out"), backbone=str(tmp_path / "other"), device="cpu")
    with pytest.raises(UserError, match=r"cannot load|there is no folder"):
        load_classifier(str(tmp_path / "nowhere"))


def ordinary(kind: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    common = {"vocab_size": VOCAB, "num_labels": 3, "pad_token_id": PAD}
    if kind == "bert":
        size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = BertConfig(**common, **size, intermediate_size=64, max_position_embeddings=64)
        return BertForSequenceClassification(config)
    config = GPT2Config(**common, n_positions=64, n_embd=32, n_layer=2, n_head=2)
    return GPT2ForSequenceClassification(config)


@pytest.mark.parametrize("kind", ("gpt2", "bert"))
def test_ordinary_models_load_and_say_what_transformers_says(tmp_path: Path, kind: str) -> None:
    model = ordinary(kind).eval()
    model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    c = load_classifier(str(tmp_path), device="cpu")
    got = c.probabilities(TEXTS, batch_size=3)
    for i, text in enumerate(TEXTS):
        ids = torch.tensor(c.encode([text]))
        want = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.softmax(-1)[0]
        torch.testing.assert_close(got[i], want.detach(), atol=1e-6, rtol=1e-4)


def test_long_texts_keep_their_end(tmp_path: Path) -> None:
    c = built(tmp_path / "lm")
    assert c.max_tokens == 64  # the backbone's positions
    text = "x" * 100 + "the end"
    assert torch.equal(c.logits([text]), c.logits([text[-64:]]))
    assert c.encode([text], max_tokens=7) == c.encode(["the end"])


def test_batches_do_not_matter(tmp_path: Path) -> None:
    c = built(tmp_path / "lm")
    one, all_ = c.logits(TEXTS, batch_size=1), c.logits(TEXTS, batch_size=4)
    torch.testing.assert_close(one, all_, atol=1e-5, rtol=0)


def test_threads_build_no_graph_and_do_not_collide(tmp_path: Path) -> None:
    c = built(tmp_path / "lm")
    want = c.logits(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: c.logits(TEXTS), range(12)):
            assert torch.equal(got, want) and not got.requires_grad


def test_a_tokenizer_is_entered_by_one_thread_at_a_time(tmp_path: Path) -> None:
    c = built(tmp_path / "lm")
    inner, inside = c.tokenizer, []

    class Watched:
        eos_token_id = pad_token_id = 0

        def __call__(self, texts: list[str], **options: object) -> object:
            inside.append(1)
            assert len(inside) == 1, "two threads inside one tokenizer"
            time.sleep(0.01)
            inside.pop()
            return inner(texts, **options)

    c.tokenizer = Watched()
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(lambda _: c.encode(["a"]), range(8)))) == 8


def test_one_label_is_a_sigmoid(tmp_path: Path) -> None:
    settings = ModelSettings(path=backbone(tmp_path / "lm"), device="cpu")
    c = build_classifier(settings, ["reward"])
    torch.testing.assert_close(c.probabilities(TEXTS), c.logits(TEXTS).sigmoid())


ENCODER_DECODERS = ("t5", "mt5", "bart", "mbart")


@pytest.mark.parametrize("kind", ENCODER_DECODERS)
@pytest.mark.parametrize("lora", (None, LoraSettings(rank=2)))
def test_encoder_decoders_save_and_load(tmp_path: Path, kind: str, lora) -> None:  # type: ignore[no-untyped-def]
    c = built(tmp_path / "lm", kind, lora)
    trainable = {n for n, p in c.module.named_parameters() if p.requires_grad}
    assert any("classification_head" in n for n in trainable)
    if lora:
        assert all("lora" in n or "classification_head" in n for n in trainable)
    save_classifier(c, tmp_path / "out")
    again = load_classifier(str(tmp_path / "out"), device="cpu")
    torch.testing.assert_close(again.logits(TEXTS), c.logits(TEXTS), atol=1e-6, rtol=0)
    one = torch.cat([c.logits([t]) for t in TEXTS])
    torch.testing.assert_close(c.logits(TEXTS), one, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ("t5", "bart"))
def test_an_encoder_decoder_keeps_the_language_models_weights(tmp_path: Path, kind: str) -> None:
    c = built(tmp_path / "lm", kind)
    lm = tiny_module(kind, sharp=3.0)
    theirs = dict(lm.get_encoder().named_parameters())
    mine = dict(c.core.get_encoder().named_parameters())
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(p, theirs[n]) for n, p in mine.items())


def test_their_rows_have_one_eos_at_the_end(tmp_path: Path) -> None:
    c = built(tmp_path / "lm", "t5")
    ab, ef = (c.tokenizer(t, add_special_tokens=False)["input_ids"] for t in ("ab", "ef"))
    assert c.encode(["ab", "", "a</s>b"]) == [[*ab, EOS], [EOS], [*ab, EOS]]
    assert c.encode(["abcdef"], max_tokens=3) == [[*ef, EOS]]
    assert torch.isfinite(c.logits(["ab", "", "a</s>b"])).all()


def test_models_without_a_head_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no classification head for marian models"):
        built(tmp_path / "lm", "marian")


def test_the_folder_of_a_run_will_do(tmp_path: Path) -> None:
    c = built(tmp_path / "lm")
    c.notes["scores"] = {"test": {"mean": 1.0, "std": 2.0}}
    save_classifier(c, tmp_path / "run" / "classifier")
    again = load_classifier(str(tmp_path / "run"), device="cpu")
    assert torch.equal(again.logits(TEXTS), c.logits(TEXTS))
    assert again.notes == c.notes


def test_completions_that_do_not_fit_are_told(tmp_path: Path) -> None:
    c = built(tmp_path / "lm")
    c.max_tokens = 5
    assert c.room == 5
    assert c.beyond(["12345", "123456", "", "éé", "ééé"]) == [1, 4]  # two bytes each
    assert c.lengths(["", "abc"]) == [0, 3]
    c = built(tmp_path / "lm5", "t5")
    c.max_tokens = 5
    assert c.room == 4 and c.beyond(["1234", "12345"]) == [1]  # one is for EOS


def framed_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes between [CLS] and [SEP], and no EOS."""
    inner = byte_tokenizer().backend_tokenizer
    inner.add_special_tokens(["[CLS]", "[SEP]"])
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=48,
    )  # fmt: skip


CLS, SEP = VOCAB, VOCAB + 1
COMMON = {"vocab_size": VOCAB + 2, "max_position_embeddings": 64}
SMALL = {**COMMON, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 64}  # fmt: skip
SHORT = {**COMMON, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "pad_token_id": PAD}
ENCODERS = {
    "bert": (BertConfig, BertForMaskedLM, {}),
    "roberta": (RobertaConfig, RobertaForMaskedLM, {"pad_token_id": 1}),  # positions begin after it
    "distilbert": (DistilBertConfig, DistilBertForMaskedLM, {}),
    "deberta-v2": (
        DebertaV2Config,
        DebertaV2ForMaskedLM,
        {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
    ),
}


def letters(text: str) -> list[int]:
    found: list[int] = byte_tokenizer()(text)["input_ids"]
    return found


def encoder(folder: Path, kind: str) -> str:
    """A masked language model, as encoders are published."""
    torch.manual_seed(0)
    config, model, own = ENCODERS[kind]
    sizes = {**SMALL, "pad_token_id": PAD} if kind != "distilbert" else SHORT
    made = model(config(**(sizes | own))).eval()
    with torch.no_grad():
        for p in made.parameters():
            p.mul_(3.0 if p.dim() > 1 else 1.0)  # a fresh model is nearly uniform
    made.save_pretrained(folder)
    framed_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("lora", (None, LoraSettings(rank=2)))
def test_an_encoder_learns_saves_and_loads(tmp_path: Path, kind: str, lora) -> None:  # type: ignore[no-untyped-def]
    settings = ModelSettings(path=encoder(tmp_path / "lm", kind), device="cpu", lora=lora)
    c = build_classifier(settings, ["neg", "pos"], seed=1)
    before = {n: p.detach().clone() for n, p in c.module.named_parameters()}
    trainable = {n: p for n, p in c.module.named_parameters() if p.requires_grad}
    assert any("classifier" in n for n in trainable)
    if lora:
        assert all("lora" in n or "classifier" in n or "pooler" in n for n in trainable)
    assert c.batch(c.encode(["good", "bad"]))[0][0].tolist() == [CLS, *letters("good"), SEP]
    assert learned(c, trainable, 3e-3, 40) == [1, 0]
    again = saved_and_loaded(c, tmp_path / "out")
    assert torch.equal(again.logits(TEXTS), c.logits(TEXTS))
    if not lora:  # the rates that it came with (transformers' .1), though it trained without
        kept, came = (rates_of(AutoConfig.from_pretrained(tmp_path / n)) for n in ("out", "lm"))
        assert kept == came and 0.1 in came.values()
    same = build_classifier(settings, ["neg", "pos"], seed=1)
    other = build_classifier(settings, ["neg", "pos"], seed=2)
    equal = {n for n, p in other.module.named_parameters() if torch.equal(p, before[n])}
    assert all(torch.equal(p, before[n]) for n, p in same.module.named_parameters())
    drawn = {n for n in before if n not in equal}
    assert drawn and all(any(x in n for x in ("classifier", "pooler", "lora_A")) for n in drawn)


def test_rows_of_an_encoder_stand_between_its_special_tokens(tmp_path: Path) -> None:
    settings = ModelSettings(path=encoder(tmp_path / "lm", "bert"), device="cpu")
    c = build_classifier(settings, ["score"], max_tokens=512)
    assert (c.max_tokens, c.room) == (48, 46)  # the tokenizer's limit
    long = c.encode(["x" * 40 + "0123456789" * 2])[0]
    assert len(long) == 48 and long[0] == CLS and long[-3:] == [*letters("89"), SEP]
    assert c.encode([""]) == [[CLS, SEP]]
    cut = [CLS, *letters("cut"), SEP]
    assert c.closed(cut[1:-1]) == c.closed(cut[:-1]) == c.closed(cut[1:]) == c.closed(cut) == cut
    assert c.closed([CLS, *letters("abcut"), SEP], 5) == cut


def test_encoders_that_cannot_be_read(tmp_path: Path) -> None:
    path = encoder(tmp_path / "lm", "bert")
    with pytest.raises(UserError, match=r"model\.adapter is for language models; .* is an encoder"):
        build_classifier(ModelSettings(path=path, device="cpu", adapter="x"), ["score"])
    BertForMaskedLM(BertConfig(**SMALL)).save_pretrained(tmp_path / "two")
    config = BertConfig(**(SMALL | {"num_hidden_layers": 3}), architectures=["BertForMaskedLM"])
    config.save_pretrained(tmp_path / "two")
    framed_tokenizer().save_pretrained(tmp_path / "two")
    with pytest.raises(UserError, match=r"lacks 'bert\.encoder\.layer\.2\."):
        build_classifier(ModelSettings(path=str(tmp_path / "two"), device="cpu"), ["score"])


def test_an_encoder_of_other_shapes_is_refused(tmp_path: Path) -> None:
    """The head's may differ, since it is a new one; the trunk would be random."""
    path = encoder(tmp_path / "lm", "bert")
    BertConfig(**(SMALL | {"intermediate_size": 48}), architectures=["BertForMaskedLM"]
               ).save_pretrained(path)  # fmt: skip
    said = r"lm' has 'bert\.encoder\.layer\.0\.intermediate\.dense.* of shape \[64.*says \[48"
    with pytest.raises(UserError, match=said):
        build_classifier(ModelSettings(path=path, device="cpu"), ["score"])
    three = BertConfig(**SMALL, pad_token_id=PAD, num_labels=3)
    BertForSequenceClassification(three).save_pretrained(tmp_path / "three")
    framed_tokenizer().save_pretrained(tmp_path / "three")
    settings = ModelSettings(path=str(tmp_path / "three"), device="cpu")
    assert build_classifier(settings, ["score"]).logits(["a"]).shape == (1, 1)


def test_the_seed_decides_an_encoder_without_training(tmp_path: Path) -> None:
    settings = ModelSettings(path=encoder(tmp_path / "lm", "bert"), device="cpu",
                             random_weights=True)  # fmt: skip

    def trunk(seed: int) -> torch.Tensor:
        core = build_classifier(settings, ["score"], seed=seed).core
        return core.bert.embeddings.word_embeddings.weight.detach()  # type: ignore[no-any-return]

    assert torch.equal(trunk(1), trunk(1)) and not torch.equal(trunk(1), trunk(2))


def test_an_encoders_tokenizer_is_of_the_models_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []
    plain = AutoTokenizer.from_pretrained

    def read(path: str, **where: object) -> object:
        asked.append(where)
        return plain(path)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", read)
    path = encoder(tmp_path / "lm", "bert")
    settings = ModelSettings(path=path, device="cpu", revision="abc", trust_remote_code=True)
    build_classifier(settings, ["score"])
    build_classifier(replace(settings, tokenizer=path), ["score"])
    assert asked == [{"revision": "abc", "trust_remote_code": True}, {"trust_remote_code": True}]


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_an_adapter_on_weights_that_were_drawn_is_found_again(tmp_path: Path, kind: str) -> None:
    """With whatever seed they were drawn: it decides the backbone too."""
    path = (encoder if kind == "bert" else backbone)(tmp_path / "lm", kind)
    lora = LoraSettings(rank=2)
    settings = ModelSettings(path=path, device="cpu", random_weights=True, lora=lora)
    c = build_classifier(settings, ["neg", "pos"], seed=3)
    again = saved_and_loaded(c, tmp_path / "out")
    assert torch.equal(again.logits(TEXTS), c.logits(TEXTS))
    once_more = saved_and_loaded(again, tmp_path / "twice")
    assert torch.equal(once_more.logits(TEXTS), c.logits(TEXTS))
