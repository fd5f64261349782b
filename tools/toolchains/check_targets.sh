#!/usr/bin/env bash
# Type-checks the workspace for platforms that this machine is not: macOS and Linux on 64-bit ARM, Windows on x86-64.
#
#     tools/toolchains/check_targets.sh [TARGET ...]
#
# Needs Debian 12 or newer with apt-get; installs nothing. The packages rustc-web, cargo-web and rust-web-src (a Rust with
# the source of its standard library) and what they depend on are downloaded and unpacked below target/toolchains, apart
# from the machine's own toolchain, and the standard library is checked along with the crates. Nothing is linked, so no
# SDK is needed, and C compilers that build scripts call are replaced by `true`.
#
# All three pass with rustc 1.96 (November 2026). A first run downloads 140 MB and computes for about 6 minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    targets=(aarch64-apple-darwin x86_64-pc-windows-gnu aarch64-unknown-linux-gnu)
fi
place=$PWD/target/toolchains
usr=$place/root/usr

unpack() {
    mkdir -p "$place/archives/partial"
    apt-get install --yes --quiet=2 --download-only --no-install-recommends \
        -o Debug::NoLocking=1 -o Dir::Cache::archives="$place/archives" \
        rustc-web cargo-web rust-web-src binutils-mingw-w64-x86-64
    for archive in "$place"/archives/*.deb; do
        dpkg-deb --extract "$archive" "$place/root"
    done
}

[ -x "$usr/bin/rustc" ] && [ -x "$usr/bin/cargo" ] || unpack </dev/null

export LD_LIBRARY_PATH=$usr/lib/x86_64-linux-gnu:$usr/lib/llvm-22/lib
export PATH=$usr/bin:$PATH
export RUSTC=$usr/bin/rustc
# The standard library's source is only used by unstable options, which this variable permits.
export RUSTC_BOOTSTRAP=1
export CARGO_TARGET_DIR=$place/target

"$RUSTC" --version
failed=()
for target in "${targets[@]}"; do
    echo "== $target"
    name=${target//-/_}
    if env "CC_$name=/usr/bin/true" "AR_$name=/usr/bin/true" \
        cargo check --quiet --locked --workspace --target "$target" -Zbuild-std=std,panic_abort </dev/null; then
        echo "ok"
    else
        failed+=("$target")
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
