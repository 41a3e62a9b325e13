"""Why something was done, or not: a cause out of a fixed list, and the numbers that go with it.

Code compares causes and reads numbers; people read the sentence, which is rendered from both here
and nowhere else. A cause is stored by its name, so a sentence may be worded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from string import Formatter
from typing import Any, TypeAlias

Number: TypeAlias = "int | float | str | Reason"
"""What a sentence is filled with: mostly numbers; names, and another reason where one led to it."""


@unique
class Cause(Enum):
    """Every cause, with the template of its sentence; `{count:one|many}` chooses a word."""

    ERROR = "{error}"
    """An error of ours, which says what to do."""
    RAISED = "an unforeseen error ({error}): the stage was left out of this turn"
    LATE = "no answer within {seconds:.3g} s"
    NOT_RUN = "it was not run"

    # load, read, align, pair, send
    SESSION_LOADED = "{messages} {messages:message|messages} known from turn {turn}"
    SESSION_NOT_LOADED = "{error}: what is known of the session is not"
    SPOOL_NOT_READ = "{error}: what waits in the spool of the session is not known yet"
    REQUEST_READ = "{messages} {messages:message|messages}, {format}"
    MESSAGES_READ = "{known} messages known by their bytes, {fresh} looked at"
    REPLY_READ = "{messages} {messages:message|messages} in the reply"
    NO_SUCH_TURN = "no request of turn {turn} was prepared: the session's last one is {last}"
    NOT_A_REPLY = "nothing in this {kind} is a provider's reply or error: nothing was kept of it"
    NEVER_PREPARED = (
        "this session is not known, so its reply is not kept: `prepare` its request first, or "
        "check the session's name"
    )
    USAGE_READ = "the reply's usage was read"
    ALIGNED = "{course}: {shared} {shared:message|messages} as before"
    REJOINED = "{course}: {shared} messages as before, {rejoined} recognised further on"
    TRIMS_LIFTED = "the history went back: what was left out of it since is shown again"
    VIEW_MADE = "{rows} {rows:row|rows}"
    REPAIRED = "{repairs} {repairs:repair|repairs}"
    EDITS_REST = "{edits} {edits:edit rests|edits rest}: their messages are not in this history"
    SAYS_NOTHING = "no message says anything: sent as it came"
    SENT = "{messages} {messages:message|messages}"
    PROMPT_FILLS = (
        "system prompt and tools alone take {tokens:,} tokens of a window of {window:,}: {room:,} "
        "more are given to the conversation; set window_tokens (--window) to what the model takes"
    )
    STILL_OVER = "still {tokens:,} {tokens:token|tokens} over the limit: what is left is protected"
    STILL_OVER_NOT_DURABLE = (
        "still {tokens:,} {tokens:token|tokens} over the limit: what is left is not durable yet, "
        "or protected"
    )

    # fates
    AS_IT_CAME = "as it came"
    WITH_NEIGHBOUR = "shown together with its neighbour"
    NOT_SHOWN = "not shown"
    CARRIES = "carries {block}"
    GAP_NOTE = "a note where messages were left out"
    OWN_BLOCK = "a recalled block"
    STANDING_ROW = "what was laid down in messages that left the view"
    OPENING = "stands for the user, who has to begin"
    ABSENT = "stands for a message that held nothing further to send"
    STAND_IN = "stands in for a result that is missing"
    SUMMARY = "the summary of what was cut"
    OWN_ROW = "of our own: {note}"

    # repairs: what providers refuse
    TURN_ABORTED = "the turn was aborted"
    TURN_FAILED = "the turn was ended by an error"
    CALL_GOES_TOO = "{why}: its call goes too"
    SYSTEM_INSIDE = "a system message inside the history"
    SYSTEM_ASTRAY = "a system message whose user message is not shown"
    EMPTY_MESSAGE = "an empty message"
    BLANK_TEXT = "blank text"
    EARLIER_BLOCK = "a recalled block of an earlier turn"
    MISPLACED_PART = "a part that its role cannot hold"
    CALL_REPEATED = "a call repeated in one message"
    CALL_OPEN = "a call that is still open"
    CALL_TOLD_AGAIN = "a call told again"
    ROLE_FOREIGN = "a role that this format does not have"
    CALL_UNANSWERED = "a {kind} without its result"
    RESULT_AWAY = "moved: stood away from its call"
    RESULT_SECOND = "a second result for the same call"
    RESULT_ORPHANED = "a result whose call is not in the history"
    RESULT_MISSING = "a call without a result"
    REASONING_IDLE = "reasoning whose item is not shown"
    CALL_ID = "an id of a call"
    ID_TAKEN = "an id that another item has"
    ASSISTANT_FIRST = "the assistant would begin"
    ASSISTANT_LAST_BY_REPAIR = "the assistant would speak twice, or last"
    SAME_ROLE = "two messages of one role in a row"
    FINAL_THINKING = "thinking in a final message"
    FINAL_WHITE_SPACE = "the final text ended in white space"
    BLOCK_NO_OBJECT = "a block that is not an object"
    MESSAGE_NO_OBJECT = "a message that is not an object"
    RESULT_BLANK = "blank text inside a result"
    RESULT_EMPTY = "a result without content"
    OUTPUT_MISSING = "an output item without its output"
    SERVER_RESULT_ALONE = "a result of a provider's tool without its call"
    SERVER_RESULT_SECOND = "a second result of a provider's tool for the same call"
    SERVER_CALL_ALONE = "a call of a provider's tool without its result"
    SERVER_CALL_TOLD_AGAIN = "a call of a provider's tool told again"
    CALLER_GONE = "called by code that is not in the view"
    CALLS_EMPTY = "an empty list of calls"
    PARTS_EMPTY = "an empty list of parts"
    NO_CONTENT = "no content"
    ARGUMENTS_NO_STRING = "arguments that are not a string"

    # ingest, extract
    DURABLE = "durable in the {where}"
    DURABLE_BUT = "durable in the {where}: {detail}"
    NOT_DURABLE = (
        "{messages} {messages:message is|messages are} not durable and may not leave the view"
    )
    GIVEN_UP = (
        "{messages} {messages:message is|messages are} durable nowhere, and may leave the view all "
        "the same: they wait in memory, and in the client's own history"
    )
    NOT_KEPT = "not kept: {error}"
    STORE_REPLACED = (
        "the memory's file was removed or replaced while it was open: what this history holds is "
        "written to the new one, what only the old one held is gone"
    )
    WRITE_GOES_ON = "not written within {seconds:g} s; it goes on"
    SPOOLED = "kept in the spool: {error}"
    ARCHIVE_TROUBLE = "{trouble}"
    FILES_NOT_LOOKED_AT = "memory files were not looked at: {error}"
    FILE_PASSED_OVER = "memory file passed over: {file}: {why}: `recollect memory index` lists it"
    FILES_PASSED_OVER = (
        "memory files passed over: {file}: {why}; and {more} more: "
        "`recollect memory index` lists them"
    )
    EXTRACTED = "{facts}"
    MODELS_ASKED = (
        "models were asked {calls} {calls:time|times} since the last turn ({purposes}): "
        "{input_tokens:,} tokens in, {output_tokens:,} out"
    )
    NO_NEW_MESSAGES = "no new messages"
    ONLY_RECALLED_BLOCKS = "nothing but recalled blocks"
    KEPT = "{messages} {messages:message|messages} kept, {indexed} of them indexed"
    MASKED = "{secrets} {secrets:secret|secrets} masked"
    BLOCKS_LEFT_OUT = "{blocks} recalled {blocks:block|blocks} left out"

    # batch moments, prune, trim
    OVER_LIMIT = "over the limit of {limit:,} tokens"
    ROOM_WANTED = "a recalled block of {tokens:,} tokens is wanted, the view leaves {room:,}"
    COMPACTION_DUE = "over {limit:,} tokens, where compactions are due"
    CACHE_EXPIRED = "the provider's cache expired ({minutes:.0f} min)"
    WINDOW_SHARE = "the window is {share:.0%} full"
    PRUNING_OFF = "pruning is off"
    CACHE_WARM = "the provider's cache is still warm"
    NO_OLD_RESULT = "no old tool result to shorten"
    PRUNED = "{results} of {found} old tool results shortened"
    RESULTS_SHORT = "old tool results are short already"
    NOT_CACHED = "the provider keeps no cache of this session ({requests} requests in a row)"
    FREES_TOO_LITTLE = "it would free too little"
    PAYS_TOO_LITTLE = (
        "it would not pay: over {requests} {requests:request|requests} it saves {saves:,} tokens, "
        "and breaks {breaks:,} of the cache"
    )
    PAYS = (
        "over {requests} {requests:request|requests} it saves {saves:,} tokens, and breaks "
        "{breaks:,} of the cache"
    )
    LONG_RESULT = "a long tool result, {moment}"
    OLD_RESULT = "an old tool result, {moment}"
    VIEW_FITS = "the view fits its limit"
    ALL_PROTECTED = "everything in the view is protected"
    NOTES_COST_MORE = "what could go is smaller than the notes it would leave"
    TRIMMED = "{messages} {messages:message|messages} left out of the view"
    OLDEST = "the oldest that is not protected"
    LEAST_RELEVANT = "least relevant to the query (score {score:.2f})"
    NOTHING_TO_SEARCH = "nothing to search in it, oldest first"
    QUERY_TOO_SHORT_TO_TRIM = "the query is too short to trim by (OpenClaw)"

    # when a compaction is due
    COUNT_STALE = "how full the window is has to be counted anew"
    NOTHING_PREPARED = "nothing was prepared in this process"
    COMPACTION_OFF = "compaction is off (compaction.enabled)"
    COMPACTION_UNDONE = "the last compaction was undone; there is none until you ask for one"
    BREAKER_OPEN = "compactions made no progress lately and are paused for a while"
    PROVIDER_HOLDS = "the provider holds the earlier messages itself: only it can shorten them"
    PREVIEWED = "this is a preview: nothing is compacted for it"
    NO_MODEL = (
        "no model is set that could summarise: set models.provider and models.main, "
        "give `model=`, or, behind the gateway, set gateway.summaries (--summaries)"
    )
    DUE_OVER = "{tokens:,} tokens are over the limit of {limit:,}"
    DUE_HELD_BACK = "{tokens:,} tokens are over the limit of {limit:,}, but {why}"
    FLUSH_DUE = "{tokens:,} tokens: from {limit:,} on notes are written"
    FLUSHED = "no compaction is due yet, and notes were written in this cycle"
    FLUSHES_OFF = "no compaction is due yet, and flushes are off"
    NOT_FULL = "{tokens:,} tokens are under {limit:,}"

    # where the past may be cut
    ALL_FITS = "all that is shown fits the {tokens:,} tokens that are kept"
    ONE_EXCHANGE = "the newest exchange is all there is: no cut can part it"
    FREES_LITTLE = (
        "a cut before the newest exchange would free {tokens:,} tokens, less than a summary takes"
    )
    NOTHING_SAID = "nothing was said yet"
    NOTHING_BEFORE = "there is nothing before the newest exchange"
    ALL_FORGOTTEN = "all that could be summarised was forgotten"
    CUT_BETWEEN = (
        "cut between turns: {messages} messages are summarised, "
        "{tokens:,} tokens kept where {wanted:,} were asked for"
    )
    CUT_WITHIN = (
        "cut within a turn: {messages} messages are summarised, "
        "{tokens:,} tokens kept where {wanted:,} were asked for"
    )

    # what a model answered
    REFUSED = "the model refused to summarise"
    ANSWER_EMPTY = "the answer was empty"
    ANSWER_UNCHANGED = "the answer was the summary before, unchanged"
    ANSWER_NO_LETTERS = "the answer held hardly a letter"
    ANSWER_REPEATS = "the answer repeated itself"
    ANSWER_ECHOES = "the answer was the conversation given back"
    ANSWER_TOO_LONG = "the summary was longer than what it summarises"
    ANSWER_ONLY_FOCUS = "the answer was nothing but what it was told to look at"
    CALLS_USED_UP = "the calls that were set aside are used up"
    SUMMARY_LATE = "no summary in time (compaction.deadline_seconds)"
    MODEL_AWAY = "the model is away: {error}"
    MODEL_REFUSED = "the provider refused the call: {error}"
    MODEL_OVERFLOW = "the summarising call did not fit the model's window"
    MODEL_WRONG = "the model did not answer as it must: {error}"
    NOTHING_TO_SUMMARISE = "there is nothing in it to summarise"
    SUMMARY_CUT_OFF = "an answer was cut off at its limit"
    SUMMARY_WINDOW = "the window of the model that summarises is {tokens:,} tokens"
    SIMPLER_PROMPT = "a simpler prompt was used: {why}"
    SMALLER_CHUNKS = "smaller chunks were used: {why}"
    HISTORY_THINNED = "there was more than can be read: {messages} messages by beginning and end"
    SECOND_FAILED = "the second version of the summary failed: {why}"
    SECOND_SPARED = "no second version was asked for: the summary before lacks the same headings"
    SUMMARY_LACKS = "the summary lacks: {missing}"
    PROBES_UNCHECKED = "{questions} of the questions to memory could not be checked: {errors}"
    PROBES_UNASKED = "{probes} probes were not asked of memory: there were too many"
    NO_SUPPLIER = "no hook supplied a summary, and no model is set"
    HOOK_SAID_NO = "a session_before_compact hook said no"

    # how a compaction ended
    SUMMARISED = "{messages} {messages:message|messages} became a summary"
    SUMMARY_AS_LONG = "the summary, with what has to stay, is as long as what it would replace"
    NOTHING_TO_START_FROM = "there is no request to start from: prepare one, or give it"
    SOME_NOT_DURABLE = "{messages} messages are not durable yet, so none may leave"
    COMPACTION_LATE = "it did not end in time (compaction.deadline_seconds)"
    COULD_NOT_BE_KEPT = "it could not be kept: {error}"
    ANOTHER_WAY = "the session went on another way meanwhile"
    ANOTHER_PROCESS = "another process went on with the session"
    FORGOTTEN_MEANWHILE = "something that it stands for was forgotten meanwhile"
    ONLY_NOTES = "only notes were due"
    ENGINE_CLOSED = "the engine was closed meanwhile"
    MADE_EARLIER = "made earlier, and recorded now"
    NOTHING_TO_UNDO = "no compaction stands in this session"
    UNDO_LOST = "what stood before compaction {number} is no longer kept"
    UNDONE_TO_SUMMARY = "compaction {number} undone: the summary before it stands again"
    UNDONE = "compaction {number} undone: the whole history is shown again"

    # compact
    CUT = "compaction {number}: {cut}"
    COMPACTED = "{why}: {before:,} to {after:,} tokens in {seconds:.1f} s"
    NOT_COMPACTED = "not compacted: {why}"
    IRREDUCIBLE = "irreducible: {why}"
    IN_BACKGROUND = "in the background: {compaction}"
    NO_COMPACTION = "no compaction: {why}"

    # query, gate, recall, inject
    NO_QUERY = "no user message that says enough to ask by"
    ASKED = "asked by the last user {messages:message|{messages} messages}"
    RECALL_OFF = "recall is off"
    NO_RECALLER = "nothing is there to ask: no recaller"
    QUERY_TOO_SHORT = "the query is too short"
    HAS_BLOCK = "this turn has its block already"
    ASKED_BEFORE = "asked when this turn began"
    NOT_RECALLED = "nothing recalled: {gate}"
    FOUND = "{facts} {facts:fact|facts} and {passages} {passages:passage|passages}"
    FOUND_BY = "{facts} {facts:fact|facts} and {passages} {passages:passage|passages} ({gate})"
    STANDING_FOUND = "{facts} {facts:fact stands|facts stand} in every request"
    NOTHING_STANDS = "nothing that left the view has to stand"
    STANDING_BLOCK = (
        "of what left the view {lines} {lines:sentence|sentences} and {facts} {facts:fact|facts} "
        "stand at its head"
    )
    NOTHING_FITS = "nothing fits into {tokens} tokens"
    NO_WORDS = "the question holds no words"
    NOTHING_HELD = "memory holds nothing on it that the view lacks"
    TOO_LITTLE_SAID = "it says too little to ask by"
    ONLY_STATES = "the message asks for nothing and orders no work"
    CERTAIN = "certainty {certainty:floor} of {threshold:.2f}"
    UNCERTAIN = "certainty {certainty:floor}, {threshold:.2f} is needed"
    UNHEARD = (
        "certainty {certainty:floor}, {threshold:.2f} is needed; "
        "memory never heard of whom it names"
    )
    WORDS_APART = "what it asks about stands together in no passage (certainty {certainty:floor})"
    VIEW_ANSWERS = "the view shows what answers it better"
    TERMS_LOST = "{terms:a term|{terms} terms} of it left the view"
    FACT_ANSWERS = "a fact that was written down answers it"
    FACTS_UNSURE = "stored facts share words with it, but none is certain to answer it"
    ASKED_FOR = "asked for"
    BELOW_MIN_SCORE = (
        "no message scores {threshold:.2f} by OpenClaw's formula, and no fact holds enough words"
    )
    INDEX_READ = "OpenClaw's index is still being read: {messages:,} messages so far"
    NOT_SEARCHED_YET = "what was said last waits in the spool, and was not searched"
    WORDS_ALONE = "searched by words alone: {error}"
    VECTORS_LEFT_OUT = "{kind} vectors are left out: {error}"
    VECTORS_LOADING = "{kind} vectors are left out: the model is loading"
    VECTORS_UNWATCHED = "vectors were not looked after: {error}"
    VECTORS_MISSING = "{kind} vectors are being made: {made:,} of about {passages:,}"
    NOT_EMBEDDED = "some passages have no {kinds} vector yet: `recollect memory embed` makes them"
    NOTHING_RECALLED = "nothing was recalled"
    NO_MESSAGE = "no message to stand beside"
    ASSISTANT_LAST = "the request ends with the assistant's own words, which it is to continue"
    PROVIDER_WAITS = "the provider waits for this very message, which may hold nothing else"
    FACTS_DO_NOT_FIT = "not even the facts fit into {tokens} tokens"
    RECALLED_BLOCK = (
        "a recalled block of {tokens:,} {tokens:token|tokens} (of what was found: {fill})"
    )


class Reason:
    """A cause with its numbers; `str` is the sentence. Not to be changed once made."""

    __slots__ = ("cause", "numbers")

    def __init__(self, cause: Cause, **numbers: Number) -> None:
        self.cause = cause
        self.numbers: Mapping[str, Number] = numbers

    def __str__(self) -> str:
        return _SENTENCES.vformat(self.cause.value, (), self.numbers)

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.numbers.items())
        return f"Reason({self.cause.name}{given})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reason):
            return NotImplemented
        return self.cause is other.cause and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash((self.cause.name, frozenset(self.numbers.items())))

    def __deepcopy__(self, memo: object) -> Reason:
        return self

    def masked(self, mask: Callable[[str], str]) -> Reason:
        """The same with its texts masked: an error may quote what nobody may store."""
        numbers: dict[str, Number] = {}
        for name, value in self.numbers.items():
            if isinstance(value, Reason):
                numbers[name] = value.masked(mask)
            else:
                numbers[name] = mask(value) if isinstance(value, str) else value
        return Reason(self.cause, **numbers)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: the cause's name, and its numbers."""
        numbers = {
            name: value.to_dict() if isinstance(value, Reason) else value
            for name, value in self.numbers.items()
        }
        return {"cause": self.cause.name.lower(), "numbers": numbers}

    @classmethod
    def from_dict(cls, stored_value: Any) -> Reason:
        """What `to_dict` gave; else a ValueError."""
        try:
            cause, numbers = Cause[stored_value["cause"].upper()], dict(stored_value["numbers"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("a newer program's reason") from error
        for name, value in numbers.items():
            numbers[name] = cls.from_dict(value) if isinstance(value, dict) else value
        return cls(cause, **numbers)


def joined_reasons(reasons: tuple[Reason, ...]) -> str:
    """Several reasons as one line."""
    return "; ".join(map(str, reasons))


class _Sentences(Formatter):
    """`{count:one|many}` is a word by its number, `{share:floor}` two digits rounded down."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if "|" in format_spec:
            return format_spec.split("|")[value != 1]
        if format_spec == "floor":  # what is just below a threshold must not read as equal to it
            return f"{int(value * 100) / 100:.2f}"
        if isinstance(value, str):  # a range of numbers, put into words
            return value
        return super().format_field(value, format_spec)


_SENTENCES = _Sentences()
NOT_RUN = Reason(Cause.NOT_RUN)
"""What a stage that failed is taken to have said."""
