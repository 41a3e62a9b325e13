"""Writes what earlier sessions tell a new one: the brief at a session's start, and answers to
prompts about time and continuation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from itertools import groupby
from typing import Final

from recollect.core.formats.recalled_block import defuse_tags
from recollect.core.rules.text import clipped_sentences
from recollect.core.search.moments import Moment
from recollect.core.turn.past_turns import Past, PastTurn, open_points, weight_of
from recollect.core.turn.rulings import by_weight
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING

BRIEF_TOKENS: Final = 300
ANSWER_CHARS: Final = 900
_REQUEST_CHARS: Final = 110
_OUTCOME_CHARS: Final = 230
_BRIEF_CHARS: Final = 110
"""Limit of the last request, and of its outcome, in the brief."""
_POINT_CHARS: Final = 170
_LINE_CHARS: Final = 90
_MAX_FILES: Final = 3
_MAX_POINTS: Final = 2
_SAME_SUBJECT: Final = 0.8
"""The newest session continues a subject if it has this share of the best session's words."""
_KNOWS_SUBJECT: Final = 0.5
_RULES_NOTE: Final = "For reference, from earlier statements: the user's standing rules:"
_LAST_NOTE: Final = "The newest session, last active"
_OPEN_NOTE: Final = "Left open:"


def write_brief(past: Past, *, zone: tzinfo | None, count_tokens: Callable[[str], int]) -> str:
    """Return the brief for a new session; empty if there is nothing to tell."""
    last = last_turn_of(past)
    ending = [] if last is None else [_last_line(last, zone, _BRIEF_CHARS)]
    left = BRIEF_TOKENS - count_tokens(_block(ending))
    rules = rule_lines(past, count_tokens, left)
    left -= count_tokens("\n".join(rules))
    if last is not None and any(rule.rstrip(".") in last.request for rule in rules[1:]):
        ending = [_last_line(replace(last, request=""), zone, _BRIEF_CHARS)]  # it is above
    told = "\n".join(ending)
    points = [_OPEN_NOTE]
    for point in open_points(past):
        line = f"- {clipped_sentences(point.text, _POINT_CHARS)}"
        if len(points) > _MAX_POINTS or point.text in told:
            continue
        if count_tokens("\n".join([*points, line])) < left:
            points.append(line)
    if len(points) > 1:
        ending += points
    return _block([*rules, *ending]) if rules or ending else ""


def write_moment(past: Past, moment: Moment, *, zone: tzinfo | None) -> str:
    """Return what the order of the sessions answers to a prompt about time; empty if nothing."""
    lines: Sequence[str] = ()
    if moment.kind == "last":
        last = last_turn_of(past)
        if last is not None:
            turns = [turn for turn in past.turns if turn.session == last.session]
            before = [turn for turn in turns if turn is not last and not turn.is_small_talk]
            lines = _ending_lines(past, _last_line(last, zone), [*before, last])
    elif moment.kind == "open":
        points = [
            f"- {_time(point.turn.said_at, zone)}: {clipped_sentences(point.text, _POINT_CHARS)}"
            for point in open_points(past)
        ]
        lines = [_OPEN_NOTE, *points] if points else []
    elif moment.kind == "day":
        turns = [turn for turn in past.turns if moment.start <= turn.said_at < moment.end]
        lines = _day_lines(turns, zone)
    else:
        lines = _subject_lines(past, moment.words, zone)
    kept_lines: list[str] = []
    for line in lines:
        if len(_block([*kept_lines, line])) > ANSWER_CHARS and kept_lines:
            break
        kept_lines.append(line)
    return _block(kept_lines) if kept_lines else ""


def rules_block(past: Past, count_tokens: Callable[[str], int], tokens: int) -> str:
    """Return a block with the user's rules alone; empty if there are none."""
    lines = rule_lines(past, count_tokens, tokens - count_tokens(_block(())))
    return _block(lines) if lines else ""


def rule_lines(past: Past, count_tokens: Callable[[str], int], tokens: int) -> list[str]:
    """Return pinned facts and the strongest and newest rules that fit, under a heading."""
    lines: list[str] = []
    left = tokens - count_tokens(_RULES_NOTE)
    for line in (*past.pinned, *(rule.text for rule in by_weight(past.rules))):
        cost = count_tokens(line) + 1
        if cost <= left:
            lines.append(line)
            left -= cost
    return [_RULES_NOTE, *lines] if lines else []


def last_turn_of(past: Past) -> PastTurn | None:
    """Return the turn that tells most about the end of the last session with more than small talk:
    its last turn in which work was done, or else its last one."""
    last = next((turn for turn in reversed(past.turns) if not turn.is_small_talk), None)
    turns = [turn for turn in past.turns if last is not None and turn.session == last.session]
    return next((turn for turn in reversed(turns) if not turn.is_short), last)


def _block(lines: Iterable[str]) -> str:
    return "\n".join(
        [BLOCK_OPENING, "<detail>", *map(defuse_tags, lines), "</detail>", BLOCK_CLOSING]
    )


def _last_line(turn: PastTurn, zone: tzinfo | None, chars: int = _OUTCOME_CHARS) -> str:
    ended_at = turn.ended_at or turn.said_at
    return f"{_LAST_NOTE} {_time(ended_at, zone)}. {_told(turn, chars)}"


def _told(turn: PastTurn, chars: int = _OUTCOME_CHARS) -> str:
    said = clipped_sentences(turn.request, min(chars, _REQUEST_CHARS)).rstrip(".… ")
    request = [f"The user said: {said}."] if said else []
    outcome = [f"Outcome: {clipped_sentences(turn.outcome, chars)}"] if turn.outcome else []
    files = [f"[edited {', '.join(turn.files[-_MAX_FILES:])}]"] if turn.files else []
    return " ".join([*request, *outcome, *files])


def _ending_lines(past: Past, told: str, turns: Sequence[PastTurn]) -> list[str]:
    """Add to what is told of the last of a session's turns: what the session left open, and the
    requests before it."""
    points = [
        f"- left open: {clipped_sentences(point.text, _POINT_CHARS)}"
        for point in open_points(past)
        if point.turn.session == turns[-1].session and point.text not in told
    ]
    before = [
        f"- before that: {clipped_sentences(turn.request, _LINE_CHARS)}" for turn in turns[-2:-5:-1]
    ]
    return [told, *points, *before]


def _day_lines(turns: Sequence[PastTurn], zone: tzinfo | None) -> list[str]:
    """Return a line per session, with as much of the outcomes as fits."""
    work = [turn for turn in turns if not turn.is_small_talk]
    sessions = [list(group) for _, group in groupby(work, key=lambda turn: turn.session)]
    lines: list[str] = []
    for chars in (_BRIEF_CHARS, _BRIEF_CHARS // 2, 0):
        lines = [_session_line(session, zone, chars) for session in sessions]
        if len(_block(lines)) <= ANSWER_CHARS:
            break
    return lines


def _session_line(session: Sequence[PastTurn], zone: tzinfo | None, chars: int) -> str:
    """Return a session's requests and outcomes, preferably those with work or a decision."""
    turns = sorted(session, key=lambda turn: turn.is_short and not turn.decides)[:3]
    told = [
        clipped_sentences(turn.request, _LINE_CHARS - 10)
        + (f" → {clipped_sentences(turn.outcome, chars)}" if chars and turn.outcome else "")
        for turn in sorted(turns, key=session.index)
    ]
    told += [f"{len(session) - 3} more"] if len(session) > 3 else []
    files = list(dict.fromkeys(file for turn in session for file in turn.files))[-_MAX_FILES:]
    edited = f" [edited {', '.join(files)}]" if files else ""
    return f"- {_time(session[0].said_at, zone)}, the user said: {'; '.join(told)}{edited}"


def _subject_lines(past: Past, words: frozenset[str], zone: tzinfo | None) -> list[str]:
    """Return the newest session about a subject: its last request on it, and what it left open."""
    rarity = past.rarity()
    subject_weight = weight_of(words, rarity)
    sessions: dict[str, list[PastTurn]] = {}
    for turn in past.turns:
        sessions.setdefault(turn.session, []).append(turn)
    weight_by_session = {
        session: weight_of(words & frozenset().union(*(turn.words for turn in turns)), rarity)
        for session, turns in sessions.items()
    }
    best = max(weight_by_session.values(), default=0.0)
    if not subject_weight or best < _KNOWS_SUBJECT * subject_weight:
        return []
    newest = [
        session for session in sessions if weight_by_session[session] >= _SAME_SUBJECT * best
    ][-1]
    turns = [turn for turn in sessions[newest] if not turn.is_small_talk] or sessions[newest]
    subject_turns = [turn for turn in turns if words & turn.words] or turns
    last = subject_turns[-1]
    return _ending_lines(past, f"{_time(last.said_at, zone)}. {_told(last)}", subject_turns)


def _time(epoch_seconds: float, zone: tzinfo | None) -> str:
    try:
        return f"{datetime.fromtimestamp(epoch_seconds, zone):%a %d %b %H:%M}"
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"
