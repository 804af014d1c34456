# SPDX-License-Identifier: Apache-2.0
"""Word lists behind `everyday_text`: what people, rooms, dishes, trips and days are called.

Written for this project, so the text made of them has no other owner. An entry may itself contain `{slots}`.
Plural nouns stand in lists of their own, since no template knows grammar.
"""

from __future__ import annotations


def _list(text: str) -> tuple[str, ...]:
    """Entries apart from one another by `|` or a new line."""
    return tuple(part.strip() for part in text.replace("\n", "|").split("|") if part.strip())


WOMEN = _list(
    """Anna|Mary|Sara|Lucy|Emma|Clara|Rosa|Helen|Julia|Grace|Alice|Nina|Ruth|Ella|Martha
    Jane|Kate|Lena|Olga|Amy|Dora|Fatima|Priya|Mei|Sofia|Hana|Leila|Carmen|Edith|Vera"""
)
MEN = _list(
    """Tom|Peter|John|Max|Paul|Leo|Sam|David|Mark|Hugo|Ben|Adam|Oscar|Frank|Henry
    Jack|Karl|Luke|Noah|Omar|Ravi|Wei|Ivan|Mateo|George|Felix|Victor|Samir|Daniel|Emil"""
)
WORDS: dict[str, tuple[str, ...]] = {
    # Time
    "day": _list("Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"),
    "month": _list("January|February|March|April|May|June|July|August|September|October|November|December"),
    "season": _list("spring|summer|autumn|winter"),
    "part": _list("morning|afternoon|evening"),
    "clock": _list(
        "six|seven|eight|nine|ten|half past six|half past seven|half past eight|noon|four|five|7:15|8:30|9:45|6:20|5:40"
    ),
    "when": _list(
        """On {day}|On {day} {part}|One {part}|One {adjday} {part}|Early in the {part}|Late in the {part}
        Yesterday|Last week|Last {day}|At {clock}|Before breakfast|After lunch|After work|In {month}|Last {season}
        This {part}|After dinner|Before bed|On the way home|At the weekend|In the middle of the week"""
    ),
    "adjday": _list("cold|warm|wet|grey|bright|quiet|busy|windy|sunny|foggy|long|slow|rainy|clear|mild"),
    "count": _list("two|three|four|five|six|seven|eight|nine|ten|twelve"),
    "minutes": _list("five|ten|fifteen|twenty|thirty|forty|10|15|20|25|30|45"),
    "number": _list("2|3|4|5|6|7|8|9|11|12|14|16|18|21|24|36|50"),
    "often": _list("always|often|sometimes|never|usually|almost never"),
    # People
    "relative": _list(
        "mother|father|sister|brother|grandmother|grandfather|aunt|uncle|cousin|daughter|son|wife|husband"
    ),
    "other": _list(
        """neighbour|friend|boss|teacher|doctor|driver|baker|colleague|postman|plumber|landlord|nurse|waiter|gardener
        farmer|shopkeeper|librarian"""
    ),
    "mood": _list("tired|happy|sad|calm|proud|angry|worried|surprised|hungry|glad|bored|nervous|cheerful|sleepy|busy"),
    "good": _list("good|nice|lovely|fine|great|pleasant|wonderful|perfect|decent"),
    "bad": _list("bad|terrible|poor|awful|strange|boring|difficult"),
    # House
    "room": _list("kitchen|bathroom|bedroom|living room|hall|cellar|garage|attic|study"),
    "thing": _list(
        """lamp|chair|table|clock|mirror|carpet|window|door|shelf|cupboard|sofa|curtain|bed|fridge|oven|kettle|sink
        tap|radio|heater|vacuum cleaner|washing machine|drawer|picture|desk|box|basket"""
    ),
    "smallthing": _list(
        """key|phone|book|wallet|letter|umbrella|cup|glass|coat|hat|scarf|bag|ring|pen|notebook|ticket|watch|handbag|jacket|spoon|bottle|candle|photo|parcel"""
    ),
    "tool": _list("hammer|screwdriver|ladder|brush|bucket|broom|saw|knife|needle|rope|torch|cloth"),
    "colour": _list("red|blue|green|yellow|white|black|brown|grey|orange|pink|purple|dark green|light blue"),
    "size": _list("small|big|large|tiny|huge|narrow|wide|tall|short|round"),
    "state": _list("old|new|broken|clean|dirty|heavy|light|empty|full|cheap|dusty|warm|wooden|shiny|soft|noisy"),
    "chore": _list(
        """washed the dishes|swept the floor|made the bed|folded the laundry|watered the plants|cleaned the {room}
        took out the rubbish|fed the cat|ironed a shirt|dusted the shelves|changed the sheets|mopped the {room} floor
        wiped the table|tidied the {room}|hung up the washing|emptied the bin|cleaned the windows|swept the stairs"""
    ),
    "chorenow": _list(
        """wash the dishes|sweep the floor|make the bed|fold the laundry|water the plants|clean the {room}
        take out the rubbish|feed the cat|iron a shirt|dust the shelves|change the sheets|wipe the table
        tidy the {room}|hang up the washing|empty the bin|clean the windows"""
    ),
    "spot": _list(
        """on the table|under the bed|in the drawer|behind the sofa|next to the door|on the shelf|in the {room}
        on the window sill|under the chair|in the car|in a coat pocket|at the bottom of the bag|beside the {thing}"""
    ),
    "pet": _list("cat|dog|rabbit|parrot|goldfish|puppy|kitten"),
    "petname": _list("Biscuit|Pepper|Rex|Luna|Milo|Bella|Rusty|Daisy|Fig|Snow|Coco|Tiger"),
    "plant": _list("rose|tomato plant|apple tree|fern|tulip|bean|sunflower|hedge|lemon tree|mint plant"),
    # Food
    "veg": _list(
        "carrot|onion|potato|tomato|pepper|leek|cabbage|pumpkin|cucumber|mushroom|beetroot|courgette|aubergine"
    ),
    "vegs": _list(
        "carrots|onions|potatoes|tomatoes|peppers|leeks|beans|peas|mushrooms|lentils|cucumbers|olives|spinach|garlic"
    ),
    "fruit": _list("apple|pear|plum|orange|lemon|banana|peach|melon|cherry|grape|mango|fig"),
    "fruits": _list("apples|pears|plums|oranges|lemons|bananas|peaches|cherries|grapes|strawberries|figs|dates"),
    "meat": _list("chicken|fish|beef|lamb|ham|sausage|salmon|tofu|bacon|turkey"),
    "staple": _list("rice|bread|pasta|potatoes|noodles|couscous|beans|salad|toast|polenta"),
    "spice": _list("salt|pepper|paprika|cumin|ginger|cinnamon|thyme|mint|parsley|basil|chilli|honey|mustard|vinegar"),
    "dish": _list(
        """soup|stew|salad|curry|pie|omelette|risotto|lasagne|sandwich|pancake|casserole|{veg} soup|{meat} stew
        {veg} curry|{fruit} cake|{veg} pie|{meat} with {staple}|{staple} with {vegs}|{fruit} tart|{veg} salad
        {meat} and {vegs}"""
    ),
    "drink": _list("tea|coffee|water|milk|lemonade|cocoa|{fruit} juice|green tea|hot chocolate|ginger tea"),
    "cake": _list("cake|pie|biscuits|bread|muffins|{fruit} cake|{fruit} tart|cookies|scones|pancakes|rolls"),
    "taste": _list("salty|sweet|spicy|fresh|sour|rich|dry|too hot|delicious|plain|burnt|crisp|creamy|soft|bitter"),
    "amount": _list("a little|a pinch of|a spoon of|a cup of|plenty of|a handful of|half a cup of"),
    "meal": _list("breakfast|lunch|dinner|supper|a snack|a late lunch|an early dinner"),
    "pan": _list("pan|pot|oven|bowl|dish|tray|jar|jug"),
    # Going about
    "place": _list(
        """park|market|library|station|beach|museum|bakery|bank|school|hospital|post office|church|harbour|forest
        lake|river|old town|village|cafe|supermarket|theatre|garden centre|swimming pool|airport|castle|zoo"""
    ),
    "land": _list("Italy|Spain|France|Greece|Norway|Scotland|Portugal|Japan|Morocco|Ireland|Canada|Mexico|India"),
    "city": _list("Paris|Rome|London|Lisbon|Berlin|Oslo|Athens|Madrid|Vienna|Dublin|Prague|Kyoto|Boston|Cairo"),
    "vehicle": _list("bus|train|tram|taxi|ferry|car|bicycle|plane|boat"),
    "ride": _list("by bus|by train|by tram|by car|by bicycle|on foot|by boat|by taxi|by ferry"),
    "shop": _list("market|bakery|supermarket|corner shop|butcher|book shop|chemist|flower shop|shoe shop"),
    "path": _list("street|road|bridge|path|square|hill|river|lane|canal|stairs"),
    "sport": _list("football|tennis|chess|cards|basketball|hockey|golf"),
    "activity": _list(
        "a walk|a swim|a run|a bike ride|a nap|a long bath|a picnic|a short trip|a rest|a drive|a boat trip"
    ),
    # Work
    "job": _list(
        "teacher|nurse|cook|driver|farmer|painter|engineer|clerk|gardener|baker|tailor|doctor|waiter|plumber|lawyer"
    ),
    "workplace": _list("office|school|shop|hospital|factory|farm|bank|restaurant|workshop|library|hotel|studio"),
    "task": _list(
        """report|letter|plan|list|meeting|project|contract|order|budget|speech|drawing|invoice|survey|timetable"""
    ),
    "machine": _list("computer|printer|phone|screen|keyboard|copier|lift|projector|camera|coffee machine"),
    "wage": _list("raise|day off|new desk|promotion|new job|bonus|holiday|better chair|long break"),
    # Weather
    "weather": _list("rain|snow|wind|sun|fog|frost|storm|heat|hail|thunder|drizzle|ice"),
    "sky": _list("grey|blue|dark|clear|cloudy|pink|bright|pale|full of clouds|full of stars"),
    "temperature": _list("cold|warm|hot|cool|freezing|mild|damp|chilly|humid|icy"),
    "cloth": _list("coat|hat|scarf|jumper|jacket|pair of gloves|pair of boots|raincoat|sweater|pair of socks"),
    "animal": _list("bird|duck|fox|squirrel|horse|cow|sheep|owl|crow|hen|goat|mouse|bee|frog"),
    # Talk
    "subject": _list(
        """the weather|the news|the holidays|a film|the football match|the price of {food}|old times|work|the garden
        the new neighbour|a book|music|the children|the train|their plans|the weekend|the concert|money|health"""
    ),
    "food": _list("bread|milk|butter|cheese|rice|coffee|tea|sugar|flour|fish|meat|honey|eggs|{fruits}|{vegs}"),
    "gift": _list("book|scarf|box of chocolates|bunch of flowers|vase|toy|bottle of wine|jar of honey|plant|card"),
    "hobby": _list(
        "painting|reading|cooking|gardening|singing|dancing|swimming|knitting|fishing|hiking|drawing|running|baking"
    ),
    "instrument": _list("piano|guitar|violin|flute|drums|trumpet|cello"),
    "feltwell": _list(
        """It was a {good} {part}|It had been a {good} day|{N} felt {mood} afterwards|{N} slept well that night
        {N} was {mood} but {mood}|{N} went to bed early|{N} smiled and put the {thing} light out|All was quiet again
        That was enough for one day|{N} promised to do it again|{N} wrote it down in a notebook|Nobody complained
        {N} laughed about it later|{N} would remember that {part}|In the end it did not matter|The rest could wait
        {N} told {P} {relative} about it|It was better than nothing|The {pet} had slept through it all"""
    ),
}
