"""The packages that Holdfast needs: a bill of materials (CycloneDX), and whether advisories are known about them.

``python docs/packages.py bill FILE`` writes the bill of what is installed for Holdfast with all extras.
``python docs/packages.py audit --seconds 15`` asks pip-audit; where no service answers in time, it says so and
passes, unless ``--required`` is given.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from holdfast.core.distribution import installed


def own_name() -> str:
    """Return the name of the distribution that Holdfast is installed from."""
    package = installed()
    return package.name if package else sys.exit("Holdfast is not installed here: run make setup")


def needed(extras: frozenset[str] = frozenset({"all"})) -> dict[str, tuple[Distribution, set[str]]]:
    """Return the installed packages that Holdfast needs, itself too, each with the names that it needs in turn."""
    packages: dict[str, tuple[Distribution, set[str]]] = {}
    waiting, seen = [(own_name(), extras)], set()
    while waiting:
        wanted = waiting.pop()
        if wanted in seen:
            continue
        seen.add(wanted)
        name, extras = wanted
        try:
            package = distribution(name)
        except PackageNotFoundError:  # an extra that is not installed
            continue
        _, own = packages.setdefault(_plain(name), (package, set()))
        for line in package.requires or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
                own.add(_plain(requirement.name))
                waiting.append((_plain(requirement.name), frozenset(requirement.extras)))
    return {name: (package, own & packages.keys() - {name}) for name, (package, own) in sorted(packages.items())}


def bill() -> dict[str, Any]:
    """Return the bill of materials in CycloneDX's JSON."""
    packages = needed()
    addresses = {name: f"pkg:pypi/{name}@{package.version}" for name, (package, _) in packages.items()}
    components = {name: _component(name, package, addresses[name]) for name, (package, _) in packages.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": components.pop(own_name()) | {"type": "application"}},
        "components": list(components.values()),
        "dependencies": [
            {"ref": addresses[name], "dependsOn": sorted(addresses[other] for other in own)}
            for name, (_, own) in packages.items()
        ],
    }


def _component(name: str, package: Distribution, address: str) -> dict[str, Any]:
    facts = package.metadata
    licence = facts.get("License-Expression") or ""
    named = facts.get("License") or ""
    stated = [{"expression": licence}] if licence else [{"license": {"name": named}}] if 0 < len(named) < 100 else []
    return {"type": "library", "bom-ref": address, "name": name, "version": package.version, "purl": address} | (
        {"licenses": stated} if stated else {}
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def audit(seconds: float, *, required: bool = False) -> int:
    """Print what advisories say about the installed packages; 1 if an update fixes something, else 0."""
    # ``required``: 1 also if no service could be asked.
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--format", "json", "--desc", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        packages = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        print(f"pip-audit skipped: no service for advisories answered within {seconds:.0f} s")
        return int(required)
    except (ValueError, KeyError):
        print(f"pip-audit skipped: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1][:200]}")
        return int(required)
    known = [package for package in packages if "vulns" in package]
    if len(known) < len(packages) / 2:
        print(f"pip-audit skipped: the service for advisories knows {len(known)} of {len(packages)} packages")
        return int(required)
    needs_update = False
    for package in known:
        for advisory in package["vulns"]:
            fixed = ", ".join(advisory["fix_versions"])
            needs_update |= bool(fixed)
            print(f"{package['name']} {package['version']}: {advisory['id']}, {fixed or 'not'} fixed")
    print(f"pip-audit: {len(known)} packages looked up")
    return int(needs_update)


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("bill").add_argument("file", type=Path)
    auditing = verbs.add_parser("audit")
    auditing.add_argument("--seconds", type=float, default=15.0)
    auditing.add_argument("--required", action="store_true", help="fail if no service for advisories answers")
    asked = parser.parse_args()
    if asked.verb == "audit":
        sys.exit(audit(asked.seconds, required=asked.required))
    asked.file.parent.mkdir(parents=True, exist_ok=True)
    asked.file.write_text(json.dumps(bill(), indent=1) + "\n")
    print(f"{len(bill()['components'])} packages; {asked.file}")


if __name__ == "__main__":
    main()
