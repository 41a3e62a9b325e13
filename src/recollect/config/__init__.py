"""The settings: frozen values, read strictly from every source, each declared once.

Imports nothing of Recollect but its errors. `load_settings` is the way in; `Settings()` is the
defaults, `preset_settings` a preset's values. docs/settings.md is generated from here
(`python -m tests.meta.settings_page`).
"""

from recollect.config.fields import Effect as Effect
from recollect.config.keys import Key as Key
from recollect.config.keys import Notice as Notice
from recollect.config.keys import Source as Source
from recollect.config.keys import active_keys as active_keys
from recollect.config.keys import build as build
from recollect.config.keys import known_keys as known_keys
from recollect.config.keys import value_of as value_of
from recollect.config.load import PRESETS as PRESETS
from recollect.config.load import LoadedSettings as LoadedSettings
from recollect.config.load import load_settings as load_settings
from recollect.config.load import preset_settings as preset_settings
from recollect.config.settings import FALLBACK_WINDOW_TOKENS as FALLBACK_WINDOW_TOKENS
from recollect.config.settings import Compaction as Compaction
from recollect.config.settings import EmbeddingCache as EmbeddingCache
from recollect.config.settings import Facts as Facts
from recollect.config.settings import Flush as Flush
from recollect.config.settings import HardClear as HardClear
from recollect.config.settings import Hybrid as Hybrid
from recollect.config.settings import Index as Index
from recollect.config.settings import Ingest as Ingest
from recollect.config.settings import Jobs as Jobs
from recollect.config.settings import LedgerSettings as LedgerSettings
from recollect.config.settings import Models as Models
from recollect.config.settings import PrunedTools as PrunedTools
from recollect.config.settings import Pruning as Pruning
from recollect.config.settings import Recall as Recall
from recollect.config.settings import Redaction as Redaction
from recollect.config.settings import Remote as Remote
from recollect.config.settings import Reset as Reset
from recollect.config.settings import SessionSettings as SessionSettings
from recollect.config.settings import Settings as Settings
from recollect.config.settings import SoftTrim as SoftTrim
from recollect.config.settings import StoreSettings as StoreSettings
from recollect.config.settings import Tokens as Tokens
from recollect.config.settings import Trim as Trim
from recollect.config.settings import Turn as Turn
from recollect.config.settings import WorkspaceSettings as WorkspaceSettings
