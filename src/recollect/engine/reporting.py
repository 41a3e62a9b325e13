"""A turn as its report: what the path did, put into one value."""

from __future__ import annotations

from dataclasses import replace

from recollect.engine.turn_path import TurnPath
from recollect.values.edit import Edit, Insert
from recollect.values.history import SessionId
from recollect.values.recall import Recalled, passage_name
from recollect.values.report import Report


def report_of(path: TurnPath, session: SessionId) -> Report:
    """What the turn did."""
    new: tuple[Edit, ...] = ()
    ended: tuple[Edit, ...] = ()
    if path.edits is not path.state.edits:  # the same tuple on most turns, and long
        before, after = set(path.state.edits), set(path.edits)
        new = tuple([edit for edit in path.edits if edit not in before])
        ended = tuple([edit for edit in path.state.edits if edit not in after])
    return Report(
        session=session,
        turn=path.turn,
        format=path.request.format,
        model=path.request.model,
        window_tokens=path.limits.window_tokens,
        window_source=path.window_source,
        reserve_tokens=path.limits.reserve_tokens,
        limit_tokens=path.limits.available_tokens,
        fixed_tokens=path.fixed_tokens,
        tokens_before=path.calibrated(path.incoming_tokens),
        tokens_after=path.used_tokens(),
        calibration_ratio=path.state.calibration.ratio,
        moment=path.moment,
        query=path.asked,
        lines=tuple(path.boundary.lines),
        new_edits=new,
        ended_edits=ended,
        entries=path.entries,
        view=path.view,
        edits=path.edits,
        recalled=_put_back(path),
    )


def recalled_of(path: TurnPath) -> Recalled | None:
    """What memory found for the turn: the hits whose text was read, and which of them stand in a
    block of the request."""
    found = path.recalled
    if found is None or not found.hits:
        return found
    standing = _standing(path)
    hits = []
    for hit in found.hits:
        segment, ordinal = hit.passage.segment, hit.passage.ordinal
        names = {passage_name(segment, ordinal), passage_name(segment, None)}
        if hit.text:
            hits.append(replace(hit, shown=not standing.isdisjoint(names)))
    return replace(found, hits=tuple(hits))


def _standing(path: TurnPath) -> frozenset[str]:
    """The names of what the blocks of the request quote."""
    blocks = (edit.recalled for edit in path.edits if isinstance(edit, Insert))
    return frozenset(name for names in blocks for name in names)


def _put_back(path: TurnPath) -> tuple[tuple[str, float], ...]:
    """The segments whose passages this turn put back, with the score of each."""
    found = () if path.recalled is None else path.recalled.passages
    standing = _standing(path)
    return tuple((one.segment, one.score) for one in found if one.segment and one.name in standing)
