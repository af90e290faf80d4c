"""One face for both families: positions, logits at completion positions, hidden states, modes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers

from tests.models_for_tests import EOS, PAD, VOCAB, some_sequences, tiny
from tether.config.errors import UserError
from tether.models.language_model import LanguageModel, positions
from tether.models.scoring import score
from tether.types import Sequences

KINDS = ("gpt2", "llama", "opt", "t5", "bart")


def by_hand(lm: LanguageModel, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """[T] log-probs from the bare transformers model: one row, no padding, no position ids."""
    with torch.no_grad():
        if lm.seq2seq:
            logits = lm.module(
                input_ids=torch.tensor([prompt]),
                decoder_input_ids=torch.tensor([[lm.decoder_start, *completion[:-1]]]),
            ).logits[0]
        else:
            ids = torch.tensor([prompt + completion])
            logits = lm.module(input_ids=ids).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[range(len(completion)), completion]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_a_padded_batch_are_those_of_each_row_alone(kind: str) -> None:
    lm = tiny(kind, sharp=4.0)
    s = some_sequences(lm)
    with torch.no_grad():
        got = score(lm, s).logprobs
    for i in range(4):
        prompt = s.prompt[i][s.prompt_mask[i]].tolist()
        completion = s.completion[i][s.completion_mask[i]].tolist()
        want = by_hand(lm, prompt, completion)
        torch.testing.assert_close(got[i, : len(completion)], want, atol=2e-5, rtol=0)
        assert (got[i, len(completion) :] == 0).all()


def test_positions_count_real_tokens() -> None:
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]).bool()
    assert positions(mask).tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_are_the_last_layer_and_the_same_on_both_ways(kind: str) -> None:
    lm = tiny(kind, sharp=3.0)
    s = some_sequences(lm)
    with torch.no_grad():
        plain, none = lm.forward(s)
        logits, hidden = lm.forward(s, hidden=True)
        assert none is None and hidden is not None
        assert torch.equal(plain, logits)  # asking for states changes no bit
        assert logits.shape == (4, 6, lm.vocab_size) and hidden.shape == (4, 7, lm.hidden_size)
        torch.testing.assert_close(lm.hidden(s), hidden)
        scale = lm.hidden_size**-0.5 if kind == "t5" else 1.0  # T5 scales tied embeddings
        head = lm.core.get_output_embeddings()(hidden[:, :-1] * scale)
        head = head + dict(lm.core.named_buffers()).get("final_logits_bias", 0.0)
    torch.testing.assert_close(head, logits, atol=1e-5, rtol=1e-5)


def test_only_completion_positions_reach_the_vocabulary(tiny_llama: LanguageModel) -> None:
    s, widths = some_sequences(tiny_llama), []
    head = tiny_llama.core.get_output_embeddings()
    handle = head.register_forward_hook(lambda m, a, out: widths.append(out.shape[1]))
    tiny_llama.forward(s)
    handle.remove()
    assert widths == [7]  # T + 1, not P + T = 13


@pytest.mark.parametrize("kind", KINDS)
def test_values_at_masked_positions_change_nothing(kind: str) -> None:
    lm = tiny(kind, sharp=3.0)
    s = some_sequences(lm)
    other = replace(
        s,
        prompt=torch.where(s.prompt_mask, s.prompt, 77),
        completion=torch.where(s.completion_mask, s.completion, 88),
    )
    with torch.no_grad():
        torch.testing.assert_close(score(lm, s).logprobs, score(lm, other).logprobs)


@pytest.mark.parametrize("kind", ("gpt2", "t5"))
def test_encoder_states_can_be_handed_in(kind: str) -> None:
    lm = tiny(kind)
    s = some_sequences(lm)
    with torch.no_grad():
        states = lm.encode(s)
        assert (states is None) == (kind == "gpt2")
        if states is not None:
            torch.testing.assert_close(lm.forward(s, encoder=states)[0], lm.forward(s)[0])


def test_quiet_restores_the_mode_after_an_exception(tiny_gpt2: LanguageModel) -> None:
    tiny_gpt2.module.train()
    with pytest.raises(KeyError), tiny_gpt2.quiet():
        assert not tiny_gpt2.module.training and not torch.is_grad_enabled()
        raise KeyError
    assert tiny_gpt2.module.training and torch.is_grad_enabled()


def test_updating_trains_only_where_dropout_or_recomputation_asks(
    tiny_gpt2: LanguageModel,
) -> None:
    with tiny_gpt2.updating():
        assert not tiny_gpt2.module.training
    tiny_gpt2.dropout = True
    with tiny_gpt2.updating():
        assert tiny_gpt2.module.training
    assert not tiny_gpt2.module.training
    tiny_gpt2.dropout = False
    tiny_gpt2.core.gradient_checkpointing_enable({"use_reentrant": False})
    with tiny_gpt2.updating():
        assert tiny_gpt2.module.training


@pytest.mark.parametrize("kind", ("gpt2", "t5"))
def test_a_twin_is_equal_apart_and_tied(kind: str) -> None:
    lm = tiny(kind)
    s = some_sequences(lm)
    twin = lm.twin()
    with torch.no_grad():
        assert torch.equal(twin.forward(s)[0], lm.forward(s)[0])
        next(lm.module.parameters()).add_(1.0)
        assert not torch.equal(twin.forward(s)[0], lm.forward(s)[0])
    core = twin.core
    assert core.get_input_embeddings().weight is core.get_output_embeddings().weight
    assert not any(p.requires_grad for p in twin.module.parameters())
    assert all(p.requires_grad for p in lm.twin(trainable=True).module.parameters())


def test_a_twin_shares_what_is_frozen(tiny_gpt2: LanguageModel) -> None:
    frozen = tiny_gpt2.module.transformer.wpe.weight
    frozen.requires_grad_(False)
    assert tiny_gpt2.twin().module.transformer.wpe.weight is frozen


def test_limits_come_from_positions() -> None:
    assert tiny("gpt2").max_prompt_tokens(16) == 48
    bart = tiny("bart")  # encoder and decoder have their own
    assert bart.max_prompt_tokens(16) == bart.max_prompt_tokens(63) == 64
    with pytest.raises(UserError, match=r"64 does not fit the decoder.*use at most 63"):
        bart.max_prompt_tokens(64)
    with pytest.raises(UserError, match="row 2 has 65 tokens, the encoder 64 positions"):
        bart.check_length(65, 16, "row 2")
    assert tiny("t5").max_positions is None and tiny("t5").max_prompt_tokens(999) is None
    with pytest.raises(UserError, match=r"row 2 has 50 tokens.*64 positions leave 48"):
        tiny("gpt2").check_length(50, 16, "row 2")
    with pytest.raises(UserError, match="leaves no room for a prompt: the model has 64"):
        tiny("gpt2").max_prompt_tokens(64)


def test_an_encoder_may_read_more_than_the_decoder_writes() -> None:
    """LED: 64 positions for the encoder, 24 for the decoder, the first of them its start's."""
    both = {f"{side}_{k}": n for side in ("encoder", "decoder")
            for k, n in {"layers": 1, "attention_heads": 2, "ffn_dim": 32}.items()}  # fmt: skip
    config = transformers.LEDConfig(
        vocab_size=VOCAB, d_model=32, attention_window=4, decoder_start_token_id=EOS,
        max_encoder_position_embeddings=64, max_decoder_position_embeddings=24,
        pad_token_id=PAD, eos_token_id=EOS, bos_token_id=PAD + 2, **both,
    )  # fmt: skip
    lm = LanguageModel(transformers.LEDForConditionalGeneration(config), None, (EOS,), PAD)
    assert (lm.max_positions, lm.encoder_positions) == (24, 64)
    assert lm.max_prompt_tokens(23) == 64
    ids = torch.arange(64 + 23)[None] % 200
    full = Sequences(ids[:, :64], ids[:, :64] >= 0, ids[:, 64:], ids[:, 64:] >= 0)
    with torch.no_grad():
        assert lm.forward(full, hidden=True)[1].shape == (1, 24, 32)  # type: ignore[union-attr]
        with pytest.raises(IndexError):  # so one more token really is too many
            lm.forward(replace(full, completion=ids[:, -24:], completion_mask=ids[:, -24:] >= 0))
    with pytest.raises(UserError, match="use at most 23"):
        lm.max_prompt_tokens(24)


@pytest.mark.parametrize("kind", ("bart", "mbart", "marian", "pegasus", "opt", "gpt2"))
def test_the_longest_legal_sequence_runs_and_one_more_does_not(kind: str) -> None:
    lm = tiny(kind)
    new = 63 if lm.seq2seq else 60
    room = lm.max_prompt_tokens(new)
    assert room is not None
    ids = torch.arange(room + new)[None] % 200
    s = Sequences(ids[:, :room], ids[:, :room] >= 0, ids[:, room:], ids[:, room:] >= 0)
    with torch.no_grad():
        lm.forward(s, hidden=True)
        longer = torch.cat([s.completion, s.completion[:, :1]], 1)
        with pytest.raises(IndexError):
            lm.forward(replace(s, completion=longer, completion_mask=longer >= 0))


def test_a_model_without_stops_is_refused(tiny_gpt2: LanguageModel) -> None:
    with pytest.raises(UserError, match="needs a stop token"):
        LanguageModel(tiny_gpt2.module, None, (), PAD)


def test_the_shape_of_an_empty_completion(tiny_gpt2: LanguageModel) -> None:
    s = some_sequences(tiny_gpt2)
    empty = Sequences(s.prompt, s.prompt_mask, s.completion[:, :0], s.completion_mask[:, :0])
    logits, hidden = tiny_gpt2.forward(empty, hidden=True)
    assert logits.shape == (4, 0, tiny_gpt2.vocab_size)
    assert hidden is not None and hidden.shape == (4, 1, 32)
