"""Write the software bill of materials of the wheels in a folder: `python tools/sbom.py dist` writes dist/ppca-VERSION.cdx.json.

CycloneDX 1.6. Components are PPCA and everything that pip installs for its base installation now, with versions and digests.
The same wheels and versions give the same bytes: the time is SOURCE_DATE_EPOCH, the serial number follows from the content.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import uuid
import zipfile
from datetime import UTC, datetime
from email.parser import Parser
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        sys.exit(f"there is no wheel in {folder}. Run `make release`.")
    about = _metadata(wheels[0])
    root = _component(about["Name"], about["Version"], about["License"] or "Apache-2.0")
    root["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()} for wheel in wheels]
    installed = _resolved(wheels)
    parts = [
        _component(
            item["metadata"]["name"], item["metadata"]["version"], _license(item["metadata"]), item["download_info"]
        )
        for item in installed
    ]
    parts.sort(key=lambda part: str(part["purl"]))
    bill: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": _time(), "component": root},
        "components": parts,
        "dependencies": _dependencies(root, parts, about, installed),
    }
    digest = hashlib.sha256(json.dumps(bill, sort_keys=True).encode()).hexdigest()
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"
    path = folder / f"{root['name']}-{root['version']}.cdx.json"
    path.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    print(f"{path}: {len(parts)} components")


def _resolved(wheels: list[Path]) -> list[dict[str, Any]]:
    """What pip would install for the wheel of this interpreter, without PPCA itself."""
    tag = f"-cp{sys.version_info.major}{sys.version_info.minor}-"
    wheel = next((each for each in wheels if tag in each.name), None)
    if wheel is None:
        sys.exit(f"no wheel is for the Python that runs this, {tag.strip('-')}. Add it to PYTHONS.")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True, check=True)  # noqa: S603
    return [item for item in json.loads(done.stdout)["install"] if item["metadata"]["name"] != "ppca"]


def _component(name: str, version: str, license: str, download: dict[str, Any] | None = None) -> dict[str, Any]:
    purl = f"pkg:pypi/{_normal(name)}@{version}"
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if license:
        found["licenses"] = [{"license": {"name": license}}]
    digest = (download or {}).get("archive_info", {}).get("hashes", {}).get("sha256")
    if digest:
        found["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return found


def _dependencies(
    root: dict[str, Any], parts: list[dict[str, Any]], about: Any, installed: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Which component needs which. Requirements of extras are left out."""
    refs = {_normal(part["name"]): part["bom-ref"] for part in parts}
    needs = {_normal(item["metadata"]["name"]): item["metadata"].get("requires_dist", []) for item in installed}
    lines = [(root["bom-ref"], about.get_all("Requires-Dist") or [])]
    lines += [(part["bom-ref"], needs[_normal(part["name"])]) for part in parts]
    return [
        {"ref": ref, "dependsOn": sorted({refs[name] for name in _base(texts) if name in refs})} for ref, texts in lines
    ]


def _base(requirements: list[str]) -> list[str]:
    """The names of requirements that belong to no extra."""
    return [_normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in requirements if "extra ==" not in text]


def _license(metadata: dict[str, Any]) -> str:
    """The expression or the short name of a licence; some packages put the whole text there."""
    text = str(metadata.get("license_expression") or metadata.get("license") or "")
    return text if "\n" not in text and len(text) < 100 else ""


def _metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _time() -> str:
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
