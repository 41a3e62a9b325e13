"""What reads for facts takes time in proportion to what was said, whatever was said.

Every public function that reads is found by looking, and given texts that make a careless pattern
try again from each place: long runs of one sign, of words, of brackets and quotes that never close.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any, Final

import pytest
from tests.sizes import at_size

from recollect.core.values.fact import EvidenceSpan, Fact, FactDraft, fact_id
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import Segment, SegmentId

CHARS: Final = at_size(ci=8_000, full=16_000)
MOST_SECONDS: Final = 0.6
"""For all of it; the slowest takes a tenth."""
MOST_RATIO: Final = 8.0
"""Four times the text: four times the work, with room for the noise of a busy machine."""
WORTH_COMPARING_SECONDS: Final = 0.12
UNITS: Final = (
    " ", "\n", "\t ", "7", "a", "a ", "port ", "the port of ", '"', "'a ", "(", "((a) ", "[", "a, ",
    ",", "a.b.", "-a", "- ", "#", "> ", "a=1 ", "a: ", "/a", "`", "http://a", "a@b ", "_", "is 80 ",
    "it is set to 5 ", "not now, ", "we use x and ", "if we ", "please ", "should be ", "ABC ",
    "remember that ", "instead of ", "我们决定用", "端口是", "不是", "user: ", "and ", "1.2.",
    "$1 ",
)  # fmt: skip


def modules() -> Iterator[Any]:
    """Everything that reads, without what asks a model or writes for people."""
    found = importlib.import_module("recollect.core.facts")
    for one in pkgutil.walk_packages(found.__path__, "recollect.core.facts."):
        if one.name.rpartition(".")[2] != "results":
            yield importlib.import_module(one.name)


def segment(text: str) -> Segment:
    return Segment(
        id=SegmentId("s:0"),
        session="s",
        key=EntryKey("s:0"),
        message_id=MessageId("m"),
        role="user",
        text=text,
        tokens=len(text) // 4,
        said_at=1.0,
        source="request",
        trust="high",
        tool=None,
    )


def draft(text: str) -> FactDraft:
    return FactDraft(
        type="config",
        content=text,
        at=2.0,
        evidence=(EvidenceSpan(segment=SegmentId("s:0"), start=0, end=len(text)),),
        trust="high",
        made_by="model",
        session="s",
    )


def fact(text: str) -> Fact:
    evidence = (EvidenceSpan(segment=SegmentId("s:1"), start=0, end=len(text)),)
    return Fact(
        id=fact_id(evidence, text),
        type="config",
        content=text,
        at=1.0,
        trust="high",
        evidence=evidence,
        made_by="model",
        session="s",
    )


FILLED: Final[dict[str, Callable[[str], Any]]] = {
    "str": lambda text: text,
    "Segment": segment,
    "FactDraft": draft,
    "Fact": fact,
    "Fact | FactDraft": fact,
}
BESIDE: Final[dict[str, Any]] = {
    "bool": True,
    "str": "the port is 8000",
    "int": 0,
    "tuple[int, int]": (0, 0),
    "FactType": "config",
    "Segment": segment("the port is 8000"),
    "Sequence[Segment]": (),
    "Sequence[str]": ("the port is 8000",),
    "FactDraft": draft("the port is 9000"),
    "Fact": fact("the port is 8000"),
    "Sequence[Fact]": (fact("the port is 8000"),),
    "Trust": "high",
    "Fact | FactDraft": draft("the port is 9000"),
    "Change": "update",
    "float": 1.0,
}


def cases() -> list[Any]:
    """Each public function with what makes its arguments of a text."""
    found = []
    for module in modules():
        for name, function in vars(module).items():
            if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
                continue
            if function.__module__ != module.__name__:
                continue
            parameters = list(inspect.signature(function).parameters.values())
            if name.startswith("_") or not parameters:
                continue
            if str(parameters[0].annotation) in FILLED:
                label = f"{module.__name__.removeprefix('recollect.core.facts.')}.{name}"
                found.append(pytest.param(function, parameters, id=label))
    return found


def call(function: Callable[..., Any], parameters: list[inspect.Parameter], text: str) -> None:
    given: list[Any] = [FILLED[str(parameters[0].annotation)](text)]
    named: dict[str, Any] = {}
    for one in parameters[1:]:
        if one.default is not one.empty:
            continue
        kind = str(one.annotation)
        assert kind in BESIDE, f"say here what to give for {one.name}: {kind}"
        if one.kind is one.KEYWORD_ONLY:
            named[one.name] = BESIDE[kind]
        else:
            given.append(BESIDE[kind])
    made = function(*given, **named)
    if isinstance(made, Iterator):
        for _ in made:
            pass


class TooSlowError(Exception):
    """It was stopped."""


def seconds_of(work: Callable[[], None]) -> float:
    """The processor's time, so that others on this machine do not count; stopped where too long."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    begun = time.process_time()
    try:
        work()
    except TooSlowError:
        return MOST_SECONDS
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.process_time() - begun


@pytest.mark.parametrize(("function", "parameters"), cases())
def test_time_is_in_proportion_to_the_text(
    function: Callable[..., Any], parameters: list[inspect.Parameter]
) -> None:
    for unit in UNITS:
        whole = unit * (CHARS // len(unit))
        work = partial(call, function, parameters, whole)
        if seconds_of(work) < WORTH_COMPARING_SECONDS:
            continue
        long = min(seconds_of(work) for _ in range(3))  # others may have had the machine
        part = partial(call, function, parameters, whole[: CHARS // 4])
        short = min(seconds_of(part) for _ in range(3))
        if long >= MOST_SECONDS or long > max(MOST_RATIO * short, WORTH_COMPARING_SECONDS):
            pytest.fail(f"{unit!r}: {short:.3f} s for a quarter, {long:.3f} s for all of it")


def test_the_functions_are_found() -> None:
    names = {one.id for one in cases()}
    assert len(names) > 20
    assert {"provenance.is_order", "history.name_property", "reading.readable"} <= names


def test_a_careless_pattern_is_noticed() -> None:
    import re

    def careless(text: str) -> bool:
        return re.search(r"\s*x", text) is not None

    parameters = list(inspect.signature(careless).parameters.values())
    with pytest.raises(pytest.fail.Exception):
        test_time_is_in_proportion_to_the_text(careless, parameters)
