#!/usr/bin/env python3
"""Compiles the kernels' texts without a GPU: CUDA C++ with NVRTC, HIP C++ with clang; MSL is checked as C++.

    compile_kernels.py [--all-targets] [--only cuda|hip|msl] [--keep FOLDER]

All specialisations of all kernels go through NVRTC for sm_90 and clang for gfx1151, with little optimisation, which finds the
same errors. For sm_80, sm_100, sm_120, gfx942, gfx1100 and gfx1201 (and gfx1151 again) those go, with all of it, that together
have every value of every axis of every row of the list of kernels (core, experts, number type, side of matrices ...) and every
weight format; with --all-targets all. gfx942 has subgroups of 64 lanes, the others of 32; a kernel made for the other size must
be refused, and that is tried too. Any error of a compiler fails the run, and so does any vector register that clang spills to
memory on gfx11 or gfx12.

No Metal compiler runs outside of macOS, so MSL is only parsed and type-checked: clang reads it as C++17 with our own stand-in
for Metal's library (`metal/`). Three things are rewritten before, since C++ has no such thing: vectors are made by a function
(`metal::float4(` becomes `metal::make_float4(`), a literal without a suffix is a float, and a kernel's own workgroup memory is
external.

NVRTC comes from PyPI into a folder below target/ (120 MB to download); clang-22 from the system, or by apt-get where this runs
as root. What has compiled once is not compiled again before it, or its compiler, changes.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import dataclasses
import hashlib
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WORK = TARGET / "toolchains"
STUB = pathlib.Path(__file__).resolve().parent / "metal"
NVRTC_VERSION = "13.0.*"
MAIN = {"cuda": "sm_90", "hip": "gfx1151"}
OTHERS = {"cuda": ["sm_80", "sm_100", "sm_120"], "hip": ["gfx942", "gfx1100", "gfx1201"]}
CLANG = "clang-22"
# Kernels of a file: a compiler reads the prelude once for all of them.
KERNELS_A_FILE = {"cuda": 8, "hip": 8, "msl": 64}
WAVE_64 = "subgroup64"


@dataclasses.dataclass(frozen=True)
class Job:
    """A file for a compiler."""
    language: str
    file: pathlib.Path
    arch: str
    level: int
    # What the compiler must complain about, if it must.
    refused_for: str = ""

    def options(self):
        if self.language == "cuda":
            return [f"--gpu-architecture={self.arch}", "--std=c++17", f"--ptxas-options=-O{self.level}"]
        if self.language == "hip":
            return ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={self.arch}",
                    "-nogpulib", "-nogpuinc", f"-O{self.level}", "-std=c++17", "-Wno-unused", "-S", "-o", "-"]
        return ["-x", "c++", "-std=c++17", "-fsyntax-only", "-nostdinc", "-nostdinc++", "-w", f"-I{STUB}"]


def lower(target, folder, *choice):
    """Writes kernels in a target's language; the names of each file's kernels."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(
        ["cargo", "run", "--release", "--locked", "--quiet", "-p", "hanzo-kernel", "--example", "lower", "--",
         target, str(folder), str(KERNELS_A_FILE[target]), *choice],
        check=True, cwd=ROOT)
    names = collections.defaultdict(list)
    for line in (folder / "index.txt").read_text().splitlines():
        file, _, name = line.split()
        names[folder / file].append(name)
    return names


def metal_files(names, folder):
    """Several kernels of MSL in one file, each in a namespace, as C++."""
    files = []
    every = sorted(names)
    for at in range(0, len(every), KERNELS_A_FILE["msl"]):
        parts = ["#include <metal_stdlib>\n#include <simd/simd.h>\n"]
        for file in every[at:at + KERNELS_A_FILE["msl"]]:
            text = re.sub(r"\b((?:metal::)?)((?:float|half|u?int|u?char|bool)[234])\(", r"\1make_\2(", file.read_text())
            text = re.sub(r"\bstatic_cast<metal::(\w+[234])>\(", r"metal::make_\1(", text)
            text = re.sub(r"(?<![\w.])(\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)(?![\w.])", r"\1f", text)
            for vector, alias in re.findall(r"^typedef metal::(\w+[234]) (\w+);$", text, flags=re.MULTILINE):
                text = re.sub(rf"\b{alias}\(", f"metal::make_{vector}(", text)
            text = re.sub(r"^    threadgroup (?=[\w:]+ \w+;$)", "    extern threadgroup ", text, flags=re.MULTILINE)
            parts.append(f"namespace {file.stem} {{\n#line 1 \"{file.name}\"\n{text}\n}}\n")
        files.append(folder / f"batch_{at:04}.cpp")
        files[-1].write_text("".join(parts))
    return files


def nvrtc_lib():
    """The folder of libnvrtc, installed if need be."""
    venv, pattern = WORK / "nvrtc", "lib/python3*/site-packages/nvidia/cu13/lib"
    if not list(venv.glob(pattern)):
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin/pip"), "install", "--quiet", f"nvidia-cuda-nvrtc=={NVRTC_VERSION}"], check=True)
    return next(iter(venv.glob(pattern)))


def find_clang():
    if shutil.which(CLANG) is None:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", CLANG], check=True)


class Nvrtc:
    """The library; a process of its own for each, since it compiles one text at a time."""
    loaded = None

    def __init__(self):
        lib = nvrtc_lib()
        for builtins in sorted(lib.glob("libnvrtc-builtins.so.*"))[:1]:
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(str(sorted(lib.glob("libnvrtc.so.*"))[0]))

    def compile(self, job):
        """The compiler's complaint, or None."""
        lib, program = self.lib, ctypes.c_void_p()
        lib.nvrtcCreateProgram(ctypes.byref(program), job.file.read_bytes(), job.file.name.encode(), 0, None, None)
        options = [option.encode() for option in job.options()]
        code = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        lib.nvrtcDestroyProgram(ctypes.byref(program))
        return None if code == 0 else log.value.decode(errors="replace")


def compile_with_clang(job):
    done = subprocess.run([CLANG, *job.options(), str(job.file)], capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr
    # gfx942 may move registers to its second file, which counts as a spill but touches no memory.
    spilled = spills(done.stdout) if job.language == "hip" and job.level == 3 and job.arch != "gfx942" else []
    return f"spilled registers: {', '.join(spilled)}" if spilled else None


def spills(assembly):
    """Kernels that keep vector registers in memory: `name count`."""
    found = []
    for block in re.split(r"^  - \.args:", assembly, flags=re.MULTILINE)[1:]:
        name, count = re.search(r"\.name:\s+(\S+)", block), re.search(r"\.vgpr_spill_count:\s+(\d+)", block)
        if name and count and int(count[1]) > 0:
            found.append(f"{name[1]} {count[1]}")
    return found


def run(job):
    """A job's complaint or None, and the seconds of processor time it took; None for what passed before."""
    version = NVRTC_VERSION if job.language == "cuda" else CLANG
    stub = "".join(f.read_text() for f in sorted(STUB.rglob("*")) if f.is_file()) if job.language == "msl" else ""
    key = [version, " ".join(job.options()), job.refused_for, stub, job.file.read_text()]
    mark = WORK / "passed" / hashlib.sha256("\0".join(key).encode()).hexdigest()
    if mark.exists():
        return None, None
    before = processor_seconds()
    if job.language == "cuda":
        Nvrtc.loaded = Nvrtc.loaded or Nvrtc()
        log = Nvrtc.loaded.compile(job)
    else:
        log = compile_with_clang(job)
    if job.refused_for:
        refused = log is not None and job.refused_for in log
        log = None if refused else f"not refused for '{job.refused_for}': {log}"
    if log is None:
        mark.touch()
    return log, processor_seconds() - before


def processor_seconds():
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


def jobs_of(language, keep, all_targets):
    """What is to be compiled in a language."""
    if language == "msl":
        return [Job("msl", file, "MSL", 0) for file in metal_files(lower("msl", keep / "msl"), keep / "msl")]
    every = lower(language, keep / language)
    some = every if all_targets else lower(language, keep / f"{language}_some", "cover")

    def job(file, names, arch, level):
        fits = all((WAVE_64 in name) == (arch == "gfx942") or "subgroup" not in name for name in names)
        return Job(language, file, arch, level, "" if fits else "this kernel is for subgroups of")

    # The main architecture of HIP twice, for the registers that it spills.
    others = OTHERS[language] if language == "cuda" else [MAIN[language], *OTHERS[language]]
    jobs = [job(file, names, arch, 3) for arch in others for file, names in some.items()]
    return jobs + [job(file, names, MAIN[language], 1) for file, names in every.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all-targets", action="store_true", help="all specialisations for all targets")
    parser.add_argument("--only", choices=["cuda", "hip", "msl"])
    parser.add_argument("--keep", help="the folder for the texts", default=str(WORK / "kernels"))
    options = parser.parse_args()
    languages = [options.only] if options.only else ["cuda", "hip", "msl"]
    (WORK / "passed").mkdir(parents=True, exist_ok=True)
    nvrtc_lib() if "cuda" in languages else None
    find_clang() if languages != ["cuda"] else None
    start, failures = time.monotonic(), 0
    jobs = [job for language in languages for job in jobs_of(language, pathlib.Path(options.keep), options.all_targets)]
    # What is likely to fail comes first: few kernels for many targets.
    jobs.sort(key=lambda job: (job.level == 1, job.language != "hip"))
    seconds, n_files, n_known = collections.Counter(), collections.Counter(), collections.Counter()
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for job, (log, spent) in zip(jobs, pool.map(run, jobs)):
            n_files[job.arch] += 1
            if sum(n_files.values()) % 100 == 0:
                print(f"{sum(n_files.values())} of {len(jobs)} files", flush=True)
            n_known[job.arch] += spent is None
            seconds[job.arch] += spent or 0
            if log is not None:
                failures += 1
                print(f"error: {job.file.name} for {job.arch}:\n{log[:4000]}", file=sys.stderr)
    for arch, n in n_files.items():
        print(f"{arch}: {n} files, {n_known[arch]} of them unchanged, {seconds[arch]:.0f} s of processor time")
    print(f"{sum(n_files.values())} files in {time.monotonic() - start:.0f} s")
    if failures:
        sys.exit(f"error: {failures} failures")


if __name__ == "__main__":
    main()
