"""What stores and the spool keep as bytes: session states, compactions, batches.

JSON or MessagePack with a version: a reader refuses what a newer program wrote instead of guessing.
What was said stands in a session state only as the text of edits. Owns the spelling alone: who
stores a record redacts it first. `SoughtText` looks whether such bytes hold a text that is to be
forgotten; it finds too much rather than too little.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_type_hints

import msgspec

from recollect.errors import FormatError
from recollect.formats.json_text import decode, encode
from recollect.values.batch import Batch
from recollect.values.compaction import (
    CompactionResult,
    Convergence,
    Probe,
    ProbeFinding,
    ProbeKind,
    Receipt,
    Spent,
    Standing,
    Trigger,
)
from recollect.values.edit import Cut, Edit, Insert, LeaveOut, Shorten
from recollect.values.fact import Fact
from recollect.values.history import SessionState
from recollect.values.message import EntryKey, MessageId
from recollect.values.reason import Reason

# A session's state as bytes, for those who keep it between processes


STATE_VERSION = 1
PACK_BYTES = 4096
_PACKED = b"Z1"
_ID_CHARS = 32
"""An identity is 16 bytes in hex (rules/identity.py)."""
_EDITS: dict[str, type[Edit]] = {
    "left-out": LeaveOut,
    "shortened": Shorten,
    "inserted": Insert,
    "cut": Cut,
}
_SAID = frozenset({"text", "summary", "said", "read_files", "modified_files", "identifiers"})
"""The fields of edits, and of what cuts carry, that hold what was said."""
_FIELDS = {name: [field.name for field in fields(kind)] for name, kind in _EDITS.items()}
_NAMES = {kind: name for name, kind in _EDITS.items()}


def write_state(state: SessionState) -> bytes:
    """The state as bytes that `read_state` takes back."""
    return _state_bytes(state, ())


def _state_bytes(state: SessionState, apart: Sequence[str]) -> bytes:
    """The state, without what its cuts cover of the identities that are kept `apart`."""
    held = {field.name: _plain(getattr(state, field.name)) for field in fields(state)}
    widest = _widest(state)
    held["edits"] = [_written(edit, widest, apart) for edit in state.edits]
    held["dormant"] = [[_written(edit, widest, apart), since] for edit, since in state.dormant]
    return encode({"version": STATE_VERSION, **held})


def read_state(raw: bytes) -> SessionState:
    """The state that `write_state` wrote; FormatError for anything else.

    A field that was not there yet when it was written has its default; one that is not known
    here is a newer program's, and refused.
    """
    return _read_state(raw, ())


def _read_state(raw: bytes, apart: Sequence[str]) -> SessionState:
    held = decode(raw)
    if not isinstance(held, dict) or held.pop("version", None) != STATE_VERSION:
        raise FormatError(
            f"not a session state of version {STATE_VERSION}: it may be a newer one's"
        )
    try:
        written, resting = held.pop("edits"), held.pop("dormant")
        covered = _covered((*written, *(edit for edit, _ in resting)), apart)
        edits = tuple(_read_edit(edit, covered) for edit in written)
        dormant = tuple((_read_edit(edit, covered), int(since)) for edit, since in resting)
        kept = {name: msgspec.convert(value, _types()[name]) for name, value in held.items()}
        return SessionState(**kept, edits=edits, dormant=dormant)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise FormatError(f"not a session state: {type(error).__name__}") from error


def split_state(state: SessionState) -> bytes:
    """The state without its path, for a store that keeps the path apart.

    A long one is packed: a session that left out thousands of messages has an edit for each,
    and its state is written every turn.
    """
    return _packed(_state_bytes(replace(state, path=(), ids=()), state.ids))


def join_state(raw: bytes, path: tuple[EntryKey, ...], ids: tuple[MessageId, ...]) -> SessionState:
    """What `split_state` wrote, with its path again.

    Without the identities it was split from, its cuts do not know whom they cover.
    """
    return replace(_read_state(_unpacked(raw), ids), path=path, ids=ids)


def without_quotes(raw: bytes, forgotten: frozenset[EntryKey]) -> bytes:
    """A stored state that quotes none of these messages any more.

    Shortened results of them go; so does every recalled block, every cut, whose summary may
    quote them, and whatever is shortened on a branch that rests, whose keys the caller may not
    know. The view shows the history itself again.
    """
    state = read_state(_unpacked(raw))

    def stays(edit: Edit) -> bool:
        if isinstance(edit, Shorten):
            return _says_nothing(edit) or edit.anchor not in forgotten
        return not isinstance(edit, Insert | Cut)

    return _packed(
        write_state(
            replace(
                state,
                edits=tuple(edit for edit in state.edits if stays(edit)),
                dormant=tuple(
                    (edit, since)
                    for edit, since in state.dormant
                    if stays(edit) and (not isinstance(edit, Shorten) or _says_nothing(edit))
                ),
            )
        )
    )


def _says_nothing(edit: Shorten) -> bool:
    """Whether nothing of the result is left in it."""
    return edit.hard and not edit.quotes


def with_texts(raw: bytes, change: Callable[[str], str]) -> bytes:
    """A stored state whose texts are what `change` makes of them; its own bytes where none is
    changed. Whom it quotes and whom its cuts cover stays."""
    held = decode(_unpacked(raw))
    changed = False

    def walk(value: Any, *, said: bool) -> Any:
        nonlocal changed
        if isinstance(value, str) and said:
            new = change(value)
            changed = changed or new != value
            return new
        if isinstance(value, list):
            return [walk(one, said=said) for one in value]
        if isinstance(value, dict):
            return {key: walk(one, said=key in _SAID) for key, one in value.items()}
        return value

    if not isinstance(held, dict) or held.get("version") != STATE_VERSION:
        raise FormatError(
            f"not a session state of version {STATE_VERSION}: it may be a newer one's"
        )
    left = {
        key: walk(value, said=False) if key in ("edits", "dormant") else value
        for key, value in held.items()
    }
    return _packed(encode(left)) if changed else raw


def _packed(raw: bytes) -> bytes:
    return _PACKED + zlib.compress(raw, 1) if len(raw) > PACK_BYTES else raw


def _unpacked(raw: bytes) -> bytes:
    if not raw.startswith(_PACKED):
        return raw
    try:
        return zlib.decompress(raw[len(_PACKED) :])
    except zlib.error as error:
        raise FormatError("not a session state: it cannot be unpacked") from error


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@cache
def _types() -> dict[str, Any]:
    """What each field of a state is."""
    return get_type_hints(SessionState)


def _widest(state: SessionState) -> Cut | None:
    """The cut that covers most, the first of these; it alone is sure to be written whole."""
    edits = (*state.edits, *(edit for edit, _ in state.dormant))
    cuts = (edit for edit in edits if isinstance(edit, Cut))
    return max(cuts, key=lambda cut: len(cut.covers), default=None)


def _written(edit: Edit, widest: Cut | None, apart: Sequence[str]) -> dict[str, Any]:
    held = {"kind": _NAMES[type(edit)], **_named(edit)}
    if not isinstance(edit, Cut):
        return held
    held["ended"] = [_named(block) for block in edit.ended]
    held["carried"] = _plain(edit.carried)
    del held["covers"]
    if edit.covers:
        held["covers"] = _shortest(edit, widest, apart)
    return held


def _named(edit: Edit) -> dict[str, Any]:
    held = {field: getattr(edit, field) for field in _FIELDS[_NAMES[type(edit)]]}
    return {**held, "reason": edit.reason.to_dict()}


def _shortest(cut: Cut, widest: Cut | None, apart: Sequence[str]) -> Any:
    """Whom a cut covers: as many as it shares with the widest; or where the run begins that it
    shares with what is kept apart, how long that is, and the others' names, joined."""
    covers = cut.covers
    if widest is not None and cut is not widest and widest.covers[: len(covers)] == covers:
        return len(covers)
    start = apart.index(covers[0]) if covers[0] in apart else len(apart)
    shared = 0
    for ours, theirs in zip(covers, apart[start:], strict=False):
        if ours != theirs:
            break
        shared += 1
    rest = covers[shared:]
    whole = all(len(one) == _ID_CHARS and one.isascii() for one in rest)
    named = "".join(rest) if whole else list(rest)
    return {"from": start, "run": shared, "and": named} if shared else named


def _read_edit(held: dict[str, Any], covered: Sequence[str] | None) -> Edit:
    given = dict(held)
    kind = given.pop("kind")
    if not given.keys() <= set(_FIELDS[kind]):
        raise ValueError("a newer program's edit")
    if "covers" in given:
        given["covers"] = _covers(given["covers"], covered)
    return msgspec.convert(given, _EDITS[kind], dec_hook=_reason)


def _reason(kind: type, held: Any) -> Any:
    """A reason, which an older version wrote as its sentence."""
    if kind is not Reason:
        raise TypeError(f"a {kind.__name__} in an edit")
    return Reason.from_dict(held)


def _covered(held: Sequence[dict[str, Any]], apart: Sequence[str]) -> Sequence[str] | None:
    """Whom the widest cut covers; the others share what it begins with. None: it is kept apart."""
    unknown = False
    for edit in held:
        if isinstance(edit.get("covers"), dict):
            unknown = unknown or not apart
            edit["covers"] = _joined(edit["covers"], apart)
    if unknown:
        return None
    named = (edit.get("covers", []) for edit in held)
    whole = (_covers(one, ()) for one in named if not isinstance(one, int))
    return max(whole, key=len, default=())


def _joined(held: dict[str, Any], apart: Sequence[str]) -> Sequence[str]:
    if not apart and held.keys() == {"from", "run", "and"}:
        return []
    start, run = int(held["from"]), int(held["run"])
    if not 0 <= start <= start + run <= len(apart):
        raise ValueError("a cut that covers more than is known")
    return [*apart[start : start + run], *_covers(held["and"], ())]


def _covers(held: Any, covered: Sequence[str] | None) -> Sequence[str]:
    if isinstance(held, int):
        if covered is None:
            return []
        if not 0 < held <= len(covered):
            raise ValueError("a cut that covers more than is known")
        return covered[:held]
    if isinstance(held, list):
        return held
    if not isinstance(held, str) or len(held) % _ID_CHARS:
        raise ValueError("no identities")
    return [held[at : at + _ID_CHARS] for at in range(0, len(held), _ID_CHARS)]


# Whether stored bytes hold a text, case aside and however JSON spells it


_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SHORT: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
# JSON that stands as a text in JSON, as arguments of tool calls do, is escaped twice.
_LEVELS: Final = 3


class SoughtText:
    """A text that is looked for."""

    __slots__ = ("_folded",)

    def __init__(self, text: str) -> None:
        self._folded = text.casefold()

    def __repr__(self) -> str:
        return "SoughtText(...)"

    def stands_in(self, held: bytes | str | None) -> bool:
        """Whether it is there."""
        if not held or not self._folded:
            return False
        text = held if isinstance(held, str) else held.decode("utf-8", "replace")
        for _ in range(_LEVELS):
            if self._folded in text.casefold():
                return True
            if "\\" not in text:
                return False
            text = _unescaped(text)
        return self._folded in text.casefold()

    def taken_out_of(self, state: bytes) -> bytes | None:
        """A session's state without any quote; None when it holds the text all the same.

        The state itself when the text is not in it; a state that cannot be read is taken to
        hold it where its bytes do.
        """
        try:
            held = join_state(state, (), ())
            if not self.stands_in(write_state(held)):
                return state
            anchors = frozenset(edit.anchor for edit in held.edits if isinstance(edit, Shorten))
            cleaned = without_quotes(state, anchors)
            left = write_state(join_state(cleaned, (), ()))
        except FormatError:
            return None if self.stands_in(state) else state
        return None if self.stands_in(left) else cleaned


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(_meant, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _SHORT.get(escape[2], escape[2])


# A compaction as bytes, for the store: what receipts, diffs and undo are read from


RECORD_VERSION: Final = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCompaction:
    """A compaction, and when it was made."""

    result: CompactionResult = field(repr=False)
    turn: int
    """The session's turn before which it was made."""
    at: float


def write_record(result: CompactionResult, *, turn: int, at: float) -> bytes:
    """The compaction as bytes that `read_record` takes back."""
    receipt = result.receipt
    return encode(
        {
            "version": RECORD_VERSION,
            "number": result.number,
            "turn": turn,
            "at": at,
            "trigger": result.trigger,
            "convergence": result.convergence,
            "reason": result.reason.to_dict(),
            "summary": result.summary,
            "first_kept": result.first_kept,
            "compacted_messages": result.compacted_messages,
            "tokens_before": result.tokens_before,
            "tokens_after": result.tokens_after,
            "splits_a_turn": result.splits_a_turn,
            "details": dict(result.details),
            "receipt": None if receipt is None else _written_receipt(receipt),
            "spent": asdict(result.spent),
            "notes": list(result.notes),
            "seconds": result.seconds,
        }
    )


def read_record(raw: bytes) -> RecordedCompaction:
    """What `write_record` wrote; FormatError for anything else."""
    held = decode(raw)
    if not isinstance(held, dict) or held.get("version") != RECORD_VERSION:
        raise FormatError(f"not a compaction of version {RECORD_VERSION}: it may be a newer one's")
    try:
        return _read_result(held)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"not a compaction: {type(error).__name__}") from error


def _written_receipt(receipt: Receipt) -> dict[str, Any]:
    findings = [
        {**asdict(one.probe), "standing": one.standing, "pinned": one.pinned}
        for one in receipt.findings
    ]
    return {
        "findings": findings,
        "pinned_tokens": receipt.pinned_tokens,
        "notes": list(receipt.notes),
    }


def _read_result(held: Mapping[str, Any]) -> RecordedCompaction:
    first_kept = held["first_kept"]
    result = CompactionResult(
        convergence=_one_of(held["convergence"], Convergence),
        reason=Reason.from_dict(held["reason"]),
        trigger=_one_of(held["trigger"], Trigger),
        number=_is(held["number"], int),
        summary=_is(held["summary"], str),
        first_kept=None if first_kept is None else EntryKey(_is(first_kept, str)),
        compacted_messages=_is(held["compacted_messages"], int),
        tokens_before=_is(held["tokens_before"], int),
        tokens_after=_is(held["tokens_after"], int),
        splits_a_turn=_is(held["splits_a_turn"], bool),
        details=_is(held["details"], dict),
        receipt=None if held["receipt"] is None else _read_receipt(held["receipt"]),
        spent=Spent(**{name: _is(value, int) for name, value in held["spent"].items()}),
        notes=_texts(held["notes"]),
        seconds=_seconds(held["seconds"]),
    )
    return RecordedCompaction(result=result, turn=_is(held["turn"], int), at=_seconds(held["at"]))


def _read_receipt(held: Mapping[str, Any]) -> Receipt:
    return Receipt(
        findings=tuple(_read_finding(one) for one in _is(held["findings"], list)),
        pinned_tokens=_is(held["pinned_tokens"], int),
        notes=_texts(held["notes"]),
    )


def _read_finding(held: Mapping[str, Any]) -> ProbeFinding:
    probe = Probe(
        kind=_one_of(held["kind"], ProbeKind),
        text=_is(held["text"], str),
        sentence=_is(held["sentence"], str),
        source=MessageId(_is(held["source"], str)),
        key=EntryKey(_is(held["key"], str)),
    )
    return ProbeFinding(
        probe=probe,
        standing=_one_of(held["standing"], Standing),
        pinned=_is(held["pinned"], bool),
    )


def _is(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"not a {kind.__name__}")
    return value


def _seconds(value: Any) -> float:
    return float(value) if isinstance(value, int) else _is(value, float)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_is(one, str) for one in _is(value, list))


def _one_of(value: Any, words: Any) -> Any:
    if value not in get_args(words):
        raise ValueError("a word of another version")
    return value


_FIRST: Final = b"B1"
_WITH_COMPACTIONS: Final = b"B2"
_WITH_HISTORY: Final = b"B3"
_VERSIONS: Final = (_FIRST, _WITH_COMPACTIONS, _WITH_HISTORY)
_VERSION_BYTES: Final = 2
_LATER_TYPES: Final = ("preference", "digest")
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Batch)


def write_batch(batch: Batch) -> bytes:
    """The batch as bytes that `read_batch` takes back."""
    return _version(batch) + _ENCODER.encode(batch)


def read_batch(record: bytes) -> Batch:
    """The batch that `write_batch` wrote; FormatError for anything else."""
    if record[:_VERSION_BYTES] not in _VERSIONS:
        raise FormatError("not a batch of this version: it may be a newer one's")
    try:
        return _DECODER.decode(record[_VERSION_BYTES:])
    except msgspec.MsgspecError as error:
        raise FormatError(f"not a batch: {type(error).__name__}") from error


def _version(batch: Batch) -> bytes:
    newer = batch.fact_vectors or batch.extracted or batch.facts_revision is not None
    outside = any(new.segment.trust == "outside" for new in batch.segments)
    if newer or outside or not all(map(_as_before, batch.facts)):
        return _WITH_HISTORY
    return _WITH_COMPACTIONS if batch.compactions else _FIRST


def _as_before(fact: Fact) -> bool:
    """Whether the versions before the third know all of a fact."""
    known = Fact(
        id=fact.id,
        type=fact.type,
        content=fact.content,
        context=fact.context,
        at=fact.at,
        superseded_by=fact.superseded_by,
        sources=fact.sources,
        trust=fact.trust,
        words=fact.words,
        foreign=fact.foreign,
    )
    return fact == known and fact.type not in _LATER_TYPES and fact.trust != "outside"
