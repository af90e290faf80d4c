"""Tiny random models and a byte-level tokenizer, built in memory: no file, no hub."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tether.models.language_model import LanguageModel
from tether.types import Sequences

PAD, EOS, BOS = 256, 257, 258
VOCAB = 259
"""256 bytes and three special tokens."""


def byte_tokenizer(pad: bool = True, eos: bool = True) -> PreTrainedTokenizerFast:
    """One id a byte: `ok 🔥!` is 8 ids."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<pad>", "</s>", "<s>"])
    words: dict[str, Any] = {"bos_token": "<s>"}
    if pad:
        words["pad_token"] = "<pad>"
    if eos:
        words["eos_token"] = "</s>"
    return PreTrainedTokenizerFast(tokenizer_object=inner, **words)


def tiny_module(
    kind: str = "gpt2",
    *,
    vocab: int = VOCAB,
    width: int = 32,
    dropout: float = 0.0,
    seed: int = 0,
    sharp: float = 1.0,
    layers: int = 2,
) -> Any:
    """A random transformers model of a few ten thousand parameters. `sharp` scales the weights:
    a fresh model is nearly uniform, which hides faults. Most of a tiny model's time goes to its
    layers: one is enough where the model itself is not what is tested."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = _build(kind, vocab, width, dropout, layers)
    if sharp != 1.0:
        with torch.no_grad():
            for p in module.parameters():
                if p.dim() > 1 and p.requires_grad:  # not Marian's sinusoids
                    p.mul_(sharp)
    return module.eval()


def _build(kind: str, vocab: int, width: int, dropout: float, layers: int) -> Any:
    special: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": BOS}
    if vocab <= BOS:
        special = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    return _FAMILIES[kind]({"vocab_size": vocab, **special}, width, dropout, layers)


def _gpt2(common: dict[str, Any], width: int, dropout: float, layers: int) -> Any:
    drop = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    sizes = {"n_positions": 64, "n_embd": width, "n_layer": layers, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **drop, **common))


def _decoder(name: str, **own: Any) -> Any:
    """Families with Llama's names for sizes; `own` overrides, with widths as multiples."""

    def build(common: dict[str, Any], width: int, dropout: float, layers: int) -> Any:
        sizes: dict[str, Any] = {
            "num_attention_heads": 2,
            "num_hidden_layers": layers,
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "max_position_embeddings": 64,
            "attention_dropout": dropout,
        }
        sizes |= {"num_key_value_heads": 1} if name not in ("GPTNeoX", "Phi") else {}
        sizes |= {"head_dim": width // 2} if "Gemma" in name or name == "Qwen3" else {}
        config, model = f"{name}Config", f"{name}ForCausalLM"
        if name == "Gemma3":
            config = "Gemma3TextConfig"
        chosen = getattr(transformers, config)(**(sizes | own), **common)
        return getattr(transformers, model)(chosen)

    return build


def _opt(projected: bool) -> Any:
    """350m-style: embeddings narrower than the layers, projected in and out, norms after."""

    def build(common: dict[str, Any], width: int, dropout: float, layers: int) -> Any:
        config = transformers.OPTConfig(
            ffn_dim=2 * width,
            word_embed_proj_dim=width // 2 if projected else width,
            do_layer_norm_before=not projected,
            dropout=dropout,
            num_attention_heads=2,
            num_hidden_layers=layers,
            hidden_size=width,
            max_position_embeddings=64,
            **common,
        )
        return transformers.OPTForCausalLM(config)

    return build


def _bart_like(name: str, model: str, start: str = "pad_token_id", **own: Any) -> Any:
    """BART and its kin: learned or sinusoidal positions, a bias on the logits (random here, so
    that one which is forgotten shows)."""

    def build(common: dict[str, Any], width: int, dropout: float, layers: int) -> Any:
        sizes = {"layers": layers, **_BART}
        both = {f"{side}_{k}": n for side in ("encoder", "decoder") for k, n in sizes.items()}
        config = getattr(transformers, f"{name}Config")(
            d_model=width,
            dropout=dropout,
            max_position_embeddings=64,
            decoder_start_token_id=common[start],
            **both,
            **common,
            **own,
        )
        module = getattr(transformers, model)(config)
        with torch.no_grad():
            module.final_logits_bias.normal_()
        return module

    return build


_BART = {"attention_heads": 2, "ffn_dim": 64}


def _t5(name: str, **own: Any) -> Any:
    def build(common: dict[str, Any], width: int, dropout: float, layers: int) -> Any:
        config = getattr(transformers, f"{name}Config")(
            d_model=width,
            d_kv=16,
            d_ff=2 * width,
            num_layers=layers,
            num_heads=2,
            dropout_rate=dropout,
            decoder_start_token_id=common["pad_token_id"],
            **{k: v for k, v in common.items() if k != "bos_token_id"},
            **own,
        )
        return getattr(transformers, f"{name}ForConditionalGeneration")(config)

    return build


_WINDOW = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
_FAMILIES: dict[str, Any] = {
    "gpt2": _gpt2,
    "opt": _opt(projected=False),
    "opt_projected": _opt(projected=True),
    "gpt_neox": _decoder("GPTNeoX"),
    "llama": _decoder("Llama"),
    "qwen2": _decoder("Qwen2"),
    "qwen3": _decoder("Qwen3"),
    "gemma": _decoder("Gemma"),
    "gemma2": _decoder(
        "Gemma2", attn_logit_softcapping=0.5, final_logit_softcapping=1.5, **_WINDOW
    ),
    "gemma3": _decoder("Gemma3", **_WINDOW),
    "phi": _decoder("Phi"),
    "bart": _bart_like("Bart", "BartForConditionalGeneration", "eos_token_id"),
    "mbart": _bart_like("MBart", "MBartForConditionalGeneration", "bos_token_id"),
    "marian": _bart_like("Marian", "MarianMTModel"),
    "pegasus": _bart_like("Pegasus", "PegasusForConditionalGeneration"),
    "t5": _t5("T5"),
    "mt5": _t5("MT5", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}

CAUSAL = (
    "gpt2", "opt", "opt_projected", "gpt_neox", "llama", "qwen2", "qwen3", "gemma", "gemma2",
    "gemma3", "phi",
)  # fmt: skip
ENCODER_DECODER = ("t5", "mt5", "bart", "mbart", "marian", "pegasus")


def tiny(kind: str = "gpt2", **options: Any) -> LanguageModel:
    """A tiny language model with the byte tokenizer (where the vocabulary is the default one)."""
    module = tiny_module(kind, **options)
    if options.get("vocab", VOCAB) != VOCAB:
        return LanguageModel(module, None, (1,), 0)
    tokenizer = byte_tokenizer()
    lm = LanguageModel(module, tokenizer, (EOS,), PAD)
    tokenizer.padding_side = lm.padding_side
    return lm


def some_prompts(lm: LanguageModel, lengths: tuple[int, ...] = (5, 3, 7, 1)) -> Sequences:
    """Prompts of several lengths, padded on the model's side, with no completion yet."""
    from tether.models.tokenizing import pad

    rows = [
        [(7 * i + 3 * j) % 200 % lm.vocab_size for j in range(n)] for i, n in enumerate(lengths)
    ]
    rows = [[max(2, x) for x in row] for row in rows]
    ids, mask = pad(rows, lm.padding_side, lm.pad)
    empty = torch.zeros((len(rows), 0), dtype=torch.long)
    return Sequences(ids, mask, empty, empty.bool())


def some_sequences(lm: LanguageModel, length: int = 6, seed: int = 0) -> Sequences:
    """Prompts with random completions of `length`, the second one shorter."""
    s = some_prompts(lm)
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, min(200, lm.vocab_size), (4, length), generator=rng)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, length // 2 :] = False
    ids = torch.where(mask, ids, lm.pad)
    return Sequences(s.prompt, s.prompt_mask, ids, mask)


def take_gradients(sets: Any) -> None:
    """The working tensors' gradients to the fp32 masters, as the trainer's optimizer does."""
    for name, work in sets.working["policy"].items():
        master = sets.sets["policy"][name]
        if master is not work:
            master.grad, work.grad = (None if work.grad is None else work.grad.float()), None
