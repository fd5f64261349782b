#!/usr/bin/env python3
"""Fetches the GGUF vocabularies and chat templates that the tests of crates/hanzo-engine/src/text compare with.

They come out of the source package llama-cpp-python (MIT) on PyPI: vendor/llama.cpp/models/ggml-vocab-*.gguf with their
.inp/.out files, and models/templates/*.jinja. They go to models/vocab/ and models/templates/ (git-ignored). Nothing of
the package is run except by pip itself, which asks the package's build backend for its metadata.

Usage: fetch_vocabs.py [--into DIR] [--sdist FILE]
"""

import argparse
import pathlib
import subprocess
import sys
import tarfile
import tempfile

PACKAGE = "llama-cpp-python==0.3.36"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def download(folder):
    """Downloads the source package; build tools come as wheels."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python"]
    subprocess.run([*command, "--dest", folder, PACKAGE], check=True)
    return next(pathlib.Path(folder).glob("llama_cpp_python-*.tar.gz"))


def extract(sdist, into):
    """Writes the wanted files under their base names; returns how many."""
    n = 0
    with tarfile.open(sdist) as tar:
        for member in tar:
            path = pathlib.PurePosixPath(member.name)
            parent = "/".join(path.parts[1:-1])
            if parent == "vendor/llama.cpp/models" and path.name.startswith("ggml-vocab-"):
                folder = into / "vocab"
            elif parent == "vendor/llama.cpp/models/templates" and path.suffix == ".jinja":
                folder = into / "templates"
            else:
                continue
            folder.mkdir(parents=True, exist_ok=True)
            (folder / path.name).write_bytes(tar.extractfile(member).read())
            n += 1
    return n


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=pathlib.Path, default=ROOT / "models")
    parser.add_argument("--sdist", type=pathlib.Path, help="a source package that is already here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        n = extract(args.sdist or download(folder), args.into)
    print(f"{n} files in {args.into}/vocab and {args.into}/templates")


if __name__ == "__main__":
    main()
