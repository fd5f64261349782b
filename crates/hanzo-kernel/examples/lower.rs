//! Writes every kernel in a backend's language, for the compilers to look at: `lower TARGET FOLDER [KERNELS_A_FILE]`.
//!
//! CUDA and HIP kernels stand several to a file (`cuda_0007.cu`), which compiles faster than one by one; `index.txt` has
//! a line `file kernel specialisation` for each. With `one` instead of a number, only the first specialisation of each
//! kernel is written.

use std::{error::Error, fmt::Write, fs, path::Path};

use hanzo_kernel::{Checks, Code, Spec, Target, lower, specs, unit};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let target = args.next().and_then(|name| Target::ALL.into_iter().find(|t| t.name() == name));
    let (Some(target), Some(folder)) = (target, args.next()) else {
        return Err("usage: lower spirv|msl|cuda|hip FOLDER [KERNELS_A_FILE|one]".into());
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let mut all = specs();
    all.retain(|spec| spec.suits(target));
    let n_a_file = match args.next().as_deref() {
        Some("one") => {
            all.dedup_by_key(|spec| spec.kernel.name);
            8
        }
        Some(n) => n.parse::<usize>()?.max(1),
        None => 8,
    };
    let mut index = String::new();
    for (i, chunk) in all.chunks(n_a_file).enumerate() {
        write_chunk(target, folder, i, chunk, &mut index)?;
    }
    fs::write(folder.join("index.txt"), index)?;
    Ok(())
}

fn write_chunk(
    target: Target,
    folder: &Path,
    number: usize,
    specs: &[Spec],
    index: &mut String,
) -> Result<(), Box<dyn Error>> {
    let mut texts = Vec::new();
    for spec in specs {
        let name = spec.name();
        let file = match lower(&spec.valid()?, target, Checks::Trusted)? {
            Code::Words(words) => {
                let file = format!("{name}.spv");
                let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                fs::write(folder.join(&file), bytes)?;
                file
            }
            Code::Text(text) if target == Target::Msl => {
                let file = format!("{name}.metal");
                fs::write(folder.join(&file), text)?;
                file
            }
            Code::Text(text) => {
                texts.push(text);
                chunk_file(target, number)
            }
        };
        writeln!(index, "{file} {} {name}", spec.kernel.name)?;
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    if let Some(text) = unit(target, &texts, Checks::Trusted).filter(|_| !texts.is_empty()) {
        fs::write(folder.join(chunk_file(target, number)), text)?;
    }
    Ok(())
}

fn chunk_file(target: Target, number: usize) -> String {
    let extension = if target == Target::Cuda { "cu" } else { "hip" };
    format!("{}_{number:04}.{extension}", target.name())
}
