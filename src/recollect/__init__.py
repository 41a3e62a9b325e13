"""Recollect keeps LLM agents inside their context window, and remembers what no longer fits.

    import recollect

    memory = recollect.open_memory()
    context = await memory.prepare("my-session", request)
    reply = await client.messages.create(**context.request)
    await memory.observe("my-session", reply)

Each name is imported on first use, so `import recollect` itself takes almost no time."""

from __future__ import annotations

__version__ = "0.1.0.dev0"

TYPE_CHECKING = False
"""Replaces `typing.TYPE_CHECKING`: importing `typing` would slow down every hook process, and the
agent waits for those."""

if TYPE_CHECKING:
    from recollect.adapters.wiring import open_blocking_memory as open_blocking_memory
    from recollect.adapters.wiring import open_memory as open_memory
    from recollect.core.blocking import BlockingEngine as BlockingEngine
    from recollect.core.engine import Context as Context
    from recollect.core.engine import Engine as Engine
    from recollect.core.engine import Observation as Observation
    from recollect.core.engine import Session as Session
    from recollect.core.facts.history import FactFilter as FactFilter
    from recollect.core.formats.stored_records import read_state as read_state
    from recollect.core.formats.stored_records import write_state as write_state
    from recollect.core.ports import Model as Model
    from recollect.core.values.compaction import CompactionResult as CompactionResult
    from recollect.core.values.fact import Fact as Fact
    from recollect.core.values.history import SessionState as SessionState
    from recollect.core.values.model import Answer as Answer
    from recollect.core.values.model import Prompt as Prompt
    from recollect.core.values.report import Report as Report
    from recollect.core.values.segment import StoredMessage as StoredMessage
    from recollect.core.values.upkeep import Certificate as Certificate
    from recollect.core.values.upkeep import SessionSummary as SessionSummary
    from recollect.core.values.upkeep import Stats as Stats
    from recollect.errors import RecollectError as RecollectError
    from recollect.system.config import Settings as Settings
    from recollect.system.config import load_settings as load_settings

_MODULES = {
    "recollect.adapters.wiring": "open_blocking_memory open_memory",
    "recollect.core.blocking": "BlockingEngine",
    "recollect.core.engine": "Context Engine Observation Session",
    "recollect.core.facts.history": "FactFilter",
    "recollect.core.formats.stored_records": "read_state write_state",
    "recollect.core.ports": "Model",
    "recollect.core.values.compaction": "CompactionResult",
    "recollect.core.values.fact": "Fact",
    "recollect.core.values.history": "SessionState",
    "recollect.core.values.model": "Answer Prompt",
    "recollect.core.values.report": "Report",
    "recollect.core.values.segment": "StoredMessage",
    "recollect.core.values.upkeep": "Certificate SessionSummary Stats",
    "recollect.errors": "RecollectError",
    "recollect.system.config": "Settings load_settings",
}
_EXPORTS = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
