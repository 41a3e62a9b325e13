"""Reasons in reports: a cause from a fixed list, with its numbers. Code compares causes. People
read the sentence, which only this module writes. Stores hold the cause's name, so you may reword
the sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from string import Formatter
from typing import Any, TypeAlias

Number: TypeAlias = "int | float | str | Reason"


@unique
class Cause(Enum):
    """All causes with the templates of their sentences. `{count:one|many}` chooses a word by the
    number."""

    ERROR = "{error}"
    RAISED = "unexpected error ({error}): this turn ran without the stage"
    LATE = "no answer within {seconds:.3g} s"
    NOT_RUN = "the stage did not run"

    # load, read, align, pair, send
    SESSION_LOADED = (
        "loaded {messages} {messages:message|messages} of the session, up to turn {turn}"
    )
    SESSION_NOT_LOADED = "{error}: the session state could not be loaded"
    SPOOL_NOT_READ = "{error}: the session's spool could not be read yet"
    REQUEST_READ = "{messages} {messages:message|messages}, {format}"
    MESSAGES_READ = "{known} messages unchanged, {fresh} read"
    REPLY_READ = "{messages} {messages:message|messages} in the reply"
    NO_SUCH_TURN = "no request of turn {turn} was prepared: the session's last turn is {last}"
    NOT_A_REPLY = "this {kind} holds neither a provider's reply nor an error: nothing was stored"
    NEVER_PREPARED = (
        "the session is unknown, so its reply is not stored: call `prepare` with its request "
        "first, or check the session's name"
    )
    USAGE_READ = "the reply's usage was read"
    ALIGNED = "{course}: {shared} {shared:message|messages} unchanged"
    REJOINED = "{course}: {shared} messages unchanged, {rejoined} recognised further on"
    TRIMS_LIFTED = "the history went back: messages trimmed since then are shown again"
    VIEW_MADE = "{rows} {rows:row|rows}"
    REPAIRED = "{repairs} {repairs:repair|repairs}"
    EDITS_REST = (
        "{edits} {edits:edit is|edits are} inactive: their messages are not in this history"
    )
    SAYS_NOTHING = "no message holds content: sent unchanged"
    SENT = "{messages} {messages:message|messages}"
    PROMPT_FILLS = (
        "system prompt and tools alone take {tokens:,} tokens of a window of {window:,}, so the "
        "conversation gets {room:,} tokens more: set window_tokens (--window) to the model's "
        "real window"
    )
    STILL_OVER = (
        "still {tokens:,} {tokens:token|tokens} over the limit: the remaining messages are "
        "protected"
    )
    STILL_OVER_NOT_DURABLE = (
        "still {tokens:,} {tokens:token|tokens} over the limit: the remaining messages are "
        "protected, or not durable yet"
    )

    # outcomes of messages
    AS_IT_CAME = "sent unchanged"
    WITH_NEIGHBOUR = "joined with the message next to it"
    NOT_SHOWN = "not shown"
    CARRIES = "carries {block}"
    GAP_NOTE = "a note that messages were left out"
    OWN_BLOCK = "a recalled block"
    STANDING_ROW = "the user's decisions from trimmed messages"
    OPENING = "a placeholder, because a user message must come first"
    ABSENT = "a placeholder for a message that has nothing left to send"
    STAND_IN = "a placeholder for a missing result"
    SUMMARY = "the summary of the compacted messages"
    OWN_ROW = "added by Recollect: {note}"

    # repairs: contents that providers refuse
    TURN_ABORTED = "the turn was aborted"
    TURN_FAILED = "the turn ended with an error"
    CALL_GOES_TOO = "{why}: its call is left out too"
    SYSTEM_INSIDE = "a system message inside the history"
    SYSTEM_ASTRAY = "a system message whose user message is not shown"
    EMPTY_MESSAGE = "an empty message"
    BLANK_TEXT = "blank text"
    EARLIER_BLOCK = "a recalled block of an earlier turn"
    MISPLACED_PART = "a part that its role cannot hold"
    CALL_REPEATED = "a call repeated in one message"
    CALL_OPEN = "a call that is still open"
    CALL_TOLD_AGAIN = "a repeated call"
    ROLE_FOREIGN = "a role that this format does not have"
    CALL_UNANSWERED = "a {kind} without its result"
    RESULT_AWAY = "moved behind its call"
    RESULT_SECOND = "a second result for the same call"
    RESULT_ORPHANED = "a result whose call is not in the history"
    RESULT_MISSING = "a call without a result"
    REASONING_IDLE = "reasoning without the item that followed it"
    CALL_ID = "the id of a call"
    ID_TAKEN = "an id that another item uses"
    ASSISTANT_FIRST = "the request would start with the assistant"
    ASSISTANT_LAST_BY_REPAIR = "the request would end with the assistant, or repeat its turn"
    SAME_ROLE = "two messages of one role in a row"
    FINAL_THINKING = "thinking in a final message"
    FINAL_WHITE_SPACE = "white space at the end of the last text"
    BLOCK_NO_OBJECT = "a block that is not an object"
    MESSAGE_NO_OBJECT = "a message that is not an object"
    RESULT_BLANK = "blank text inside a result"
    RESULT_EMPTY = "a result without content"
    OUTPUT_MISSING = "an output item without its output"
    SERVER_RESULT_ALONE = "a result of a provider's tool without its call"
    SERVER_RESULT_SECOND = "a second result of a provider's tool for the same call"
    SERVER_CALL_ALONE = "a call of a provider's tool without its result"
    SERVER_CALL_TOLD_AGAIN = "a repeated call of a provider's tool"
    CALLER_GONE = "called by code that is not shown"
    CALLS_EMPTY = "an empty list of calls"
    PARTS_EMPTY = "an empty list of parts"
    NO_CONTENT = "no content"
    ARGUMENTS_NO_STRING = "arguments that are not a string"

    # ingest, extract
    DURABLE = "stored in the {where}"
    DURABLE_BUT = "stored in the {where}: {detail}"
    NOT_DURABLE = (
        "{messages} {messages:message is|messages are} not durable yet and must stay in the view"
    )
    GIVEN_UP = (
        "{messages} {messages:message is|messages are} stored nowhere and may leave the view: "
        "only this process and the client's own history hold them"
    )
    NOT_KEPT = "not stored: {error}"
    STORE_REPLACED = (
        "the memory's file was removed or replaced while it was open: this history is written to "
        "the new file, the rest of the old file is lost"
    )
    WRITE_GOES_ON = "not written within {seconds:g} s: the write continues in the background"
    SPOOLED = "stored in the spool: {error}"
    ARCHIVE_TROUBLE = "{trouble}"
    FILES_NOT_LOOKED_AT = "memory files were not checked: {error}"
    FILE_PASSED_OVER = "memory file skipped: {file}: {why}: `recollect memory index` lists it"
    FILES_PASSED_OVER = (
        "memory files skipped: {file}: {why}; and {more} more: `recollect memory index` lists them"
    )
    EXTRACTED = "{facts}"
    MODELS_ASKED = (
        "{calls} model {calls:call|calls} since the last turn ({purposes}): {input_tokens:,} "
        "tokens in, {output_tokens:,} out"
    )

    # batch moments, prune, trim
    OVER_LIMIT = "over the limit of {limit:,} tokens"
    ROOM_WANTED = "the recalled block needs {tokens:,} tokens, the view leaves {room:,}"
    COMPACTION_DUE = "over the compaction threshold of {limit:,} tokens"
    CACHE_EXPIRED = "the provider's cache expired ({minutes:.0f} min)"
    WINDOW_SHARE = "the window is {share:.0%} full"
    PRUNING_OFF = "pruning is off"
    CACHE_WARM = "the provider's cache is still valid"
    NO_OLD_RESULT = "no old tool result to shorten"
    PRUNED = "{results} of {found} old tool results shortened"
    RESULTS_SHORT = "old tool results are already short"
    NOT_CACHED = "the provider keeps no cache of this session ({requests} requests in a row)"
    FREES_TOO_LITTLE = "it would free too little"
    PAYS_TOO_LITTLE = (
        "not worth it: over {requests} {requests:request|requests} it saves {saves:,} tokens and "
        "invalidates {breaks:,} cached tokens"
    )
    PAYS = (
        "over {requests} {requests:request|requests} it saves {saves:,} tokens and invalidates "
        "{breaks:,} cached tokens"
    )
    LONG_RESULT = "a long tool result, {moment}"
    OLD_RESULT = "an old tool result, {moment}"
    VIEW_FITS = "the view fits the limit"
    ALL_PROTECTED = "everything in the view is protected"
    NOTES_COST_MORE = "the notes would cost more than the trimmed messages free"
    TRIMMED = "{messages} {messages:message|messages} left out of the view"
    OLDEST = "the oldest unprotected message"
    LEAST_RELEVANT = "least relevant to the query (score {score:.2f})"
    NOTHING_TO_SEARCH = "no searchable words, so the oldest goes first"
    QUERY_TOO_SHORT_TO_TRIM = "the query is too short for relevance trimming (OpenClaw)"

    # when a compaction is due
    COUNT_STALE = "the window's fill must be counted again"
    NOTHING_PREPARED = "nothing was prepared in this process"
    COMPACTION_OFF = "compaction is off (compaction.enabled)"
    COMPACTION_UNDONE = (
        "the last compaction was undone: there is no automatic one until you ask for one"
    )
    BREAKER_OPEN = "recent compactions made no progress, so they are paused for a while"
    PROVIDER_HOLDS = "the provider holds the earlier messages: only the provider can shorten them"
    PREVIEWED = "a preview compacts nothing"
    NO_MODEL = (
        "no model for summaries is set: set models.provider and models.main, pass `model=`, or "
        "set gateway.summaries (--summaries) behind the gateway"
    )
    DUE_OVER = "{tokens:,} tokens exceed the limit of {limit:,}"
    DUE_HELD_BACK = "{tokens:,} tokens exceed the limit of {limit:,}, but {why}"
    FLUSH_DUE = "{tokens:,} tokens: notes are written from {limit:,} on"
    FLUSHED = "no compaction is due yet, and notes were already written in this cycle"
    FLUSHES_OFF = "no compaction is due yet, and note-taking turns are off"
    NOT_FULL = "{tokens:,} tokens are under {limit:,}"

    # where a cut is possible
    ALL_FITS = "all messages fit the {tokens:,} tokens that a compaction keeps"
    ONE_EXCHANGE = "only the newest exchange is left, and it cannot be cut"
    FREES_LITTLE = (
        "a cut before the newest exchange would free {tokens:,} tokens, less than a summary takes"
    )
    NOTHING_SAID = "the conversation is empty"
    NOTHING_BEFORE = "there is nothing before the newest exchange"
    ALL_FORGOTTEN = "all messages that could be summarised were forgotten"
    CUT_BETWEEN = (
        "cut between turns: {messages} messages summarised, {tokens:,} tokens kept ({wanted:,} "
        "requested)"
    )
    CUT_WITHIN = (
        "cut within a turn: {messages} messages summarised, {tokens:,} tokens kept ({wanted:,} "
        "requested)"
    )

    # defects of a model's answer
    REFUSED = "the model refused to summarise"
    ANSWER_EMPTY = "the answer was empty"
    ANSWER_UNCHANGED = "the answer repeated the previous summary"
    ANSWER_NO_LETTERS = "the answer held hardly any letters"
    ANSWER_REPEATS = "the answer repeated itself"
    ANSWER_ECHOES = "the answer repeated the conversation"
    ANSWER_TOO_LONG = "the summary was longer than the messages it replaces"
    ANSWER_ONLY_FOCUS = "the answer held only its focus instructions"
    CALLS_USED_UP = "all model calls of this compaction are used up"
    SUMMARY_LATE = "no summary in time (compaction.deadline_seconds)"
    MODEL_AWAY = "the model is unavailable: {error}"
    MODEL_REFUSED = "the provider refused the call: {error}"
    MODEL_OVERFLOW = "the summarising call did not fit the model's window"
    MODEL_WRONG = "the model's answer had the wrong form: {error}"
    NOTHING_TO_SUMMARISE = "there is nothing to summarise"
    SUMMARY_CUT_OFF = "an answer was cut off at its token limit"
    SUMMARY_WINDOW = "the summarising model's window is {tokens:,} tokens"
    SIMPLER_PROMPT = "a simpler prompt was used: {why}"
    SMALLER_CHUNKS = "smaller chunks were used: {why}"
    HISTORY_THINNED = (
        "the history was too long to read: {messages} messages were read by their beginning and "
        "end only"
    )
    SECOND_FAILED = "the second version of the summary failed: {why}"
    SECOND_SPARED = "no second version was requested: the previous summary lacks the same headings"
    SUMMARY_LACKS = "the summary lacks: {missing}"
    PROBES_UNCHECKED = "{questions} of the questions to memory could not be checked: {errors}"
    PROBES_UNASKED = "{probes} checks were skipped: there were too many"
    NO_SUPPLIER = "no hook supplied a summary, and no model is set"
    HOOK_SAID_NO = "a session_before_compact hook refused"

    # how a compaction ended
    SUMMARISED = "{messages} {messages:message|messages} replaced by a summary"
    SUMMARY_AS_LONG = (
        "the summary and the kept messages are as long as the messages they would replace"
    )
    NOTHING_TO_START_FROM = "there is no request to compact: prepare one, or pass one"
    SOME_NOT_DURABLE = "{messages} messages are not durable yet, so no message may leave"
    COMPACTION_LATE = "the compaction timed out (compaction.deadline_seconds)"
    COULD_NOT_BE_KEPT = "the compaction could not be stored: {error}"
    ANOTHER_WAY = "the session continued differently in the meantime"
    ANOTHER_PROCESS = "another process continued the session"
    FORGOTTEN_MEANWHILE = "a message it covers was forgotten in the meantime"
    ONLY_NOTES = "only notes were due"
    ENGINE_CLOSED = "the engine was closed in the meantime"
    MADE_EARLIER = "made earlier, and recorded now"
    NOTHING_TO_UNDO = "this session has no compaction to undo"
    UNDO_LOST = (
        "compaction {number} cannot be undone: only the last two summaries are kept; the messages "
        "are in memory"
    )
    UNDONE_TO_SUMMARY = "compaction {number} undone: the previous summary is active again"
    UNDONE = "compaction {number} undone: the whole history is shown again"

    # compact
    CUT = "compaction {number}: {cut}"
    COMPACTED = "{why}: {before:,} to {after:,} tokens in {seconds:.1f} s"
    NOT_COMPACTED = "not compacted: {why}"
    IRREDUCIBLE = "irreducible: {why}"
    IN_BACKGROUND = "in the background: {compaction}"
    NO_COMPACTION = "no compaction: {why}"

    # query, gate, recall, inject
    NO_QUERY = "no user message holds enough words to search with"
    ASKED = "searched with the last user {messages:message|{messages} messages}"
    RECALL_OFF = "recall is off"
    NO_RECALLER = "no memory is configured for recall"
    QUERY_TOO_SHORT = "the query is too short"
    HAS_BLOCK = "this turn already has its block"
    ASKED_BEFORE = "searched when this turn began"
    NOT_RECALLED = "recalled nothing: {gate}"
    FOUND = "{facts} {facts:fact|facts} and {passages} {passages:passage|passages}"
    FOUND_BY = "{facts} {facts:fact|facts} and {passages} {passages:passage|passages} ({gate})"
    STANDING_FOUND = "{facts} {facts:fact|facts} for every request"
    NOTHING_STANDS = "no decision from trimmed messages to repeat"
    STANDING_BLOCK = (
        "{lines} {lines:sentence|sentences} and {facts} {facts:fact|facts} from trimmed messages "
        "repeated at the start"
    )
    NOTHING_FITS = "nothing fits into {tokens} tokens"
    NO_WORDS = "the question holds no words"
    NOTHING_HELD = "memory has nothing relevant that is not already in the request"
    TOO_LITTLE_SAID = "the message is too short to search with"
    ONLY_STATES = "the message asks no question and gives no task"
    CERTAIN = "certainty {certainty:floor}, threshold {threshold:.2f}"
    UNCERTAIN = "certainty {certainty:floor}, {threshold:.2f} needed"
    UNHEARD = (
        "certainty {certainty:floor}, {threshold:.2f} needed; memory does not know the names in "
        "the question"
    )
    WORDS_APART = "no passage holds the question's words together (certainty {certainty:floor})"
    VIEW_ANSWERS = "the request already holds a better answer"
    TERMS_LOST = "{terms:a term|{terms} terms} of it left the view"
    FACT_ANSWERS = "a stored fact answers the question"
    FACTS_UNSURE = "stored facts share words with the question, but none is certain to answer it"
    ASKED_FOR = "requested explicitly"
    BELOW_MIN_SCORE = (
        "no message scores {threshold:.2f} by OpenClaw's formula, and no fact shares enough words"
    )
    INDEX_READ = "OpenClaw's index is still loading: {messages:,} messages so far"
    NOT_SEARCHED_YET = "the newest messages are still in the spool and were not searched"
    WORDS_ALONE = "searched by words only: {error}"
    VECTORS_LEFT_OUT = "searched without {kind} vectors: {error}"
    VECTORS_LOADING = "searched without {kind} vectors: the embedding model is loading"
    VECTORS_UNWATCHED = "vectors were not checked: {error}"
    VECTORS_MISSING = "{kind} vectors are being computed: {made:,} of about {passages:,}"
    NOT_EMBEDDED = "some passages have no {kinds} vector yet: run `recollect memory reindex`"
    NOTHING_RECALLED = "nothing was recalled"
    NO_MESSAGE = "no message to attach the block to"
    ASSISTANT_LAST = "the request ends with an assistant message that the model continues"
    PROVIDER_WAITS = "the provider expects this message to hold tool results only"
    FACTS_DO_NOT_FIT = "even the facts alone do not fit into {tokens} tokens"
    RECALLED_BLOCK = "a recalled block of {tokens:,} {tokens:token|tokens} (contents: {fill})"


class Reason:
    """A cause with its numbers. `str` gives the sentence."""

    __slots__ = ("cause", "numbers")

    def __init__(self, cause: Cause, **numbers: Number) -> None:
        self.cause: Cause = cause
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
        """Return the reason with its texts masked, because an error may quote secrets."""
        numbers: dict[str, Number] = {}
        for name, value in self.numbers.items():
            if isinstance(value, Reason):
                numbers[name] = value.masked(mask)
            else:
                numbers[name] = mask(value) if isinstance(value, str) else value
        return Reason(self.cause, **numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the cause's name and its numbers for JSON."""
        numbers = {
            name: value.to_dict() if isinstance(value, Reason) else value
            for name, value in self.numbers.items()
        }
        return {"cause": self.cause.name.lower(), "numbers": numbers}

    @classmethod
    def from_dict(cls, stored_value: Any) -> Reason:
        """Restore a reason from `to_dict`. Raise ValueError for anything else."""
        try:
            cause, numbers = Cause[stored_value["cause"].upper()], dict(stored_value["numbers"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("a newer program's reason") from error
        for name, value in numbers.items():
            numbers[name] = cls.from_dict(value) if isinstance(value, dict) else value
        return cls(cause, **numbers)


def join_reasons(reasons: tuple[Reason, ...]) -> str:
    return "; ".join(map(str, reasons))


class _Sentences(Formatter):
    """Formats `{count:one|many}` as the word that fits the number, and `{share:floor}` as two
    digits rounded down."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if "|" in format_spec:
            return format_spec.split("|")[value != 1]
        # Rounding up could make a value below a threshold look equal to it.
        if format_spec == "floor":
            return f"{int(value * 100) / 100:.2f}"
        if isinstance(value, str):
            return value
        return super().format_field(value, format_spec)


_SENTENCES = _Sentences()
NOT_RUN = Reason(Cause.NOT_RUN)
