//! A line of hashes for every specialisation: which generated text a change touches.

use hanzo_kernel::{Checks, Code, Result, Spec, Target, lower};

/// FNV-1a of 64 bits, folded to 32.
fn hash(code: &Code) -> u32 {
    let words: Vec<u8>;
    let bytes = match code {
        Code::Text(text) => text.as_bytes(),
        Code::Words(w) => {
            words = w.iter().flat_map(|w| w.to_le_bytes()).collect();
            &words
        }
    };
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ hash >> 32) as u32
}

/// `name spirv msl cuda hip`, `-` where a target lacks what the kernel needs.
pub fn line(spec: &Spec) -> Result<String> {
    let valid = spec.valid()?;
    let mut line = spec.name();
    for target in Target::ALL {
        line.push(' ');
        if spec.suits(target) {
            line.push_str(&format!("{:08x}", hash(&lower(&valid, target, Checks::Trusted)?)));
        } else {
            line.push('-');
        }
    }
    Ok(line)
}
