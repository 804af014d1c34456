# SPDX-License-Identifier: Apache-2.0
"""Sentences behind `everyday_text`, by subject: openings, what happens next, remarks, questions with answers.

Stories are in the past tense, so that the same sentence serves "I", "he" and "she": {N} is the person (named at first, then
a pronoun), {S} {O} {P} {R} are the pronouns (she, her, her, herself), {M} is another person's name. `{word.1}` is drawn once
a story and kept.
"""

from __future__ import annotations


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


STORIES: dict[str, dict[str, tuple[str, ...]]] = {
    "household": {
        "openings": _lines(
            """
            {when} {N} {chore}.
            {when} {N} {chore} and {chore}.
            {when} {N} could not find the {smallthing.1}.
            {when} the {thing.1} in the {room.1} broke.
            {when} {N} bought a {colour.1} {thing.1} for the {room.1}.
            {when} {N} decided to paint the {room.1} {colour.1}.
            {when} there was a strange noise in the {room.1}.
            {when} {M} came to help {O} with the {thing.1}.
            The {thing.1} in the {room.1} was {state} and {state}.
            {N} had lived in the {size} house for {count} years.
            {when} the {pet.1} ran away from the {room.1}.
            {N} had a {pet.1} called {petname.1}.
            {when} {N} found a {state} {smallthing.1} {spot}.
            """
        ),
        "middles": _lines(
            """
            {S} looked {spot} and {spot}.
            It was not {spot}, and it was not {spot}.
            {S} took a {tool} and repaired it in {minutes} minutes.
            {M} said that it was too {state}.
            Then {S} {chore}.
            The {pet.1} watched {O} from the {thing}.
            {petname.1} slept {spot} and did not wake up.
            {petname.1} wanted {food}.
            {S} had to move the {thing} first.
            {P} {relative} had given it to {O} {count} years ago.
            There was dust {spot} and a {smallthing} {spot}.
            {S} called the {other}, but nobody answered.
            {S} needed a {tool}, a {tool} and a lot of patience.
            The {other} came at {clock} and fixed the {thing.1}.
            After {minutes} minutes {S} stopped and drank some {drink}.
            In the end it was {spot}.
            {S} opened the window, because it was {temperature} in the {room.1}.
            It cost {number} pounds, which was not much.
            Water ran over the floor of the {room.1}.
            {S} put the {smallthing} back {spot}.
            {S} and {M} carried the {thing.1} up the stairs.
            {M} {chore} while {N} {chore}.
            """
        ),
    },
    "cooking": {
        "openings": _lines(
            """
            {when} {N} made {dish.1} for {meal}.
            {when} {N} wanted to cook {dish.1}, but there were no {vegs}.
            For {meal} {N} had {dish.1} and a cup of {drink}.
            For {meal} {N} made {dish.1}.
            {when} {N} baked {cake.1} for {P} {relative.1}.
            {when} {M} invited {O} to {meal}.
            {when} {N} bought {food}, {food} and {food} at the {shop}.
            {when} {N} had {dish.1} and a cup of {drink}.
            {N} had never made {dish.1} before.
            {N} tried a recipe from {P} {relative.1}.
            {when} the kitchen smelled of {spice} and {spice}.
            {when} {N} was so hungry that {S} ate {count} {fruits}.
            """
        ),
        "middles": _lines(
            """
            {S} chopped the {vegs} and fried them with {spice}.
            {S} added {amount} {spice} and {amount} {spice}.
            It stayed in the {pan} for {minutes} minutes.
            It was {taste}, but a bit {taste}.
            {M} asked for the recipe.
            {S} forgot the {spice}, so it was {taste}.
            {S} cut the {fruits} into small pieces.
            {P} {relative} ate {count} plates of it.
            The {vegs} came from the garden.
            {S} served it with {staple} and {food}.
            There was enough left for {day}.
            {S} stirred the {pan} and tasted it twice.
            The {food} was {taste} and the {food} was {taste}.
            {S} drank {drink} with it.
            {M} brought {food} and a {gift}.
            {S} mixed flour, {food} and {food} in a {pan}.
            For dessert there were {fruits} with {food}.
            The smoke filled the {room}, and {S} opened the window.
            {S} washed the {pan} and dried the plates.
            Next time {S} would use less {spice} and more {spice}.
            """
        ),
    },
    "travel": {
        "openings": _lines(
            """
            {when} {N} went to the {place.1} {ride}.
            {when} {N} travelled to {city.1} with {P} {relative}.
            {when} {N} missed the {vehicle.1} to {city.1}.
            In {month} {N} went to {land.1} for {count} days.
            {when} {N} walked to the {place.1} and back.
            {when} {N} took {M} to the {place.1}.
            {when} the {vehicle.1} was {minutes} minutes late.
            {N} had always wanted to see {city.1}.
            {when} {N} got lost near the {place.1}.
            {when} {N} packed a {state} bag for {city.1}.
            {when} {N} went for {activity} by the {path.1}.
            """
        ),
        "middles": _lines(
            """
            The ticket cost {number} pounds.
            {S} sat by the window and looked at the {path} and the trees.
            The {vehicle} was full, so {S} had to stand.
            {S} bought a {gift} for {P} {relative}.
            {S} had {meal} at a {size} cafe near the {place}.
            {S} asked a {other} for the way to the {place.1}.
            The hotel was {state} but {state}.
            {S} took {number} photos of the {place}.
            It was {temperature}, so {S} bought a {cloth}.
            {S} crossed the {path} and turned left at the {place}.
            On the way {S} saw a {animal} and {count} ducks.
            {M} had forgotten the {smallthing}.
            The {place.1} was closed until {clock}.
            {S} met {M}, a {job} from {city}.
            They talked about {subject} and about {subject}.
            The way back took {minutes} minutes.
            {S} went on {ride}, past the {place} and over the {path}.
            There was a long queue, and {S} waited for {minutes} minutes.
            {S} slept on the {vehicle} and woke up in {city}.
            A {other} gave {O} a map of the old town.
            """
        ),
    },
    "work": {
        "openings": _lines(
            """
            {when} {N} wrote a {task.1} for the {workplace.1}.
            {when} {N} came late to the {workplace.1}.
            {when} the {machine.1} at the {workplace.1} did not work.
            {N} worked as a {job} in a {size} {workplace.1}.
            {when} {N} had a meeting with {M} about the {task.1}.
            {when} {N} asked the boss for a {wage}.
            {N} began as a {job} {count} years ago.
            {when} a new {job} started at the {workplace.1}.
            {when} {N} stayed at the {workplace.1} until {clock}.
            {when} {M} lost the {task.1}.
            """
        ),
        "middles": _lines(
            """
            The meeting took {minutes} minutes and was {bad}.
            {S} finished the {task.1} before {clock}.
            {M} found {count} mistakes in the {task}.
            The boss was {mood} with the {task}.
            {S} drank {count} cups of {drink}.
            {S} called {M}, who was {mood}.
            The {machine.1} was repaired at {clock}.
            {S} answered {number} letters and signed a {task}.
            At {clock} they had {dish} in the canteen.
            {S} shared a desk with {M}.
            {P} boss said that the {task} could wait until {day}.
            {S} turned the {machine} off and on again.
            A customer wanted {number} boxes by {day}.
            {S} went home {ride} at {clock}.
            {M} had put {cake} in the {room}, because it was a birthday.
            {S} wrote everything down and put the {task} {spot}.
            The work was {state}, but the people were {good}.
            {S} got a {wage} and told {P} {relative}.
            {M} laughed and said that it happened to everyone.
            """
        ),
    },
    "weather": {
        "openings": _lines(
            """
            {when} it was {temperature} and the sky was {sky}.
            {when} the {weather.1} came from the north.
            {when} there was a lot of {weather.1}.
            {when} {N} looked out of the window and saw {weather.1}.
            It was a {adjday} {part} in {month}.
            {when} {N} went out without a {cloth.1}.
            {when} the {weather.1} did not stop for {count} hours.
            The {season} was {temperature} that year.
            """
        ),
        "middles": _lines(
            """
            {S} put on a {cloth} and a {colour} {cloth}.
            The {path} was wet and the {path} was covered with leaves.
            A {animal} sat under the {plant} and did not move.
            {S} stayed at home with a cup of {drink}.
            The {vehicle} did not run because of the {weather}.
            By {clock} the sky was {sky}.
            The wind took {M}'s {smallthing}.
            {M} said that it would be {temperature} on {day}.
            {S} was {temperature} and {mood}.
            The children played in the {place}.
            {S} ran to the {shop} and waited there for {minutes} minutes.
            Then the sun came out over the {place}.
            The {plant} in the garden lost {count} branches.
            {S} lit a candle and read a book.
            It was only {number} degrees.
            The radio spoke of {weather} and {weather}.
            {petname} the {pet} did not want to go out.
            """
        ),
    },
    "leisure": {
        "openings": _lines(
            """
            {when} {N} played {sport.1} with {M}.
            {when} {N} met {M} at the {place.1}.
            {when} {N} had time for {hobby.1}.
            {when} {N} read a book about {hobby.1} and {land}.
            {N} learned to play the {instrument.1} from {P} {relative}.
            {when} {M} had a party in the {room}.
            {when} {N} planted a {plant.1} in the garden.
            {when} {N} went for {activity} with {petname.1}, the {pet.1}.
            {when} {N} gave {M} a {gift.1}.
            {when} {N} watched a film with {P} {relative}.
            """
        ),
        "middles": _lines(
            """
            {S} won {count} games and lost {count}.
            {M} was better at {hobby}, but {N} did not mind.
            They talked about {subject} and drank {drink}.
            It was {bad} at first and {good} later.
            {S} practised for {minutes} minutes every {part}.
            The {plant.1} needed water and a lot of sun.
            {M} told a {good} story about a {animal} and a {other}.
            Everyone sang, and {M} played the {instrument}.
            {S} liked {hobby} more than {hobby}.
            {petname.1} the {pet.1} found a {smallthing} in the grass.
            {S} fell asleep in the middle of it.
            There was plenty of {cake} and {drink} for everyone.
            {P} {relative} wanted to learn it too.
            {S} bought a {colour} {smallthing} for it.
            {S} went home {ride} at {clock}.
            They agreed to meet again on {day}.
            """
        ),
    },
}

REMARKS = _lines(
    """
    {dish} is best when it is hot.
    In {season} the days are {temperature}.
    A {state} {thing} is better than a {state} one.
    It takes {minutes} minutes to walk from the {place} to the {place}.
    People who like {hobby} often like {hobby} too.
    A {job} has to get up early.
    Never put {spice} on {fruits}.
    The {shop} opens at {clock} and closes at {clock}.
    {fruits} are {taste} in {month}.
    There are {number} steps between the {place} and the {path}.
    If it is {temperature}, take a {cloth}.
    {day} is a {good} day for {hobby}.
    To make {dish}, you need {vegs}, {food} and {amount} {spice}.
    First cut the {vegs}, then fry them for {minutes} minutes and add {amount} {spice}.
    The {animal} and the {animal} do not like each other.
    Many people go to {land} in {season}.
    You need {count} {fruits} for a {cake}.
    My {relative} {often} drinks {drink} in the {part}.
    Our {other} is {mood} when there is {weather}.
    The {vehicle} to {city} leaves at {clock}.
    We {often} have {dish} on {day}.
    I {often} forget where my {smallthing} is.
    """
)

TALKS = _lines(
    """
    "Did you {chorenow}?" asked {M}. "Not yet," said {N}. "I will do it at {clock}."
    "Where is my {smallthing.1}?" asked {N}. "It is {spot}," said {M}.
    "How was {city}?" asked {M}. "It was {temperature}, but the people were {good}," said {N}.
    "Would you like some {drink.1}?" asked {M}. "Yes, please," said {N}. "And a piece of {cake}."
    "It will be {temperature} on {day}," said {M}. "Then I need a {cloth}," said {N}.
    "What time is it?" asked {N}. "It is {clock}," said {M}. "We have to go to the {place}."
    "I am so {mood}," said {N}. "You should have {activity}," said {M}.
    "How much is the {food.1}?" asked {N}. "{number} pounds," said the {other}. "That is too much," said {N}.
    "Who made the {dish.1}?" asked {M}. "I did," said {N}. "It is {taste}."
    "Is the {vehicle} late again?" asked {N}. "Yes, {minutes} minutes," said {M}. "Because of the {weather}."
    "Can you help me with the {task.1}?" asked {M}. "Of course," said {N}. "Give me {minutes} minutes."
    "Happy birthday!" said {M} and gave {N} a {gift}. "Thank you, that is {good}," said {N}.
    """
)

CHATS: tuple[tuple[str, str], ...] = tuple(
    (line.split(" => ")[0], line.split(" => ")[1])
    for line in _lines(
        """
        What can I cook with {vegs.1} and {staple.1}? => You can make {dish} with the {vegs.1}. Serve it with {staple.1}.
        How do I make {dish.1}? => Cut the {vegs}, fry them for {minutes} minutes and add {amount} {spice}. Serve it hot.
        What should I have for {meal}? => How about {dish}? It goes well with {drink}.
        What is the weather like in {city.1}? => In {season} it is often {temperature} in {city.1}. Take a {cloth} with you.
        Is it {temperature.1} outside? => Yes, it is {temperature.1} today. You should wear a {cloth}.
        Where is my {smallthing.1}? => Have you looked {spot}? Many people find a {smallthing.1} there.
        How do I get to the {place.1}? => Cross the {path} and turn left at the {place}. The {place.1} is {minutes} minutes away.
        What can I do in {city.1}? => You can visit the {place} and have {meal} near the {path}.
        How can I clean the {thing.1}? => Use a cloth with warm water and {amount} {spice}. Then dry the {thing.1} well.
        My {thing.1} is broken. What can I do? => Take a {tool} and look at it closely. If that does not help, call the {other}.
        What is a good gift for my {relative.1}? => Your {relative.1} may like a {gift} or a {gift}.
        I am {mood.1}. What can I do? => I am sorry that you are {mood.1}. {activity} may help, or a cup of {drink}.
        Hello! How are you? => Hello! I am {mood}, thank you. How can I help you?
        Hi! => Hello! What would you like to talk about?
        Thank you! => You are welcome. Have a {good} {part}!
        Thank you for your help. => You are welcome. I am always glad to help.
        Good {part.1}! => Good {part.1}! What can I do for you?
        What day is {good} for {hobby.1}? => {day} is a {good} day for {hobby.1}.
        Which is better, {hobby.1} or {hobby.2}? => I like both, but {hobby.1} is more {good}.
        Can you help me with my {task.1}? => Of course. What should the {task.1} be about?
        When does the {shop.1} open? => The {shop.1} opens at {clock} and closes at {clock}.
        How do I ask my boss for a {wage.1}? => Be calm and say why you need the {wage.1}. {day} {part} is a good time.
        How long do I cook {vegs.1}? => Cook the {vegs.1} for {minutes} minutes with {amount} {spice}.
        Why does my {plant.1} look {bad}? => Your {plant.1} may need more water and more sun.
        What does a {job.1} do? => A {job.1} works hard, often in a {workplace}, and has to get up early.
        What do you know about {land.1}? => {land.1} is {good} in {season}. Many people go there for the food.
        """
    )
)

ASK_FOR_A_STORY = _lines(
    """
    Write a short note about {topic}.
    Tell me a story about {topic}.
    Please write about {topic}.
    Can you write something about {topic}?
    """
)
TOPICS = {
    "household": ("the house", "a day at home", "housework"),
    "cooking": ("cooking", "a meal", "food"),
    "travel": ("a trip", "travel", "a journey"),
    "work": ("work", "a day at work", "the office"),
    "weather": ("the weather", "a day outside"),
    "leisure": ("the weekend", "a hobby", "free time"),
}
