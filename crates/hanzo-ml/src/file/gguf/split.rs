//! Finds and checks the parts of a split model.
//!
//! Source: llama.cpp's `gguf-split` and gguf-py's sharding writer: `NAME-%05d-of-%05d.gguf`, numbered from 1, while
//! `split.no` counts from 0. Invariant: parts that are opened together agree on their number, order and tensor total.

use std::path::{Path, PathBuf};

use super::header::{self, Header};
use crate::{Bytes, Error, Result, file::mapped};

pub(super) const NO: &str = "split.no";
pub(super) const COUNT: &str = "split.count";
pub(super) const TENSORS: &str = "split.tensors.count";

/// A part's place among the others.
pub(super) struct Place {
    no: usize,
    pub(super) count: usize,
    n_tensors: usize,
}

impl Place {
    /// What the metadata says; `None` if the file is whole.
    pub(super) fn of(header: &Header) -> Result<Option<Self>> {
        let metadata = &header.metadata;
        let Some(count) = metadata.usize(COUNT)?.filter(|&count| count > 1) else { return Ok(None) };
        let need = |key| {
            let missing = || Error::file(metadata.path(), format!("{COUNT} is {count} but {key} is missing"));
            metadata.usize(key)?.ok_or_else(missing)
        };
        let (no, n_tensors) = (need(NO)?, need(TENSORS)?);
        // Both are 16-bit numbers in the files; more parts than that have no name either.
        if count > usize::from(u16::MAX) || no >= count {
            return Err(Error::file(
                metadata.path(),
                format!("{NO} {no} of {COUNT} {count} is out of range"),
            ));
        }
        Ok(Some(Self { no, count, n_tensors }))
    }

    /// The number in the file name, from 1.
    pub(super) fn number(&self) -> usize {
        self.no + 1
    }
}

/// The path of a part; `number` counts from 1.
pub(super) fn part_path(folder: &Path, stem: &str, number: usize, count: usize) -> PathBuf {
    folder.join(format!("{stem}-{number:05}-of-{count:05}.gguf"))
}

/// Splits `NAME-00002-of-00003.gguf` into `NAME`, 2 and 3.
fn parse_name(name: &str) -> Option<(&str, usize, usize)> {
    let number = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse().ok())?;
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, no) = rest.rsplit_once('-')?;
    if no.len() < 5 || count.len() < 5 {
        return None;
    }
    Some((stem, number(no)?, number(count)?))
}

/// Opens all parts, given the path and place of one.
pub(super) fn open_parts(path: &Path, place: &Place) -> Result<Vec<(Bytes, Header)>> {
    let Place { count, n_tensors, .. } = *place;
    let number = place.number();
    let (stem, no_in_name, count_in_name) =
        path.file_name().and_then(|n| n.to_str()).and_then(parse_name).ok_or_else(|| {
            let want = format!("-{number:05}-of-{count:05}.gguf");
            Error::file(
                path,
                format!("part {number} of {count} of a split model, but its name does not end in {want}"),
            )
        })?;
    if (no_in_name, count_in_name) != (number, count) {
        let what =
            format!("its metadata says part {number} of {count}, its name {no_in_name} of {count_in_name}");
        return Err(Error::file(path, what));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let paths: Vec<PathBuf> = (1..=count).map(|n| part_path(folder, stem, n, count)).collect();
    if let Some(i) = paths.iter().position(|p| !p.is_file()) {
        let missing = paths[i].display();
        return Err(Error::file(path, format!("part {} of {count} is missing: {missing}", i + 1)));
    }
    let mut parts: Vec<(Bytes, Header)> = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let bytes = mapped::map(path)?;
        let header = header::parse(path, &bytes, bytes.len(), i)?;
        check_part(path, &header, parts.first().map(|(_, first)| first), i, place)?;
        parts.push((bytes, header));
    }
    let found: usize = parts.iter().map(|(_, header)| header.tensors.len()).sum();
    if found != n_tensors {
        return Err(Error::file(
            path,
            format!("{TENSORS} is {n_tensors} but the {count} parts hold {found} tensors"),
        ));
    }
    Ok(parts)
}

/// Checks part `i` (from 0) against the place that one of its siblings gave and against the first part's metadata.
fn check_part(path: &Path, header: &Header, first: Option<&Header>, i: usize, sibling: &Place) -> Result<()> {
    let count = sibling.count;
    match Place::of(header)? {
        Some(p) if (p.no, p.count, p.n_tensors) == (i, count, sibling.n_tensors) => {}
        Some(p) => {
            let what = format!(
                "it should be part {} of {count} with {} tensors in all, but its metadata says part {} of {} with {}",
                i + 1,
                sibling.n_tensors,
                p.number(),
                p.count,
                p.n_tensors
            );
            return Err(Error::file(path, what));
        }
        None => {
            return Err(Error::file(
                path,
                format!("it should be part {} of {count} but has no {COUNT}", i + 1),
            ));
        }
    }
    let Some(first) = first else { return Ok(()) };
    for (key, value) in header.metadata.iter() {
        let own = key.starts_with("split.") || key == header::ALIGNMENT_KEY;
        if !own && first.metadata.get(key) != Some(value) {
            return Err(Error::file(path, format!("metadata key {key:?} differs from the first part's")));
        }
    }
    Ok(())
}
