//! Writes every kernel in a backend's language, for the compilers to look at: `lower TARGET FOLDER [KERNELS_A_FILE [cover]]`.
//!
//! CUDA and HIP kernels stand several to a file (`cuda_0007.cu`), which compiles faster than one by one; a file has kernels of one
//! row of the list, so that another row leaves it as it is. `index.txt` has a line `file kernel specialisation` for each. With
//! `cover`, only as many are written as have every value of every axis of a row, and every format, once; then a file has kernels
//! of any row, but not for different sizes of subgroups.

use std::{collections::BTreeSet, error::Error, fmt::Write, fs, path::Path};

use hanzo_kernel::{Checks, Code, Spec, Target, lower, specs, unit};
use hanzo_quant::Format;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let target = args.next().and_then(|name| Target::ALL.into_iter().find(|t| t.name() == name));
    let (Some(target), Some(folder)) = (target, args.next()) else {
        return Err("usage: lower spirv|msl|cuda|hip FOLDER [KERNELS_A_FILE [cover]]".into());
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let n_a_file = args.next().map_or(Ok(8), |n| n.parse::<usize>())?.max(1);
    let mut all = specs();
    all.retain(|spec| spec.suits(target));
    let is_cover = args.next().as_deref() == Some("cover");
    if is_cover {
        all = cover(&all);
        all.sort_by_key(subgroup_size);
    }
    let same_file = |a: &Spec, b: &Spec| {
        if is_cover { subgroup_size(a) == subgroup_size(b) } else { std::ptr::eq(a.kernel, b.kernel) }
    };
    let mut index = String::new();
    let chunks = all.chunk_by(same_file).flat_map(|specs| specs.chunks(n_a_file));
    for (number, chunk) in chunks.enumerate() {
        write_chunk(target, folder, number, chunk, &mut index)?;
    }
    fs::write(folder.join("index.txt"), index)?;
    Ok(())
}

/// Few specialisations that together have what all have.
fn cover(all: &[Spec]) -> Vec<Spec> {
    let mut seen = BTreeSet::new();
    let mut chosen = Vec::new();
    for row in all.chunk_by(|a, b| std::ptr::eq(a.kernel, b.kernel)) {
        let mut left: Vec<(&Spec, Vec<String>)> = row.iter().map(|spec| (spec, features(spec))).collect();
        loop {
            left.iter_mut().for_each(|(_, features)| features.retain(|f| !seen.contains(f)));
            let Some((spec, features)) = left.iter().max_by_key(|(_, features)| features.len()) else {
                break;
            };
            if features.is_empty() {
                break;
            }
            chosen.push((*spec).clone());
            seen.extend(features.clone());
        }
    }
    chosen
}

/// The values of a specialisation's axes in its row, and its format. What matters of a format to a product are its traits; its
/// own `unpack` is met once in any kernel.
fn features(spec: &Spec) -> Vec<String> {
    let row = format!("{} {:?}", spec.kernel.name, spec.kernel.choices);
    let mut features: Vec<String> =
        spec.constants.iter().map(|(name, value)| format!("{row}: {name} {value:?}")).collect();
    features.extend(spec.number.map(|number| format!("{row}: {number:?}")));
    let traits = |f: &Format| format!("{row}: {} {} {}", f.block_elems == 1, f.symmetric, f.scale_group);
    features.extend(spec.format.map(traits));
    features.extend(spec.format.map(|format| format.name.to_string()));
    features.push(row);
    features
}

/// The size of subgroups that a specialisation is made for, if for one alone.
fn subgroup_size(spec: &Spec) -> Option<String> {
    spec.constants.iter().find(|(name, _)| *name == "SUBGROUP").map(|(_, value)| format!("{value:?}"))
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
