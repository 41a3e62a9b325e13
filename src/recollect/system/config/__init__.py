"""The settings: each is declared once, read from several sources with strict checks, and immutable.

`just docs` generates docs/reference/settings.md from this package."""

from recollect.system.config.keys import Key as Key
from recollect.system.config.keys import Notice as Notice
from recollect.system.config.keys import Source as Source
from recollect.system.config.keys import build as build
from recollect.system.config.keys import setting_keys as setting_keys
from recollect.system.config.keys import value_of as value_of
from recollect.system.config.load import PRESETS as PRESETS
from recollect.system.config.load import LoadedSettings as LoadedSettings
from recollect.system.config.load import load_settings as load_settings
from recollect.system.config.settings import FALLBACK_WINDOW_TOKENS as FALLBACK_WINDOW_TOKENS
from recollect.system.config.settings import Settings as Settings
