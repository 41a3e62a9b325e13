"""The settings: frozen values, read strictly from every source, each declared once.

Imports nothing of Recollect but its errors. `load_settings` is the way in; `Settings()` is the
defaults, `preset_settings` a preset's values. docs/settings.md is generated from here
(`python -m tests.meta.settings_page`).
"""

from recollect.system.config.fields import Effect as Effect
from recollect.system.config.keys import Key as Key
from recollect.system.config.keys import Notice as Notice
from recollect.system.config.keys import Source as Source
from recollect.system.config.keys import active_keys as active_keys
from recollect.system.config.keys import build as build
from recollect.system.config.keys import known_keys as known_keys
from recollect.system.config.keys import value_of as value_of
from recollect.system.config.load import PRESETS as PRESETS
from recollect.system.config.load import LoadedSettings as LoadedSettings
from recollect.system.config.load import load_settings as load_settings
from recollect.system.config.load import preset_settings as preset_settings
from recollect.system.config.settings import FALLBACK_WINDOW_TOKENS as FALLBACK_WINDOW_TOKENS
from recollect.system.config.settings import Compaction as Compaction
from recollect.system.config.settings import EmbeddingCache as EmbeddingCache
from recollect.system.config.settings import Facts as Facts
from recollect.system.config.settings import Flush as Flush
from recollect.system.config.settings import HardClear as HardClear
from recollect.system.config.settings import Hybrid as Hybrid
from recollect.system.config.settings import Index as Index
from recollect.system.config.settings import Ingest as Ingest
from recollect.system.config.settings import Jobs as Jobs
from recollect.system.config.settings import LedgerSettings as LedgerSettings
from recollect.system.config.settings import Models as Models
from recollect.system.config.settings import PrunedTools as PrunedTools
from recollect.system.config.settings import Pruning as Pruning
from recollect.system.config.settings import Recall as Recall
from recollect.system.config.settings import Redaction as Redaction
from recollect.system.config.settings import Remote as Remote
from recollect.system.config.settings import Reset as Reset
from recollect.system.config.settings import SessionSettings as SessionSettings
from recollect.system.config.settings import Settings as Settings
from recollect.system.config.settings import SoftTrim as SoftTrim
from recollect.system.config.settings import StoreSettings as StoreSettings
from recollect.system.config.settings import Tokens as Tokens
from recollect.system.config.settings import Trim as Trim
from recollect.system.config.settings import Turn as Turn
from recollect.system.config.settings import WorkspaceSettings as WorkspaceSettings
