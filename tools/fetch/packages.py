"""Reads single files out of published packages, through each registry's own client.

Nothing fetched here is part of this repository or of a release: it is test data
under licences of its own, kept below .build/ and checked against a sha256 that is
part of this repository.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD") or ROOT / ".build").resolve()


class Unavailable(Exception):
    """The package cannot be had here: no client, no network."""


class Mismatch(Exception):
    """The package was had, and is not what the list says."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run(*command: str, cwd: str) -> None:
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{command[0]} is not installed")
    p = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if p.returncode != 0:
        last = (p.stderr.strip() or p.stdout.strip() or "no message").splitlines()[-1]
        raise Unavailable(f"{' '.join(command)}: {last}")


def from_tar(archive: pathlib.Path, top: str, paths: set[str]) -> dict[str, bytes]:
    """Reads the members top/path, in one pass: seeking back in a compressed archive begins again."""
    with tarfile.open(archive) as t:
        return {m.name[len(top) + 1:]: t.extractfile(m).read() for m in t if m.name.removeprefix(f"{top}/") in paths}


def from_zip(archive: pathlib.Path, top: str, paths: set[str]) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as z:
        return {path: z.read(top + path) for path in paths if top + path in z.namelist()}


def read_npm(package: str, version: str, paths: set[str], folder: str) -> dict[str, bytes]:
    run("npm", "pack", "--silent", f"{package}@{version}", cwd=folder)
    return from_tar(next(pathlib.Path(folder).glob("*.tgz")), "package", paths)


def read_wheel(package: str, version: str, paths: set[str], folder: str) -> dict[str, bytes]:
    # Any wheel will do: only text is read from it, so this machine's Python need not match.
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
        "--ignore-requires-python", f"{package}=={version}", cwd=folder)
    return from_zip(next(pathlib.Path(folder).glob("*.whl")), "", paths)


def read_sdist(package: str, version: str, paths: set[str], folder: str) -> dict[str, bytes]:
    # pip also works out the sdist's metadata, which takes a minute or two of CPU.
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:",
        f"{package}=={version}", cwd=folder)
    return from_tar(next(pathlib.Path(folder).glob("*.tar.gz")), f"{package}-{version}", paths)


def read_go(package: str, version: str, paths: set[str], folder: str) -> dict[str, bytes]:
    if shutil.which("go") is None:
        raise Unavailable("go is not installed")
    # A module that asks for a newer Go is an error, though its archive has arrived.
    p = subprocess.run(("go", "mod", "download", "-json", f"{package}@{version}"), cwd=folder, capture_output=True, text=True)
    answer = json.loads(p.stdout or "{}")
    if "Zip" not in answer:
        raise Unavailable(answer.get("Error") or p.stderr.strip() or "go mod download: no answer")
    return from_zip(pathlib.Path(answer["Zip"]), f"{package}@{version}/", paths)


READERS = {"npm": read_npm, "pypi-wheel": read_wheel, "pypi-sdist": read_sdist, "go": read_go}


def extract(kind: str, package: str, version: str, wanted: list[tuple[str, str, pathlib.Path]]) -> None:
    """Writes every (path, sha256, target) of wanted that is not there already.

    path#key means the string under key of the JSON file at path. A target exists
    only whole and verified.
    """
    wanted = [w for w in wanted if not (w[2].is_file() and sha256(w[2].read_bytes()) == w[1])]
    if not wanted:
        return
    print(f"fetching {package} {version}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        files = READERS[kind](package, version, {path.partition("#")[0] for path, _, _ in wanted}, folder)
        for path, digest, target in wanted:
            file, _, key = path.partition("#")
            if file not in files:
                raise Mismatch(f"{package} {version} has no {file}")
            data = files[file]
            if key:
                data = json.loads(data)[key].encode()
            if sha256(data) != digest:
                raise Mismatch(f"{package} {version} {path}: sha256 {sha256(data)}, the list says {digest}")
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.{os.getpid()}")
            part.write_bytes(data)
            part.replace(target)


def finish(folder: pathlib.Path, what: str, missing: dict[str, str]) -> None:
    """Says loudly what is missing, leaves it in folder/MISSING, and exits.

    A registry that cannot be reached must not stop a build, so the exit code is 0
    unless FETCH_STRICT=1; the tests that need a missing file say so when they skip.
    """
    marker = folder / "MISSING"
    if not missing:
        marker.unlink(missing_ok=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{name}: {why}\n" for name, why in sorted(missing.items()))
    marker.write_text(text)
    bar = "*" * 72
    print(f"{bar}\n{len(missing)} {what} MISSING; the tests that need them will be skipped:\n{text}{bar}", file=sys.stderr)
    if os.environ.get("FETCH_STRICT") == "1":
        sys.exit(1)
