#!/usr/bin/env python3
"""Compiles every kernel's CUDA C++ with NVRTC and HIP C++ with clang, without a GPU.

    compile_kernels.py [--all-targets] [--only cuda|hip] [--keep FOLDER]

All specialisations of all kernels go through NVRTC for sm_90 and clang for gfx1151; one of each kernel for sm_80, sm_100
and sm_120, gfx942, gfx1100 and gfx1201 (--all-targets: all of them). NVRTC comes from PyPI into a folder below target/
(120 MB to download); clang-22 from the system, or by `apt-get install clang-22 lld-22` where this runs as root. Any error
of a compiler, any vector register that gfx1151 spills to memory, fails the run (NVRTC's spills are not looked at). Run by
hand: no part of .ci/run yet.
"""
import argparse
import concurrent.futures
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WORK = TARGET / "toolchains"
NVRTC_VERSION = "13.0.*"
CUDA_MAIN, CUDA_OTHERS = "sm_90", ["sm_80", "sm_100", "sm_120"]
HIP_MAIN, HIP_OTHERS = "gfx1151", ["gfx942", "gfx1100", "gfx1201"]


def lower(target, folder, kernels_a_file):
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(
        ["cargo", "run", "--release", "--quiet", "-p", "hanzo-kernel", "--example", "lower", "--",
         target, str(folder), str(kernels_a_file)],
        check=True, cwd=ROOT)
    return sorted(p for p in folder.iterdir() if p.suffix in (".cu", ".hip"))


def nvrtc_root():
    """The folder with lib/libnvrtc.so.13, installed if need be."""
    venv = WORK / "nvrtc"
    found = list(venv.glob("lib/python3*/site-packages/nvidia/cu13"))
    if not found:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin/pip"), "install", "--quiet", f"nvidia-cuda-nvrtc=={NVRTC_VERSION}"], check=True)
        found = list(venv.glob("lib/python3*/site-packages/nvidia/cu13"))
    return found[0]


class Nvrtc:
    def __init__(self):
        lib = nvrtc_root() / "lib"
        builtins = next(iter(sorted(lib.glob("libnvrtc-builtins.so.*"))))
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(str(next(iter(sorted(lib.glob("libnvrtc.so.*"))))))

    def compile(self, file, arch):
        """The compiler's complaint, or None; a cubin lies beside the file then."""
        lib, program = self.lib, ctypes.c_void_p()
        lib.nvrtcCreateProgram(ctypes.byref(program), file.read_bytes(), file.name.encode(), 0, None, None)
        options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
        code = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        if code != 0:
            lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            lib.nvrtcGetProgramLog(program, log)
            lib.nvrtcDestroyProgram(ctypes.byref(program))
            return log.value.decode(errors="replace")
        lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
        cubin = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetCUBIN(program, cubin)
        file.with_suffix(f".{arch}.cubin").write_bytes(cubin.raw)
        lib.nvrtcDestroyProgram(ctypes.byref(program))
        return None


def clang():
    if shutil.which("clang-22") is None:
        subprocess.run(["apt-get", "update", "-q"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", "clang-22", "lld-22"], check=True)
    return "clang-22"


def compile_hip(file, arch):
    out = file.with_suffix(f".{arch}.s")
    done = subprocess.run(
        [clang(), "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={arch}", "-nogpulib",
         "-nogpuinc", "-O3", "-std=c++17", "-Wno-unused", "-S", str(file), "-o", str(out)],
        capture_output=True, text=True)
    return done.stderr if done.returncode != 0 else None


def spills_of_hip(file):
    """Kernels that keep registers in scratch memory: (name, bytes)."""
    text, found = file.read_text(), []
    for block in text.split("  - .agpr_count:")[1:] or text.split("  - .args:")[1:]:
        name = re.search(r"\.name:\s+(\S+)", block)
        spilled = re.search(r"\.vgpr_spill_count:\s+(\d+)", block)
        if name and spilled and int(spilled[1]) > 0:
            found.append((name[1], int(spilled[1])))
    return found


def run(jobs, compile_one):
    """Compiles in parallel; prints and counts the failures."""
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (file, arch), log in zip(jobs, pool.map(lambda job: compile_one(*job), jobs)):
            if log is not None:
                failures += 1
                print(f"error: {file.name} for {arch}:\n{log[:4000]}", file=sys.stderr)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all-targets", action="store_true", help="all specialisations for all targets")
    parser.add_argument("--only", choices=["cuda", "hip"])
    parser.add_argument("--keep", help="the folder for texts and compiled code", default=str(WORK / "kernels"))
    options = parser.parse_args()
    keep, failures = pathlib.Path(options.keep), 0
    for name, main_arch, others in [("cuda", CUDA_MAIN, CUDA_OTHERS), ("hip", HIP_MAIN, HIP_OTHERS)]:
        if options.only not in (None, name):
            continue
        compile_one = Nvrtc().compile if name == "cuda" else compile_hip
        clang() if name == "hip" else None
        start = time.monotonic()
        files = lower(name, keep / name, 8)
        failures += run([(f, main_arch) for f in files], compile_one)
        print(f"{name}: {len(files)} files for {main_arch} in {time.monotonic() - start:.0f} s")
        for file in files if name == "hip" else []:
            assembly = file.with_suffix(f".{main_arch}.s")
            for kernel, count in spills_of_hip(assembly) if assembly.exists() else []:
                failures += 1
                print(f"error: {kernel} spills {count} registers on {main_arch}", file=sys.stderr)
        start = time.monotonic()
        if not options.all_targets:
            files = lower(name, keep / f"{name}_one", "one")
        failures += run([(f, arch) for arch in others for f in files], compile_one)
        print(f"{name}: {len(files)} files for {', '.join(others)} in {time.monotonic() - start:.0f} s")
    if failures:
        sys.exit(f"error: {failures} failures")


if __name__ == "__main__":
    main()
