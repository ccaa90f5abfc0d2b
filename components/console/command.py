"""Runs a step's click command, so that every step ends the same way.

Exit statuses: 0 done, 1 an error the user can mend (one message on stderr), 2 wrong usage (click's own),
130 interrupted by Ctrl-C, 143 by SIGTERM (128 and the signal's number, as shells count). Anything else is a defect of
ours and keeps its traceback (Python's status 1).
"""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import click

from components.console.errors import UserError

EXIT_USER_ERROR = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
INTERRUPTED = "interrupted; nothing half-done is left\n  remedy: run the same command again to go on"

_SETTINGS: dict[str, Any] = {
    "standalone_mode": False,  # click would turn KeyboardInterrupt into "Aborted!" with status 1
    "help_option_names": ["-h", "--help"],  # subcommands inherit them
}


def run_step(command: Callable[..., Any]) -> NoReturn:
    """Calls `command` (a click command, or a function without arguments) and exits with the status told above.

    SIGTERM is handled as Ctrl-C is, so that `finally` blocks run: partial artifacts are removed and children killed
    whoever stops the step, a user, a job runner or a container engine.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(_status_of(command))


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def interrupted_status(error: BaseException) -> int:
    """The exit status that says what interrupted a command."""
    return EXIT_TERMINATED if isinstance(error, Terminated) else EXIT_INTERRUPTED


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # A second signal must not break the clean-up that the first one started.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def _status_of(command: Callable[..., Any]) -> int:
    try:
        result = command.main(**_SETTINGS) if isinstance(command, click.Command) else command()
        return result if isinstance(result, int) else 0
    except UserError as error:
        from components.storage.uri import name_mirrors_by_uri  # which imports this package

        return _fail(f"error: {name_mirrors_by_uri(str(error))}")
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KeyboardInterrupt as error:
        return _fail(INTERRUPTED, interrupted_status(error))
    except click.Abort as error:  # what click makes of it
        return _fail(INTERRUPTED, interrupted_status(error.__cause__ or error))
    except BrokenPipeError:
        # The reader of our output went away (`... | head`): nothing to tell, and nobody to tell it to.
        sys.stdout = None  # type: ignore[assignment]
        return EXIT_USER_ERROR
    except OSError as error:
        message = _disk_message(error)
        if message is None:
            raise
        return _fail(message)


def _disk_message(error: OSError) -> str | None:
    """A message for errors of the machine's file systems that users meet; None for any other error."""
    place = error.filename or "the output or the temporary directory"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"error: no space left on the device that holds {place}\n  remedy: free space, then run it again"
        case errno.EACCES | errno.EPERM | errno.EROFS if error.filename:
            return f"error: {place}: {error.strerror}\n  remedy: choose a directory that you may write to"
        case errno.ELOOP | errno.EISDIR | errno.ENOTDIR if error.filename:
            return f"error: {place}: {error.strerror}\n  remedy: check the path"
        case errno.ENAMETOOLONG:
            return f"error: {place}: {error.strerror}\n  remedy: choose a shorter one"
        case _:
            return None


def _fail(message: str, status: int = EXIT_USER_ERROR) -> int:
    print(message, file=sys.stderr, flush=True)
    return status
