# SPDX-License-Identifier: Apache-2.0
"""The notes of an invented user, Nell, for the recipe "write like me".

Nell mends books in the library of a harbour town and keeps a diary of a few short sentences a day. She is no real person.
Her facts stay the same from note to note (Biscuit the dog, Hugo and his cello, the canal path, plum cake for Ravi). So does
her style: no "I", ratings, "Onward." Yet no validation note shares a run of eight words or tokens with a training note. So a
model's gain on unseen notes is not text that it memorised.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Sequence

Encode = Callable[[str], Sequence[int]]
GRAM = 8  # length of the runs, in words or in tokens, that validation may not share with training
WORD = re.compile(r"\w+")
SLOT = re.compile(r"\{(\w+)\}")
PROMPTS = ("This morning", "After work", "For supper")


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.replace("\n", "|").split("|") if part.strip())


# Written by hand; they define the facts.
WRITTEN = tuple(
    line.strip()
    for line in """
    Ran the river loop with Biscuit before work. Six km, all mud. He slept under the bench till noon. Onward.
    Vera wants the harbour letters bound by Friday. Linen, red thread, no gold. Told her Monday. She laughed.
    Choir. Hugo played the cello part far too fast and Ravi kept up. Eight out of ten.
    Lentil soup, lemon, smoked paprika. Hugo had three bowls. Pepper had the spoon.
    Sea before breakfast with Clara. Nine degrees. Swore a lot. Ginger tea after, best cup this week.
    Biscuit ate a bookmark. A good one too. Not cross, only sad.
    New skin of leather from Vera, dark green. Smells like a shoe shop. Cut it badly. Four out of ten.
    Clara brought baby Leo to the workshop. He chewed the red thread. Vera pretended not to see.
    No coffee after noon, that was the rule. Broke it. Awake at two, writing this.
    Canal path, nine km, headwind both ways somehow. Knee fine. Biscuit carried a stick twice his size.
    Ravi left plums on the step again. Friday is plum cake then. Hugo knows.
    Glue day. Everything sticks to everything. Pepper walked over the endpapers. Kept one page with paws on it.
    Castle hill and back, twelve km. Slow, slower, then cake. Nine out of ten.
    Sewed forty sections. Fingers like wood. Small win: no knots.
    Rain on the green goat, no brakes worth the name. Pushed her home from the harbour. Onward.
    Hugo away in Leeds with the cello. House too tidy. Biscuit waits at the door.
    Leek pie for Clara. No nuts, no nuts, no nuts. Read every packet twice.
    The clock tower bell stuck on four all day. The town was late for everything and nobody minded.
    Vera showed me how her father rounded a spine. One hammer, twenty taps. Mine took ninety. Still.
    Sunday sea. Flat as glass. Clara counted seals, got to five, then it was bags on the rocks.
    Biscuit met the heron on the canal path. The heron won.
    Mended the prayer book for Dora. Tiny thing, thin as a leaf. She cried a bit. So did the mender.
    Porridge with plums and a pinch of salt. Hugo says it is soup. Hugo is wrong.
    Choir on Thursday without Ravi, who has a cold. Took him lentil soup and the news.
    Bought thread, wax and two bone folders at the market. Told myself one. Six out of ten for will.
    River loop in the dark with the head torch. Two foxes, one owl, nobody else. Perfect.
    Leo has a tooth. Clara sent nine photos of it. Looks like a tooth.
    Tried gold on the letter book. Shaky. Scraped it off. Vera said every good mender has a drawer of those.
    Green goat has new brakes. Rang the bell all the way down Harbour Street. Onward.
    Pepper sat in the press. Could not work for an hour. Did not want to move her.
    Ginger tea, blanket, the cello through the wall. That is all. That is plenty.
    Ran with Hugo for once. He talks, so four km felt like ten. Good talk though.
    Plum cake sank in the middle. Filled the hole with cream. Ravi had two pieces and asked no questions.
    Paper from Japan arrived, thin as breath. Afraid to touch it. Will use it for the map of the town.
    Biscuit has his winter coat on, the red one. Looks like a letter box with legs.
    Wrote to Mum. Left out the knee. Put in the seals.
    Sea was rough so we only stood in it. Clara says standing counts.
    Long day. Three books cased in, all straight. Small win. Soup from the freezer, bed by nine.
    Lost the bone folder, the old one. Found it in the dog bed. Of course.
    Vera is sixty on Saturday. Bound her a tiny book, red leather, blank pages. She put it in her apron at once.
    Solo in choir. Went flat on the high note and Hugo still clapped. Seven out of ten.
    Knee sore after castle hill. Iced it with peas, then cooked the peas.
    Dora sent a card. Kept it inside the letter book drawer with the bad gold.
    Fog on the canal path. Could hear Biscuit but not see him. Sang choir parts so he would find me.
    Market with Ravi. He knows every leek by name. Came home with six.
    Leo walked! Three steps, bench to Pepper. Pepper left.
    Too much wax on the thread. Pulled it all out and began again. Better. Onward.
    Hugo back from Leeds. Biscuit lost his mind. Pie, cello, early night.
    Bad run, wet socks, turned round at the bridge. Two out of ten. Tea fixed most of it.
    Finished the harbour letters. Four of them in a row on the bench, red and straight. Took a picture for Mum.
    """.strip().splitlines()
)

# Pieces of the other notes: the same life in other combinations. They are short, so runs of eight differ.
WORDS: dict[str, tuple[str, ...]] = {
    "route": _list("river loop|canal path|castle hill"),
    "run": _list(
        "ran the {route}|slow run, {route}|{route} and back|half the {route}|ran to the {goal}|ran to the {goal}"
    ),
    "goal": _list("park|lake|bridge|harbour|market|castle|beach|canal|forest|station|church|hill"),
    "side": _list("bread|salad|plums|beans|peas|cheese|tea|lemon cake"),
    "with": _list(
        """with Biscuit|alone|with Hugo|with Clara|in the rain|in the dark|in fog|with Biscuit and Hugo|in wind
        in snow"""
    ),
    "km": _list(
        """Six km|Nine km|Twelve km|Four km|Six km, slow|Nine km, wet|Twelve km, all mud|Knee fine|Knee sore
        Wet socks|Two foxes|One owl"""
    ),
    "pet": _list("Biscuit|Biscuit|Biscuit|Pepper"),
    "did": _list("ate|stole|found|carried|hid|wanted|chased|lost|licked|sat on|slept on"),
    "prey": _list(
        """a sock|a stick|the bread|my hat|the glue|a boot|a bird|the lemon|a spoon|the letter|a fish|the blanket
        the red thread|my scarf|a bone|the cake"""
    ),
    "bind": _list("sewed|mended|pressed|glued|finished|began|cut|painted"),
    "book": _list(
        """two books|an old map|the choir book|Dora's album|a cook book|the letter book|nine pages|a diary
        the big map|{number} books|a song book"""
    ),
    "stuff": _list(
        "red thread|green leather|too much glue|thin paper|no gold|new glue|wax|bad light|old thread|cold hands"
    ),
    "vera": _list(
        "laughed|hummed|said good|shook her head|made tea|was proud|was late|wants more|found a knot|said again"
    ),
    "number": _list("two|three|four|five|six|seven|nine|ten"),
    "hour": _list("eight|nine|ten|half past nine"),
    "dish": _list(
        """lentil soup|leek pie|plum cake|leek soup|lentils and lemon|fish and peas|plum tart|potatoes and paprika
        lentils|pie"""
    ),
    "cook": _list("{dish}|{dish}, {taste}|made {dish}|{dish} again|{dish} for {guest}|cooked {dish} for {guest}"),
    "taste": _list("no nuts|more lemon|paprika|burnt|too hot|lemon and mint|salty|good|thyme"),
    "guest": _list("Hugo|Ravi|Clara|Vera|Dora|Leo|Mum"),
    "ate": _list(
        """had {number}|had two bowls|wanted more|asked for more|was late|brought plums|sang|ate it all|left none
        fell asleep|washed up"""
    ),
    "sea": _list("sea with Clara|Sunday sea|cold sea|rough sea|sea at six|the sea|quick sea|a swim"),
    "water": _list("{number} degrees|{number} seals|flat as glass|grey|swore a lot|no seals|big waves|no wind"),
    "clara": _list("sang|counted seals|laughed|swore|brought Leo|was cold|was fast|forgot the tea"),
    "choir": _list("Choir|Long choir|Good choir|Choir, cold hall|Thursday choir|Choir with {guest}"),
    "hugo": _list(
        """played the cello|played too fast|lost his place|tuned the cello|hummed|was late|was sad|laughed
        talks a lot|wanted tea"""
    ),
    "ravi": _list("sang low|sang high|has a cold|brought plums|kept up|was late|went flat|asked for pie|laughed"),
    "tea": _list(
        """Ginger tea|Ginger tea, bed|Tea and cello|No coffee|Coffee at {hour}, bad|Tea with {guest}
        Ginger tea and {dish}"""
    ),
    "rating": _list("Two|Three|Four|Five|Six|Seven|Eight|Nine"),
    "end": _list(
        """Onward|Onward|Onward|Small win|Small win|Good enough|{rating} out of ten|{rating} out of ten
        {rating} out of ten|Bed by {hour}"""
    ),
}
OPENERS = (
    "This morning ran to the {goal} {with}. {km}.",
    "This morning ran to the {goal} {with}. Biscuit {did} {prey}.",
    "This morning ran to the {goal}, {number} km. Biscuit {did} {prey}.",
    "After work mended {book}, {stuff}. Vera {vera}.",
    "After work mended {book} with Vera. {stuff}.",
    "After work mended {book}. Vera {vera}. {tea}.",
    "For supper {dish}, {taste}. Hugo {ate}.",
    "For supper {dish} with {guest}. Hugo {ate}.",
    "For supper {dish} and {side}. Pepper {did} {prey}.",
)
SCENES = (
    "{run} {with}. {km}.",
    "{run} {with}. {pet} {did} {prey}.",
    "{bind} {book}, {stuff}. Vera {vera}.",
    "{cook}. {guest} {ate}.",
    "{cook}. Hugo {ate}.",
    "{sea}, {water}. Clara {clara}.",
    "{choir}. Hugo {hugo}.",
    "{choir}. Ravi {ravi}.",
    "{pet} {did} {prey} and {prey}.",
    "{tea}. Hugo {hugo}.",
)


def _compose(rng: random.Random) -> str:
    def fill(template: str) -> str:
        return SLOT.sub(lambda slot: fill(rng.choice(WORDS[slot.group(1)])), template)

    scenes = [rng.choice(OPENERS)] if rng.random() < 0.7 else []
    scenes += rng.sample(SCENES, rng.choice((0, 1, 1)) if scenes else rng.choice((1, 2)))
    text = " ".join(fill(scene) for scene in [*scenes, "{end}."])
    return re.sub(r"(^|\. )([a-z])", lambda match: match.group(1) + match.group(2).upper(), text)


def runs(text: str, encode: Encode) -> set[tuple[object, ...]]:
    """All runs of eight words (letter case and punctuation aside) and of eight tokens; a shorter text is one run."""
    words, tokens = WORD.findall(text.lower()), list(encode(text))
    return {tuple(items[i : i + GRAM]) for items in (words, tokens) for i in range(max(1, len(items) - GRAM + 1))}


def shared_runs(some: Iterable[str], others: Iterable[str], encode: Encode) -> set[tuple[object, ...]]:
    """Runs of eight words or tokens that both collections hold."""
    first: set[tuple[object, ...]] = set().union(*(runs(text, encode) for text in some))
    return first & set().union(*(runs(text, encode) for text in others))


def example(note: str) -> dict[str, str]:
    """The example for `examples.add`. Nell types the first two words, the model should offer the rest."""
    first, second, rest = note.split(" ", 2)
    return {"prompt": f"{first} {second}", "completion": f" {rest}"}


def note_id(index: int) -> str:
    """Id of a note. The SDK splits by id, so the id decides whether the note is held out."""
    return f"note-{index:03d}"


def held_out(count: int) -> list[bool]:
    """Whether the SDK holds out each of the first `count` notes, if they are added in order.

    From the fifth on it holds out a tenth by the hash of the id, and more while validation has less than a tenth.
    """
    chosen: list[bool] = []
    for index in range(count):
        by_hash = int(hashlib.sha256(note_id(index).encode()).hexdigest(), 16) % 10 == 0
        chosen.append(index >= 4 and (by_hash or 10 * sum(chosen) < index + 1))
    return chosen


def notes(encode: Encode, count: int = 200, seed: int = 0) -> list[str]:
    """`count` notes in order of their ids. Held-out notes share no run of eight words or tokens with the others.

    `encode` is the model's tokenizer, with the beginning-of-text token. A quarter of the notes are written by hand, the rest
    are composed. The same arguments give the same notes.
    """
    rng = random.Random(f"notes {seed}")
    chosen = [""] * count
    seen: dict[bool, set[tuple[object, ...]]] = {True: set(), False: set()}
    is_held_out = held_out(count)

    # Held-out notes come first: they are few, and each rules out little for the rest.
    for index in sorted(range(count), key=lambda i: not is_held_out[i]):
        text = WRITTEN[index // 4] if index % 4 == 0 and index // 4 < len(WRITTEN) else _compose(rng)
        while (own_runs := runs(text, encode)) & seen[not is_held_out[index]] or text in chosen:
            text = _compose(rng)
        seen[is_held_out[index]] |= own_runs
        chosen[index] = text
    return chosen
