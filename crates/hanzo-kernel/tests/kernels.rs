//! Every specialisation composes, validates and lowers.

use std::collections::BTreeMap;

use hanzo_kernel::{Checks, Target, lower, specs};

#[test]
fn every_specialisation_lowers_to_every_target() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut errors = Vec::new();
    for spec in specs() {
        *counts.entry(spec.kernel.name).or_default() += 1;
        let valid = match spec.valid() {
            Ok(valid) => valid,
            Err(error) => {
                errors.push(error.to_string());
                continue;
            }
        };
        for target in Target::ALL.into_iter().filter(|t| spec.suits(*t)) {
            errors.extend(lower(&valid, target, Checks::Trusted).err().map(|e| e.to_string()));
        }
    }
    println!("{} specialisations: {counts:?}", counts.values().sum::<usize>());
    assert!(errors.is_empty(), "{} errors\n{}", errors.len(), errors[..errors.len().min(20)].join("\n"));
}
