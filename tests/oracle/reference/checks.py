"""Checks that print one line each: ok, FAILED or skipped."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Skipped(Exception):
    """Why a check does not run here."""


class Failed(Exception):
    """What is not as it should be."""


class Checks:
    """The checks of one script, counted."""

    def __init__(self, subject):
        self.subject = subject
        self.failed = 0

    def run(self, name, check, *arguments):
        """Calls a check, which returns what to say of its success and raises otherwise."""
        try:
            state, detail = "ok", check(*arguments)
        except Skipped as reason:
            state, detail = "skipped", f"because {reason}"
        except (Failed, SystemExit) as reason:
            state, detail = "FAILED", str(reason)
        except Exception as error:  # a library's own
            place = traceback.extract_tb(error.__traceback__)[-1]
            state = "FAILED"
            detail = f"{type(error).__name__} at {place.filename}:{place.lineno}: {error}"
        self.failed += state == "FAILED"
        print(f"{state:8}{self.subject}: {name}{': ' if detail else ''}{detail or ''}", flush=True)

    def require(self, package):
        """Skips the whole script where a Python module cannot be found."""
        try:
            needs(package)
        except Skipped as reason:
            print(f"skipped {self.subject}: because {reason}")
            sys.exit(0)

    def finish(self):
        """Ends the program, with 1 when a check failed."""
        sys.exit(1 if self.failed else 0)


def expect(holds, complaint):
    """Fails the check with a complaint when something does not hold."""
    if not holds:
        raise Failed(complaint)


def needs(package):
    """Skips the check where a Python module cannot be found."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # of a parent
        found = None
    if found is None:
        raise Skipped(f"the environment has no Python module {package}")


def run(*command, **options):
    """Standard output, as bytes, of a program that must succeed."""
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True,
                          check=False, **options)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(map(str, command))}` exited with {done.returncode}: "
                     f"{(done.stderr or done.stdout).decode(errors='replace').strip()}")
    return done.stdout


def arguments(name):
    """The program and an empty directory of this name, of `SCRIPT PROGRAM WORK_DIRECTORY`."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM WORK_DIRECTORY; `./dev test oracle` runs all")
    work = pathlib.Path(sys.argv[2]).resolve() / name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return pathlib.Path(sys.argv[1]).resolve(), work
