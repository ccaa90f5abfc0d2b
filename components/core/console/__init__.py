"""Errors, progress, option types and exit statuses that all commands share."""

from components.core.console.command import run_step
from components.core.console.errors import UserError
from components.core.console.preset import PRESETS, preset_option
from components.core.console.progress import Progress, say, say_error, say_if_slow

__all__ = ["PRESETS", "Progress", "UserError", "preset_option", "run_step", "say", "say_error", "say_if_slow"]
