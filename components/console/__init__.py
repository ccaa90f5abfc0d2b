"""How every command of the project speaks to its user: errors, progress, exit statuses."""

from components.console.command import SEED, run_step
from components.console.errors import UserError
from components.console.preset import PRESETS, preset_option
from components.console.progress import Progress, say

__all__ = ["PRESETS", "SEED", "Progress", "UserError", "preset_option", "run_step", "say"]
