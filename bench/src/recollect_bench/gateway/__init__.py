"""`recollect bench gateway`: what the gateway adds to a request, beside proxies that do nothing.

Real processes and real HTTP on this machine: a scripted provider, two bare proxies, and `recollect
gateway` with an empty memory, with 20,000 passages, and with those and a window that the large
request does not fit, so that it is shaped every time. Every request goes to each of them in turn,
in an order that changes, so that what else the machine does hits all alike. `added_X` is the median
over the requests of what the gateway took longer than the bare Starlette proxy did with the same
bytes in the same round.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from recollect.errors import RecollectError
from recollect_bench.gateway.measure import Client, Streams, quantile, stream_many
from recollect_bench.gateway.peers import PeerServer, installed_peers
from recollect_bench.gateway.processes import (
    Held,
    ServerProcess,
    bench_server,
    gateway_server,
    token_headers,
)
from recollect_bench.gateway.traffic import LARGE_BYTES, BenchRequest, fill_memory, growing, short
from recollect_bench.result import BenchResult

Progress: TypeAlias = Callable[[str], None]

PASSAGES: Final = 20_000
WIDE_WINDOW_TOKENS: Final = 1_000_000
TIGHT_WINDOW_TOKENS: Final = 160_000
SMALL_REQUESTS: Final = 150
LARGE_REQUESTS: Final = 80
PAUSE_SECONDS: Final = 0.03
"""Between two requests: a model takes far longer, and what is kept beside a turn is kept then."""
QUIET_SECONDS: Final = 60.0
"""So long is waited at most until what the first requests brought is kept."""
STREAMS: Final = 200
STREAM_ROUNDS: Final = 2
"""The second is the warm one: the first fills caches and opens connections."""
SIZES: Final = ("1kb", "900kb")
KINDS: Final[Mapping[str, bool | None]] = {"": None, "_working": False, "_said": True}
DIRECT: Final = "direct"
BARE: Final = "bare_starlette"
BARE_AIOHTTP: Final = "bare_aiohttp"
GATEWAY: Final = "gateway"
EMPTY: Final = "gateway_empty"
SHAPING: Final = "gateway_shaping"
NOTES: Final = (
    "X_1kb, X_900kb: milliseconds from sending a request to the first byte of its reply's body, by",
    "  a client that keeps its connection and sends the history again with every request, a few",
    "  messages longer; recall's gate stays shut (gate_opened: turns that recalled something)",
    "_said: requests in which the user says something, so that memory is searched; _working: those",
    "  that end with a tool's result: memory is searched only where the model names something",
    "added_X: beside the bare Starlette proxy (httpx2), median over the rounds; added_to_direct_X:",
    "  beside the provider itself; added_p10_X, added_p99_X: the difference of the 10th and of the",
    "  99th percentiles; the 10th is what it takes where nothing else runs on the machine",
    "gateway: 20,000 passages in memory; _empty: none; _shaping: 20,000, and a window of 160,000",
    "  tokens, so that the request of 900 KB is shaped, and smaller than what came",
    "cpu_X: processor time of the proxy's process for a request",
    "streams: 200 at once, 40 chunks each, one every 50 ms; gap: the longest wait between two",
    "  chunks beyond what lay between their sending; delay: how long a chunk was on its way",
)
QUICK_NOTE: Final = "a quick run: few requests; its figures are not to be quoted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured."""

    passages: int = PASSAGES
    small: int = SMALL_REQUESTS
    large: int = LARGE_REQUESTS
    streams: int = STREAMS
    warm_up: int = 10


QUICK: Final = Sizes(passages=400, small=9, large=4, streams=10, warm_up=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How long the first byte of one reply took."""

    size: str
    said: bool
    """Whether the user spoke in the request."""
    seconds: float


@dataclass(slots=True, kw_only=True)
class Target:
    """Something that requests are sent to, and what was measured of it."""

    name: str
    process: ServerProcess
    headers: dict[str, str] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    """To the first byte; in the same order for every target."""
    processor: dict[str, float] = field(default_factory=dict)
    """Seconds of processor time for a request, by size of body."""
    streamed: Streams | None = None

    def seconds(self, size: str, *, said: bool | None = None) -> list[float]:
        """To the first byte, of all requests of a size or of one kind."""
        return [
            taken.seconds
            for taken in self.taken
            if taken.size == size and said in (None, taken.said)
        ]


def run(
    progress: Progress = lambda _: None, *, quick: bool = False, peers: bool = False
) -> BenchResult:
    """Measure the gateway beside bare proxies and, with `peers`, beside others' gateways."""
    sizes = QUICK if quick else Sizes()
    with TemporaryDirectory(prefix="recollect-bench-") as name, ExitStack() as opened:
        folder = Path(name)
        progress("starting the servers")
        targets = _started(opened, folder, sizes, progress)
        notes: list[str] = []
        if peers:
            found, missing = installed_peers(folder, targets[0].process.url, progress)
            notes += missing
            targets += _started_peers(opened, found, notes)
        small = short(sizes.warm_up + sizes.small, seed=1)
        _first_bytes(targets, "1kb", small, sizes.warm_up, progress)
        large = growing(LARGE_BYTES, sizes.warm_up + sizes.large, seed=2)
        _first_bytes(targets, "900kb", large, sizes.warm_up, progress)
        before, after = _streams(targets, sizes, progress)
        gate_opened = _gate_opened(targets)
    shown = (*NOTES, *notes, QUICK_NOTE) if quick else (*NOTES, *notes)
    figures = _figures(targets) | {
        "gate_opened": gate_opened,
        "resident_mb_before": before.resident_mb,
        "resident_mb_after": after.resident_mb,
        "descriptors_before": float(before.descriptors),
        "descriptors_after": float(after.descriptors),
    }
    return BenchResult(bench="gateway", figures=figures, baselines=_baselines(targets), notes=shown)


def _started(opened: ExitStack, folder: Path, sizes: Sizes, progress: Progress) -> list[Target]:
    provider = opened.enter_context(bench_server("provider", folder=folder))
    targets = [Target(name=DIRECT, process=provider)]
    for name, which in ((BARE, "httpx2"), (BARE_AIOHTTP, "aiohttp")):
        process = opened.enter_context(bench_server(which, folder=folder, upstream=provider.url))
        targets.append(Target(name=name, process=process))
    for name, passages, window in (
        (EMPTY, 0, WIDE_WINDOW_TOKENS),
        (GATEWAY, sizes.passages, WIDE_WINDOW_TOKENS),
        (SHAPING, sizes.passages, TIGHT_WINDOW_TOKENS),
    ):
        home = folder / name
        home.mkdir()
        if passages:
            asyncio.run(fill_memory(home, passages, progress))
        process = opened.enter_context(
            gateway_server(
                home, upstream=provider.url, window_tokens=window, folder=folder, name=name
            )
        )
        targets.append(Target(name=name, process=process, headers=token_headers(home)))
    return targets


def _started_peers(
    opened: ExitStack, found: Sequence[PeerServer], notes: list[str]
) -> list[Target]:
    started: list[Target] = []
    for peer in found:
        try:
            process = opened.enter_context(peer.process)
        except RecollectError as error:
            notes.append(f"{peer.name}: not measured, {error}")
            continue
        notes.append(f"{peer.name}: {peer.version}, {peer.how}")
        started.append(Target(name=peer.name, process=process, headers=dict(peer.headers)))
    return started


def _first_bytes(
    targets: Sequence[Target],
    size: str,
    requests: Sequence[BenchRequest],
    warm_up: int,
    progress: Progress,
) -> None:
    """Send the same requests to every target, in an order that goes round."""
    clients = [Client(target.process.port, target.headers) for target in targets]
    for request in requests[:warm_up]:
        for client in clients:
            client.first_byte(request)
    _wait_until_quiet(targets)
    measured = requests[warm_up:]
    for target in targets:
        target.processor[size] = target.process.processor_seconds()
    for number, request in enumerate(measured):
        progress(f"{size}: request {number + 1} of {len(measured)}")
        for at in range(len(targets)):
            turn = (at + number) % len(targets)
            taken = clients[turn].first_byte(request)
            targets[turn].taken.append(Taken(size=size, said=request.said, seconds=taken))
            time.sleep(PAUSE_SECONDS)
    for target, client in zip(targets, clients, strict=True):
        used = target.process.processor_seconds() - target.processor[size]
        target.processor[size] = used / len(measured)
        client.close()


def _wait_until_quiet(targets: Sequence[Target]) -> None:
    """Until nobody works on what came before."""
    until = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < until:
        before = sum(target.process.processor_seconds() for target in targets)
        time.sleep(1.0)
        if sum(target.process.processor_seconds() for target in targets) - before < 0.1:
            return


def _streams(targets: Sequence[Target], sizes: Sizes, progress: Progress) -> tuple[Held, Held]:
    """Many streams at once through one target after the other; what the gateway held around it."""
    before = after = Held(resident_mb=0.0, descriptors=0)
    for number in range(STREAM_ROUNDS):
        for target in targets:
            if target.name in (EMPTY, SHAPING):
                continue
            progress(f"{sizes.streams} streams: {target.name}")
            if target.name == GATEWAY and number == STREAM_ROUNDS - 1:
                before = target.process.held()
            target.streamed = asyncio.run(
                stream_many(target.process.port, sizes.streams, target.headers)
            )
            if target.name == GATEWAY and number == STREAM_ROUNDS - 1:
                _wait_until_idle(target, before)
                after = target.process.held()
    return before, after


def _wait_until_idle(target: Target, before: Held) -> None:
    """Until no request is under way, and connections to the provider were let go of."""
    until = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < until:
        running = _asked(target, "/recollect/health")["running"]
        if not running and target.process.held().descriptors <= before.descriptors:
            return
        time.sleep(0.2)


def _gate_opened(targets: Sequence[Target]) -> float:
    """Of the gateway's newest turns, those that recalled something."""
    (gateway,) = [target for target in targets if target.name == GATEWAY]
    connection = http.client.HTTPConnection("127.0.0.1", gateway.process.port, timeout=30)
    connection.request("GET", "/recollect/activity?follow=0", headers=gateway.headers)
    lines = connection.getresponse().read().splitlines()
    connection.close()
    return float(sum(b'"recalled:' in line for line in lines))


def _asked(target: Target, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", target.process.port, timeout=30)
    try:
        connection.request("GET", path, headers=target.headers)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def _figures(targets: Sequence[Target]) -> dict[str, float]:
    named = {target.name: target for target in targets}
    figures: dict[str, float] = {}
    for size in SIZES:
        for name in (GATEWAY, EMPTY, SHAPING):
            if name == SHAPING and size == "1kb":
                continue
            target, suffix = named[name], name.removeprefix(GATEWAY)
            for kind, said in KINDS.items():
                figures[f"added_{size}{suffix}{kind}"] = _added(
                    target, named[BARE], size, said=said
                )
                figures[f"added_p10_{size}{suffix}{kind}"] = _added_p10(
                    target, named[BARE], size, said=said
                )
            figures[f"added_to_direct_{size}{suffix}"] = _added(target, named[DIRECT], size)
            figures[f"added_p99_{size}{suffix}"] = _p99(target, size) - _p99(named[BARE], size)
            figures |= _of(target, size)
    return figures | _stream_figures(named[GATEWAY])


def _baselines(targets: Sequence[Target]) -> dict[str, float]:
    baselines: dict[str, float] = {}
    bare = next(target for target in targets if target.name == BARE)
    for target in targets:
        if target.name.startswith(GATEWAY):
            continue
        for size in SIZES:
            baselines |= _of(target, size)
            if target.name not in (DIRECT, BARE):
                baselines[f"added_{size}_{target.name}"] = _added(target, bare, size)
        baselines |= _stream_figures(target)
    return baselines


def _of(target: Target, size: str) -> dict[str, float]:
    return {
        f"{target.name}_{size}_p50": median(target.seconds(size)) * 1000,
        f"{target.name}_{size}_p99": _p99(target, size),
        f"cpu_{target.name}_{size}": target.processor[size] * 1000,
    }


def _stream_figures(target: Target) -> dict[str, float]:
    if target.streamed is None:
        return {}
    return {
        f"{target.name}_streams_per_second": target.streamed.per_second,
        f"{target.name}_gap_ms": target.streamed.longest_gap_seconds * 1000,
        f"{target.name}_delay_p50": target.streamed.delay_seconds(0.5) * 1000,
        f"{target.name}_delay_p99": target.streamed.delay_seconds(0.99) * 1000,
    }


def _added(target: Target, baseline: Target, size: str, *, said: bool | None = None) -> float:
    rounds = zip(target.seconds(size, said=said), baseline.seconds(size, said=said), strict=True)
    return float(median(ours - theirs for ours, theirs in rounds)) * 1000


def _added_p10(target: Target, baseline: Target, size: str, *, said: bool | None = None) -> float:
    """The same of the best tenths: what it takes where little else runs."""
    ours, theirs = (quantile(each.seconds(size, said=said), 0.1) for each in (target, baseline))
    return (ours - theirs) * 1000


def _p99(target: Target, size: str) -> float:
    return quantile(target.seconds(size), 0.99) * 1000
