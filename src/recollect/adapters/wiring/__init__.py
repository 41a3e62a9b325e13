"""Builds an engine from settings. This is the only package that knows every adapter.

Each adapter is imported when it is built, so that no unused driver is loaded."""

from recollect.adapters.wiring.memory import open_blocking_memory as open_blocking_memory
from recollect.adapters.wiring.memory import open_memory as open_memory
from recollect.adapters.wiring.secrets import deployment_secret as deployment_secret
from recollect.adapters.wiring.stores import POSTGRES_SCHEMES as POSTGRES_SCHEMES
from recollect.adapters.wiring.stores import data_secret as data_secret
from recollect.adapters.wiring.stores import is_server as is_server
from recollect.adapters.wiring.stores import list_spaces as list_spaces
from recollect.adapters.wiring.stores import open_fleet as open_fleet
from recollect.adapters.wiring.stores import open_spool as open_spool
from recollect.adapters.wiring.stores import open_store as open_store
from recollect.adapters.wiring.stores import scrub_store as scrub_store
from recollect.adapters.wiring.stores import spool_state as spool_state
from recollect.adapters.wiring.stores import sqlite_path as sqlite_path
from recollect.adapters.wiring.stores import store_spooled as store_spooled
