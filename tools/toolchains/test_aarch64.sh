#!/usr/bin/env bash
# Runs tests on 64-bit ARM: built for Linux there, run by qemu. What has instructions of its own (NEON) is in the unit tests of
# hanzo-ml and hanzo-quant, the default (they pass, November 2026); anything else that `cargo test` takes can be asked for.
#
#     tools/toolchains/test_aarch64.sh [ARGUMENTS OF cargo test]
#
# Needs `apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross`; the toolchain: rust_with_source.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/toolchains/rust_with_source.sh

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CARGO_PROFILE_TEST_DEBUG=0
# Emulated code is slow; what is tested is worth optimising, what is not is not.
optimised=()
for crate in hanzo-quant hanzo-ml; do
    optimised+=(--config "profile.test.package.$crate.opt-level=1")
done

if [ $# -eq 0 ]; then
    # The encoders' search has no instructions of its own and takes over six minutes here.
    set -- -p hanzo-quant -p hanzo-ml --lib -- --skip search::
fi
cargo test --locked --target aarch64-unknown-linux-gnu -Zbuild-std "${optimised[@]}" "$@" </dev/null
