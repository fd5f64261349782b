//! Every specialisation composes, validates and lowers to every target, to the text that the committed hashes say.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

#[path = "common/hashes.rs"]
mod hashes;

use std::collections::BTreeMap;

use hanzo_kernel::{Checks, Target, lower, specs};

const UPDATE: &str = "cargo run --release -p hanzo-kernel --example hashes";

#[test]
fn every_specialisation_lowers_to_the_text_of_its_hash() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut errors = Vec::new();
    let mut lines = Vec::new();
    for spec in specs() {
        *counts.entry(spec.kernel.name).or_default() += 1;
        match hashes::line(&spec) {
            Ok(line) => lines.push(line),
            Err(error) => errors.push(error.to_string()),
        }
    }
    println!("{} specialisations: {counts:?}", counts.values().sum::<usize>());
    assert!(errors.is_empty(), "{} errors\n{}", errors.len(), errors[..errors.len().min(20)].join("\n"));
    let committed: Vec<&str> = include_str!("../hashes.txt").lines().collect();
    let changed: Vec<&String> =
        lines.iter().filter(|line| committed.binary_search(&line.as_str()).is_err()).collect();
    let same = changed.is_empty() && committed.len() == lines.len();
    assert!(
        same,
        "{} of {} lines changed, first {:?}; if they should: {UPDATE}",
        changed.len(),
        lines.len(),
        changed.first()
    );
}

#[test]
fn names_are_unique_identifiers() {
    let mut names: Vec<String> = specs().iter().map(|spec| spec.name()).collect();
    assert!(
        names.iter().all(|n| n.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
    );
    names.sort();
    let n = names.len();
    names.dedup();
    assert_eq!(names.len(), n);
}

/// Bounds of indices and loops, divisors: one specialisation of each kernel, since they change the writers alone.
#[test]
fn every_kernel_lowers_with_checks() {
    let mut all = specs();
    all.dedup_by_key(|spec| spec.kernel.name);
    for spec in all {
        let valid = spec.valid().unwrap();
        for target in Target::ALL.into_iter().filter(|t| spec.suits(*t)) {
            let checked = lower(&valid, target, Checks::Debug).unwrap();
            let trusted = lower(&valid, target, Checks::Trusted).unwrap();
            let is_c = matches!(target, Target::Cuda | Target::Hip);
            assert!(is_c || checked != trusted, "{} to {}", spec.name(), target.name());
        }
    }
}
