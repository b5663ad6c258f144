"""The `doctor` command: versions, extras, devices, caches, configuration, and what is wrong."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Annotated, Final

from cfgraph.cli.command_files import COMMANDS, CommandFiles
from cfgraph.cli.configuration import nearest_configuration
from cfgraph.cli.environment import environment_errors, unknown_variables
from cfgraph.cli.json_output import print_document
from cfgraph.cli.options import Color
from cfgraph.cli.output import Page, page, report_table
from cfgraph.console.installation.devices import (
    MachineDevice,
    devices_table,
    installed_version,
    machine_devices,
)
from cfgraph.errors import (
    DISTRIBUTION,
    CfgraphError,
    FindingReport,
    Location,
    install_hint,
)
from cfgraph.ir.units import format_byte_size
from cfgraph.reports import Column, Count, DocumentResult, Inline, Maybe, Record
from cfgraph.runtime.code_cache import CacheStatus, cache_status
from cfgraph.version import __version__

# a requirement: its distribution, and the extra that needs it
_REQUIREMENT: Final = re.compile(r"([\w.-]+).*?(?:extra == ['\"]([\w-]+)['\"])?$")
_NOT_FOR_USERS: Final = ("test", "notebook", "docs", "release")
_SHOWN_VARIABLES: Final = (
    "CUDA_VISIBLE_DEVICES",
    "MKL_NUM_THREADS",
    "NO_COLOR",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A distribution that cfgraph needs, for an extra unless that is empty; None if missing."""

    package: str
    version: str | None
    extra: str = ""  #: Empty for a dependency.

    @property
    def shown(self) -> Annotated[str, Column(title="version")]:
        """The version, also of a missing package."""
        return self.version or "not installed"

    @property
    def install(self) -> str:
        """The command that installs a missing package."""
        return "" if self.version else install_hint(self.extra)


@dataclass(frozen=True, slots=True)
class InstallationFault:
    """Something that is wrong with an installation."""

    level: str
    message: str
    hint: str | None = None

    def to_json(self) -> FindingReport:
        """Return the finding for the document."""
        return FindingReport(None, self.level, self.message, self.hint, Location())


@dataclass(frozen=True, slots=True)
class Installation:
    """Versions, devices, cache, and configuration of an installation, with its faults."""

    packages: tuple[InstalledPackage, ...]
    devices: tuple[MachineDevice, ...]
    cache: CacheStatus
    configuration: str | None
    variables: dict[str, str]
    faults: tuple[InstallationFault, ...] = field(default=())

    @property
    def is_broken(self) -> bool:
        """True if a fault is an error."""
        return any(fault.level == "error" for fault in self.faults)

    def result(self, bundle: BundleReport | None = None) -> DoctorResult:
        """Return the result of the document."""
        return DoctorResult.from_attributes(
            self, versions=versions(), environment=self.variables, bundle=bundle
        )


class VersionResult(
    DocumentResult,
    command="version",
    title="What `cfgraph --version --json` answers with",
):
    """The versions of cfgraph, Python, and the platform; the commit is None if unknown."""

    cfgraph: str
    commit: str | None
    python: str
    implementation: str
    platform: str


def versions() -> VersionResult:
    """Return the versions of cfgraph, Python, and the platform."""
    return VersionResult(
        __version__,
        _commit(),
        platform.python_version(),
        platform.python_implementation(),
        platform.platform(),
    )


class DoctorSummary(Record):
    """The numbers of faults, and of files or the installed extras."""

    faults: Count
    extras: Maybe[Sequence[str]] = None  #: Extras of which a package is installed.
    files: Maybe[Count] = None  #: In the bundle.


class CommandOutcome(Record):
    """The end of a command that ran again; without one, only the name of the program."""

    command: str  #: The command that ran again.
    exit_code: int | None
    stdout_bytes: Maybe[Count] = None


class BundleReport(Record):
    """The contents of a bundle, and the end of its command."""

    bundle: Sequence[str]  #: Files of the bundle.
    outcome: Inline[CommandOutcome]


class DoctorResult(DocumentResult, command="doctor", summary=DoctorSummary):
    """The installation, and a bundle."""

    versions: VersionResult
    packages: Sequence[InstalledPackage]
    devices: Sequence[MachineDevice]
    cache: CacheStatus
    configuration: str | None  #: The nearest configuration file.
    environment: Mapping[str, str]
    bundle: Inline[BundleReport | None]


def _commit() -> str | None:
    """The commit of the checkout that runs, or of the one that pip has installed from."""
    root = Path(__file__).resolve().parents[3]
    if (root / ".git").exists() and (git := shutil.which("git")):
        command = [git, "-C", str(root), "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() or None
    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    commit = origin.get("vcs_info", {}).get("commit_id")
    return commit if isinstance(commit, str) else None


def installed_packages() -> Iterator[InstalledPackage]:
    """Yield the dependencies, and those of extras for users."""
    try:
        texts = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return
    for text in texts:
        match = _REQUIREMENT.match(text)
        if match is not None and match[2] not in _NOT_FOR_USERS:
            yield InstalledPackage(match[1], installed_version(match[1]), match[2] or "")


def inspect_installation() -> Installation:
    """Collect versions, devices, caches, and faults."""
    packages = tuple(installed_packages())
    path, faults = _configuration()
    faults += _environment_faults()
    cache = cache_status()
    faults += [
        InstallationFault("error", f"the dependency {item.package} is not installed", hint=_INSTALL)
        for item in packages
        if item.version is None and not item.extra
    ]
    if not packages:
        message = f"the distribution {DISTRIBUTION} is not installed; its dependencies are unknown"
        faults.append(InstallationFault("warning", message, hint=_INSTALL))
    if cache.exists and not cache.usable:
        message = f"the cache {cache.folder} is not used: others own it or may write to it"
        hint = "remove it, or set $CFGRAPH_CACHE to a folder of your own"
        faults.append(InstallationFault("warning", message, hint=hint))
    names = sorted(name for name in os.environ if name.startswith("CFGRAPH_"))
    names += [name for name in _SHOWN_VARIABLES if name in os.environ]
    variables = {name: os.environ[name] for name in names}
    return Installation(packages, tuple(machine_devices()), cache, path, variables, tuple(faults))


_INSTALL: Final = f"pip install {DISTRIBUTION}"


def _configuration() -> tuple[str | None, list[InstallationFault]]:
    """Return the path of the configuration, and a fault per command that it is invalid for."""
    try:
        found = nearest_configuration()
    except CfgraphError as error:
        return error.path, [InstallationFault("error", error.message, hint=error.hint)]
    if found is None:
        return None, []
    files = CommandFiles(COMMANDS)
    faults: dict[str, InstallationFault] = {}
    for name in files:
        try:
            found.defaults(files[name], name, files)
        except CfgraphError as error:
            text = f"{error.message}, {error.path}"
            faults[text] = InstallationFault("error", text, hint=error.hint)
    return str(found.path), list(faults.values())


def _environment_faults() -> Iterator[InstallationFault]:
    """Yield variables that have an invalid value, and those that nothing reads."""
    commands = CommandFiles(COMMANDS)
    for error in environment_errors(commands):
        yield InstallationFault("error", error.message, hint=error.hint)
    for name, hint in unknown_variables(commands).items():
        message = f"unknown variable ${name}"
        yield InstallationFault("warning", message, hint=hint or "docs/configuration.md lists all")


def run_doctor(*, json: bool, color: Color) -> int:
    """Print the state of the installation; returns the exit code, 1 if something is broken."""
    installation = inspect_installation()
    code = int(installation.is_broken)
    if json:
        extras = {item.extra for item in installation.packages if item.extra and item.version}
        print_document(
            installation.result(),
            summary=DoctorSummary(len(installation.faults), sorted(extras)),
            findings=installation.faults,
            exit_code=code,
        )
    else:
        _print_installation(page(color), installation)
    return code


def _print_installation(out: Page, installation: Installation) -> None:
    known = versions()
    out.heading(f"cfgraph {known.cfgraph}", f"{known.implementation} {known.python}")
    out.line(f"  {known.platform}; {Path(sys.executable)}")
    out.line()
    out.heading("packages")
    required = [item for item in installation.packages if not item.extra]
    out.items([f"{item.package} {item.version or 'missing'}" for item in required])
    out.line()
    out.heading("extras")
    extras = [item for item in installation.packages if item.extra]
    out.table(report_table(InstalledPackage, extras, "extra", "package", "shown", "install"))
    out.line()
    out.heading("devices")
    out.table(devices_table(list(installation.devices)))
    out.line()
    cache = installation.cache
    noun = "entry" if cache.entries == 1 else "entries"
    size = f"{cache.entries} {noun}, {format_byte_size(cache.bytes)}"
    out.heading("cache", f"{cache.folder}: {size if cache.exists else 'empty'}")
    out.heading("configuration", installation.configuration or "none")
    variables = [f"{name}={value}" for name, value in installation.variables.items()]
    out.heading("environment", ", ".join(variables) or "nothing set")
    for fault in installation.faults:
        out.line(f"{fault.level}: {fault.message}", "red" if fault.level == "error" else "yellow")
        if fault.hint:
            out.line(f"  hint: {fault.hint}")
