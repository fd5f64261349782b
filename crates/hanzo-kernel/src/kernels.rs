//! The list of kernels, and every specialisation of each that the engine may launch.

use hanzo_quant::Format;

use crate::{Composed, Recipe, Result, Valid, Value, compose};

/// A kernel and the axes it is specialised along.
#[derive(Debug)]
pub struct Kernel {
    /// Its name, and that of its file.
    pub name: &'static str,
    /// Injected constants with the values that each may take.
    pub constants: &'static [(&'static str, &'static [Value])],
}

/// Every kernel.
pub static KERNELS: &[Kernel] = &[Kernel { name: "add", constants: &[] }];

/// One specialisation of a kernel.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The weight format, for kernels that read weights.
    pub format: Option<&'static Format>,
    /// A value for each of the kernel's constants.
    pub constants: Vec<(&'static str, Value)>,
}

/// Every specialisation of every kernel.
pub fn specs() -> Vec<Spec> {
    KERNELS.iter().map(|kernel| Spec { kernel, format: None, constants: Vec::new() }).collect()
}

impl Spec {
    /// The specialisation's name, an identifier.
    pub fn name(&self) -> String {
        self.kernel.name.into()
    }

    /// Its WGSL.
    ///
    /// # Errors
    /// See [`compose`].
    pub fn compose(&self) -> Result<Composed> {
        compose(&Recipe {
            name: self.name(),
            file: self.kernel.name,
            constants: self.constants.clone(),
            slots: Vec::new(),
        })
    }

    /// Its valid module.
    ///
    /// # Errors
    /// See [`Spec::compose`] and [`Valid::new`].
    pub fn valid(&self) -> Result<Valid> {
        Valid::new(&self.compose()?)
    }
}
