"""Further statements of a user that answer no question of a session.

Long sessions hold many decisions, values, names, limits and corrections, and a question needs one
of them. Owns the forms in which people state such things, and what these are about: office,
household, club and travel, so that no domain of the bench is among them. Must never read a
domain, nor hold anything that a question needs. Always holds: the same seed gives the same
statements, each is about something else than the ones before it, and none repeats.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

_WHOSE: Final = (
    "the Lisbon office", "the youth choir", "the allotment club", "the book fair",
    "the summer camp", "the print shop", "the rowing team", "the canteen", "the help desk",
    "the night shift",
    "the alumni evening", "the film club", "the repair cafe", "the ski trip", "the parents' board",
    "the tasting evening", "the museum tour", "the bike shed", "the guest house", "the quiz night",
)  # fmt: skip
_WHAT: Final = (
    "newsletter", "raffle", "key cabinet", "sign-up sheet", "coffee order", "poster", "guest list",
    "storage locker", "name badges", "projector", "minibus", "photo album", "song sheet", "awning",
    "first-aid kit", "tent", "menu card", "seating plan", "drinks fridge", "thank-you cards",
)  # fmt: skip
_PEOPLE: Final = (
    "Ottilie Brandt", "Kwabena Mensah", "Lucia Ferrante", "Tomasz Zielinski", "Ingrid Solheim",
    "Rafael Quintero", "Yuki Arakawa", "Aoife Gallagher", "Emeka Obi", "Petra Novotna",
    "Samir Haddad", "Greta Lindqvist", "Bruno Cassel", "Noor van Dijk", "Hamish Drummond",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_COLOURS: Final = ("teal", "ochre", "plum", "ivory", "maroon", "mint", "slate", "coral")
_FORMS: Final = (
    "We decided that {about} goes to {person}, nobody else had time.",
    "For {about} the limit is {number} euros, the treasurer insists on it.",
    "{person} looks after {about} now, ask them first.",
    "Never touch {about} before {day}, it was promised to the caretaker.",
    "Just so you know, {about} has the number {code}.",
    "About {about}: I want it in {colour}, anything else looks cheap.",
    "Change of plan, {about} moves from {other_day} to {day}.",
    "Please remember that {about} has to be done by {hour}:30.",
    "We agreed with {person} that {about} stays at {number} pieces.",
    "{about} is kept in room {code}, second shelf.",
    "I'd rather have {about} in {colour} than in {other_colour}, that is my taste.",
    "No more than {small} people may sign for {about}.",
    "The contact for {about} is {person}, extension {number}.",
    "{about}: the old one broke, the new one arrives on {day}.",
    "From now on {about} is checked every {day}.",
    "Correction, {about} costs {number} and not {other_number}.",
    "Only {person} has the key for {about}, don't hand it out.",
    "We park {about} until {day}, there is no money left.",
    "The code for {about} is {code}, valid until {day}.",
    "{person} is allergic to nuts, keep that in mind for {about}.",
)
_REPLIES: Final = ("Noted.", "Understood.", "OK, I'll keep to that.", "Got it.", "Fine, noted.")


def further_statements(
    count: int, seed: str, *, unlike: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """So many statements, each with a reply; none holds a text of `unlike`."""
    chance = random.Random(f"statements {seed}")
    about = [f"the {what} of {whose}" for what, whose in product(_WHAT, _WHOSE)]
    chance.shuffle(about)
    needed = [" ".join(text.casefold().split()) for text in unlike]
    made: list[tuple[str, str]] = []
    for subject, form in zip(about, _in_turn(chance), strict=False):
        if len(made) == count:
            break
        text = _filled(form, subject, chance)
        if not any(need in text.casefold() for need in needed):
            made.append((text, chance.choice(_REPLIES)))
    if len(made) < count:
        raise ValueError(f"there are {len(made)} statements at the most, not {count}")
    return made


def _in_turn(chance: random.Random) -> Iterator[str]:
    while True:
        forms = list(_FORMS)
        chance.shuffle(forms)
        yield from forms


def _filled(form: str, about: str, chance: random.Random) -> str:
    day, other_day = chance.sample(_DAYS, 2)
    colour, other_colour = chance.sample(_COLOURS, 2)
    number, other_number = chance.sample(range(120, 990), 2)
    text = form.format(
        about=about,
        person=chance.choice(_PEOPLE),
        day=day,
        other_day=other_day,
        colour=colour,
        other_colour=other_colour,
        number=number,
        other_number=other_number,
        small=chance.randrange(3, 12),
        hour=chance.randrange(7, 20),
        code=f"{chance.choice('BCDFGHK')}{chance.randrange(100, 999)}",
    )
    return text[0].upper() + text[1:]
