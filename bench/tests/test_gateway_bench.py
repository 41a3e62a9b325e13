"""What the gateway bench sends, and how it reads its clocks."""

import json
from itertools import pairwise
from pathlib import Path

from recollect_bench.gateway.measure import Chunk, Streams
from recollect_bench.gateway.processes import bench_server, gateway_server
from recollect_bench.gateway.traffic import LARGE_BYTES, growing


def test_a_large_conversation_grows_by_a_few_messages_and_is_sent_again_whole() -> None:
    requests = growing(LARGE_BYTES, 12, seed=3)
    bodies = [json.loads(request.body)["messages"] for request in requests]
    for earlier, later in pairwise(bodies):
        assert later[: len(earlier)] == earlier
        assert 1 <= len(later) - len(earlier) <= 3
    assert all(0.9 < len(request.body) / LARGE_BYTES < 1.1 for request in requests)
    assert {request.session for request in requests} == {"large-3"}
    assert [request.said for request in requests].count(True) == 3


def test_a_gap_counts_only_beyond_what_lay_between_the_sendings() -> None:
    even = [Chunk(sent=at, came=at + 0.01) for at in (1.0, 1.5, 2.0)]
    late = [Chunk(sent=1.0, came=1.01), Chunk(sent=1.05, came=1.31), Chunk(sent=1.1, came=1.32)]
    streams = Streams(seconds=2.0, streams=[even, late])
    assert round(streams.longest_gap_seconds, 3) == 0.25
    assert streams.per_second == 1.0
    assert round(streams.delay_seconds(0.5), 3) == 0.01


def test_the_measured_gateway_starts_with_the_options_it_has_today(tmp_path: Path) -> None:
    with (
        bench_server("provider", folder=tmp_path) as upstream,
        gateway_server(
            tmp_path, upstream=upstream.url, window_tokens=8_000, folder=tmp_path, name="gateway"
        ) as gateway,
    ):
        assert gateway.held().descriptors > 0
