//! What is checked: a backend that can be asked how it computes.

use std::fmt;

use hanzo_quant::{Format, Unpack};

use crate::{
    DType, Error, Result,
    backend::{Backend, Buffer, Weight},
    cpu::{Activations, Cpu, CpuOptions},
    gpu::{Gpu, Products, Seen},
};

/// A kind of arithmetic of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// How factors meet.
    pub products: Products,
    /// The type of activations.
    pub activations: DType,
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let products = match self.products {
            Products::Float => "float",
            Products::Int8 => "int8",
            Products::Matrix => "matrix",
        };
        write!(f, "{products} {}", format!("{:?}", self.activations).to_ascii_lowercase())
    }
}

/// A backend under test.
pub trait Subject {
    /// The backend.
    fn backend(&mut self) -> &mut dyn Backend;

    /// Every kind of arithmetic that its products have.
    fn arithmetics(&self) -> Vec<Arithmetic>;

    /// Products are computed so from now on, with weights that are loaded from now on.
    ///
    /// # Errors
    /// A kind that it has not.
    fn choose(&mut self, arithmetic: Arithmetic) -> Result<()>;

    /// Whether weights may be of this format.
    fn reads(&self, format: &Format) -> bool;

    /// A weight's values where the backend decodes whole tensors, else nothing.
    ///
    /// # Errors
    /// As operations.
    fn decode(&mut self, weight: &Weight) -> Result<Option<Vec<f32>>>;

    /// What products with a weight of this format read of `x`, f32; nothing if that cannot be read back.
    ///
    /// # Errors
    /// As operations.
    fn seen(&mut self, format: &Format, x: &Buffer) -> Result<Option<Seen>>;
}

impl Subject for Gpu {
    fn backend(&mut self) -> &mut dyn Backend {
        self
    }

    fn arithmetics(&self) -> Vec<Arithmetic> {
        let mut all = vec![Products::Float, Products::Int8];
        if self.has_matrices() {
            all.push(Products::Matrix);
        }
        let types = [DType::F32, DType::F16, DType::BF16];
        all.iter()
            .flat_map(|&products| types.map(|activations| Arithmetic { products, activations }))
            .collect()
    }

    fn choose(&mut self, arithmetic: Arithmetic) -> Result<()> {
        self.set_arithmetic(arithmetic.products, arithmetic.activations)
    }

    fn reads(&self, format: &Format) -> bool {
        hanzo_kernel::is_supported(format)
    }

    fn decode(&mut self, weight: &Weight) -> Result<Option<Vec<f32>>> {
        Gpu::decode(self, weight).map(Some)
    }

    fn seen(&mut self, format: &Format, x: &Buffer) -> Result<Option<Seen>> {
        self.activations_seen(format, x).map(Some)
    }
}

/// The CPU in both kinds of its arithmetic.
pub struct Processor {
    float: Cpu,
    int8: Cpu,
    chosen: Products,
}

impl Processor {
    /// With so many threads.
    ///
    /// # Errors
    /// As [`Cpu::new`].
    pub fn new(threads: Option<usize>) -> Result<Self> {
        let options = |activations| CpuOptions { threads, activations, ..CpuOptions::default() };
        Ok(Self {
            float: Cpu::new(options(Activations::F32))?,
            int8: Cpu::new(options(Activations::Int8))?,
            chosen: Products::Float,
        })
    }
}

impl Subject for Processor {
    fn backend(&mut self) -> &mut dyn Backend {
        match self.chosen {
            Products::Int8 => &mut self.int8,
            Products::Float | Products::Matrix => &mut self.float,
        }
    }

    fn arithmetics(&self) -> Vec<Arithmetic> {
        [Products::Float, Products::Int8]
            .map(|products| Arithmetic { products, activations: DType::F32 })
            .to_vec()
    }

    fn choose(&mut self, arithmetic: Arithmetic) -> Result<()> {
        if !self.arithmetics().contains(&arithmetic) {
            return Err(Error::op("products", format!("the CPU has none of {arithmetic}")));
        }
        self.chosen = arithmetic.products;
        Ok(())
    }

    fn reads(&self, _format: &Format) -> bool {
        true
    }

    fn decode(&mut self, _weight: &Weight) -> Result<Option<Vec<f32>>> {
        Ok(None)
    }

    fn seen(&mut self, format: &Format, x: &Buffer) -> Result<Option<Seen>> {
        // Blocks of outliers are quantised twice, in a form that only the products know.
        if self.chosen == Products::Int8 && matches!(format.unpack, Unpack::Int(_)) {
            return Ok(None);
        }
        let mut values = vec![0.0; x.len()];
        self.backend().download_f32(x, &mut values)?;
        Ok(Some(Seen::Floats(values)))
    }
}
