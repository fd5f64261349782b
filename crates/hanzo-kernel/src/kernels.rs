//! The list of kernels, and every specialisation of each that the engine may launch.
//!
//! A row says along which axes a kernel is specialised: the weight formats it reads, the number type of its activations
//! or cache, and constants of its own. [`specs`] is their product.

use hanzo_quant::{FORMATS, Format, Unpack};

use crate::{Composed, Recipe, Result, Slot, Valid, Value, compose, planes, source, tables};

/// Which weight formats a kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formats {
    /// It reads no weight.
    None,
    /// All that have a prelude.
    All,
    /// Those of integers.
    Int,
}

/// The type of activations or of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// Brain float.
    Bf16,
}

impl Number {
    /// Every number type.
    pub const ALL: &[Self] = &[Self::F32, Self::F16, Self::Bf16];

    /// Its name in conditions and specialisations, and its prelude.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::F32 => ("f32", "number/f32"),
            Self::F16 => ("f16", "number/f16"),
            Self::Bf16 => ("bf16", "number/bf16"),
        }
    }
}

/// A constant with the values it may take.
pub type Choice = (&'static str, &'static [Value]);

/// A kernel and the axes it is specialised along.
#[derive(Debug)]
pub struct Kernel {
    /// Its name, and that of its file.
    pub name: &'static str,
    /// Weight formats.
    pub formats: Formats,
    /// Number types; none for a kernel that has f32 alone.
    pub numbers: &'static [Number],
    /// Its own constants.
    pub choices: &'static [Choice],
}

/// Every kernel.
pub static KERNELS: &[Kernel] = &[
    Kernel { name: "add", formats: Formats::None, numbers: &[], choices: &[] },
    Kernel { name: "dequantize", formats: Formats::All, numbers: &[], choices: &[] },
];

/// One specialisation of a kernel.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The weight format, for kernels that read weights.
    pub format: Option<&'static Format>,
    /// The number type, for kernels that have that axis.
    pub number: Option<Number>,
    /// A value for each of the kernel's constants, in the order of the row.
    pub constants: Vec<(&'static str, Value)>,
}

/// Every specialisation of every kernel.
pub fn specs() -> Vec<Spec> {
    KERNELS.iter().flat_map(Kernel::specs).collect()
}

/// The file that decodes a format on a device, if there is one.
fn prelude(format: &Format) -> Option<&'static str> {
    let decodes = |line: &str| {
        let names = line.trim().strip_prefix("//@formats ");
        names.is_some_and(|names| names.split_whitespace().any(|name| name == format.name))
    };
    source::SOURCES.iter().find(|s| s.text.lines().any(decodes)).map(|s| s.name)
}

/// Whether a format is of plain numbers.
fn is_plain(format: &Format) -> bool {
    matches!(format.unpack, Unpack::Scalar)
}

/// Whether kernels can read a weight of this format.
pub fn is_supported(format: &Format) -> bool {
    prelude(format).is_some()
}

impl Kernel {
    /// The kernel of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }

    /// Every specialisation of this kernel.
    pub fn specs(&'static self) -> Vec<Spec> {
        let formats: Vec<Option<&Format>> = match self.formats {
            Formats::None => vec![None],
            Formats::All => FORMATS.iter().filter(|f| is_supported(f)).map(Some).collect(),
            Formats::Int => FORMATS.iter().filter(|f| is_supported(f) && !is_plain(f)).map(Some).collect(),
        };
        let numbers: Vec<Option<Number>> = match self.numbers {
            [] => vec![None],
            numbers => numbers.iter().copied().map(Some).collect(),
        };
        let mut specs = Vec::new();
        for &format in &formats {
            for &number in &numbers {
                specs.push(Spec { kernel: self, format, number, constants: Vec::new() });
            }
        }
        for (name, values) in self.choices {
            let with = |spec: &Spec, value: Value| {
                let mut spec = spec.clone();
                spec.constants.push((*name, value));
                spec
            };
            specs = specs.iter().flat_map(|spec| values.iter().map(|&v| with(spec, v))).collect();
        }
        specs
    }
}

impl Spec {
    /// The specialisation's name, an identifier: `qmatvec_q4_k_f16_moe_ncols4`.
    pub fn name(&self) -> String {
        let mut name = self.kernel.name.to_string();
        let mut add = |part: &str| {
            name.push('_');
            name.push_str(&part.to_ascii_lowercase());
        };
        if let Some(format) = self.format {
            add(format.name);
        }
        if let Some(number) = self.number {
            add(number.names().0);
        }
        for (constant, value) in &self.constants {
            match value {
                Value::Bool(true) => add(constant),
                Value::Bool(false) => {}
                Value::U32(v) => add(&format!("{constant}{v}")),
                Value::Word(v) => add(v),
            }
        }
        name
    }

    /// Its WGSL.
    ///
    /// # Errors
    /// See [`compose`].
    pub fn compose(&self) -> Result<Composed> {
        let mut constants = self.constants.clone();
        let mut slots = vec![("tables", tables::slot())];
        if let Some(format) = self.format {
            constants.extend([
                ("FORMAT", Value::Word(format.name)),
                ("PLAIN", Value::Bool(is_plain(format))),
                ("SYMMETRIC", Value::Bool(format.symmetric)),
                // Whether the two scales of a group differ.
                ("TWO_SCALES", Value::Bool(format.scale_group < hanzo_quant::GROUP)),
            ]);
            slots.push(("fields", planes::fields_slot(format)));
            slots.extend(prelude(format).map(|name| ("format", Slot::File(name))));
        }
        if let Some(number) = self.number {
            let (name, prelude) = number.names();
            constants.push(("NUMBER", Value::Word(name)));
            slots.push(("number", Slot::File(prelude)));
        }
        compose(&Recipe { name: self.name(), file: self.kernel.name, constants, slots })
    }

    /// Its valid module.
    ///
    /// # Errors
    /// See [`Spec::compose`] and [`Valid::new`].
    pub fn valid(&self) -> Result<Valid> {
        Valid::new(&self.compose()?)
    }
}
