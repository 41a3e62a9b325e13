"""The token counter against o200k, its calibration in simulated sessions, and its invariants."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.rules.tokens import UNKNOWN_IMAGE_TOKENS, count_image, count_text
from recollect.core.values.history import TokenCalibration
from recollect_bench.data import data_folder
from recollect_bench.token_corpus import HELD_KINDS, UNSEEN_KINDS, cut_samples, gather_documents
from recollect_bench.tokens import calibrated_errors, simulated_sessions
from recollect_bench.tokens import count_o200k as true_tokens

if TYPE_CHECKING:
    pass

LEAST_RATIO, GREATEST_RATIO = 0.95, 1.30
# A text may start, end or join in the middle of a token: by so much may sums of parts be off.

any_text = st.text(st.characters(), max_size=600) | st.text("aZ 9\n_é漢かहи😀\ud800", max_size=1500)


@pytest.fixture(scope="module")
def documents() -> dict[str, list[str]]:
    return gather_documents()


@pytest.mark.parametrize("kind", HELD_KINDS)
def test_estimate_stays_within_the_promised_bounds(kind, documents):
    samples = [s for s in cut_samples({kind: documents[kind]}, seed=2) if len(s.text) >= 1000][::5]
    assert len(samples) >= 20
    outside = []
    for sample in samples:
        ratio = count_text(sample.text) / true_tokens(sample.text)
        if not LEAST_RATIO <= ratio <= GREATEST_RATIO:
            outside.append((round(ratio, 3), len(sample.text), sample.text[:80]))
    # The sources of another Python version hold text the fit has not seen: of that, one page in
    # two hundred may be odd, but only a short one, and only a little.
    allowed = len(samples) // 200 if kind == "python" else 0
    assert len(outside) <= allowed, outside
    assert all(0.9 <= ratio <= 1.35 and size < 2000 for ratio, size, _ in outside), outside


def test_real_sessions_stay_within_the_bounds():
    if not data_folder().is_dir():
        pytest.skip("the data folder is absent; set RECOLLECT_DATA")
    sessions = gather_documents()["coding_session"]
    whole = "\n".join(sessions[:400])
    assert LEAST_RATIO <= count_text(whole) / true_tokens(whole) <= GREATEST_RATIO


@given(any_text)
def test_any_text_has_a_positive_whole_count(text):
    tokens = count_text(text)
    assert type(tokens) is int
    assert (tokens == 0) if not text else (tokens >= 1)
    assert count_text(text) == tokens


# Calibration


@pytest.mark.parametrize("kind", [*HELD_KINDS, "one_after_another", "alternating"])
def test_calibrated_count_is_within_five_percent_after_five_turns(kind, documents):
    for session in simulated_sessions(documents)[kind]:
        errors = calibrated_errors(session, true_tokens)
        assert len(errors) == 9
        assert max(errors) <= 0.05


def test_other_tokenizers_are_learned_in_five_turns(documents):
    """A model whose tokens are 40% more than o200k's, with instructions we count too low."""
    dice = random.Random(9)
    calibration, estimated, reported = TokenCalibration(), 600, 1000
    for turn in range(12):
        text = dice.choice(documents["english"])[:6000]
        estimated += count_text(text)
        reported += round(true_tokens(text) * 1.4)
        if turn >= 5:
            assert calibration.apply(estimated) == pytest.approx(reported, rel=0.05)
        calibration = calibration.learn(estimated_tokens=estimated, reported_tokens=reported)
    assert calibration.samples == 12


def test_a_calibrated_count_follows_the_anchor_and_what_it_cost():
    calibration = TokenCalibration().learn(estimated_tokens=1000, reported_tokens=1300)
    assert calibration.apply(1000) == 1300
    assert calibration.apply(1100) == 1430
    assert calibration.apply(500) == 650
    # Old turns in a dense script, new ones in prose: cutting the old ones leaves the prose.
    calibration = TokenCalibration()
    for estimated, reported in [(1000, 1500), (2000, 3000), (3000, 4000), (4000, 5000)]:
        calibration = calibration.learn(estimated_tokens=estimated, reported_tokens=reported)
    assert calibration.apply(2000) == 2000
    assert calibration.apply(3000) == 3500
    assert calibration.apply(0) == 0


@pytest.mark.parametrize(
    ("estimated", "reported"), [(0, 500), (500, 0), (-3, 9), (1000, 12), (1000, 90_000)]
)
def test_absurd_reports_change_nothing(estimated, reported):
    calibration = TokenCalibration().learn(estimated_tokens=1000, reported_tokens=1100)
    assert calibration.learn(estimated_tokens=estimated, reported_tokens=reported) == calibration


reports = st.lists(st.tuples(st.integers(-5, 10**7), st.integers(-5, 10**7)), max_size=12)


@given(reports, st.lists(st.integers(0, 10**7), min_size=2, max_size=6))
def test_calibrated_counts_are_never_negative_and_grow_with_the_estimate(pairs, estimates):
    calibration = TokenCalibration()
    for estimated, reported in pairs:
        calibration = calibration.learn(estimated_tokens=estimated, reported_tokens=reported)
    assert 0.25 <= calibration.ratio <= 4
    counts = [calibration.apply(estimate) for estimate in sorted(estimates)]
    assert counts[0] >= 0
    assert all(smaller <= larger for smaller, larger in pairwise(counts))


# Images


def png(width: int, height: int) -> str:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(b"IHDR" + header))
    chunk = struct.pack(">I", 13) + b"IHDR" + header + checksum
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk + bytes(200)).decode()


def jpeg(width: int, height: int, *, exif_bytes: int = 40_000) -> str:
    exif = b"\xff\xe1" + struct.pack(">H", exif_bytes + 2) + b"\xff\xc0" * (exif_bytes // 2)
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes(3)
    return base64.b64encode(b"\xff\xd8" + exif + frame + bytes(100)).decode()


def gif(width: int, height: int) -> str:
    return base64.b64encode(b"GIF89a" + struct.pack("<HH", width, height) + bytes(60)).decode()


def webp(layout: str, width: int, height: int) -> str:
    body = {
        "VP8X": bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
        "VP8L": b"\x2f" + ((height - 1) << 14 | (width - 1)).to_bytes(4, "little") + bytes(5),
        "VP8 ": bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height),
    }[layout]
    chunk = layout.encode() + struct.pack("<I", len(body)) + body
    return base64.b64encode(b"RIFF" + struct.pack("<I", 400) + b"WEBP" + chunk + bytes(60)).decode()


ENCODERS = {
    "png": png,
    "jpeg": jpeg,
    "gif": gif,
    "webp_extended": lambda w, h: webp("VP8X", w, h),
    "webp_lossless": lambda w, h: webp("VP8L", w, h),
    "webp_lossy": lambda w, h: webp("VP8 ", w, h),
}


@pytest.mark.parametrize("encode", ENCODERS.values(), ids=ENCODERS)
@pytest.mark.parametrize(
    ("width", "height", "anthropic", "openai"),
    [
        (200, 200, 54, 255),  # 40,000 / 750; one tile
        (1000, 1000, 1334, 765),  # 768 x 768: four tiles
        (1092, 1092, 1590, 765),
        (512, 1024, 700, 425),  # two tiles
        (4000, 1000, 820, 765),  # long edge to 1568; 2048 x 512: four tiles
        (9000, 9000, 1600, 765),  # capped
    ],
)
def test_images_cost_what_the_providers_publish(encode, width, height, anthropic, openai):
    image = {"media_type": None, "data": encode(width, height)}
    assert count_image(**image) == max(anthropic, openai)


def test_wrapped_url_safe_and_data_url_images_are_read():
    plain = png(200, 200)
    wrapped = "\n".join(plain[i : i + 20] for i in range(0, len(plain), 20))
    safe = plain.replace("+", "-").replace("/", "_")
    for data in (wrapped, safe, "data:image/png;base64," + plain):
        assert count_image(media_type="image/png", data=data) == 255


@pytest.mark.parametrize(
    "data",
    [
        None,
        "",
        "https://example.com/cat.png",
        "data:image/png",
        "not base64 at all £",
        png(0, 40),
        png(40, 40)[:20],
        jpeg(40, 40)[:3000],
        base64.b64encode(b"\xff\xd8" + b"\xff" * 5000).decode(),
        base64.b64encode(b"%PDF-1.7" + bytes(90)).decode(),
    ],
)
def test_images_of_unknown_size_cost_the_most(data):
    assert count_image(media_type="image/png", data=data) == UNKNOWN_IMAGE_TOKENS
    assert count_image(media_type="application/pdf", data=png(40, 40)) == UNKNOWN_IMAGE_TOKENS


@given(st.binary(max_size=400), st.text())
def test_garbage_never_raises_and_costs_something(tail, text):
    starts = (b"", b"\xff\xd8\xff", b"GIF89a", b"RIFF0000WEBPVP8L", b"\x89PNG\r\n\x1a\n")
    for data in (*(base64.b64encode(start + tail).decode() for start in starts), text):
        assert 1 <= count_image(media_type=None, data=data) <= 1700


UNSEEN = {
    "scripts": (0.95, 1.30),
    "scripts_held": (0.70, 1.40),
    "shapes": (0.85, 1.45),
    "shapes_held": (0.75, 1.70),
}
"""Scripts and shapes beside the corpus: near what was measured, and a margin where it was not."""


@pytest.mark.parametrize("kind", UNSEEN_KINDS)
def test_scripts_and_shapes_beside_the_corpus_are_not_counted_low(kind, documents):
    least, greatest = UNSEEN[kind]
    ratios = [count_text(text) / true_tokens(text) for text in documents[kind]]
    assert least <= min(ratios), [round(ratio, 2) for ratio in ratios]
    assert max(ratios) <= greatest, [round(ratio, 2) for ratio in ratios]
