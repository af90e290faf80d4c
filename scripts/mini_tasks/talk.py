"""Templates of the miniature sets: sentences in two languages, tales, conversations."""

from __future__ import annotations

from typing import Any

SINGULAR, PLURAL = 0, 1
TRANSLATION: dict[str, Any] = {
    "subjects": [
        {"en": "the teacher", "de": "der Lehrer", "number": SINGULAR},
        {"en": "my sister", "de": "meine Schwester", "number": SINGULAR},
        {"en": "the old man", "de": "der alte Mann", "number": SINGULAR},
        {"en": "a young woman", "de": "eine junge Frau", "number": SINGULAR},
        {"en": "the child", "de": "das Kind", "number": SINGULAR},
        {"en": "our neighbours", "de": "unsere Nachbarn", "number": PLURAL},
        {"en": "the children", "de": "die Kinder", "number": PLURAL},
        {"en": "two students", "de": "zwei Studenten", "number": PLURAL},
    ],
    "verbs": [
        {"en": ("reads", "read"), "de": ("liest", "lesen"), "takes": "text"},
        {"en": ("writes", "write"), "de": ("schreibt", "schreiben"), "takes": "text"},
        {"en": ("buys", "buy"), "de": ("kauft", "kaufen"), "takes": "thing"},
        {"en": ("finds", "find"), "de": ("findet", "finden"), "takes": "thing"},
        {"en": ("sees", "see"), "de": ("sieht", "sehen"), "takes": "thing"},
        {"en": ("eats", "eat"), "de": ("isst", "essen"), "takes": "food"},
    ],
    "objects": {
        "text": [
            {"en": "a book", "de": "ein Buch"},
            {"en": "a long letter", "de": "einen langen Brief"},
            {"en": "a short story", "de": "eine kurze Geschichte"},
        ],
        "thing": [
            {"en": "a red car", "de": "ein rotes Auto"},
            {"en": "a small house", "de": "ein kleines Haus"},
            {"en": "an old clock", "de": "eine alte Uhr"},
            {"en": "the green bag", "de": "die grüne Tasche"},
        ],
        "food": [
            {"en": "an apple", "de": "einen Apfel"},
            {"en": "bread and cheese", "de": "Brot und Käse"},
            {"en": "a warm soup", "de": "eine warme Suppe"},
        ],
    },
    "times": [
        {"en": "today", "de": "heute", "first": True},
        {"en": "today", "de": "heute", "first": False},
        {"en": "in the morning", "de": "am Morgen", "first": True},
        {"en": "every evening", "de": "jeden Abend", "first": True},
        {"en": "every day", "de": "jeden Tag", "first": False},
    ],
    "places": [
        {"en": "in the kitchen", "de": "in der Küche"},
        {"en": "in the city", "de": "in der Stadt"},
        {"en": "at the station", "de": "am Bahnhof"},
        {"en": "in the garden", "de": "im Garten"},
        {"en": "at school", "de": "in der Schule"},
    ],
}
"""Clauses that fit together in both languages; objects are in the accusative."""

STORY: dict[str, Any] = {
    "slots": {
        "man": ["Ben", "David", "Felix", "Henry", "Jack", "Leo", "Noah", "Paul", "Victor"],
        "girl": ["Anna", "Clara", "Ella", "Grace", "Ida", "Kate", "Maria", "Olivia", "Rosa"],
        "trade": ["miller", "fisherman", "tailor", "shepherd", "smith", "baker"],
        "treasure": ["golden ring", "silver cup", "old map", "magic lamp", "box of pearls"],
        "place": ["well", "forest", "castle", "cave", "church", "river"],
        "helper": ["a fox", "an owl", "an old woman", "a blind man", "a talking horse"],
        "foe": ["the king", "a thief", "a giant", "the rich merchant", "a witch"],
    },
    "parts": [
        [
            "{man} is a poor {trade} who lives with his daughter {girl} near the {place}.",
            "In the village of {town} there lives a {trade} called {man} with his daughter {girl}.",
        ],
        [
            "One winter he dreams of a {treasure} that lies hidden in the {place}.",
            "A letter tells him that a {treasure} is hidden in the {place}.",
        ],
        [
            "He sets out at night, and {helper} shows him the way.",
            "On the way he meets {helper}, who leads him there.",
        ],
        [
            "But {foe} has heard of the {treasure} too and takes it from him.",
            "No sooner has he found the {treasure} than {foe} steals it.",
        ],
        [
            "{girl} follows the trail for {small} days and wins it back with a riddle.",
            "After {small} days {girl} tricks the robber with a riddle and brings it home.",
        ],
        [
            "In the end they sell the {treasure} and buy back their house.",
            "They give the {treasure} to the poor and live in peace.",
        ],
    ],
    "questions": [
        ("What is {man}'s trade?", ["He is a {trade}.", "{trade}"]),
        ("Where is the {treasure} hidden?", ["In the {place}.", "It is in the {place}."]),
        ("Who shows {man} the way?", ["{helper}", "He is led by {helper}."]),
        ("Who takes the {treasure} from {man}?", ["{foe}", "It is taken by {foe}."]),
        ("Who is {girl}?", ["{man}'s daughter", "She is the daughter of {man}."]),
        ("How does {girl} get the {treasure} back?", ["With a riddle.", "By asking a riddle."]),
        ("How long does {girl} follow the trail?", ["{small} days", "For {small} days."]),
    ],
}
"""A tale in six parts, each told in two ways, and what may be asked about it."""

INFORM, QUESTION, DIRECTIVE, COMMISSIVE = 1, 2, 3, 4
CALM, HAPPY, SAD, SURPRISED = 0, 4, 5, 6
DIALOGUES: list[dict[str, Any]] = [
    {
        "slots": {"meal": ["soup", "fish", "steak", "salad", "pasta"],
                  "drink": ["tea", "coffee", "water", "juice"]},
        "turns": [
            (["Good evening. Are you ready to order?", "Good evening. May I take your order?"],
             QUESTION, CALM),
            (["Yes, I will have the {meal}, please.", "The {meal} for me, please."],
             DIRECTIVE, CALM),
            (["Would you like something to drink with it?", "And what would you like to drink?"],
             QUESTION, CALM),
            (["A {drink}, please.", "Just a {drink}, please."], DIRECTIVE, CALM),
            (["Is anybody else joining you, {name}?", "Are you waiting for a friend, {name}?"],
             QUESTION, CALM),
            (["Yes, {name2} will be here in {small} minutes.", "{name2} comes at {small}."],
             INFORM, CALM),
            (["Then I will bring your {drink} first.", "I will keep the table for you both."],
             COMMISSIVE, HAPPY),
        ],
    },
    {
        "slots": {"place": ["station", "museum", "market", "library"],
                  "way": ["bus", "train", "tram", "taxi"]},
        "turns": [
            (["Excuse me, how do I get to the {place}?", "Can you tell me the way to the {place}?"],
             QUESTION, CALM),
            (["Take the {way} to {town}.", "You had better take the {way} to {town}."],
             DIRECTIVE, CALM),
            (["How long does it take?", "Is it far from here?"], QUESTION, CALM),
            (["About {small} minutes.", "It is {small} stops from here."], INFORM, CALM),
            (["And where does the {way} leave?", "Where can I find the {way}?"], QUESTION, CALM),
            (["Over there, in front of the bank.", "Just around the corner, by the church."],
             INFORM, CALM),
            (["Thank you, you have been very kind.", "Thanks a lot, I will go there at once."],
             COMMISSIVE, HAPPY),
        ],
    },
    {
        "slots": {"subject": ["history", "physics", "French", "music", "chemistry"]},
        "turns": [
            (["You look tired, {name}. What is wrong?", "{name}, is everything all right?"],
             QUESTION, CALM),
            (["I failed my {subject} exam again.", "I did not pass in {subject}."], INFORM, SAD),
            (["Really? You worked so hard for it!", "What? But you knew everything!"],
             QUESTION, SURPRISED),
            (["I slept only {small} hours the night before.", "I had only {small} days to learn."],
             INFORM, SAD),
            (["When can you take it again?", "Is there another date?"], QUESTION, CALM),
            (["In {month}, on a {day}.", "There is one next {day}."], INFORM, CALM),
            (["Then let us study together.", "I will help you with {subject}, I promise."],
             COMMISSIVE, HAPPY),
        ],
    },
    {
        "slots": {"gift": ["watch", "guitar", "camera", "bicycle", "coat"]},
        "turns": [
            (["Guess what, {name}! I got a {gift}.", "Look, {name}, this is my new {gift}."],
             INFORM, HAPPY),
            (["How nice! Who gave it to you?", "It is lovely. Where is it from?"],
             QUESTION, SURPRISED),
            (["My aunt in {town} sent it for my birthday.", "My uncle bought it in {town}."],
             INFORM, HAPPY),
            (["Was it very expensive?", "It must have cost a lot."], QUESTION, CALM),
            (["I think it was {hundred} dollars.", "No, only {hundred} dollars."], INFORM, CALM),
            (["May I try it some time?", "Could I borrow it on {day}?"], QUESTION, CALM),
            (["Of course, come to my place on {day}.", "Sure, I will bring it on {day}."],
             COMMISSIVE, HAPPY),
        ],
    },
]  # fmt: skip
"""Conversations of seven turns: (what may be said, act, emotion)."""
