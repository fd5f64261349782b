//! Every specialisation composes, validates and lowers.

use hanzo_kernel::{Checks, Target, lower, specs};

#[test]
fn every_specialisation_lowers_to_spirv_and_msl() {
    for spec in specs() {
        let valid = spec.valid().unwrap();
        for target in [Target::SpirV, Target::Msl] {
            for checks in [Checks::Trusted, Checks::Debug] {
                lower(&valid, target, checks).unwrap();
            }
        }
    }
}
