#!/usr/bin/env bash
# Type-checks the workspace for platforms that this machine is not: macOS and Linux on 64-bit ARM, Windows on x86-64.
#
#     tools/toolchains/check_targets.sh [TARGET ...]
#
# Nothing is linked, so no SDK is needed, and C compilers that build scripts call are replaced by `true`. The toolchain:
# rust_with_source.sh.
#
# The two targets on 64-bit ARM are part of .ci/run: six minutes of processor time the first time, so about three on two cores,
# and a download. All three pass with rustc 1.96 (November 2026).
set -euo pipefail
cd "$(dirname "$0")/../.."

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    targets=(aarch64-apple-darwin x86_64-pc-windows-gnu aarch64-unknown-linux-gnu)
fi
. tools/toolchains/rust_with_source.sh
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
