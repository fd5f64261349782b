# Sourced by the scripts beside it, from the repository's root: a Rust whose standard library can be built for any target,
# below target/toolchains and apart from the machine's own. The Debian packages rustc-web, cargo-web and rust-web-src and what
# they depend on are downloaded (140 MB, once) and unpacked; nothing is installed. Needs Debian 12 or newer.

place=$PWD/target/toolchains
usr=$place/root/usr

if ! [ -x "$usr/bin/rustc" ] || ! [ -x "$usr/bin/cargo" ]; then
    mkdir -p "$place/archives/partial"
    apt-get install --yes --quiet=2 --download-only --no-install-recommends \
        -o Debug::NoLocking=1 -o Dir::Cache::archives="$place/archives" \
        rustc-web cargo-web rust-web-src binutils-mingw-w64-x86-64 </dev/null
    for archive in "$place"/archives/*.deb; do
        dpkg-deb --extract "$archive" "$place/root"
    done
fi

export LD_LIBRARY_PATH=$usr/lib/x86_64-linux-gnu:$usr/lib/llvm-22/lib
export PATH=$usr/bin:$PATH
export RUSTC=$usr/bin/rustc
# The standard library's source is only used by unstable options, which this variable permits.
export RUSTC_BOOTSTRAP=1
export CARGO_TARGET_DIR=$place/target
"$RUSTC" --version
