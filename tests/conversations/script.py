"""The story of a conversation before any wire format: turns made of parts.

Owns: how a list of small numbers becomes turns, tidy or messy. One number is one event, and 0 is
the simplest one (a short user text), so that shrinking a failing example reads well.
Never: knows a wire format; that is the writers' part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tests.conversations.texts import big_text, long_text, recalled_block, short_text, sized_text

Part: TypeAlias = tuple[object, ...]
"""A kind and what it holds: text, image, thinking, redacted, call, result, unknown, search (its
call and its result; with a third member the call or the result of that tool alone), program (code
that the provider runs) and its output; a call made by a program names it last; file (an upload),
hits (what the client found for the user), speech, and provider (a block or item that only the
provider makes)."""

CODE_BITS = 24  # beyond it hypothesis draws mostly tiny integers, and every flag would be zero
TOOL_NAMES = ("read", "bash", "edit", "web_fetch", "mcp__db__query")


class Turn(NamedTuple):
    """One speaker's say. `bits` decides how a writer spells it; 0 is the plainest spelling.

    A `neat` turn is spelled only in ways the format accepts.
    """

    role: str
    parts: list[Part]
    bits: int
    stop: str = ""
    neat: bool = False


def flag(bits: int, at: int, one_in: int) -> bool:
    """A choice made by `bits`: true once in `one_in`, never when they are zero."""
    return (bits >> at) % one_in == one_in - 1


def mixed(code: int) -> int:
    """Spread a code over 32 bits; 0 stays 0."""
    spread = code * 2_654_435_761 & 0xFFFFFFFF
    return spread ^ spread >> 15


@dataclass
class Script:
    """Turns in the making."""

    prefix: str = "call"
    turns: list[Turn] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    held: list[tuple[int, Turn]] = field(default_factory=list)

    def add(self, role: str, parts: list[Part], bits: int, stop: str = "") -> None:
        """Append a turn, and the results held back until now."""
        self.turns.append(Turn(role, parts, bits, stop))
        due = [turn for at, turn in self.held if at <= len(self.turns)]
        self.held = [item for item in self.held if item[0] > len(self.turns)]
        self.turns += due

    def calls(self, count: int, bits: int) -> list[Part]:
        """New calls, their ids unique in the conversation."""
        made: list[Part] = []
        for index in range(count):
            identity = f"{self.prefix}_{len(self.used):03d}"
            self.used.append(identity)
            args = {"path": f"src/{short_text(index, bits)[:12]}.py", "limit": bits % 50}
            made.append(("call", identity, TOOL_NAMES[(bits + index) % len(TOOL_NAMES)], args))
        return made


def result_for(call: Part, size: int, bits: int, *, big: bool = False) -> Part:
    """What a tool answered: long, blank once in a while, an error or an image at times."""
    if flag(bits, 11, 24):
        content = ("", " \n")[bits & 1]
    else:
        content = big_text(size, bits) if big else sized_text(size, bits)
    return ("result", call[1], call[2], content, flag(bits, 3, 6), flag(bits, 6, 12))


def spoken(size: int, bits: int) -> list[Part]:
    """What an assistant says before it calls or ends: thinking at times, then text at times."""
    parts: list[Part] = []
    if flag(bits, 5, 3):
        parts.append(
            ("thinking", short_text(size, bits), None if flag(bits, 9, 8) else f"Sig{bits:x}==")
        )
    if flag(bits, 13, 10):
        parts.append(("redacted", f"Enc{bits:x}"))
    if not flag(bits, 7, 2):
        parts.append(("text", sized_text(size, bits)))
    return parts


def _user(script: Script, size: int, bits: int) -> None:
    script.add("user", [("text", sized_text(size, bits))], bits)


def _answer(script: Script, size: int, bits: int) -> None:
    parts = spoken(size, bits)
    if parts and parts[-1][0] != "text" and not flag(bits, 15, 6):
        parts.append(("text", short_text(size, bits)))
    script.add("assistant", parts or [("text", short_text(size, bits))], bits)


def _exchange(script: Script, size: int, bits: int, *, big: bool = False) -> None:
    calls = script.calls(1 + bits % 3, bits)
    script.add("assistant", spoken(size & 127, bits) + calls, bits)
    results = [result_for(call, size, bits >> i, big=big) for i, call in enumerate(calls)]
    script.add("results", results[::-1] if flag(bits, 4, 2) else results, bits)


def _big_exchange(script: Script, size: int, bits: int) -> None:
    _exchange(script, size, bits, big=True)


def _unanswered(script: Script, size: int, bits: int) -> None:
    script.add("assistant", spoken(size & 63, bits) + script.calls(1 + bits % 2, bits), bits)


def _partly_answered(script: Script, size: int, bits: int) -> None:
    calls = script.calls(2 + bits % 3, bits)
    script.add("assistant", spoken(size & 63, bits) + calls, bits)
    kept = [c for i, c in enumerate(calls) if flag(bits, 8 + i, 2)] or calls[1:2]
    script.add("results", [result_for(call, size, bits) for call in kept], bits)


def _answered_twice(script: Script, size: int, bits: int) -> None:
    _exchange(script, size & 127, bits)
    results = script.turns[-1].parts
    if flag(bits, 10, 2):
        results.append(results[0])
    else:
        script.add("results", results[:1], bits)


def _answered_late(script: Script, size: int, bits: int) -> None:
    calls = script.calls(1 + bits % 2, bits)
    script.add("assistant", calls, bits)
    late = Turn("results", [result_for(call, size, bits) for call in calls], bits)
    script.held.append((len(script.turns) + 1 + bits % 4, late))


def _answered_early(script: Script, size: int, bits: int) -> None:
    calls = script.calls(1, bits)
    script.add("results", [result_for(calls[0], size & 127, bits)], bits)
    script.add("assistant", calls, bits)


def _orphan(script: Script, size: int, bits: int) -> None:
    ghost = ("call", f"ghost_{bits & 0xFF}", "read")
    script.add("results", [result_for(ghost, size & 127, bits)], bits)


def _id_again(script: Script, size: int, bits: int) -> None:
    if not script.used:
        return _exchange(script, size & 127, bits)
    again: Part = ("call", script.used[bits % len(script.used)], "read", {"path": "again.py"})
    script.add("assistant", [again], bits)
    if not flag(bits, 12, 4):
        script.add("results", [result_for(again, size & 127, bits)], bits)
    return None


def _id_twice_at_once(script: Script, size: int, bits: int) -> None:
    call = script.calls(1, bits)[0]
    other: Part = (*call[:3], {"path": "other.py"})
    script.add("assistant", [call, other], bits)
    results = [result_for(call, size & 127, bits), result_for(call, size & 63, bits >> 3)]
    script.add("results", results[: 1 + bits % 2], bits)


def _aborted(script: Script, size: int, bits: int) -> None:
    parts = spoken(size & 63, bits) + (script.calls(1, bits) if flag(bits, 9, 2) else [])
    script.add("assistant", parts, bits, stop=("aborted", "error")[bits & 1])
    if flag(bits, 12, 3):
        calls = [part for part in parts if part[0] == "call"]
        script.add("results", [result_for(call, size & 63, bits) for call in calls], bits)


def _empty(script: Script, size: int, bits: int) -> None:
    parts: list[Part] = [("text", " \n\t"[: bits % 4])] if flag(bits, 6, 2) else []
    script.add(("user", "assistant")[size & 1], parts, bits)


def _blank_beside_words(script: Script, size: int, bits: int) -> None:
    script.add(
        ("user", "assistant")[size & 1], [("text", ""), ("text", short_text(size, bits))], bits
    )


def _thought_only(script: Script, size: int, bits: int) -> None:
    script.add("assistant", [("thinking", short_text(size, bits), f"Sig{bits:x}")], bits)


def _picture(script: Script, size: int, bits: int) -> None:
    parts: list[Part] = [("image",), ("text", sized_text(size & 127, bits))]
    script.add("user", parts[::-1] if bits & 1 else parts, bits)


def _unknown(script: Script, size: int, bits: int) -> None:
    role = ("user", "assistant")[bits & 1]
    script.add(role, [("unknown", size), ("text", short_text(size, bits))], bits)


def _recalled(script: Script, size: int, bits: int) -> None:
    parts: list[Part] = [("text", recalled_block(bits))]
    if flag(bits, 8, 2):
        parts.append(("text", short_text(size, bits)))
    script.add("user", parts, bits)


def _system(script: Script, size: int, bits: int) -> None:
    script.add("system", [("text", short_text(size, bits))], bits)


def _summary(script: Script, size: int, bits: int) -> None:
    script.add("summary", [("text", long_text(300 + size * 20, bits))], bits)


def _shell(script: Script, size: int, bits: int) -> None:
    script.add("bash", [("text", sized_text(size & 127, bits))], bits)


def _uploaded(script: Script, size: int, bits: int) -> None:
    parts: list[Part] = [("text", short_text(size, bits))]
    parts[bits & 1 : bits & 1] = [
        (("file", "hits", "speech")[(bits >> 2 + at) % 3], size + at) for at in range(1 + bits % 3)
    ]
    script.add("user", parts, bits)


def _uploaded_by_the_model(script: Script, size: int, bits: int) -> None:
    """Files under the wrong role, next to text or alone."""
    parts: list[Part] = [(("file", "hits", "image")[bits % 3], size)[: 1 if bits % 3 == 2 else 2]]
    script.add("assistant", parts + [("text", short_text(size, bits))] * (bits & 1), bits)


def _provided(script: Script, size: int, bits: int) -> None:
    """What the provider alone makes: a summary, a listing of tools, a change of the model."""
    parts: list[Part] = [("provider", bits), ("text", short_text(size, bits))]
    script.add("assistant", parts, bits)


def _searched(script: Script, size: int, bits: int) -> None:
    kind = "search-cut" if flag(bits, 10, 2) else "search"
    script.add(
        "assistant", [(kind, f"srvtoolu_{bits & 0xFFFF}"), ("text", short_text(size, bits))], bits
    )


# Calls (A, B) and results (1, 2) of a provider's tools out of order, words (t), a new turn (|).
_SEARCH_ORDERS = ("A1tA", "A1A", "AA1t", "A1A1t", "1At", "A11t", "AB12t", "A1tA|B2t", "At|1t",
    "A1t|A1t", "At|A1t", "A1t|At", "A|B1t|2t", "A1|1t", "AtA|1t")  # fmt: skip


def _searched_out_of_order(script: Script, size: int, bits: int) -> None:
    names = {sign: f"srvtoolu_{at}_{bits & 0xFFF}" for at, sign in enumerate("AB")}
    answers = {"1": names["A"], "2": names["B"]}
    for order in _SEARCH_ORDERS[bits % len(_SEARCH_ORDERS)].split("|"):
        parts: list[Part] = []
        for at, sign in enumerate(order):
            tool = bits + flag(bits, 8 + at, 16)  # now and then the result of another tool
            if sign in names:
                parts.append(("search-call", names[sign], bits))
            elif sign in answers:
                parts.append(("search-result", answers[sign], tool))
            else:
                parts.append(("text", short_text(size + at, bits)))
        script.add("assistant", parts, bits)
        if flag(bits, 14, 2):
            script.add("user", [("text", short_text(size, bits))], bits)


def _programmed(script: Script, size: int, bits: int, *, whole: bool = False) -> None:
    """Code that calls tools: the program, its calls in one or more turns, and its output."""
    program = f"srvtoolu_p{len(script.used)}_{bits & 0xFFF}"
    opened = whole or not flag(bits, 6, 4)
    for step in range(1 + (bits >> 4) % 3):
        calls: list[Part] = [(*call, program) for call in script.calls(1 + bits % 2, bits)]
        script.add("assistant", [("program", program), *calls] if opened and not step else calls, 0)
        kept = calls if whole or not flag(bits, 9, 4) else calls[:-1]
        results = [result_for(call, size & 63, 0) for call in kept]
        if results:
            script.add("results", results, 0)
    if whole or not flag(bits, 12, 4):
        text: Part = ("text", short_text(size, bits))
        script.add("assistant", [("program-output", program), text], 0)


def _legacy(script: Script, size: int, bits: int) -> None:
    call = script.calls(1, bits)[0]
    if not flag(bits, 7, 2):
        script.add("legacy-call", [call], bits)
    if not flag(bits, 10, 2):
        script.add("legacy-result", [result_for(call, size & 127, bits)], bits)


def _trailing_space(script: Script, size: int, bits: int) -> None:
    script.add("assistant", [("text", short_text(size, bits) + " \n"[bits & 1 :])], bits)


def _same_again(script: Script, size: int, bits: int) -> None:
    if script.turns:
        script.add(*script.turns[-1][:4])


Event: TypeAlias = Callable[[Script, int, int], None]
_WEIGHTED: Sequence[tuple[Event, int]] = (
    *((_user, 10), (_answer, 9), (_exchange, 11), (_big_exchange, 2), (_unanswered, 2)),
    *((_partly_answered, 3), (_answered_twice, 2), (_answered_late, 2), (_answered_early, 1)),
    *((_orphan, 2), (_id_again, 2), (_id_twice_at_once, 1), (_aborted, 2), (_empty, 3)),
    *((_blank_beside_words, 1), (_thought_only, 1), (_picture, 2), (_unknown, 1), (_recalled, 2)),
    *((_system, 2), (_summary, 1), (_shell, 1), (_searched, 3), (_searched_out_of_order, 3)),
    *((_programmed, 3), (_legacy, 2), (_trailing_space, 1), (_same_again, 1), (_uploaded, 3)),
    *((_uploaded_by_the_model, 1), (_provided, 2)),
)
_EVENTS: Sequence[Event] = [event for event, weight in _WEIGHTED for _ in range(weight)]


_ENDINGS: Sequence[Event] = (_trailing_space, _thought_only, _unanswered, _searched, _answer)


def messy_turns(codes: Sequence[int], *, prefix: str = "call") -> list[Turn]:
    """Turns as they come: pairs broken, roles doubled, contents empty."""
    script = Script(prefix=prefix)
    for code in codes:
        rest = code // len(_EVENTS)
        _EVENTS[code % len(_EVENTS)](script, rest & 255, mixed(rest))
    script.turns += [turn for at, turn in script.held if at % 2]
    return script.turns


def disturbed_turns(codes: Sequence[int], header: int) -> list[Turn]:
    """A tidy conversation with up to three messy events somewhere in it."""
    count = header % 4
    turns = tidy_turns(codes[count : count + 8])
    for index, code in enumerate(codes[:count]):
        at = mixed(code + index) % (len(turns) + 1)
        turns[at:at] = messy_turns([code], prefix=f"odd{index}")
    return turns


def ending(header: int) -> list[Turn]:
    """How a conversation breaks off with the assistant's turn."""
    script = Script(prefix="end")
    _ENDINGS[header % len(_ENDINGS)](script, header >> 3 & 63, header)
    return script.turns


def _tidy_user(script: Script, size: int, bits: int) -> None:
    event = _picture if flag(bits, 20, 9) else _uploaded if flag(bits, 14, 4) else _user
    event(script, size, bits)


def tidy_turns(codes: Sequence[int]) -> list[Turn]:
    """Turns as a careful client keeps them: a user, some exchanges, an answer, and again."""
    script = Script()
    for code in codes or [0]:
        size, bits = code & 255, mixed(code >> 8)
        _tidy_user(script, size, bits)
        for step in range(bits % 4):
            own = mixed((code >> 8) + step * 7_919 + 1)
            _exchange(script, (size + step * 31) & 255, own)
        if flag(bits, 17, 4):
            _programmed(script, size, bits, whole=True)
            script.add("user", [("text", short_text(size, bits))], bits)
        if flag(bits, 11, 5):
            _provided(script, size, bits)
            script.add("user", [("text", short_text(size, bits))], bits)
        closing: list[Part] = [("text", sized_text(size, bits))]
        if flag(bits, 5, 3):
            closing.insert(0, ("thinking", short_text(size, bits), f"Sig{bits:x}=="))
        script.add("assistant", closing, bits)
    last = script.turns.pop()  # most requests wait for an answer
    if codes and flag(mixed(codes[-1]), 3, 4):
        script.add("assistant", last.parts[-1:], last.bits)
    return [turn._replace(neat=True) for turn in script.turns]
