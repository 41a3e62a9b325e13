"""Two hundred messages that need nothing from memory, asked in recorded sessions of agents.

A block for one of them was asked for by nobody. The messages are general questions, small talk and
new tasks that hold all that they need; they were written before anybody looked at what is recalled
for them. The sessions are real recordings (docs/contributing/bench-live.md): two coding sessions,
one of edits, and the desk of an airline. Always holds: each message is asked once, on a branch in
the second half of its session, and none names anything of a session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from recollect.core.formats.codec import CODECS
from recollect.core.values.message import Message, Text, ToolCall, ToolResult
from recollect_bench.cost.data import Conversation, load_conversations
from recollect_bench.live.sessions import (
    Exchange,
    LiveQuestion,
    LiveSession,
    WireMessage,
    assistant,
    user,
)

SESSIONS: Final = ("pi_before", "pi_large", "tau", "codex_session_patches")
MOST_ROWS: Final = 1_000
"""Of a recording: the runs of the airline's desk are 2,558, and change nothing after these."""
ORDINARY_SECONDS: Final = 40.0
_BEGUN_AT: Final = 1_780_000_000.0
_SYSTEM: Final = "You are a careful agent with tools."
_GENERAL: Final = """
what is the difference between tcp and udp?
how does garbage collection work in python
when would you use a hash map instead of a tree?
what's the capital of Mongolia?
how many litres are in a US gallon
why is the sky blue?
what does idempotent mean
explain the CAP theorem in two sentences
what is a monad, for somebody who only knows javascript?
how do vaccines work?
what's the boiling point of water at 3000 m altitude?
difference between a process and a thread?
why do cats purr?
what does the HTTP status 418 mean?
how do I exit vim
is a tomato a fruit or a vegetable?
who wrote The Master and Margarita?
what is the time complexity of quicksort in the worst case?
what's the difference between authentication and authorization?
how does a heat pump work?
what is a race condition?
can you explain what a closure is?
how is sourdough different from normal bread?
what's the plural of octopus
when did the Berlin wall fall?
what is the difference between git merge and git rebase?
what does chmod 755 do?
how far away is the moon?
why do we have leap years?
what are the advantages of a columnar database?
what's a good way to learn touch typing?
is it bad to sleep with wet hair?
what is the difference between weather and climate?
how does public key cryptography work
should I use tabs or spaces?
what's the difference between a mutex and a semaphore?
how long do hard boiled eggs keep in the fridge?
what is dependency injection good for?
how many time zones does Russia have?
what does the acronym ACID stand for?
what is the Coriolis effect?
which is heavier, a kilo of feathers or a kilo of lead?
what is the difference between var, let and const?
how do noise cancelling headphones work?
what is eventual consistency?
when should one write an integration test rather than a unit test?
how do I convert celsius to fahrenheit?
what's the etymology of the word robot?
what does a load balancer do?
what is a bloom filter?
why does bread rise?
what is the difference between latency and throughput?
how do you pronounce GIF?
what's the tallest building in the world?
what is tail recursion?
how does DNS resolution work?
are bananas radioactive?
what is the difference between UTF-8 and UTF-16?
what's the point of code review?
how much sleep does an adult need?
what does SOLID stand for?
what is the difference between a library and a framework?
how does a transistor work?
what is a memory leak?
how do I say thank you in Japanese?
what's the difference between SQL and NoSQL databases?
what is big endian?
why do onions make you cry?
who invented the telephone?
how do compilers differ from interpreters?
what is the golden ratio?
how do you calculate compound interest?
what is a semantic version number?
what causes tides?
what's the difference between a GET and a POST request?
how do I get wine stains out of a white shirt?
what is the halting problem?
which countries border Austria?
what does a kernel do?
how are pearls made?
"""
_SMALL_TALK: Final = """
good morning!
thanks, that was quick
haha nice one
how are you today?
great job, really
ok cool
I'm going to get a coffee, back in five
hello again
that's a relief
good night, see you tomorrow
wow, impressive
sorry, I was on the phone
hmm let me think about it
happy friday!
you're the best
no worries
lol
it's raining again here
I'm so tired today
that made my day
sounds like a plan
do you ever get bored?
what a week...
perfect, thank you so much
I'm back from lunch
never mind, forget what I just typed
are you still there?
are you a robot?
tell me a joke
yay!
oh well, it happens
I have to leave early today, it's my daughter's birthday party
ouch
fair enough
you were right, as so often
I appreciate your patience with me
let's call it a day
one moment please
my cat just walked over the keyboard
it's way too hot in this office
what's your favourite colour?
do you like music?
merry christmas!
phew, finally weekend
that was more than I hoped for
have a nice evening
I'm a bit stressed, to be honest
can't complain
my train was an hour late this morning, unbelievable
thanks for explaining, now I get it
that's what I was afraid of
who would have thought
good to know
I owe you one
let me grab a glass of water first
what would you do with a million dollars?
I think I caught a cold
nice weather today, isn't it?
anyway
best of luck to both of us
"""
_NEW_TASKS: Final = """
write a haiku about autumn leaves
translate "where is the train station?" into Italian
write a python function that checks whether a year is a leap year
suggest five names for a small bakery
draft a polite email that declines an invitation to a wedding
convert 37.5 miles to kilometres
write a regular expression that matches a German postal code
give me a recipe for pancakes for four people
summarize the plot of Hamlet in three sentences
make a packing list for a weekend of hiking in the rain
write a bash one-liner that counts the lines of all csv files in a folder
explain recursion to a ten year old
compose a limerick about a lazy dog
write a short toast for my grandmother's 80th birthday
sort these numbers: 14, 3, 99, 27, 8
what's 17% of 2,340?
create a css animation of a bouncing ball
write a sql query that finds duplicate email addresses in a table of subscribers
plan a vegetarian dinner for six guests
give me ten synonyms for "happy"
write a cover letter for a job as a gardener
rewrite this sentence more politely: send me the money now
implement fizzbuzz in rust
draw an ascii art of a sailing boat
design a workout for beginners, three times a week
spell "onomatopoeia" backwards
write a docker compose example with nginx and redis
propose a two day itinerary for Porto
make a crossword clue for the word lighthouse
write a javascript function that shuffles an array
explain the rules of chess in a short paragraph
write a product description for a wooden salad bowl
generate a random password with 16 characters
calculate the monthly payment of a loan of 15,000 at 4% over five years
write a bedtime story about a penguin who is afraid of water
give me three arguments for and three against remote work
write a birthday card for a colleague who loves cycling
turn this into a bullet list: apples pears plums quinces
write a python script that renames photos by the date they were taken
name three novels that are set in Lisbon
write a unit test for a function that adds two fractions
make up a riddle about the wind
create a table of the planets with their diameters
write an apology to a customer whose parcel arrived broken
suggest a title for a talk about composting at home
write a makefile with the targets clean, lint and docs
translate "the early bird catches the worm" into Latin
give me a mnemonic for the colours of the rainbow
write a letter of complaint about a noisy construction site
invent a superhero whose power is gardening
estimate how many piano tuners work in Chicago
list the prime numbers below 50
write a small state machine for a traffic light
describe a sunset to somebody who has never seen one
write a job posting for a part time librarian
make a quiz of five questions on European rivers
convert the roman numeral MCMXCIV to a number
write a dialogue between a carrot and a potato
give me an easy stretching routine for my back
write a react component that shows a countdown
"""
KINDS: Final = {"general": _GENERAL, "small talk": _SMALL_TALK, "new task": _NEW_TASKS}
"""The messages by kind, one per line."""


def ordinary_messages() -> list[tuple[str, str]]:
    """Kind and text of every message."""
    return [(kind, text) for kind, lines in KINDS.items() for text in lines.strip().splitlines()]


def ordinary_sessions(
    *, most_chats: int | None = None, most_questions: int | None = None
) -> list[LiveSession]:
    """The recordings, each with every fourth of the messages; `most_questions` limits those."""
    recordings = {one.name: one for one in load_conversations()}
    messages = ordinary_messages()
    sessions: list[LiveSession] = []
    for place, name in enumerate(SESSIONS[:most_chats]):
        own = messages[place :: len(SESSIONS)][:most_questions]
        exchanges = tuple(_exchanges(recordings[name]))
        half, end = len(exchanges) // 2, len(exchanges)
        questions = [
            (
                half + (end - half) * (number + 1) // len(own),
                LiveQuestion(name=f"{name}-{number}", kind=kind, ask=text, ordinary=True),
            )
            for number, (kind, text) in enumerate(own)
        ]
        sessions.append(
            LiveSession(
                name=name,
                exchanges=exchanges,
                questions=tuple(questions),
                system=_SYSTEM,
                tools=tuple(_tools(exchanges)),
            )
        )
    return sessions


def _exchanges(recording: Conversation) -> Iterator[Exchange]:
    """The recording in exchanges; what the model does before the user speaks is left out."""
    codec, numbers = CODECS[recording.format], count()
    held: list[WireMessage] = []
    for row in recording.rows[:MOST_ROWS]:
        for message in _wire(codec.read(row.raw)):
            if message["role"] == "user" and any(one["role"] == "assistant" for one in held):
                yield _exchange(held, next(numbers))
                held = []
            if held or message["role"] == "user":
                held.append(message)
    if held:
        yield _exchange(held, next(numbers))


def _exchange(messages: Sequence[WireMessage], number: int) -> Exchange:
    return Exchange(messages=tuple(messages), at=_BEGUN_AT + number * ORDINARY_SECONDS)


def _wire(message: Message) -> list[WireMessage]:
    """A recorded message as chat messages: its text and calls, or each of its results."""
    results: list[WireMessage] = [
        {"role": "tool", "tool_call_id": part.call_id, "content": part.text}
        for part in message.parts
        if isinstance(part, ToolResult)
    ]
    if results:
        return results
    text = "\n".join(part.text for part in message.parts if isinstance(part, Text))
    if message.role == "user":
        return [user(text)] if text.strip() else []
    calls = [
        {
            "id": part.id,
            "type": "function",
            "function": {"name": part.name, "arguments": part.arguments},
        }
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    if calls:
        return [{"role": "assistant", "content": text or None, "tool_calls": calls}]
    return [assistant(text)] if text.strip() else []


def _tools(exchanges: Sequence[Exchange]) -> Iterator[WireMessage]:
    names = {
        call["function"]["name"]
        for exchange in exchanges
        for message in exchange.messages
        for call in message.get("tool_calls") or ()
    }
    for name in sorted(names):
        schema = {"type": "object", "properties": {}, "additionalProperties": True}
        function = {"name": name, "description": "A tool.", "parameters": schema}
        yield {"type": "function", "function": function}
