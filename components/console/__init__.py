"""How every command of the project speaks to its user: errors, progress, exit statuses."""

from components.console.command import run_step
from components.console.errors import UserError
from components.console.preset import PRESETS, preset_option
from components.console.progress import Progress, say, say_if_slow

__all__ = ["PRESETS", "Progress", "UserError", "preset_option", "run_step", "say", "say_if_slow"]
