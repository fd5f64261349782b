//! Which files of a repository make up the model that a hub id means.

use crate::{
    manifest::FILES_MAX,
    name::{self, Select},
};

/// Quantizations taken when none is asked for, best compromise first.
const USUAL_QUANTS: [&str; 8] = ["Q4_K_M", "Q4_K_S", "Q5_K_M", "Q8_0", "Q6_K", "Q4_0", "F16", "BF16"];

/// Files beside the weights that a safetensors model may need.
const COMPANIONS: [&str; 12] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
];

/// The files of `available` that `select` means, the main one first; else what is wrong.
pub(crate) fn select(available: &[String], select: &Select) -> Result<Vec<String>, String> {
    let files: Vec<&str> =
        available.iter().map(String::as_str).filter(|file| name::is_safe_file(file)).collect();
    let ggufs: Vec<&str> = files.iter().copied().filter(|file| is_model_gguf(file)).collect();
    match select {
        Select::File(file) => {
            let found = files.iter().find(|candidate| *candidate == file);
            let found = found.ok_or_else(|| format!("no file {file:?} in it; {}", offer(&ggufs)))?;
            with_parts(found, &files)
        }
        Select::Quant(quant) => {
            let found = best_of_quant(&ggufs, quant);
            with_parts(found.ok_or_else(|| format!("no {quant} GGUF in it; {}", offer(&ggufs)))?, &files)
        }
        Select::Usual if ggufs.is_empty() => safetensors(&files),
        Select::Usual => {
            let usual = USUAL_QUANTS.iter().find_map(|quant| best_of_quant(&ggufs, quant));
            with_parts(usual.or(ggufs.first().copied()).unwrap_or_default(), &files)
        }
    }
}

/// A GGUF of weights: vision projectors and importance matrices are no models.
fn is_model_gguf(file: &str) -> bool {
    let lower = file.to_ascii_lowercase();
    lower.ends_with(".gguf") && !lower.contains("mmproj") && !lower.contains("imatrix")
}

/// The plainest file name that holds `quant` as a whole word.
fn best_of_quant<'a>(ggufs: &[&'a str], quant: &str) -> Option<&'a str> {
    let holds = |file: &&&str| has_word(&file.to_ascii_uppercase(), &quant.to_ascii_uppercase());
    ggufs
        .iter()
        .filter(holds)
        .copied()
        .min_by_key(|file| (split_part(file).is_some_and(|p| p.0 > 1), file.len(), *file))
}

/// True where `word` stands in `text` between other characters than letters, digits and underscores.
fn has_word(text: &str, word: &str) -> bool {
    let outside = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    !word.is_empty()
        && text.match_indices(word).any(|(at, found)| {
            outside(text[..at].chars().next_back()) && outside(text[at + found.len()..].chars().next())
        })
}

/// Number and count of `...-00001-of-00003.ext`.
fn split_part(file: &str) -> Option<(u32, u32)> {
    let stem = file.rsplit_once('.')?.0;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let number = rest.rsplit_once('-')?.1;
    (count.len() == 5 && number.len() == 5).then_some(())?;
    Some((number.parse().ok()?, count.parse().ok()?))
}

/// `file`, and where it is one of several parts, all of them in order.
fn with_parts(file: &str, files: &[&str]) -> Result<Vec<String>, String> {
    let Some((number, count)) = split_part(file) else { return Ok(vec![file.to_owned()]) };
    if count == 0 || count as usize > FILES_MAX {
        return Err(format!("{file} claims to be one of {count} parts"));
    }
    let part = |idx: u32| file.replace(&format!("-{number:05}-of-"), &format!("-{idx:05}-of-"));
    let parts: Vec<String> = (1..=count).map(part).collect();
    match parts.iter().find(|part| !files.contains(&part.as_str())) {
        Some(missing) => Err(format!("part {missing} is missing")),
        None => Ok(parts),
    }
}

/// Weights, index and companions of a safetensors repository.
fn safetensors(files: &[&str]) -> Result<Vec<String>, String> {
    let top = |file: &&&str| !file.contains('/');
    let weights: Vec<&str> = files
        .iter()
        .filter(top)
        .copied()
        .filter(|file| file.ends_with(".safetensors") && !file.starts_with("consolidated"))
        .collect();
    if weights.is_empty() || !files.contains(&"config.json") {
        return Err("neither a GGUF nor config.json with safetensors in it".to_owned());
    }
    for weight in &weights {
        with_parts(weight, files)?;
    }
    let index = files.iter().filter(top).copied().filter(|file| file.ends_with(".safetensors.index.json"));
    let companions = COMPANIONS.into_iter().filter(|file| files.contains(file));
    let all: Vec<String> =
        companions.chain(index).chain(weights.iter().copied()).map(str::to_owned).collect();
    if all.len() > FILES_MAX { Err(format!("{} files, more than {FILES_MAX}", all.len())) } else { Ok(all) }
}

/// The GGUFs one could ask for, in words.
fn offer(ggufs: &[&str]) -> String {
    const SHOWN_MAX: usize = 20;
    if ggufs.is_empty() {
        return "it holds no GGUF".to_owned();
    }
    let more = if ggufs.len() > SHOWN_MAX { ", ..." } else { "" };
    format!("it has {}{more}", ggufs[..ggufs.len().min(SHOWN_MAX)].join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(files: &[&str], how: &Select) -> Result<Vec<String>, String> {
        select(&files.iter().map(ToString::to_string).collect::<Vec<_>>(), how)
    }

    #[test]
    fn a_quantization_is_a_whole_word() {
        let files = ["M-Q4_K.gguf", "M-Q4_K_M.gguf", "M-Q4_K_M-v2.gguf", "mmproj-Q8_0.gguf", "M.q8_0.gguf"];
        let quant = |quant: &str| pick(&files, &Select::Quant(quant.into()));
        assert_eq!(quant("Q4_K_M").unwrap(), ["M-Q4_K_M.gguf"]);
        assert_eq!(quant("Q4_K").unwrap(), ["M-Q4_K.gguf"]);
        assert_eq!(quant("Q8_0").unwrap(), ["M.q8_0.gguf"]);
        assert!(quant("Q4").unwrap_err().contains("M-Q4_K_M.gguf"));
        assert_eq!(pick(&files, &Select::Usual).unwrap(), ["M-Q4_K_M.gguf"]);
    }

    #[test]
    fn parts_come_together() {
        let files =
            ["d/m-00002-of-00003.gguf", "d/m-00001-of-00003.gguf", "d/m-00003-of-00003.gguf", "README.md"];
        let want = ["d/m-00001-of-00003.gguf", "d/m-00002-of-00003.gguf", "d/m-00003-of-00003.gguf"];
        assert_eq!(pick(&files, &Select::Usual).unwrap(), want);
        assert_eq!(pick(&files, &Select::File(files[0].into())).unwrap(), want);
        assert!(pick(&files[..2], &Select::Usual).unwrap_err().contains("00003-of-00003"));
        let absurd = ["m-00001-of-99999.gguf"];
        assert!(pick(&absurd, &Select::Usual).unwrap_err().contains("99999"));
    }

    #[test]
    fn safetensors_bring_their_companions() {
        let files =
            ["model.safetensors", "consolidated.safetensors", "config.json", "x/y.safetensors", "vocab.json"];
        assert_eq!(pick(&files, &Select::Usual).unwrap(), ["config.json", "vocab.json", "model.safetensors"]);
        assert!(pick(&files[..1], &Select::Usual).is_err());
        assert!(pick(&[], &Select::Usual).is_err());
    }

    #[test]
    fn files_that_leave_the_repository_do_not_exist() {
        let files = ["../evil.gguf", "/etc/evil.gguf", "a\\..\\evil.gguf"];
        assert!(pick(&files, &Select::Usual).is_err());
        assert!(pick(&files, &Select::File("../evil.gguf".into())).is_err());
    }
}
