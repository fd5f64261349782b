//! The options of the CPU backend, for every command that computes.

use clap::{Args, ValueEnum};
use hanzo_ml::cpu::{Activations, CpuOptions};

/// How the CPU multiplies.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CpuArgs {
    /// What quantised weights are multiplied with
    #[arg(long, value_name = "TYPE", default_value = "int8")]
    activations: ActivationType,
    /// Multiply from the mapped file, without a copy made for speed
    #[arg(long)]
    no_repack: bool,
}

/// Element types of activations.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ActivationType {
    /// Bytes with a scale for 32, in integers; outliers as two bytes
    Int8,
    /// Numbers of 32 bits
    F32,
}

impl CpuArgs {
    /// The options, for a number of threads.
    pub(crate) fn options(self, threads: Option<usize>) -> CpuOptions {
        let activations = match self.activations {
            ActivationType::Int8 => Activations::Int8,
            ActivationType::F32 => Activations::F32,
        };
        CpuOptions { threads, activations, repack: !self.no_repack }
    }
}
