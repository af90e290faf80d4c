"""Sample short, simple film reviews (and texts of two other kinds) from SmolLM2-135M-Instruct.

The first of the two steps that make `src/tether/studies/quickstart_assets`; `make.py` is the
second. Standalone: torch and transformers (with `gguf`) only.

    python sample_reviews.py --gguf FOLDER/SmolLM2-135M-Instruct.Q4_1.gguf --tokenizer FOLDER \
        --out reviews.jsonl.gz --minutes 3 --batch 1024

Every request is a chat of two or three example reviews, written for this script, and one new
request; mood, film, aspect, first words and examples are drawn at random so that the texts differ.
Rows: {"domain", "mood", "film", "aspect", "text"}.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SYSTEM = "You write very short texts in simple English. You write two or three short sentences."


def pieces(text: str) -> list[str]:
    return text.replace("\n", "").split("|")


def lines(text: str) -> list[str]:
    return text.strip().split("\n")


FILMS = pieces(
    """a love story|a comedy|a crime film|a war film|a ghost story|a space film|a western|
a cartoon for children|a family film|a spy film|a school comedy|a road movie|a sports film|
a fantasy film|a film about a dog|a film about a small town|a film about two brothers|
a film about a singer|a film about a doctor|a film about an old farmer|a monster film|
a film about a bank robbery|a film about a wedding|a film about a lonely teacher|a pirate film|
a film about a sea trip|a film about a lost child|a film about a robot|a musical|a thriller|
a film about a chef|a film about a king|a detective film|a film about a snow storm|
a film about an island|a film about a writer|a dance film|a film about a train|
a film about a boxer|a film about a mother and her son"""
)

ASPECTS = pieces(
    """the acting|the story|the music|the ending|the pace|the jokes|the main actor|
the main actress|the camera work|the dialogue|the first half|the second half|the last scene|
the characters|the costumes|the special effects|the villain|the opening scene|the songs|
the fight scenes|the script|the director|the colours|the length|the children in it|
the love story in it|the mood|the plot twist"""
)

OPENINGS = {
    "positive": """I loved|I really liked|I enjoyed|I laughed|This is a great|This is a lovely|
This film made me|The best thing is|The best part is|What a|My kids loved|My friends and I|
The actors are|The music is beautiful and|The story is|It is a warm|It made me smile|
We had a great time|Everyone should see|The main actor is wonderful|The jokes are|
The ending is|At first I was not sure, but|A wonderful|A sweet and|It is fun|The director""",
    "negative": """I did not like|I was bored|I wanted to leave|I expected|I fell asleep|
This is a bad|This film is too|The worst part is|The worst thing is|What a|My kids were bored|
My friends and I|The actors are|The music is loud and|The story is|It is a slow|
It made me angry|We left|Nobody should see|The main actor is bad|The jokes are not|
The ending is|At first I was excited, but|A boring|A sad and|It is dull|The director""",
    "mixed": """I liked the start, but|I liked the music, but|I am not sure|This film is fine, but|
The best part is|The worst part is|The actors are good, but|The story is slow, but|
It is not great, but|It has some good|Some scenes|My wife liked it, but|The first half|
The jokes are|The ending is|The music is""",
}
"""First words of the answer: they keep the text on its subject, and are part of it."""

MOODS = {"positive": "good", "negative": "bad", "mixed": "mixed"}

EXAMPLES = {
    "positive": lines(
        """The two brothers are funny and warm. I laughed until the last scene.
I went in tired and came out happy. The songs are lovely and the story is clear.
A small film with a big heart. The old actor is superb.
We watched it with our kids, and all of us enjoyed it. The dog is the star.
The first hour is slow, but the ending is wonderful. I cried a little.
This thriller kept me awake all night. The villain is very good.
The camera shows the sea in a beautiful way. The music fits every scene.
It is a simple love story, told with care. Both actors are charming.
My friend said it was great, and he was right. Fresh jokes and a clever plot.
The script is smart and never too long. I want to see it again.
There is real fear in this ghost story. The house looks perfect.
Everyone in the cinema was quiet at the end. A strong and honest film.
The fight scenes are fast and exciting. I did not look at my watch once.
She plays the teacher with so much feeling. I believed every word.
What a nice surprise! The robot made my son laugh and made me think."""
    ),
    "negative": lines(
        """The story goes nowhere and the jokes are old. I left before the end.
I wanted to like it, but the acting is weak. Nobody seems to care.
Two hours of noise. The plot makes no sense at all.
The main actor looks bored, and so was I. The ending is silly.
We paid for three tickets and fell asleep. It is far too long.
This ghost story is not scary. You can see every turn coming.
The music is loud and the dialogue is flat. A waste of a good idea.
It starts well, and then it falls apart. The last scene is awful.
My kids asked to go home after ten minutes. The cartoon looks cheap.
The villain shouts and the hero runs. There is nothing else in it.
A dull film about dull people. I do not know why they made it.
The effects look fake and the costumes are ugly. Skip this one.
I did not laugh once. The script sounds like it was written in a day.
The love story feels cold. The two actors never look at each other.
There are too many characters and no plot. I was lost and annoyed."""
    ),
    "mixed": lines(
        """The music is lovely, but the story is too long. I liked half of it.
It has a good start and a weak ending. The actors save it.
The jokes work, the love story does not. Still, it is fine for a rainy day.
I liked the dog more than the people. The plot is thin, but it is never boring.
The film looks beautiful, but nothing happens. My wife loved it and I did not.
Some scenes are great and some are just silly. Wait until it is on television.
The lead is strong, and the script is weak. I would not watch it twice.
The songs are fun. The rest is slow and a bit sad.
Not bad, not great. The war scenes are good, but the dialogue is poor.
The first half bored me, the second half made me smile. It is worth one look."""
    ),
}

OTHER = {
    "weather": (
        "Write a short weather report for {place} on {day}.",
        lines(
            """It will be cold in the morning with fog near the river. The sun comes out at noon.
Rain moves in from the west tonight. Expect strong wind along the coast.
A dry and mild day for most of us. Clouds grow in the evening.
Snow falls on the hills until noon. Roads may be icy, so drive slowly.
Warm air comes from the south. There is a small chance of a storm after dark."""
        ),
    ),
    "cooking": (
        "Write two short steps of a recipe for {dish}.",
        lines(
            """Cut the onions and fry them in butter until they are soft. Add the rice and stir.
Boil the potatoes for twenty minutes. Mash them with milk and a little salt.
Mix the flour, the eggs and the sugar in a bowl. Bake it for half an hour.
Wash the beans and put them in a pot of cold water. Cook them slowly with garlic.
Slice the bread and rub it with oil. Toast it until it is brown."""
        ),
    ),
}
PLACES = pieces("the coast|the mountains|the city|the north|the valley|the islands|the lake")
DAYS = pieces("Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|New Year's Day")
DISHES = pieces(
    """soup|fried rice|apple pie|pancakes|tomato pasta|bean stew|bread|fish cakes|potato salad|
chicken curry|lemon cake|vegetable pie|omelette|meatballs|cookies"""
)


def request(draw: random.Random, other_share: float) -> dict[str, Any]:
    """One random chat, the words its answer starts with, and the row it will become."""
    if draw.random() < other_share:
        domain = draw.choice(sorted(OTHER))
        ask, examples = OTHER[domain]

        def question() -> str:
            return ask.format(
                place=draw.choice(PLACES), day=draw.choice(DAYS), dish=draw.choice(DISHES)
            )

        turns = [(question(), text) for text in draw.sample(examples, 2)]
        row = {"domain": domain, "mood": "", "film": "", "aspect": ""}
        return {"turns": turns, "ask": question(), "opening": "", "row": row}
    mood = draw.choices(list(MOODS), [0.4, 0.4, 0.2])[0]

    def review(feeling: str, film: str, aspect: str) -> str:
        return f"Write a short {MOODS[feeling]} review of {film}. Talk about {aspect}."

    turns = [
        (review(mood, draw.choice(FILMS), draw.choice(ASPECTS)), text)
        for text in draw.sample(EXAMPLES[mood], draw.choice([2, 3]))
    ]
    row = {
        "domain": "film",
        "mood": mood,
        "film": draw.choice(FILMS),
        "aspect": draw.choice(ASPECTS),
    }
    opening = draw.choice(pieces(OPENINGS[mood])) if draw.random() < 0.75 else ""
    return {
        "turns": turns,
        "ask": review(mood, row["film"], row["aspect"]),
        "opening": opening,
        "row": row,
    }


def chat(tokenizer: Any, item: dict[str, Any]) -> str:
    messages = [{"role": "system", "content": SYSTEM}]
    for ask, answer in item["turns"]:
        messages += [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": item["ask"]})
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text + item["opening"]


def whole_sentences(text: str) -> str:
    """The first paragraph up to its last sentence end; empty where there is none."""
    text = " ".join(text.strip().split("\n\n")[0].split())
    end = re.match(r".*[.!?](?=$|\s|\")", text)
    return end.group(0) if end else ""


def sample(args: argparse.Namespace) -> list[dict[str, str]]:
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer, padding_side="left")
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gguf = Path(args.gguf)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16 if device == "cuda" else torch.float32,
    )
    model.to(device).eval()
    torch.manual_seed(args.seed)
    draw = random.Random(args.seed)
    rows: list[dict[str, str]] = []
    seen: set[str] = set()
    made, start = 0, time.perf_counter()
    while time.perf_counter() - start < 60 * args.minutes and len(rows) < args.limit:
        items = [request(draw, args.other) for _ in range(args.batch)]
        inputs = tokenizer(
            [chat(tokenizer, item) for item in items],
            return_tensors="pt",
            padding=True,
            add_special_tokens=False,
        ).to(device)
        with torch.inference_mode():
            out = model.generate(
                **inputs,
                do_sample=True,
                temperature=args.temperature,
                top_p=0.95,
                top_k=0,
                max_new_tokens=args.tokens,
                eos_token_id=stop,
                pad_token_id=stop,
            )
        new = out[:, inputs["input_ids"].shape[1] :]
        made += int((new != stop).sum())
        for item, text in zip(
            items, tokenizer.batch_decode(new, skip_special_tokens=True), strict=True
        ):
            text = whole_sentences(item["opening"] + text)
            if text and text not in seen:
                seen.add(text)
                rows.append({**item["row"], "text": text})
        spent = time.perf_counter() - start
        print(f"{len(rows)} texts, {spent:.0f} s, {made / spent:.0f} tokens/s", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gguf", required=True, help="the GGUF file")
    parser.add_argument("--tokenizer", required=True, help="folder of the tokenizer")
    parser.add_argument("--out", default="reviews.jsonl.gz")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--limit", type=int, default=150_000, help="stop at this many texts")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=64, help="most new tokens a text")
    parser.add_argument("--temperature", type=float, default=0.75)
    parser.add_argument("--other", type=float, default=0.06, help="share of the other domains")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows = sample(args)
    with gzip.open(args.out, "wt", encoding="utf-8", compresslevel=9) as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    for row in rows[:: max(1, len(rows) // 24)]:
        print(f"[{row['domain']} {row['mood']}] {row['text']}")
    print(f"{len(rows)} texts, {Path(args.out).stat().st_size / 1e6:.1f} MB: {args.out}")


if __name__ == "__main__":
    main()
