"""Progress, messages and option types that all commands share."""

from components.platform.console.preset import PRESETS, preset_option
from components.platform.console.progress import Progress, say, say_error, say_if_slow

__all__ = ["PRESETS", "Progress", "preset_option", "say", "say_error", "say_if_slow"]
