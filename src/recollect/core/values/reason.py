"""Reasons in reports: a cause from a fixed list, with its numbers. Code compares causes. People
read the sentence, which only this module writes. Stores hold the cause: sentences may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, unique
from string import Formatter
from typing import Any, Final, TypeAlias

Number: TypeAlias = "int | float | str | Reason"


@unique
class Cause(Enum):
    """All causes, with templates of sentences. `{count:one|many}` chooses a word by the number."""

    ERROR = "{error}"
    RAISED = "unexpected error ({error}): the turn continued without this stage"
    LATE = "no answer within {seconds:.3g} s"
    NOT_RUN = "this stage did not run"

    # load, read, align, pair, send
    SESSION_LOADED = (
        "loaded {messages} {messages:message|messages} of the session, up to turn {turn}"
    )
    SESSION_NOT_LOADED = "the session state could not be loaded: {error}"
    SPOOL_NOT_READ = (
        "the session's messages in the spool (a local file) could not be read yet: {error}"
    )
    REQUEST_READ = "read {messages} {messages:message|messages} in the format {format}"
    MESSAGES_READ = "{known} messages are known from earlier requests, {fresh} are new"
    REPLY_READ = "read {messages} {messages:message|messages} from the reply"
    NO_SUCH_TURN = "no request was prepared for turn {turn}: the session's last turn is {last}"
    NOT_A_REPLY = "this {kind} is neither a provider's reply nor an error, so nothing was stored"
    NEVER_PREPARED = (
        "the session is unknown, so the reply was not stored: call `prepare` with its request "
        "first, or check the session's name"
    )
    USAGE_READ = "read the token usage from the reply"
    ALIGNED = "history {course}: {shared} {shared:message|messages} unchanged"
    REJOINED = (
        "history {course}: {shared} messages unchanged, {rejoined} recognized later in the history"
    )
    TRIMS_LIFTED = (
        "the client went back in the history, so messages trimmed since then are sent again"
    )
    VIEW_MADE = "the request to send has {rows} {rows:message|messages}"
    REPAIRED = "{repairs} {repairs:repair|repairs} to make the request valid for its provider"
    EDITS_REST = (
        "{edits} stored {edits:edit was|edits were} not applied, because this history lacks the "
        "messages to change"
    )
    SAYS_NOTHING = "no message has content: the request is sent unchanged, and may be refused"
    SENT = "sent {messages} {messages:message|messages}"
    PROMPT_FILLS = (
        "system prompt and tools alone take {tokens:,} of the window's {window:,} tokens, so "
        "Recollect allows another {room:,} tokens for the conversation: set window_tokens "
        "(--window) to the model's real window"
    )
    STILL_OVER = (
        "the request is still {tokens:,} {tokens:token|tokens} over the limit: the remaining "
        "messages are protected from trimming"
    )
    STILL_OVER_NOT_DURABLE = (
        "the request is still {tokens:,} {tokens:token|tokens} over the limit: the remaining "
        "messages are protected from trimming, or not stored yet"
    )

    # outcomes of messages
    AS_IT_CAME = "sent unchanged"
    WITH_NEIGHBOR = "merged with the message next to it"
    NOT_SHOWN = "not in the request"
    CARRIES = "sent with {block}"
    GAP_NOTE = "a note that messages were left out"
    OWN_BLOCK = "a recalled block"
    STANDING_ROW = "the user's decisions from trimmed messages"
    OPENING = "a placeholder, because a user message must come first"
    ABSENT = "a placeholder for a message without content"
    STAND_IN = "a placeholder for a missing tool result"
    SUMMARY = "the summary of the compacted messages"
    OWN_ROW = "added by Recollect: {note}"

    # repairs: contents that providers refuse
    TURN_ABORTED = "the turn of this message was aborted"
    TURN_FAILED = "the turn of this message ended with an error"
    CALL_GOES_TOO = "{why}, so its tool call is left out too"
    SYSTEM_INSIDE = "a system message inside the history was sent as a user message"
    SYSTEM_ASTRAY = (
        "the system message was left out, because the message before it is not in the request"
    )
    EMPTY_MESSAGE = "the message has no content to send"
    BLANK_TEXT = "blank text was removed"
    EARLIER_BLOCK = "a recalled block of an earlier turn was removed"
    MISPLACED_PART = "a part was removed, because a message of this role cannot contain it"
    CALL_REPEATED = "a tool call was removed, because the same message already contains it"
    CALL_OPEN = "a tool call was removed, because an earlier call with its id has no result yet"
    CALL_TOLD_AGAIN = "a tool call was removed, because an earlier message already contains it"
    ROLE_FOREIGN = "a role was replaced, because this format does not have it"
    CALL_UNANSWERED = "a {kind} was removed, because its result is missing"
    RESULT_AWAY = "the tool result was moved directly after its call"
    RESULT_SECOND = "a tool result was removed, because its call already has one"
    RESULT_ORPHANED = "a tool result was removed, because its call is not in the history"
    RESULT_MISSING = "a placeholder was added for a tool call without a result"
    REASONING_IDLE = "reasoning was removed, because the item that followed it is missing"
    CALL_ID = "the id of a tool call was replaced with one that the provider accepts"
    ID_TAKEN = "the id of an item was removed, because another item already has it"
    ASSISTANT_FIRST = "a user message was added, because the request would start with the assistant"
    ASSISTANT_LAST_BY_REPAIR = (
        "a placeholder was added, because the request would end with the assistant or have "
        "two assistant messages in a row"
    )
    SAME_ROLE = "two consecutive messages of the same role were merged"
    FINAL_THINKING = "thinking was removed from the last message"
    FINAL_WHITE_SPACE = "white space was removed from the end of the last text"
    BLOCK_NO_OBJECT = "a content block was rewritten, because it was not a JSON object"
    MESSAGE_NO_OBJECT = (
        "a message was rewritten as a user message, because it was not a JSON object"
    )
    FIELDS_REWRITTEN = "rewritten in the form that the provider requires: {fields}"
    MARKS_OVER = "cache marks were removed, because the request has more than {most}"
    PART_EMPTY = "a part was removed, because its content, type or name is missing"
    THINKING_UNSIGNED = "thinking was removed, because it lacks its text or its signature"
    SERVER_RESULT_ALONE = (
        "the result of a provider-run tool was removed, because its call is missing"
    )
    SERVER_RESULT_SECOND = (
        "the result of a provider-run tool was removed, because its call already has one"
    )
    SERVER_CALL_ALONE = "the call of a provider-run tool was removed, because its result is missing"
    SERVER_CALL_TOLD_AGAIN = (
        "the call of a provider-run tool was removed, because an earlier message already contains "
        "it"
    )
    CALLER_GONE = (
        "the field `caller` was removed, because the code that it names is not in the request"
    )

    # ingest, extract
    DURABLE = "stored in the {where}"
    DURABLE_BUT = "stored: {where} ({detail})"  # only in records of earlier versions
    NOT_DURABLE = (
        "{messages} {messages:message is|messages are} not stored yet and must stay in the request"
    )
    GIVEN_UP = (
        "{messages} {messages:message|messages} could not be stored and may now leave the "
        "request: only this process and the client's own history have {messages:it|them}"
    )
    NOT_KEPT = "not stored: {error}"
    STORE_REPLACED = (
        "the memory's file was removed or replaced while it was open: this history is written "
        "to the new file, and the rest of the old file is lost"
    )
    WRITE_GOES_ON = "not written within {seconds:g} s: the write continues in the background"
    SPOOLED = "stored in the spool (a local file) for now: {error}"
    ARCHIVE_TROUBLE = "{trouble}"
    FILES_NOT_LOOKED_AT = "memory files were not checked: {error}"
    FILE_PASSED_OVER = (
        "the memory file {file} was skipped ({why}): run `recollect memory index` to list skipped "
        "files"
    )
    FILES_PASSED_OVER = (
        "the memory file {file} was skipped ({why}), and {more} more: run `recollect memory "
        "index` to list skipped files"
    )
    EXTRACTED = "{facts}"
    MODELS_ASKED = (
        "{calls} model {calls:call|calls} since the last turn ({purposes}): {input_tokens:,} "
        "tokens in, {output_tokens:,} out"
    )

    # edit batches, prune, trim
    OVER_LIMIT = "the request is over the limit of {limit:,} tokens"
    ROOM_WANTED = "the recalled block needs {tokens:,} tokens, and only {room:,} are free"
    COMPACTION_DUE = "the request is over the compaction threshold of {limit:,} tokens"
    CACHE_EXPIRED = "the provider's cache has expired ({minutes:.0f} min since the last request)"
    WINDOW_SHARE = "the window is {share:.0%} full"
    PRUNING_OFF = "pruning is off"
    CACHE_WARM = "the provider's cache is still valid"
    NO_OLD_RESULT = "there is no old tool result to shorten"
    PRUNED = "{results} of {found} old tool results shortened"
    RESULTS_SHORT = "old tool results are already short"
    NOT_CACHED = "the provider used no cache for the last {requests} requests"
    FREES_TOO_LITTLE = "shortening tool results would free too few tokens"
    PAYS_TOO_LITTLE = (
        "shortening tool results does not pay: over the next {requests} "
        "{requests:request|requests} it would save the price of {saves:,} input tokens, but "
        "rebuilding the provider's cache would cost the price of {breaks:,}"
    )
    PAYS = (
        "over the next {requests} {requests:request|requests} this saves the price of {saves:,} "
        "input tokens, and rebuilding the provider's cache costs the price of {breaks:,}"
    )
    LONG_RESULT = "a long tool result was shortened: {moment}"
    OLD_RESULT = "an old tool result was cleared: {moment}"
    VIEW_FITS = "the request fits the limit"
    ALL_PROTECTED = "all remaining messages are protected from trimming"
    NOTES_COST_MORE = "notes about left-out messages would take more tokens than the messages"
    TRIMMED = "{messages} {messages:message|messages} left out of the request"
    OLDEST = "the oldest message that is not protected from trimming"
    LEAST_RELEVANT = "least relevant to the query (score {score:.2f})"
    NOTHING_TO_SEARCH = (
        "the query has no searchable words, so the oldest messages are left out first"
    )
    QUERY_TOO_SHORT_TO_TRIM = "the query is too short for trimming by relevance (OpenClaw's rule)"

    # when a compaction is due
    COUNT_STALE = "the tokens in the window are not known until the next request"
    NOTHING_PREPARED = "this process has prepared no request of the session"
    COMPACTION_OFF = "compaction is off (compaction.enabled)"
    COMPACTION_UNDONE = (
        "the last compaction was undone, so Recollect compacts again only after you request it"
    )
    BREAKER_OPEN = "recent compactions made no progress, so they are paused for a while"
    BREAKER_FAILED = "recent compactions failed, so they are paused for a while: {error}"
    PROVIDER_HOLDS = (
        "the provider stores the earlier messages, and only the provider can shorten them"
    )
    PREVIEWED = "a preview does not compact"
    NO_MODEL = (
        "no model for summaries is set: set models.provider and models.main, pass `model=`, or "
        "set gateway.summaries (--summaries) behind the gateway"
    )
    DUE_OVER = "{tokens:,} tokens exceed the limit of {limit:,}"
    DUE_HELD_BACK = "{tokens:,} tokens exceed the limit of {limit:,}, but {why}"
    FLUSH_DUE = "{tokens:,} tokens reach the threshold of {limit:,} for a note-taking turn"
    FLUSHED = "no compaction is due yet, and notes were already written since the last one"
    FLUSHES_OFF = "no compaction is due yet, and note-taking turns are off"
    NOT_FULL = "{tokens:,} tokens are below the threshold of {limit:,}"

    # where a cut is possible
    ALL_FITS = "all messages fit into the {tokens:,} tokens that a compaction keeps"
    ONE_EXCHANGE = "only the newest exchange is left, and it cannot be cut"
    FREES_LITTLE = (
        "a cut before the newest exchange would free {tokens:,} tokens, less than a summary takes"
    )
    NOTHING_SAID = "the conversation is empty"
    NOTHING_BEFORE = "there is nothing to summarize before the newest exchange"
    ALL_FORGOTTEN = "all messages that could be summarized were forgotten"
    CUT_BETWEEN = (
        "cut between turns: {messages} messages summarized, {tokens:,} tokens kept (target: "
        "{wanted:,})"
    )
    CUT_WITHIN = (
        "cut within a turn: {messages} messages summarized, {tokens:,} tokens kept (target: "
        "{wanted:,})"
    )

    # defects of a model's answer
    REFUSED = "the model refused to summarize"
    ANSWER_EMPTY = "the model's answer was empty"
    ANSWER_UNCHANGED = "the model's answer repeated the previous summary"
    ANSWER_NO_LETTERS = "the model's answer had hardly any letters"
    ANSWER_REPEATS = "the model's answer repeated itself"
    ANSWER_ECHOES = "the model's answer repeated the conversation"
    ANSWER_TOO_LONG = "the summary was longer than the messages it replaces"
    ANSWER_ONLY_FOCUS = "the model's answer contained only the focus instructions"
    CALLS_USED_UP = "this compaction has used up its model calls"
    SUMMARY_LATE = "the summary was not ready in time (compaction.deadline_seconds)"
    MODEL_AWAY = "the model is unavailable: {error}"
    MODEL_REFUSED = "the provider refused the call: {error}"
    MODEL_OVERFLOW = "the call for a summary did not fit the model's window"
    MODEL_WRONG = "the model's answer had the wrong form: {error}"
    NOTHING_TO_SUMMARIZE = "there is nothing to summarize"
    SUMMARY_CUT_OFF = "the model's answer was cut off at its token limit"
    SUMMARY_WINDOW = "the window of the summarizing model is only {tokens:,} tokens"
    SIMPLER_PROMPT = "a simpler prompt was used: {why}"
    SMALLER_CHUNKS = "the history was summarized in smaller parts: {why}"
    HISTORY_THINNED = (
        "the history was too long for the model: the {messages:largest message was|{messages} "
        "largest messages were} shortened before the summary"
    )
    SECOND_FAILED = "the second attempt at the summary failed: {why}"
    SECOND_SPARED = "no second attempt at the summary: the previous summary lacks the same headings"
    SUMMARY_LACKS = "the summary lacks: {missing}"
    PROBES_UNCHECKED = (
        "{questions} {questions:search|searches} of memory for details in the compaction's "
        "receipt failed: {errors}"
    )
    PROBES_UNASKED = (
        "{probes} {probes:detail|details} in the compaction's receipt {probes:was|were} not "
        "searched for in memory: the searches took too long"
    )
    NO_SUPPLIER = "no hook supplied a summary, and no model is set"
    HOOK_SAID_NO = "a session_before_compact hook refused the compaction"

    # how a compaction ended
    SUMMARIZED = "{messages} {messages:message|messages} replaced by a summary"
    HOST_SUMMARY_UNREADABLE = (
        "the agent encrypted its summary, so Recollect cannot compare it with the messages"
    )
    SUMMARY_AS_LONG = (
        "the summary and the kept messages are as long as the messages they would replace"
    )
    NOTHING_TO_START_FROM = "there is no request to compact: prepare one, or pass one"
    SOME_NOT_DURABLE = "{messages} messages are not stored yet, so no message may leave the request"
    COMPACTION_LATE = "the compaction timed out (compaction.deadline_seconds)"
    COULD_NOT_BE_KEPT = "the compaction could not be stored: {error}"
    ANOTHER_WAY = "the session continued with another history in the meantime"
    ANOTHER_PROCESS = "another process continued the session in the meantime"
    FORGOTTEN_MEANWHILE = "a message that the summary covers was forgotten in the meantime"
    ONLY_NOTES = "only a note-taking turn was due"
    ENGINE_CLOSED = "the memory was closed in the meantime"
    MADE_EARLIER = "the compaction was made earlier and is recorded now"
    NOTHING_TO_UNDO = "this session has no compaction to undo"
    UNDO_LOST = (
        "compaction {number} cannot be undone, because only the last two summaries are kept; "
        "the messages are still in memory"
    )
    UNDONE_TO_SUMMARY = "compaction {number} undone: the previous summary is active again"
    UNDONE = "compaction {number} undone: the whole history is sent again"

    # compact
    CUT = "compaction {number}: {cut}"
    COMPACTED = "{why}: from {before:,} to {after:,} tokens in {seconds:.1f} s"
    NOT_COMPACTED = "not compacted: {why}"
    IRREDUCIBLE = "the history could not be reduced: {why}"
    IN_BACKGROUND = "compaction in the background: {compaction}"
    NO_COMPACTION = "no compaction: {why}"

    # query, gate, recall, inject
    NO_QUERY = "no user message has enough words to search with"
    ASKED = "searched with the last {messages:user message|{messages} user messages}"
    RECALL_OFF = "recall is off"
    NO_RECALLER = "no memory is configured for recall"
    QUERY_TOO_SHORT = "the query is too short"
    HAS_BLOCK = "this turn already has a recalled block"
    ASKED_BEFORE = "memory was already searched when this turn began"
    NOT_RECALLED = "recalled nothing: {gate}"
    FOUND = "found {facts} {facts:fact|facts} and {passages} {passages:passage|passages}"
    FOUND_BY = (
        "found {facts} {facts:fact|facts} and {passages} {passages:passage|passages} ({gate})"
    )
    STANDING_FOUND = "found {facts} {facts:fact|facts} to repeat in every request"
    NOTHING_STANDS = "there is no decision from trimmed messages to repeat"
    STANDING_BLOCK = (
        "{lines} {lines:sentence|sentences} and {facts} {facts:fact|facts} from trimmed messages "
        "are repeated at the start of the request"
    )
    NOTHING_FITS = "no passage fits into the recalled block's {tokens} tokens"
    NO_WORDS = "the question has no words to search with"
    NOTHING_HELD = "memory has nothing relevant that is not already in the request"
    TOO_LITTLE_SAID = "the message is too short to search with"
    CERTAIN = (
        "memory has an answer with a certainty of {certainty:floor} (threshold {threshold:.2f})"
    )
    UNCERTAIN = (
        "memory has an answer with a certainty of only {certainty:floor} ({threshold:.2f} needed)"
    )
    UNHEARD = (
        "memory lacks the names in the question, and has an answer with a certainty of only "
        "{certainty:floor} ({threshold:.2f} needed)"
    )
    WORDS_APART = (
        "memory has an answer with a certainty of {certainty:floor}, but no single passage has "
        "enough of the question's words"
    )
    TERMS_LOST = (
        "{terms:a term|{terms} terms} of the question {terms:is|are} in memory, but no longer in "
        "the request"
    )
    FACT_ANSWERS = "a stored fact answers the question"
    FACTS_UNSURE = "stored facts share words with the question, but none is certain to answer it"
    ASKED_FOR = "requested explicitly"
    BELOW_MIN_SCORE = (
        "no message scores {threshold:.2f} by OpenClaw's formula, and no fact shares enough words"
    )
    INDEX_READ = "OpenClaw's index is still loading: {messages:,} messages so far"
    NOT_SEARCHED_YET = (
        "the newest messages were not searched: they are still in the spool (a local file)"
    )
    WORDS_ALONE = "searched by words only: {error}"
    VECTORS_LEFT_OUT = "searched without {kind} vectors: {error}"
    VECTORS_LOADING = "searched without {kind} vectors: the embedding model is loading"
    VECTORS_UNWATCHED = "could not check whether vectors are missing: {error}"
    VECTORS_MISSING = "{kind} vectors are being computed: {made:,} of about {passages:,}"
    NOT_EMBEDDED = (
        "some passages have no {kinds} vector yet: Recollect computes them in the background while "
        "an agent uses this memory"
    )
    NOTHING_RECALLED = "nothing was recalled"
    NO_MESSAGE = "there is no message to attach the recalled block to"
    ASSISTANT_LAST = (
        "no recalled block was added: the request ends with an assistant message that the model "
        "continues"
    )
    PROVIDER_WAITS = (
        "no recalled block was added: the provider expects only tool results in the last message"
    )
    FACTS_DO_NOT_FIT = "nothing that was found fits into {tokens} tokens"
    RECALLED_BLOCK = "a recalled block of {tokens:,} {tokens:token|tokens}"
    RECALLED_PART = "a recalled block of {tokens:,} {tokens:token|tokens}, shortened to fit: {fill}"


_EARLIER_NAMES: Final[Mapping[str, str]] = {
    "nothing_to_summarise": "nothing_to_summarize",
    "summarised": "summarized",
    "with_neighbour": "with_neighbor",
    "only_states": "too_little_said",
    "view_answers": "nothing_held",
}
"""Names of causes in records of earlier versions."""


_EARLIER_REPAIRS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("result_blank", "result_empty", "parts_empty", "no_content"), "content"),
    "output_missing": "output",
    "calls_empty": "tool_calls",
    "arguments_no_string": "arguments",
}
"""Causes of development versions that are `FIELDS_REWRITTEN` now, and the field."""


class Reason:
    """A cause with its numbers. `str` returns the sentence."""

    __slots__ = ("cause", "numbers")

    def __init__(self, cause: Cause, **numbers: Number) -> None:
        self.cause: Cause = cause
        self.numbers: Mapping[str, Number] = numbers

    def __str__(self) -> str:
        return _SENTENCES.vformat(self.cause.value, (), self.numbers)

    def __repr__(self) -> str:
        arguments = "".join(f", {name}={value!r}" for name, value in self.numbers.items())
        return f"Reason({self.cause.name}{arguments})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reason):
            return NotImplemented
        return self.cause is other.cause and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash((self.cause.name, frozenset(self.numbers.items())))

    def __deepcopy__(self, memo: object) -> Reason:
        return self

    def mask_texts(self, mask: Callable[[str], str]) -> Reason:
        """Return the reason with its texts masked, because an error may quote secrets."""
        numbers: dict[str, Number] = {}
        for name, value in self.numbers.items():
            if isinstance(value, Reason):
                numbers[name] = value.mask_texts(mask)
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
            name = stored_value["cause"]
            if name in _EARLIER_REPAIRS:
                return cls(Cause.FIELDS_REWRITTEN, fields=_EARLIER_REPAIRS[name])
            cause = Cause[_EARLIER_NAMES.get(name, name).upper()]
            numbers = dict(stored_value["numbers"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("the reason was written by a newer version of Recollect") from error
        for key, value in numbers.items():
            numbers[key] = cls.from_dict(value) if isinstance(value, dict) else value
        return cls(cause, **numbers)


def join_reasons(reasons: tuple[Reason, ...]) -> str:
    return "; ".join(map(str, reasons))


class _Sentences(Formatter):
    """Formats `{count:one|many}` as one of the words, `{share:floor}` as two digits."""

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
PAUSING = (Cause.BREAKER_OPEN, Cause.BREAKER_FAILED)
