"""GGUF files once they are converted: the same model from a folder, whatever befalls that."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.models_for_tests import EOS, VOCAB, byte_tokenizer
from tether.config.errors import UserError
from tether.config.run import LoraSettings, ModelSettings
from tether.core import weights as w
from tether.models import gguf_cache, loading
from tether.models.classifier_loading import build_classifier, load_classifier, save_classifier
from tether.models.export import export
from tether.models.language_model import LanguageModel
from tether.models.loading import load_config, load_language_model

gguf = pytest.importorskip("gguf", reason="needs the package gguf")
WIDTH = 64


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TETHER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def nothing_is_noted() -> Iterator[None]:
    """A cache that does not work says so, and no test passes over that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(is not kept converted|is damaged)")
        yield


@pytest.fixture
def settings(tmp_path: Path) -> ModelSettings:
    return written(tmp_path / "model")


def written(folder: Path, seed: int = 0, arch: str = "llama") -> ModelSettings:
    """A GGUF file of one layer, its matrices in blocks of 8 bits with fp16 scales, no output
    matrix of its own."""
    folder.mkdir(exist_ok=True)
    file = gguf.GGUFWriter(folder / "tiny.gguf", arch)
    file.add_context_length(64)
    file.add_embedding_length(WIDTH)
    file.add_feed_forward_length(2 * WIDTH)
    file.add_block_count(1)
    file.add_head_count(2)
    file.add_head_count_kv(1 if arch == "llama" else [1])
    file.add_rope_freq_base(10_000.0)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_tokenizer_model("gpt2")
    file.add_token_list([f"t{i}" for i in range(VOCAB)])
    file.add_bos_token_id(EOS)
    file.add_eos_token_id(EOS)
    draw = np.random.default_rng(seed)
    norms = {"llama": ("output_norm", "attn_norm", "ffn_norm")}.get(
        arch, ("token_embd_norm", "attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm")
    )
    for name in norms:
        wide = WIDTH // 2 if name in ("attn_q_norm", "attn_k_norm") else WIDTH
        place = name if name in ("output_norm", "token_embd_norm") else f"blk.0.{name}"
        file.add_tensor(f"{place}.weight", draw.normal(1, 0.1, wide).astype(np.float32))
    shapes = {
        "token_embd": (VOCAB, WIDTH),
        "blk.0.attn_q": (WIDTH, WIDTH),
        "blk.0.attn_k": (WIDTH // 2, WIDTH),
        "blk.0.attn_v": (WIDTH // 2, WIDTH),
        "blk.0.attn_output": (WIDTH, WIDTH),
        "blk.0.ffn_gate": (2 * WIDTH, WIDTH),
        "blk.0.ffn_up": (2 * WIDTH, WIDTH),
        "blk.0.ffn_down": (WIDTH, 2 * WIDTH),
    }
    if arch == "lfm2":
        file.add_uint32("lfm2.shortconv.l_cache", 3)
    for name, shape in shapes.items():
        blocks = gguf.quants.quantize(
            draw.normal(0, 0.2, shape).astype(np.float32), gguf.GGMLQuantizationType.Q8_0
        )
        file.add_tensor(f"{name}.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    byte_tokenizer().save_pretrained(folder / "words")
    return ModelSettings(
        path=str(folder), gguf_file="tiny.gguf", tokenizer=str(folder / "words"), device="cpu"
    )


def directly(settings: ModelSettings, monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """Without a cache."""
    with monkeypatch.context() as patch:
        patch.setenv("TETHER_CACHE", "")
        return load_language_model(settings)


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one with each model that is read from a GGUF file, none of them packed."""
    seen: list[str] = []
    real = loading._forget_gguf

    def forget(module: Any) -> None:
        seen.append(str(module.dtype))
        real(module)

    monkeypatch.setattr(loading, "_forget_gguf", forget)
    return seen


def entries(cache: Path) -> list[Path]:
    return sorted(p.parent for p in cache.rglob(gguf_cache.COMPLETE))


def same(a: LanguageModel, b: LanguageModel) -> None:
    """Everything that a load decides, as far as anything acts on it."""
    one, two = a.module, b.module
    names = [n for n, _ in one.named_parameters()]
    assert names == [n for n, _ in two.named_parameters()]
    assert len(names) < len(one.state_dict())  # the tied head is one tensor with the embedding
    assert {p.dtype for p in two.parameters()} == {a.dtype}
    assert w.fingerprint(one) == w.fingerprint(two)
    live, kept = dict(one.named_buffers()), dict(two.named_buffers())
    assert live and w.fingerprint(live) == w.fingerprint(kept)
    assert one.config.to_dict() == two.config.to_dict()
    assert one.config.name_or_path == two.config.name_or_path
    assert one.name_or_path == two.name_or_path
    assert one.generation_config.to_dict() == two.generation_config.to_dict()
    assert vars(one.generation_config) == vars(two.generation_config)
    assert a.facts == b.facts and a.facts["gguf_file"] == "tiny.gguf"
    assert a.stops == b.stops and a.pad == b.pad


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float16"))
def test_a_cached_model_is_the_model(
    settings: ModelSettings, monkeypatch: pytest.MonkeyPatch, conversions: list[str], dtype: str
) -> None:
    settings = replace(settings, dtype=dtype)
    plain = directly(settings, monkeypatch)
    first = load_language_model(settings)
    assert len(conversions) == 2
    second = load_language_model(settings)
    assert len(conversions) == 2
    same(plain, first)
    same(plain, second)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float16"))
def test_blocks_that_are_unpacked_in_the_type_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """LFM2's are: bfloat16 weights are not rounded float32 weights, so neither may serve for the
    other."""
    if not hasattr(transformers, "GgufConfig"):
        pytest.skip("this transformers unpacks every file in float32")
    settings = written(tmp_path / "lfm2", arch="lfm2")
    wide = load_language_model(settings)
    load_language_model(replace(settings, dtype=dtype))
    plain = directly(replace(settings, dtype=dtype), monkeypatch)
    same(plain, load_language_model(replace(settings, dtype=dtype)))
    if dtype == "bfloat16":
        rounded = w.fingerprint(wide.module, rounded=torch.bfloat16)
        assert w.fingerprint(plain.module) != rounded


def test_a_later_load_reads_no_gguf(
    settings: ModelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_language_model(settings)

    def reads(*_: Any, **__: Any) -> None:
        raise AssertionError("the GGUF file was parsed")

    monkeypatch.setattr(gguf, "GGUFReader", reads)
    load_language_model(settings)
    with pytest.raises(AssertionError, match="was parsed"):
        directly(settings, monkeypatch)


def test_random_weights_need_the_configuration_alone(
    settings: ModelSettings, cache: Path, conversions: list[str]
) -> None:
    drawn = [load_language_model(replace(settings, random_weights=True)) for _ in range(2)]
    assert [e.name for e in entries(cache)] == ["config"] and conversions == []
    assert w.fingerprint(drawn[0].module) == w.fingerprint(drawn[1].module)
    assert load_config(settings).name_or_path == settings.path


def test_a_classifier_and_an_adapter_find_their_base(
    settings: ModelSettings, tmp_path: Path, conversions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they record of it (path, hash) is that of a direct load, and fits a cached one."""
    adapted = replace(settings, lora=LoraSettings(rank=2))
    with monkeypatch.context() as patch:
        patch.setenv("TETHER_CACHE", "")
        save_classifier(build_classifier(adapted, ["no", "yes"]), tmp_path / "direct")
        export(load_language_model(adapted), None, tmp_path / "adapter", merged=False)
    for name in ("first", "second"):
        save_classifier(build_classifier(adapted, ["no", "yes"]), tmp_path / name)
        export(load_language_model(adapted), None, tmp_path / f"{name}_adapter", merged=False)
        for ours, theirs in ((name, "direct"), (f"{name}_adapter", "adapter")):
            for file in (tmp_path / theirs).glob("*.json"):
                assert file.read_text() == (tmp_path / ours / file.name).read_text(), file
    assert len(conversions) == 3  # two without a cache, one with it
    load_classifier(str(tmp_path / "direct"), device="cpu")
    assert len(conversions) == 3


@pytest.mark.parametrize("harm", ("cut", "absent", "header", "marker"))
def test_a_damaged_entry_is_written_anew(
    settings: ModelSettings, cache: Path, conversions: list[str], harm: str
) -> None:
    before = load_language_model(settings)
    folder = next(e for e in entries(cache) if e.name == "float32")
    file = folder / "model.safetensors"
    size = file.stat().st_size
    if harm == "cut":
        os.truncate(file, size - 4)
    elif harm == "absent":
        file.unlink()
    elif harm == "header":  # at its full length: only reading it tells
        file.write_bytes(b"\xff" * size)
    else:
        (folder / gguf_cache.COMPLETE).write_text('{"model.safe')
    said = pytest.warns(UserWarning, match="is damaged") if harm == "header" else nullcontext()
    with said:
        same(before, load_language_model(settings))
    assert len(conversions) == 2 and file.stat().st_size == size
    same(before, load_language_model(settings))
    assert len(conversions) == 2


def test_other_content_is_another_entry(
    settings: ModelSettings, cache: Path, conversions: list[str]
) -> None:
    first = load_language_model(settings)
    file = Path(settings.path) / "tiny.gguf"
    size, stat = file.stat().st_size, file.stat()
    written(Path(settings.path), seed=1)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file.stat().st_size == size
    other = load_language_model(settings)
    assert w.fingerprint(first.module) != w.fingerprint(other.module)
    assert len(entries(cache)) == 4 and len(conversions) == 2
    moved = Path(settings.path).parent / "moved"
    shutil.copytree(settings.path, moved)
    again = load_language_model(replace(settings, path=str(moved)))
    assert w.fingerprint(again.module) == w.fingerprint(other.module)
    assert len(conversions) == 2 and again.facts["path"] == str(moved) == again.config.name_or_path


def test_other_versions_are_another_entry(
    settings: ModelSettings, conversions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_language_model(settings)
    for name in ("transformers", "gguf"):
        real = gguf_cache.version
        monkeypatch.setattr(
            gguf_cache, "version", lambda p, n=name, r=real: "99" if p == n else r(p)
        )
        load_language_model(settings)
    monkeypatch.setattr(gguf_cache, "FORMAT", 99)
    load_language_model(settings)
    assert len(conversions) == 4


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    settings: ModelSettings, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights would go under the name of the former content."""
    load_config(settings)
    real = loading._forget_gguf

    def forget(module: Any) -> None:
        written(Path(settings.path), seed=1)
        real(module)

    monkeypatch.setattr(loading, "_forget_gguf", forget)
    load_language_model(settings)
    assert [e.name for e in entries(cache)] == ["config"]


def test_a_cache_that_cannot_be_written_is_noted(
    settings: ModelSettings, cache: Path, conversions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_text("a file where the folder would be")
    with pytest.warns(UserWarning, match="not kept converted.*NotADirectory|FileExists"):
        first = load_language_model(settings)
    cache.unlink()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(gguf_cache, "_flush", full)
        with pytest.warns(UserWarning, match="not kept converted.*No space left"):
            same(first, load_language_model(settings))
    assert not entries(cache) and not list(cache.rglob("*.part"))
    load_language_model(settings)
    load_language_model(settings)
    assert len(conversions) == 3


def test_what_does_not_read_back_is_not_kept(
    settings: ModelSettings, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_config(settings)
    plain = directly(settings, monkeypatch)
    save = gguf_cache._save

    def another(module: Any, folder: Path) -> None:
        first = next(module.parameters()).data.view(-1)
        before = first[0].clone()
        first[0] += 1
        save(module, folder)
        first[0] = before

    monkeypatch.setattr(gguf_cache, "_save", another)
    with pytest.warns(UserWarning, match="does not read back bit for bit"):
        same(plain, load_language_model(settings))
    assert [e.name for e in entries(cache)] == ["config"]


def test_the_place_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TETHER_CACHE", "~/own")
    assert gguf_cache.root() == tmp_path / "own"
    monkeypatch.delenv("TETHER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert gguf_cache.root() == tmp_path / "xdg/tether"
    for unset in (lambda: monkeypatch.setenv("XDG_CACHE_HOME", ""),
                  lambda: monkeypatch.delenv("XDG_CACHE_HOME")):  # fmt: skip
        unset()
        assert gguf_cache.root() == tmp_path / ".cache/tether"
    monkeypatch.setenv("TETHER_CACHE", "")
    assert gguf_cache.root() is None


def test_an_empty_variable_switches_it_off(
    settings: ModelSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conversions: list[str]
) -> None:
    monkeypatch.setenv("TETHER_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load_language_model(settings)
    load_language_model(settings)
    assert len(conversions) == 2
    assert not (tmp_path / "home").exists() and not (tmp_path / "xdg").exists()


def test_mistakes_are_said_as_before(settings: ModelSettings, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot load.*nothing\.gguf"):
        load_language_model(replace(settings, gguf_file="nothing.gguf"))
    (Path(settings.path) / "empty.gguf").write_bytes(b"")
    with pytest.raises(Exception) as plain:
        transformers.AutoConfig.from_pretrained(settings.path, gguf_file="empty.gguf")
    with pytest.raises((type(plain.value), UserError)):
        load_language_model(replace(settings, gguf_file="empty.gguf"))


def test_a_file_of_that_name_in_the_working_directory(
    settings: ModelSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """transformers takes the weights from there and the configuration from the folder: then the
    folder's file does not say what is loaded."""
    here = tmp_path / "here"
    written(here, seed=1)
    monkeypatch.chdir(here)
    same(directly(settings, monkeypatch), load_language_model(settings))
    assert not cache.exists()
    monkeypatch.chdir(settings.path)
    load_language_model(settings)
    assert len(entries(cache)) == 2


def test_a_file_in_a_repository(
    settings: ModelSettings, conversions: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A hub's cache with two revisions, offline."""
    repository = tmp_path / "hub/models--some--one"
    hashes = {"main": "1" * 40, "older": "2" * 40}
    (repository / "refs").mkdir(parents=True)
    (repository / "snapshots").mkdir()
    for seed, (name, commit) in enumerate(hashes.items()):
        written(repository / "snapshots" / commit, seed=seed)
        (repository / "refs" / name).write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    remote = replace(settings, path="some/one")
    found = []
    for revision in (None, "older", hashes["older"]):
        now = replace(remote, revision=revision)
        plain = directly(now, monkeypatch)
        for _ in range(2):
            same(plain, load_language_model(now))
        assert plain.facts["path"] == "some/one"
        found.append(w.fingerprint(plain.module))
    assert found[0] != found[1] == found[2]
    assert len(conversions) == 3 + 2  # each directly; one a content


def _loads(settings: ModelSettings, start: Any, results: Any) -> None:
    count = 0
    real = loading._forget_gguf

    def forget(module: Any) -> None:
        nonlocal count
        count += 1
        time.sleep(0.5)  # long enough for the other one to come
        real(module)

    loading._forget_gguf = forget
    start.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        lm = load_language_model(settings)
    results.put((count, w.fingerprint(lm.module)))


def at_once(settings: ModelSettings, n: int) -> list[tuple[int, str]]:
    """(conversions, hash of the weights) of n processes that load at the same time."""
    fork = multiprocessing.get_context("fork")
    start, results = fork.Barrier(n), fork.Queue()
    workers = [fork.Process(target=_loads, args=(settings, start, results)) for _ in range(n)]
    for p in workers:
        p.start()
    out = [results.get(timeout=60) for _ in workers]
    for p in workers:
        p.join(60)
        assert p.exitcode == 0
    return out


def test_processes_at_once_convert_once(settings: ModelSettings, cache: Path) -> None:
    found = at_once(settings, 3)
    assert sorted(n for n, _ in found) == [0, 0, 1]
    assert len({h for _, h in found}) == 1 and len(entries(cache)) == 2
    assert not list(cache.rglob("*.part"))


def test_processes_at_once_without_locks(
    settings: ModelSettings, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each converts, and the first to end is whose entry stands."""

    def no_locks(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(gguf_cache.fcntl, "flock", no_locks)
    found = at_once(settings, 2)
    assert len({h for _, h in found}) == 1 and len(entries(cache)) == 2
    assert not list(cache.rglob("*.part"))


def test_a_hanging_process_is_waited_for_so_long(
    settings: ModelSettings, cache: Path, monkeypatch: pytest.MonkeyPatch, conversions: list[str]
) -> None:
    load_config(settings)
    folder = entries(cache)[0].parent
    monkeypatch.setattr(gguf_cache, "WAIT", 0.3)
    with open(folder / ".float32.lock", "a") as hanging:
        gguf_cache.fcntl.flock(hanging, gguf_cache.fcntl.LOCK_EX)
        start = time.monotonic()
        load_language_model(settings)
    assert time.monotonic() - start >= 0.3 and len(conversions) == 1
    assert len(entries(cache)) == 2


def test_what_a_killed_process_left(
    settings: ModelSettings, cache: Path, conversions: list[str]
) -> None:
    """Its lock is gone with it, and what it began is removed."""
    load_config(settings)
    folder = entries(cache)[0].parent
    (folder / ".float32.lock").write_text("")
    left = folder / ".float32.0123.part"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    load_language_model(settings)
    assert not left.exists() and len(entries(cache)) == 2
    sizes = json.loads((folder / "float32" / gguf_cache.COMPLETE).read_text())
    assert "model.safetensors" in sizes and "config.json" in sizes


def test_others_may_read_it(settings: ModelSettings, cache: Path) -> None:
    mask = os.umask(0o022)
    try:
        load_language_model(settings)
    finally:
        os.umask(mask)
    files = [f for f in cache.rglob("*") if f.is_file() and not f.name.startswith(".")]
    assert any(f.suffix == ".safetensors" for f in files)
    assert {f.stat().st_mode & 0o777 for f in files} == {0o644}


def test_what_cannot_be_read_is_no_entry(
    settings: ModelSettings, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_language_model(settings)
    (weights,) = cache.rglob("*.safetensors")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != weights)
    assert not gguf_cache._whole(weights.parent)
    monkeypatch.undo()
    assert gguf_cache._whole(weights.parent)


def test_no_room_to_read_it_back(
    settings: ModelSettings, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (gguf_cache._available() or 1) > 0
    monkeypatch.setattr(gguf_cache, "_available", lambda: 1000)
    with pytest.warns(UserWarning, match=r"1,000 of the [\d,]+ bytes to read it back are free"):
        warnings.filterwarnings("default", message=".*is not kept converted")
        load_language_model(settings)
    assert not list(cache.rglob("*.safetensors"))
