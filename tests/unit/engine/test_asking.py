"""What an embedder is given for a question, and what happens when it fails."""

import asyncio
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.engine import recaller as asking
from recollect.core.engine.recaller import REST_SECONDS, QuestionVectors
from recollect.core.turn.ingest import index
from recollect.core.values.batch import Batch
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import AskedVector, EmbedderKind, RecallRequest
from recollect.core.values.segment import NewSegment, Segment, SegmentId
from recollect.errors import EmbedderError

SECRET = "n3wSecretPw77"


class Recording:
    """An embedder that notes what it is given."""

    dimensions = 2
    ready = True

    def __init__(self, kind: EmbedderKind = "remote", *, fails: bool = False) -> None:
        self.kind: EmbedderKind = kind
        self.name = f"{kind}:recording:{id(self)}"
        self.given: list[str] = []
        self.fails = fails

    async def load(self) -> None:
        """Nothing to load."""

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        self.given += texts
        if self.fails:
            raise EmbedderError("it fell over")
        return [struct.pack("<2f", 1.0, 0.0) for _ in texts]


def said(number: int, text: str) -> NewSegment:
    segment = Segment(
        id=SegmentId(f"{number:032x}"),
        session="s",
        key=EntryKey(f"k{number}"),
        message_id=MessageId(f"m{number}"),
        role="user",
        text=text,
        tokens=5,
        said_at=1_700_000_000.0 + number,
        source="request",
        trust="high",
    )
    return NewSegment(segment=segment, passages=index(segment))


def ask(
    tmp_path: Path, vectors: QuestionVectors, question: str, *texts: str
) -> tuple[tuple[AskedVector, ...], tuple[Reason, ...]]:
    async def scenario() -> tuple[tuple[AskedVector, ...], tuple[Reason, ...]]:
        store = await SQLiteStore.open(tmp_path / "m.db", space="t")
        try:
            await store.write(
                Batch(at=1.0, segments=tuple(said(n, text) for n, text in enumerate(texts)))
            )
            request = RecallRequest(
                space="t",
                session="s",
                query=question,
                now=1_700_000_100.0,
                budget_tokens=100,
                count_tokens=len,
            )
            return await vectors.embedded(await vectors.phrased(request, store))
        finally:
            await store.close()

    return asyncio.run(scenario())


def test_a_secret_in_the_question_never_reaches_a_remote_embedder(tmp_path: Path) -> None:
    """Also where its first word, by which it is known, looks like a speaker's name."""
    embedder = Recording("remote")
    talk = [f"Password: was changed on day {n}" for n in range(5)]
    ask(
        tmp_path,
        QuestionVectors([embedder], seconds=5.0),
        f"try again with Password: {SECRET} on staging",
        *talk,
    )
    assert any("staging" in text for text in embedder.given)
    assert not any(SECRET in text for text in embedder.given)


def test_a_model_is_asked_without_the_names_of_who_speaks(tmp_path: Path) -> None:
    model, hashed = Recording("onnx"), Recording("hash")
    talk = [f"Caroline: I went to the beach of day {n}" for n in range(4)]
    ask(
        tmp_path,
        QuestionVectors([model, hashed], seconds=5.0),
        "Where did Caroline go with Balthazar?",
        *talk,
    )
    assert "Where did go with Balthazar?" in model.given
    assert hashed.given == ["Where did Caroline go with Balthazar?"]


def test_one_that_failed_is_left_alone_for_a_while_and_then_asked_again(tmp_path: Path) -> None:
    now = 0.0
    embedder = Recording("static", fails=True)
    asking._SCALES[embedder.name] = None
    vectors = QuestionVectors([embedder], seconds=5.0, monotonic=lambda: now)
    for _ in range(3):
        found, notes = ask(tmp_path, vectors, "where is the crane?")
        assert found == ()
        assert tuple(map(str, notes)) == ("searched without static vectors: it fell over",)
    assert len(embedder.given) == 1
    now = REST_SECONDS + 1.0
    embedder.fails = False
    found, notes = ask(tmp_path, vectors, "where is the crane?")
    assert len(found) == 1
    assert notes == ()


class Loading(Recording):
    """A model that takes time to load, and to embed."""

    ready = False

    def __init__(self, *, load_seconds: float, embed_seconds: float = 0.0) -> None:
        super().__init__("onnx")
        self.load_seconds = load_seconds
        self.embed_seconds = embed_seconds

    async def load(self) -> None:
        await asyncio.sleep(self.load_seconds)
        self.ready = True

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        await asyncio.sleep(self.embed_seconds)
        return await super().embed(texts)


def test_the_first_question_of_a_program_has_vectors_of_a_model_that_loads_quickly(
    tmp_path: Path,
) -> None:
    found, notes = ask(
        tmp_path, QuestionVectors([Loading(load_seconds=0.1)], seconds=0.4), "where is the crane?"
    )
    assert [vector.kind for vector in found] == ["onnx"]
    assert notes == ()


@pytest.mark.parametrize(
    ("load_seconds", "embed_seconds", "cause"),
    [(5.0, 0.0, Cause.VECTORS_LOADING), (0.0, 5.0, Cause.VECTORS_LEFT_OUT)],
)
def test_a_question_never_waits_longer_than_its_share_of_the_deadline(
    tmp_path: Path, load_seconds: float, embed_seconds: float, cause: Cause
) -> None:
    model = Loading(load_seconds=load_seconds, embed_seconds=embed_seconds)
    asking._SCALES[model.name] = None
    vectors = QuestionVectors([model], seconds=0.1)
    took: list[float] = []
    embedded = vectors.embedded

    async def timed(texts: object) -> object:
        begun = time.monotonic()
        answer = await embedded(texts)  # type: ignore[arg-type]
        took.append(time.monotonic() - begun)
        return answer

    vectors.embedded = timed  # type: ignore[method-assign,assignment]
    found, notes = ask(tmp_path, vectors, "where is the crane?")
    assert found == ()
    assert [note.cause for note in notes] == [cause], "the report says why"
    assert took[0] < 0.4, "a share of 0.125 s, on a busy machine"


def test_a_question_that_is_asked_again_is_not_embedded_again(tmp_path: Path) -> None:
    model = Recording("onnx")
    asking._SCALES[model.name] = None
    vectors = QuestionVectors([model], seconds=5.0)
    for _ in range(3):
        assert len(ask(tmp_path, vectors, "where is the crane?")[0]) == 1
    assert len(model.given) == 1
