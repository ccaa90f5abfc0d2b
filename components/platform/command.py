"""Runs a step's click command with uniform exit statuses and error messages.

Exit statuses: 0 success, 1 an error that the user can fix (one message on stderr), 2 wrong usage (click's status), 130
interrupted by Ctrl-C, 143 terminated by SIGTERM, 129 by SIGHUP (128 plus the signal's number, as in shells). Any other
exception is a bug in this project and keeps its traceback (Python's status 1).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from components.platform.console.escape import escape_lines
from components.platform.console.interrupts import continues, exit_on_signals, interrupted_status, raise_on_signals
from components.platform.console.process_environment import prepare_process
from components.platform.console.progress import say_error
from components.platform.errors import UserError
from components.platform.storage.cache import unusable_cache
from components.platform.storage.uri import name_mirrors_by_uri

EXIT_USER_ERROR = 1
DISTRIBUTION = "mlgo-pipeline"
"""Name of the installed package, whose metadata have pyproject.toml's version."""
INTERRUPTED = "interrupted; no partial output is left\n  remedy: run the same command again"

_CLICK_SETTINGS: dict[str, Any] = {
    "standalone_mode": False,  # click would turn KeyboardInterrupt into "Aborted!" with status 1
    "help_option_names": ["-h", "--help"],  # subcommands inherit them
}


_SETUP_PARTS = {"kfp": "pipelines", "ray": "ray"}
"""Python package -> the part of `mlgo setup` that installs it; all others are in "training"."""


def run_step(command: Callable[..., Any], about: str = "") -> NoReturn:
    """Call `command` (a click command, or a function without arguments) and exit with a status as described above.

    SIGTERM and SIGHUP are handled like Ctrl-C, so that `finally` blocks run: partial artifacts are removed and children
    are killed, regardless of whether a user, a job runner, a container engine or a lost connection stops the step.
    Every click command has the option --version.

    Args:
        about: what --version prints after the version.
    """
    if problem := prepare_process():
        sys.exit(_fail(problem))
    raise_on_signals()
    if isinstance(command, click.Command):
        click.version_option(package_name=DISTRIBUTION, message=f"{DISTRIBUTION} %(version)s{about}")(command)
    status = _status_of(command)
    with contextlib.suppress(OSError, ValueError):  # Python's shutdown reports it
        sys.stdout.flush()
    exit_on_signals(status)
    sys.exit(status)


def _program_name() -> str | None:
    """Return how users call the running step, "mlgo corpus"; None for other programs."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    package = (spec.name if spec else "").removesuffix(".__main__")
    step = package.rpartition(".")[2]
    return f"mlgo {step}" if package.startswith("components.") and step != "launcher" else None


def _status_of(command: Callable[..., Any]) -> int:
    try:
        named = {"prog_name": _program_name(), **_CLICK_SETTINGS}
        result = command.main(**named) if isinstance(command, click.Command) else command()
        return result if isinstance(result, int) else 0
    except UserError as error:
        # Another path or program does not help. EAGAIN is no such error here: a lock is taken.
        if getattr(error.__context__, "errno", None) in _LIMITS and (
            exhausted := _explain_exhaustion(error.__context__)
        ):
            error = UserError(error.problem, exhausted.remedy)
        return _fail(f"error: {name_mirrors_by_uri(str(error))}")
    except click.ClickException as error:
        vars(error)["message"] = escape_lines(error.message)  # it contains what the user wrote
        error.show()
        return error.exit_code
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except click.Abort as error:  # click's replacement of KeyboardInterrupt
        return _interrupted(error.__cause__ or error)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "components", "pipelines"):
            raise
        # `make clang` and pip install what links a clang, and no more.
        remedy = f"mlgo setup {_SETUP_PARTS.get(package, 'training')}"
        missing = UserError(f"this command needs the Python package {package}, which is missing", remedy)
        return _fail(f"error: {missing}")
    except BrokenPipeError:
        # The reader of our output has exited (`... | head`), so there is nobody to print a message to.
        sys.stdout = None  # type: ignore[assignment]
        return EXIT_USER_ERROR
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        if exhausted := _explain_exhaustion(error):
            return _fail(f"error: {exhausted}")
        message = (_cache_message(error) or _disk_message(error)) if isinstance(error, OSError) else None
        if message is None:
            raise
        return _fail(message)


def _interrupted(error: BaseException) -> int:
    return _fail(f"{INTERRUPTED} to continue" if continues(error) else INTERRUPTED, interrupted_status(error))


def _explain_exhaustion(error: BaseException | None) -> UserError | None:
    """Return what to say of an error that says that memory, threads or file descriptors are used up, or None."""
    if not isinstance(error, OSError | MemoryError | RuntimeError | ImportError):
        return None
    number, text = getattr(error, "errno", None), str(error)
    if isinstance(error, MemoryError) or number == errno.ENOMEM or any(sign in text for sign in _OUT_OF_MEMORY):
        return UserError("out of memory", "free memory, raise the limit (ulimit -v), or use fewer jobs")
    if number in (errno.EMFILE, errno.ENFILE):
        return UserError("too many open files", "raise the limit (ulimit -n), or use fewer jobs")
    if (number == errno.EAGAIN and not getattr(error, "filename", None)) or "can't start new thread" in text:
        remedy = "raise the limit (ulimit -u, or ulimit -v for the memory of threads), or use fewer jobs"
        return UserError("no more threads or processes can be started", remedy)
    return None


_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_OUT_OF_MEMORY = ("cannot allocate memory", "Cannot allocate memory", "failed to map segment from shared object")
"""Messages of failed allocations in dlopen and Arrow."""


def _cache_message(error: OSError) -> str | None:
    """Return the message for a file or directory of the cache that cannot be made, None for any other error."""
    denied = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
    if error.errno not in (*denied, errno.ENOENT, errno.EEXIST) or not isinstance(error.filename, str):
        return None
    # Python's mkdir says of a file in the way that it exists.
    reason = os.strerror(errno.ENOTDIR if error.errno == errno.EEXIST else error.errno)
    problem = unusable_cache(error.filename, reason, exists=error.errno in denied)
    return f"error: {problem}" if problem else None


def _disk_message(error: OSError) -> str | None:
    """Return the message for a common file system error, None for any other error."""
    path = error.filename or "the output or the temporary directory"
    match error.errno:
        case errno.ENOENT | errno.ESTALE if error.filename:
            return f"error: {path}: {error.strerror}\n  remedy: check the path; was it removed while this command ran?"
        case errno.EIO:
            where = error.filename or "a file"
            return f"error: {where} cannot be read or written: {error.strerror}\n  remedy: check the disk (dmesg)"
        case errno.EFBIG:
            return f"error: {path}: {error.strerror}\n  remedy: raise the limit of file sizes (ulimit -f)"
        case errno.ENOSPC | errno.EDQUOT:
            return f"error: no space left on the device that holds {path}\n  remedy: free some space and try again"
        case errno.EACCES | errno.EPERM | errno.EROFS if error.filename:
            return f"error: {path}: {error.strerror}\n  remedy: choose a directory that you can write to"
        case errno.ELOOP | errno.EISDIR | errno.ENOTDIR if error.filename:
            return f"error: {path}: {error.strerror}\n  remedy: check the path"
        case errno.ENAMETOOLONG:
            return f"error: {path}: {error.strerror}\n  remedy: choose a shorter name"
        case _:
            return None


def _fail(message: str, status: int = EXIT_USER_ERROR) -> int:
    say_error(message)
    return status
