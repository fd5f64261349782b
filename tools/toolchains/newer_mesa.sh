#!/usr/bin/env bash
# Runs the products by cooperative matrices on Mesa's software Vulkan device of Debian 13's backports, which has them (of 8 × 8);
# the one of Debian 12, on which CI runs them, has none.
#
#     tools/toolchains/newer_mesa.sh
#
# Needs root and apt-get. A Debian 13 is unpacked below target/toolchains with debootstrap (once); the test is built here and run
# inside it, in about three minutes. Last run in November 2026, Mesa 26.1.6 with LLVM 19: 56 products by matrices of 8, all
# within their bounds.
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$PWD/${CARGO_TARGET_DIR:-target}/toolchains/trixie
[[ ${CARGO_TARGET_DIR:-} == /* ]] && root=$CARGO_TARGET_DIR/toolchains/trixie

if ! [ -e "$root/usr/share/vulkan/icd.d/lvp_icd.json" ] && ! [ -e "$root/usr/share/vulkan/icd.d/lvp_icd.x86_64.json" ]; then
    command -v debootstrap >/dev/null || apt-get install --yes --quiet=2 --no-install-recommends debootstrap
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=ca-certificates trixie "$root" >"$root.log"
    sed 's/ trixie main/ trixie-backports main/' "$root/etc/apt/sources.list" \
        >"$root/etc/apt/sources.list.d/backports.list"
    chroot "$root" apt-get update --quiet=2
    chroot "$root" apt-get install --yes --quiet=2 --no-install-recommends --target-release trixie-backports \
        mesa-vulkan-drivers libvulkan1
fi
chroot "$root" dpkg-query --show mesa-vulkan-drivers

program=$(cargo test --release --no-run --message-format=json -p hanzo-kernel --test products | python3 -c '
import json, sys
for line in sys.stdin:
    program = json.loads(line).get("executable")
    if program: print(program)')
cp "$program" "$root/products"
chroot "$root" env XDG_RUNTIME_DIR=/run /products products_by_matrices --nocapture 2>&1 | tee "$root.products.log"
rm "$root/products"
grep -q "products by matrices of" "$root.products.log" || { echo "error: no product by matrices was made" >&2; exit 1; }
