"""Irregular English forms -> base forms: what a stemmer cannot see. A table, no rule."""

from __future__ import annotations

_VERBS = """
be am is are was were been being; have has had; do does did done; go goes went gone;
arise arose arisen; awake awoke awoken; bear bore borne born; beat beaten; become became;
begin began begun; bend bent; bind bound; bite bit bitten; bleed bled; blow blew blown;
break broke broken; breed bred; bring brought; build built; burn burnt; buy bought; catch caught;
choose chose chosen; cling clung; come came; creep crept; deal dealt; dig dug digging; dive dove;
draw drew drawn; dream dreamt; drink drank drunk; drive drove driven; dwell dwelt; eat ate eaten;
fall fell fallen; feed fed; feel felt; fight fought; find found; flee fled; fling flung;
fly flew flown flies; forget forgot forgotten; forgive forgave forgiven; freeze froze frozen;
get got gotten getting; give gave given; grind ground; grow grew grown; hang hung; hear heard;
hide hid hidden; hold held; keep kept; kneel knelt; know knew known; lay laid; lead led; lean leant;
leap leapt; learn learnt; leave left; lend lent; lie lay lain lying; light lit; lose lost;
make made; mean meant; meet met; mow mown; pay paid; prove proven; ride rode ridden; ring rang rung;
rise rose risen; run ran; saw sawn; say said; see saw seen; seek sought; sell sold; send sent;
sew sewn; shake shook shaken; shear shorn; shine shone; shoot shot; show shown;
shrink shrank shrunk; sing sang sung; sink sank sunk; sit sat; sleep slept; slide slid; sling slung;
smell smelt; sneak snuck; sow sown; speak spoke spoken; speed sped; spell spelt; spend spent;
spill spilt; spin spun; spit spat; spoil spoilt; spring sprang sprung; stand stood;
steal stole stolen; stick stuck; sting stung; stink stank stunk; stride strode stridden;
strike struck stricken; string strung; swear swore sworn; sweep swept; swell swollen;
swim swam swum; swing swung; take took taken; teach taught; tear tore torn; tell told;
think thought; throw threw thrown; tie tying; understand understood; wake woke woken;
wear wore worn; weave wove woven; weep wept; win won; wind wound; wring wrung; write wrote written;
die dying; dye dyeing; ski skis skied; tread trod trodden; undergo underwent; overcome overcame
"""
_NOUNS = """
man men; woman women; child children; foot feet; tooth teeth; goose geese; mouse mice; ox oxen;
person people persons; knife knives; wife wives; life lives; leaf leaves; shelf shelves;
half halves; loaf loaves; wolf wolves; calf calves; scarf scarves; hoof hooves; thief thieves;
elf elves; self selves; die dice; louse lice; cactus cacti; fungus fungi; policeman policemen;
fisherman fishermen; fireman firemen; salesman salesmen; snowman snowmen; cowboy cowboys;
sportsman sportsmen; horseman horsemen; businessman businessmen; grandchild grandchildren
"""


def _table(*texts: str) -> dict[str, tuple[str, ...]]:
    out: dict[str, tuple[str, ...]] = {}
    for line in ";".join(texts).split(";"):
        base, *others = line.split()
        for form in others:
            out[form] = (*out.get(form, ()), base)
    return out


BASE: dict[str, tuple[str, ...]] = _table(_VERBS, _NOUNS)
"""form -> base forms (several where the form is ambiguous: `saw`, `ground`)."""
