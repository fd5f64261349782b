//! `cargo run --release -p hanzo-kernel --example hashes`: writes `hashes.txt`, one line a specialisation, after a change of
//! kernels or writers. Its difference says which generated text the change touched.

#[path = "../tests/common/hashes.rs"]
mod hashes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut lines = Vec::new();
    for spec in hanzo_kernel::specs() {
        lines.push(hashes::line(&spec)?);
    }
    // In the order that the test searches.
    lines.sort_unstable();
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/hashes.txt"), lines.join("\n") + "\n")?;
    Ok(())
}
