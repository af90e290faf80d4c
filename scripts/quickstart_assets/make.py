"""Make the bundled material of `tether quickstart` from sampled texts.

    python make.py --texts reviews.jsonl.gz --out ../../src/tether/studies/quickstart_assets \
        --epochs 8

Steps: clean the texts, split them, train the tokenizer and the language model, fit the lexicon,
write prompts, texts of two other kinds, notice and manifest (size and SHA-256 of each file).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import language_model
import lexicon
import texts
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SIZES = {"train": 768, "validation": 192, "test": 384}
OTHER_DOMAIN_TEXTS = 64
LIMIT = 4_000_000
NOTICE = """What lies here was made by scripts/quickstart_assets (in the source repository).

All texts (prompts/*.jsonl, other/*.txt) and the words of reward/lexicon.json come from texts
sampled from SmolLM2-135M-Instruct (Hugging Face, Apache License 2.0,
https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct). Nobody wrote these reviews, and the
films do not exist. model/ is a language model of about a million parameters trained from random
weights on such texts, with a byte-level BPE tokenizer of its own; no weight of SmolLM2 is in it.
Everything here is distributed under the Apache License 2.0, like tether itself.

manifest.json has the size and the SHA-256 of each file.
"""


def write_jsonl(path: Path, rows: list[texts.Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def manifest(folder: Path, facts: dict[str, object]) -> dict[str, object]:
    """Facts of the making, and {path: {bytes, sha256}} of every other file of the folder."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "manifest.json":
            data = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {"facts": facts, "files": files}


def make_model(
    train: list[texts.Row], held_out: list[texts.Row], args: argparse.Namespace
) -> dict[str, object]:
    """Tokenizer and language model into `model/`; what is worth knowing about them."""
    tokenizer = language_model.train_tokenizer([r["text"] for r in train])
    encoded = language_model.encode(tokenizer, [r["text"] for r in train])
    unseen = language_model.encode(tokenizer, [r["text"] for r in held_out])
    print(f"{sum(map(len, encoded))} tokens, longest {max(map(len, encoded))}")
    model, facts = language_model.train(
        encoded, unseen, len(tokenizer), epochs=args.epochs, dropout=args.dropout, seed=args.seed
    )
    facts["parameters"] = sum(p.numel() for p in model.parameters())
    facts["training_texts"] = len(train)
    language_model.save(model, tokenizer, args.out / "model")
    return facts


def show(folder: Path) -> None:
    """Print sampled completions, for a person to judge."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    torch.manual_seed(0)
    for start in ["I liked the", "This film is", "The story", "My wife and I"] * 3:
        ids = torch.tensor([tokenizer(start)["input_ids"]])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=48
        )
        print("  " + tokenizer.decode(out[0], skip_special_tokens=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=8.0, help="of training the model")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--keep-model", action="store_true", help="keep the model in --out, make the rest again"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    rows = texts.clean(texts.read_rows(args.texts))
    train, held_out = texts.split(rows)
    print(f"{len(train)} + {len(held_out)} film texts", Counter(r["mood"] for r in train))
    scale = min(1.0, len(held_out) / 3000)  # a trial with few texts
    sizes = {k: max(8, int(v * scale)) for k, v in SIZES.items()}

    old = json.loads((args.out / "manifest.json").read_text()) if args.keep_model else {}
    for path in args.out.iterdir() if args.out.exists() else ():
        if path.is_dir() and not (args.keep_model and path.name == "model"):
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
    for name, found in texts.prompts(held_out, sizes).items():
        write_jsonl(args.out / "prompts" / f"{name}.jsonl", found)
    for domain in sorted({r["domain"] for r in rows} - {"film"}):
        found = [r["text"] for r in rows if r["domain"] == domain][:OTHER_DOMAIN_TEXTS]
        path = args.out / "other" / f"{domain}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(found) + "\n", encoding="utf-8")
    weights = lexicon.fit(train)
    path = args.out / "reward" / "lexicon.json"
    path.parent.mkdir()
    path.write_text(json.dumps(weights, indent=0) + "\n", encoding="utf-8")

    facts = old["facts"] if args.keep_model else make_model(train, held_out, args)
    (args.out / "NOTICE.txt").write_text(NOTICE, encoding="utf-8")
    made = manifest(args.out, facts)
    (args.out / "manifest.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")

    show(args.out / "model")
    total = sum(p.stat().st_size for p in args.out.rglob("*") if p.is_file())
    print(json.dumps(facts), f"{total / 1e6:.2f} MB")
    if total > LIMIT:
        raise SystemExit(f"{total} bytes are more than {LIMIT}")


if __name__ == "__main__":
    main()
