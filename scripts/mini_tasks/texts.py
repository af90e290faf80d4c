"""Templates of the miniature sets: films, scenes, reports, tables."""

from __future__ import annotations

from typing import Any

FILMS: dict[str, dict[str, list[str]]] = {
    "plain": {
        "open": [
            "I saw {film} last {day} with my sister.",
            "{film} is the new {genre} by {name} {surname}.",
            "We rented {film} because a friend had told us about it.",
            "I watched {film} on a plane to {town}.",
            "{film} came out in {year}, and I only got to it now.",
        ],
        "plot": [
            "It tells the story of {name2}, who comes home to {town} after {small} years.",
            "A young teacher called {name2} finds a letter that was written in {month}.",
            "{name2} and {name3} run a small hotel, and one night a stranger arrives.",
            "An old man in {town} has to sell the house where he grew up.",
            "Two brothers fall in love with the same woman in the summer of {year}.",
        ],
    },
    "good": {
        "middle": [
            "The acting is wonderful and the dialogue feels true.",
            "{name2} is played with great warmth, and I believed every word.",
            "The music is beautiful and never gets in the way.",
            "There is a scene at the station that I will not forget.",
            "It is funny and sad at the same time, which is hard to do.",
            "The camera finds lovely pictures in the plainest of rooms.",
            "The story takes its time, and it is worth every minute.",
            "The children in the film are a delight.",
        ],
        "close": [
            "I loved it and would gladly see it again.",
            "This is one of the best films of the year.",
            "Go and see it, you will not be sorry.",
            "I left the cinema happy.",
            "Ten out of ten from me.",
        ],
    },
    "bad": {
        "middle": [
            "The acting is wooden and the dialogue is awful.",
            "{name2} is played without any life, and I did not believe a word.",
            "The music is loud and gets on your nerves.",
            "There is a scene at the station that goes on for ever and leads nowhere.",
            "It wants to be funny and is only boring.",
            "The pictures are dark, and half of the time you cannot see what happens.",
            "The story makes no sense at all.",
            "The children in the film are simply annoying.",
        ],
        "close": [
            "I hated it and nearly walked out.",
            "This is one of the worst films of the year.",
            "Do not waste your money on it.",
            "I left the cinema angry.",
            "One out of ten, and that is generous.",
        ],
    },
}
"""Reviews: what is told, and what is thought of it."""

ANIMALS = ["dog", "cat", "horse", "goat", "sheep", "pony", "puppy", "fox"]
SCENES: list[dict[str, Any]] = [
    {
        "slots": {"animal": ANIMALS, "ground": ["field", "beach", "road", "yard", "park", "hill"]},
        "concepts": ["{animal}", "run", "{ground}"],
        "sentences": [
            "A {colour} {animal} is running across the {ground}.",
            "The {animal} runs over the {ground} in the morning.",
            "We saw a {animal} run down the {ground}.",
        ],
    },
    {
        "slots": {"who": ["man", "woman", "girl", "boy"], "tool": ["knife", "spoon", "fork"],
                  "food": ["apple", "cake", "cheese", "bread", "melon"]},
        "concepts": ["{who}", "cut", "{food}", "{tool}"],
        "sentences": [
            "The {who} cuts the {food} with a {tool}.",
            "A {who} is cutting some {food}, holding a {tool}.",
        ],
    },
    {
        "slots": {"who": ["child", "girl", "boy", "player"], "thing": ["ball", "stone", "stick"],
                  "goal": ["wall", "tree", "fence", "net"]},
        "concepts": ["{who}", "throw", "{thing}", "{goal}"],
        "sentences": [
            "A {who} throws the {thing} at the {goal}.",
            "The {who} is throwing a {thing} over the {goal}.",
            "The {who} will throw the {thing} against the {goal} again.",
        ],
    },
    {
        "slots": {"who": ["man", "woman", "student", "waiter"], "drink": ["coffee", "tea", "milk"],
                  "seat": ["table", "bench", "window", "fire"]},
        "concepts": ["{who}", "drink", "{drink}", "sit", "{seat}"],
        "sentences": [
            "The {who} sits by the {seat} and drinks {drink}.",
            "A {who} sitting near the {seat} is drinking {drink}.",
        ],
    },
    {
        "slots": {"who": ["girl", "boy", "woman", "man"], "place": ["house", "room", "shop", "car"],
                  "thing": ["letter", "book", "map", "menu"]},
        "concepts": ["{who}", "read", "{thing}", "{place}"],
        "sentences": [
            "A {who} is reading a {thing} in the {place}.",
            "The {who} reads the {thing} outside the {place}.",
            "In the {place} a {who} read the {thing} aloud.",
        ],
    },
    {
        "slots": {"who": ["farmer", "worker", "gardener"], "thing": ["tree", "wall", "gate"],
                  "paint": ["paint", "water", "oil"], "tool": ["brush", "bucket", "ladder"]},
        "concepts": ["{who}", "{paint}", "{thing}", "{tool}"],
        "sentences": [
            "The {who} carries a {tool} and some {paint} to the {thing}.",
            "With {paint} and a {tool} the {who} works on the {thing}.",
        ],
    },
]  # fmt: skip
"""Concepts and sentences that have all of them."""

REPORTS: list[dict[str, Any]] = [
    {
        "slots": {"what": ["bridge", "library", "school", "market hall"]},
        "article": [
            "{town} -- The old {what} of {town} will be closed from {day} on, the council said.",
            "Engineers found cracks in its walls when they looked at it in {month}.",
            "The repair is to cost {hundred} thousand dollars and take {small} months.",
            "'We are sorry for the trouble, but safety comes first,' said mayor {name} {surname}.",
            "The {what} was built in {year} and is used by {thousand} people every week.",
            "Shop owners nearby fear that they will lose customers.",
            "'Nobody has told us how people are to get here,' said {name2} {surname2}, a baker.",
            "A meeting for all who live in the quarter will be held next {day2}.",
        ],
        "highlights": [
            "The {what} of {town} closes on {day} after cracks were found .",
            "Its repair will take {small} months and cost {hundred} thousand dollars .",
            "Shop owners nearby fear that they will lose customers .",
        ],
    },
    {
        "slots": {"beast": ["dog", "cat", "parrot", "pony"]},
        "article": [
            "{town} -- A {beast} that had been missing for {small} weeks has been found.",
            "{name} {surname}, who is {small2} years old, lost it during a walk in {month}.",
            "Neighbours put up {hundred} posters, and the local radio asked people to look out.",
            "On {day} a bus driver saw the {beast} near the station and called the police.",
            "'It was hungry and tired, but it is well,' said {name2} {surname2}, a vet.",
            "The family lives in {town2}, more than {small} miles from the place.",
            "Nobody knows how the {beast} came so far.",
            "'We will never let it out of our sight again,' the child's mother said.",
        ],
        "highlights": [
            "A {beast} from {town2} has been found after {small} weeks .",
            "A bus driver saw it near the station of {town} on {day} .",
            "The vet says that it is hungry and tired but well .",
        ],
    },
    {
        "slots": {"game": ["football", "hockey", "rugby", "handball"]},
        "article": [
            "{town} -- The {game} team of {town} won the cup on {day} for the first time.",
            "It beat {town2} by {small} points before {thousand} people.",
            "{name} {surname} scored in the first minute and again just before the end.",
            "The visitors had the better of the second half but missed their chances.",
            "'I cannot find words for what this means to us,' said coach {name2} {surname2}.",
            "The club was founded in {year} and nearly had to close last {month}.",
            "A parade through the town is planned for {day2}.",
            "The players will meet the mayor on the same evening.",
        ],
        "highlights": [
            "{town} beat {town2} by {small} points and won the {game} cup .",
            "{name} {surname} scored in the first minute and before the end .",
            "A parade through the town is planned for {day2} .",
        ],
    },
]
"""Articles and their highlights, one a line, in the manner of CNN/DailyMail."""

TABLES: list[dict[str, Any]] = [
    {
        "page": "{town} Rovers",
        "section": "Players of the season",
        "names": ["Adam Cole", "Boris Lind", "Carl Moss", "Dan Pike", "Emil Rook", "Fred Shaw",
                  "Gus Tate", "Hugo Vane"],
        "header": ["Player", "Goals", "Matches", "Born", "Former club"],
        "cells": ["{points}", "{points2}", "{year}", "{town} United"],
        "sentences": [
            ("Matches", "{Player} scored {Goals} goals in {Matches} matches for {page}."),
            ("Matches", "In {Matches} matches for {page}, {Player} scored {Goals} goals."),
            ("Born", "{Player}, born in {Born}, scored {Goals} goals for {page}."),
            ("Born", "{Player} was born in {Born} and scored {Goals} goals."),
            ("Former club", "{Player} came from {Former club} and scored {Goals} goals."),
            ("Former club", "{Goals} goals were scored by {Player}, who came from {Former club}."),
        ],
    },
    {
        "page": "Rivers of {town} County",
        "section": "List of rivers",
        "names": ["Alder River", "Birch River", "Cold Creek", "Deer River", "Elm Creek",
                  "Fern River", "Gold Creek", "Heron River"],
        "header": ["River", "Length (km)", "Bridges", "Source", "Mouth"],
        "cells": ["{length}", "{points}", "Mount {surname}", "{town} Bay"],
        "sentences": [
            ("Bridges", "The {River} is {Length (km)} km long and has {Bridges} bridges."),
            ("Bridges", "{Bridges} bridges cross the {River}, which is {Length (km)} km long."),
            ("Source", "The {River} rises on {Source} and is {Length (km)} km long."),
            ("Source", "From {Source}, the {River} flows for {Length (km)} km."),
            ("Mouth", "The {River} flows into {Mouth} after {Length (km)} km."),
            ("Mouth", "After {Length (km)} km the {River} reaches {Mouth}."),
        ],
    },
    {
        "page": "{name} {surname}",
        "section": "Films",
        "names": ["The Long Road", "Winter Light", "A Quiet Harbour", "Glass Houses",
                  "The Last Train", "Paper Boats", "Northern Sky", "Second Chance"],
        "header": ["Film", "Year", "Role", "Director", "Award"],
        "cells": ["{year}", "{name}", "{name2} {surname}", "{town} Film Prize"],
        "sentences": [
            ("Role", "{page} played {Role} in the film {Film} ({Year})."),
            ("Role", "In {Year}, {page} appeared as {Role} in {Film}."),
            ("Director", "{page} appeared in {Film}, which {Director} directed in {Year}."),
            ("Director", "In {Year}, {page} appeared in {Film} by {Director}."),
            ("Award", "{page} won the {Award} for {Film} in {Year}."),
            ("Award", "In {Year}, {page} received the {Award} for {Film}."),
        ],
    },
]  # fmt: skip
"""Tables: the name of a row, the second column and one more are highlighted; the sentences are
marked by that third one."""
