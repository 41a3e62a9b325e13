"""Recollect: what an LLM agent knows after its context window has overflowed.

    import recollect

    memory = recollect.open_memory()
    context = await memory.prepare("my-session", request)
    reply = await client.messages.create(**context.request)
    await memory.observe("my-session", reply)

Names are imported when they are first used, so `import recollect` costs next to nothing.
"""

from __future__ import annotations

__version__ = "0.1.0.dev0"

TYPE_CHECKING = False
"""As in `typing`, which is not imported: agents wait for their hooks, and those begin here."""

if TYPE_CHECKING:
    from recollect.blocking import BlockingEngine as BlockingEngine
    from recollect.config import Settings as Settings
    from recollect.config import load_settings as load_settings
    from recollect.engine import Context as Context
    from recollect.engine import Engine as Engine
    from recollect.engine import Observation as Observation
    from recollect.engine import Session as Session
    from recollect.errors import RecollectError as RecollectError
    from recollect.facts.results import FactFilter as FactFilter
    from recollect.formats.stored_records import read_state as read_state
    from recollect.formats.stored_records import write_state as write_state
    from recollect.ports import Model as Model
    from recollect.values.compaction import CompactionResult as CompactionResult
    from recollect.values.fact import Fact as Fact
    from recollect.values.history import SessionState as SessionState
    from recollect.values.model import Answer as Answer
    from recollect.values.model import Prompt as Prompt
    from recollect.values.report import Report as Report
    from recollect.values.segment import StoredMessage as StoredMessage
    from recollect.values.upkeep import Certificate as Certificate
    from recollect.values.upkeep import SessionSummary as SessionSummary
    from recollect.values.upkeep import Stats as Stats
    from recollect.wiring import open_blocking_memory as open_blocking_memory
    from recollect.wiring import open_memory as open_memory

_EXPORTS = {
    "Answer": "recollect.values.model",
    "Certificate": "recollect.values.upkeep",
    "CompactionResult": "recollect.values.compaction",
    "Model": "recollect.ports",
    "Prompt": "recollect.values.model",
    "BlockingEngine": "recollect.blocking",
    "Context": "recollect.engine",
    "Engine": "recollect.engine",
    "Fact": "recollect.values.fact",
    "FactFilter": "recollect.facts.results",
    "Observation": "recollect.engine",
    "RecollectError": "recollect.errors",
    "Report": "recollect.values.report",
    "Session": "recollect.engine",
    "SessionState": "recollect.values.history",
    "SessionSummary": "recollect.values.upkeep",
    "Stats": "recollect.values.upkeep",
    "StoredMessage": "recollect.values.segment",
    "Settings": "recollect.config",
    "load_settings": "recollect.config",
    "read_state": "recollect.formats.stored_records",
    "write_state": "recollect.formats.stored_records",
    "open_blocking_memory": "recollect.wiring",
    "open_memory": "recollect.wiring",
}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
