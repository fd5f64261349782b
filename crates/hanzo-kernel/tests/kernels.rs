//! Every specialisation composes, validates and lowers.

use hanzo_kernel::{Checks, Target, lower, specs};

#[test]
fn every_specialisation_lowers_to_every_target() {
    for spec in specs() {
        let valid = spec.valid().unwrap();
        for target in Target::ALL {
            for checks in [Checks::Trusted, Checks::Debug] {
                lower(&valid, target, checks).unwrap();
            }
        }
    }
}
