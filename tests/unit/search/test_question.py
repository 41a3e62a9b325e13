"""What is read out of a question: speakers, names, identifiers, whose words it wants."""

import pytest

from recollect.core.search.identifiers import identifiers_in, words_of
from recollect.core.search.names import (
    date_words_in,
    names_in,
    speaker_of,
    speaker_word,
    speaker_words_asked,
)
from recollect.core.search.question import (
    needs_context,
    only_asks,
    question_text,
    read_question,
    wants_list,
    what_asks,
)
from recollect.core.search.statements import STANDING_WORD, is_standing
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.ingest import index
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.recall import RecallRequest
from recollect.core.values.segment import NewSegment, Segment, SegmentId

NOW = 1_760_000_000.0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Caroline: I went to the lake", "Caroline"),
        ("  Mary-Ann O'Brien: hello", "Mary-Ann O'Brien"),
        ("Ludwig van Beethoven: da da da dum", "Ludwig van Beethoven"),
        ("Dr. No : welcome", "Dr. No"),
        ("Émile： bonjour", "Émile"),
        ("Caroline:\nI went to the lake", "Caroline"),
    ],
)
def test_a_message_begins_with_its_speaker(text: str, name: str) -> None:
    assert speaker_of(text) == name


@pytest.mark.parametrize(
    "text",
    [
        *("Note: the port is 3000", "TODO: write the tests", "Error: no such file"),
        *("The answer is: yes", "The plan: we go north", "Assistant: I have deleted it"),
        *("caroline: hi", "http://example.org is down", "Http://example.org is down"),
        *("std::move is not free", "Time 10:30 is fine", "One Two Three Four: hi"),
        *("we met\nCaroline: hi", "12: the dozen", ": nothing", "Caroline", ""),
    ],
)
def test_no_speaker_begins_it(text: str) -> None:
    assert speaker_of(text) == ""


@pytest.mark.parametrize(
    ("question", "speaker"),
    [
        ("What did Caroline say?", "Caroline"),
        ("what is Caroline's job?", "Caroline"),
        ("what is James' job?", "James"),
        ("Who is John Smith?", "John Smith"),
        ("WHAT DID CAROLINE SAY?", "Caroline"),
        ("Did it rain on Émile?", "Émile"),
        ("what did O’Brien’s sister want?", "O’Brien"),
    ],
)
def test_a_question_asks_for_the_speakers_it_names(question: str, speaker: str) -> None:
    assert speaker_word(speaker_of(f"{speaker}: hello")) in speaker_words_asked(question)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Who is John Smith?", {"john", "smith"}),
        ("what did Caroline's mother say?", {"carolin"}),
        ("Where was it? Caroline knows, and so does Ann", {"ann"}),
        ("is it the iPhone or the API?", set()),
        ("约翰和 John 在哪里", {"john"}),
        ("Was it on Monday in May, or did May Smith say so?", {"smith"}),
        ("What did I say?", set()),
        ("what did caroline say?", set()),
        ("Caroline left.", set()),
        ("WHAT DID CAROLINE SAY ABOUT IT", set()),
        ("What Did Caroline Say About The Adoption Agency Visit", set()),
        ("他昨天说了什么", set()),
        ("", set()),
        ("Wie viel kostet das Fenster, und wer hat den Vertrag?", set()),
        ("Wann kommt Caroline nach Berlin?", set()),
        ("What did Caroline put on, the red hat or the blue hat?", {"carolin"}),
        ("Did Ursula von der Leyen meet Jan van der Berg?", {"ursula", "leyen", "berg"}),
    ],
)
def test_what_counts_as_a_name(question: str, names: set[str]) -> None:
    assert {word for name in names_in(question) for word in name} == names


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("what was said on 7 May 2023?", {"7", "may", "2023"}),
        ("what was said in june 2021?", {"june", "2021"}),
        ("who came on the 3rd of March?", {"3rd", "march"}),
        ("what happened last Sunday?", {"sunday"}),
        ("May I march in the sun?", set()),
        ("who listens on port 8443, and what are the 12 rules?", set()),
    ],
)
def test_words_that_only_say_when(question: str, words: set[str]) -> None:
    assert date_words_in(question) == {token for word in words for token in tokenize(word)}


@pytest.mark.parametrize(
    "written",
    [
        *("src/payment/webhook.ts", "./run.sh", "~/notes/plan.md", "C:\\Users\\ann\\plan.txt"),
        *("retry_limit", "_private_name", "getUserName", "UserService", "json.dumps", "std::move"),
        *("a1b2c3d4e5", "v1.24.3", "10.0.17.4", "ECONNREFUSED", "ABC-1234", "#1234", "--dry-run"),
        *("https://example.org/a/b?x=1", "webhook.ts", "4815162342"),
    ],
)
def test_what_can_only_mean_one_thing(written: str) -> None:
    found = identifiers_in(f"please look at {written}, it broke")
    assert any(written.endswith(one) and len(one) > len(written) - 4 for one in found.values())
    for key, one in found.items():
        assert key in tokenize(one), "the index knows it by this word"
        assert set(words_of(one)) <= set(tokenize(one))


@pytest.mark.parametrize(
    "text",
    [
        "an ordinary sentence, with commas; and a colon: so.",
        "a well-known state-of-the-art word, up-to-date",
        "and/or he/she yes/no Yes/No",
        "on 7/22 or 2023-05-07 or 2023/05/07 or 22.07.2023 or 05/07/2023",
        "at 10:30, 3.5 of 100, 50%, 1,000 or 2023",
        "U.S. e.g. i.e. a.m.",
        "NASA and the EU in COVID-19 times",
        "Mr. Smith went home. Then he slept",
        "它在哪里？我不知道。",
        "-v is an option, -- is a dash",
        "decade facade added",
        "",
    ],
)
def test_what_may_mean_anything(text: str) -> None:
    assert identifiers_in(text) == {}


def test_a_gated_turn_asks_by_its_newest_message_alone_and_each_word_once() -> None:
    question = read_question("Did Ann paint? Ann paints, Ann painted on 7 May 2023", asked_at=NOW)
    assert question.words.count("paint") == question.words.count("ann") == 1
    assert {"by=ann", "on=2023-05-07"} <= set(question.marks)
    assert not set(question.marks) & set(question.words)
    pasted = read_question(
        " ".join(f"Word{n} on {n % 28 + 1} May" for n in range(900)), asked_at=NOW
    )
    assert len(pasted.words) <= 128
    assert len(pasted.marks) <= 24

    def request(newest: str, *, gated: bool) -> RecallRequest:
        return RecallRequest(
            space="mine", session="s", query="older\nnewer", newest=newest, now=NOW,
            budget_tokens=100, count_tokens=len, gated=gated,
        )  # fmt: skip

    assert question_text(request("newer", gated=True)) == "newer"
    assert question_text(request("newer", gated=False)) == "older\nnewer"
    assert question_text(request("", gated=True)) == "older\nnewer"


@pytest.mark.parametrize(
    ("text", "leans"),
    [
        ("why?", True),
        ("why not him?", True),
        ("why is the sky blue?", False),
        ("why do cats purr?", False),
    ],
)
def test_a_question_for_a_reason_that_names_its_subject_leans_on_nothing(
    text: str, leans: bool
) -> None:
    assert needs_context(text) is leans


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("what did we decide about the quay?", "question"),
        ("remind me which crane it was", "question"),
        ("list everything we agreed on so far", "question"),
        ("我们之前决定用哪台起重机？", "question"),
        ("which crane is the green one?", "question"),
        ("at what hour does the ferry leave", "question"),
        ("起重机在哪里？", "question"),
        ("paint it in our colour, as always", "reference"),
        (
            "write a page on the harbour: who runs it, where the boats lie, what it costs",
            "reference",
        ),
        ("remind me to call the harbour master tomorrow", "other"),
        ("could you run the tests again?", "other"),
        ("Have a look at the crane, the arm creaks", "other"),
        ("sort these numbers: 14, 3, 99, 27, 8", "other"),
        ("can you walk me through the order in which I brought up the cranes?", "question"),
        ("sweep the quay and coil the ropes", "other"),
        ("The crane is green.", "other"),
        ("which ropes did we just coil?", "other"),
        ("what did the harbour master want just now?", "other"),
        ("just tell me: which crane did we choose?", "question"),
        ("how do I coil a rope?", "question"),
        ("what if the ferry is late?", "question"),
        ("Where do I live?", "question"),
        ("How many bikes do I own?", "question"),
        ("Which port should I use for our gateway?", "question"),
        ("how do I reach our gateway?", "question"),
        ("how do I coil a rope? and which one is the green one?", "question"),
        (" ".join(["the crane has a green arm and"] * 12) + " can it lift a boat?", "other"),
        (
            " ".join(["the crane has a green arm and"] * 12) + " what did we decide on it?",
            "question",
        ),
    ],
)
def test_what_a_message_wants(text: str, asks: str) -> None:
    assert what_asks(text) == asks


@pytest.mark.parametrize(
    ("text", "leaning"),
    [
        ("why?", True),
        ("and who owns it?", True),
        ("since when?", True),
        ("how come?", True),
        ("what was the alternative?", True),
        ("为什么？", True),
        ("which crane stands at the north quay?", False),
        ("fix it", False),
        ("what does it cost?", True),
        ("did Hanneke approve it?", True),
        ("when did Hanneke lose her keys?", False),
        ("when did she lose her keys?", True),
        ("the crane at the north quay, what does it cost?", False),
        ("which crane do we use these days?", False),
        ("which crane was it that broke down?", False),
        ("is it bad to sleep on deck?", False),
        ("when should one paint the hull?", False),
        ("are you still there?", False),
        (
            "why does the green crane at the north quay of our harbour need a rope each month?",
            False,
        ),
    ],
)
def test_what_cannot_be_understood_alone(text: str, leaning: bool) -> None:
    assert needs_context(text) is leaning


def test_only_what_is_asked_for_many_times_over_is_a_list() -> None:
    assert wants_list("which cranes did we order?")
    assert not wants_list("which harbour does the crane stand in?")
    assert not wants_list("which mattress did we settle on?")
    assert not wants_list("which host runs the ledger?")
    assert not wants_list("which alias points to staging?")


@pytest.mark.parametrize(
    "text",
    [
        "Wann endet die Garantie?",
        "Wer gießt Omas Tomaten?",
        "Welchen Tarif nutzt Oma?",
        "Was kostet der Umzug?",
        "Womit heizt das Ferienhaus?",
        "Steht der Termin mit Frau Beck noch?",
    ],
)
def test_nouns_of_a_short_german_question_are_no_names(text: str) -> None:
    assert names_in(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "To which commit did we pin the search indexer?",
        "What is the ticket for the search indexer?",
        "what was the port??",
        "Thanks! And what is the port?",
        "What's in retry_policy.py at v1.2?",
        "And who paints it? When was that?",
        "  Did we ever pin it?  ",
        "Hi, do you remember the port?",
        "Can you tell me where the crane stands?",
        "起重机在哪里？",
        "我们把它钉在哪个提交上了吗？",
    ],
)
def test_it_only_asks(text: str) -> None:
    assert only_asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "The ticket is OPS-311.",
        "What is the ticket for the search indexer",
        "The ticket is OPS-311. Is that right?",
        "Is that right? It is OPS-311.",
        "We pinned it to 8f3c2a1, didn't we?",
        "the crane is green?",
        "起重机在北码头。对吗？",
        "起重机在北码头，对吗？",
        "ok, thanks?",
        "What is wrong here?\n\nTraceback: OPS-311 was not found",
        "Why " + "so " * 400 + "long?",
    ],
)
def test_it_says_something_too(text: str) -> None:
    assert not only_asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "Always answer in metric units.",
        "From now on call me Captain.",
        "Please never use emojis in commit messages",
        "When I ask about recipes, give me vegetarian ones.",
        "Don't ever push to main without asking me",
        "以后请用中文回答",
        "不要每次都道歉",
    ],
)
def test_what_is_to_last(text: str) -> None:
    assert is_standing(text)


@pytest.mark.parametrize(
    "text",
    [
        "I always wanted to see the sea",
        "She never called me back",
        "Use the blue one.",
        "What do you always do on Sundays?",
        "Always " + "a very long pasted text " * 20,
        "我总是迟到",
        "",
    ],
)
def test_what_was_only_said(text: str) -> None:
    assert not is_standing(text)


def segment(number: int, text: str, role: str = "user") -> NewSegment:
    made = Segment(
        id=SegmentId(f"{number:032x}"),
        session="s",
        key=EntryKey(f"k{number}"),
        message_id=MessageId(f"m{number}"),
        role=role,  # type: ignore[arg-type]
        text=text,
        tokens=10,
        said_at=1_700_000_000.0 + number,
        source="request",
        trust="high",
    )
    return NewSegment(segment=made, passages=index(made))


def test_only_the_users_own_short_messages_are_marked() -> None:
    said = "Always answer in metric units."
    assert STANDING_WORD in segment(1, said).passages[0].words
    assert STANDING_WORD not in segment(2, said, role="assistant").passages[0].words
