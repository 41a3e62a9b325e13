"""Every error Recollect raises.

    RecollectError
    ├── SettingsError         a setting is unknown, of the wrong type or out of range
    ├── FormatError           a request or a transcript cannot be read
    │   └── UnknownFormat     its format cannot be detected
    ├── MissingExtra          an optional dependency is not installed; names the extra
    ├── StaleSession          another turn of the session was stored first
    ├── EmbedderError         an embedder could not be loaded, or failed
    ├── ModelError            a model could not be asked, or gave an invalid answer
    │   ├── ModelUnavailable  down, overloaded or too slow; the same call may succeed later
    │   ├── ModelRefused      bad request, key or model; a retry does not help
    │   └── ModelOverflow     the request does not fit the model's window
    ├── UpstreamUnreachable   the gateway's provider does not answer, or stopped
    ├── ServiceError          a service refused a request, or cannot be reached
    ├── TranscriptError       a transcript on disk cannot be opened or written
    │   └── TranscriptLocked  another process is writing it
    └── StoreError            a store operation failed
        ├── SchemaMismatch    the database has another version: migrate it, or upgrade
        ├── StoreUnavailable  the store is unreachable or too busy: try again later
        │   └── StoreReplaced its file was removed or replaced: open it again
        ├── BatchRefused      the store will never accept this batch
        ├── StaleFacts        other facts were written at the same time
        ├── WrongKey          the store is encrypted with another key, or not at all
        ├── WrongSecret       the ids in the store were made with another RECOLLECT_SECRET
        └── StoreCorrupt      the store's files are damaged, or of a newer version

Each message says what to do next. A turn never raises because memory failed: the engine adds a line
to the report instead."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias

# The program decides whether logs are shown.
logging.getLogger("recollect").addHandler(logging.NullHandler())


SchemaState: TypeAlias = Literal["missing", "old", "new"]


class RecollectError(Exception):
    """The base class of all errors that Recollect raises."""


class SettingsError(RecollectError):
    """A setting is unknown, of the wrong type or out of range. The message names the key."""


class FormatError(RecollectError):
    """A request or a transcript cannot be read. `prepare` reports this instead of raising."""


class UnknownFormat(FormatError):  # noqa: N818 - reads as what it says; its root ends in Error
    """The format of a transcript cannot be detected. Pass one of the formats that the message
    lists."""


class MissingExtra(RecollectError):  # noqa: N818
    """An optional dependency is not installed. Install the extra that the message names."""

    def __init__(self, *, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs an optional dependency: pip install 'recollect[{extra}]'"
        )
        self.extra = extra


class StaleSession(RecollectError):  # noqa: N818
    """A session's state changed while its request was prepared: prepare that request again. Calls
    of one session wait for each other, so only code that sets `session.state` can cause this."""


class EmbedderError(RecollectError):
    """An embedder could not be loaded, or failed. In a turn, recall uses words only."""


class ModelError(RecollectError):
    """A model could not be asked, or gave an invalid answer. Never quotes message content."""


class ModelUnavailable(ModelError):  # noqa: N818
    """The model is down, overloaded or too slow, after retries. Try again later. `prompt_read` is
    True if the model may have read the prompt, so that its tokens count as used."""

    def __init__(self, message: str, *, prompt_read: bool = False) -> None:
        super().__init__(message)
        self.prompt_read = prompt_read


class ModelRefused(ModelError):  # noqa: N818
    """The provider rejects the request, key or model. A retry without a change does not help."""


class ModelOverflow(ModelError):  # noqa: N818
    """The request does not fit the model's window. `overflow` has the provider's numbers."""

    def __init__(self, message: str, overflow: object = None) -> None:
        super().__init__(message)
        self.overflow = overflow


class ServiceError(RecollectError):
    """`recollect serve` refused a request, or is unreachable, also after retries."""

    def __init__(
        self,
        text: str,
        *,
        status: int = 0,
        problem: str = "",
        retry_after: float | None = None,
        budget: str | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        """The HTTP status; 0 if no answer came."""
        self.problem = problem
        """The name of the problem, such as "budget-spent"; empty if no answer came."""
        self.retry_after = retry_after
        """Seconds until the same request may succeed; None if the service does not say."""
        self.budget = budget
        """The spent budget: "requests per minute" or "tokens per day"; else None."""


class UpstreamUnreachable(RecollectError):  # noqa: N818
    """The provider behind the gateway does not answer, or its reply ended early."""


class TranscriptError(RecollectError):
    """A transcript on disk cannot be opened or written. The message says what to do."""


class TranscriptLocked(TranscriptError):  # noqa: N818
    """Another process writes this transcript. End that process, or open another session."""


class StoreError(RecollectError):
    """A store operation failed. The message says what to do; in a turn the report shows it."""


class StoreUnavailable(StoreError):  # noqa: N818
    """The store is unreachable or too busy. In a turn, messages go to the spool instead."""


class SchemaMismatch(StoreError):  # noqa: N818
    """The database schema is missing, old or new (`state`). Migrate the database or upgrade."""

    def __init__(self, text: str, *, state: SchemaState) -> None:
        super().__init__(text)
        self.state: SchemaState = state


class StoreReplaced(StoreUnavailable):
    """The store's file was removed, replaced or emptied while open. Recollect reopens the store."""


class BatchRefused(StoreError):  # noqa: N818
    """The store can never store this batch. Run `recollect memory check`, and report a defect."""


class StaleFacts(StoreError):  # noqa: N818
    """Other facts were written at the same time. Recollect retries five times; then try again."""


class WrongKey(StoreError):  # noqa: N818
    """The store is encrypted with another key, or not at all. Pass the key of the store."""


class WrongSecret(StoreError):  # noqa: N818
    """Ids in the store were made with another RECOLLECT_SECRET. Set it to the store's own."""


class StoreCorrupt(StoreError):  # noqa: N818
    """The store's files are damaged, or of a newer version. Run `recollect memory check`."""
