//! The list of kernels, and every specialisation of each that the engine may launch.
//!
//! A row says along which axes a kernel is specialised: the weight formats it reads, the number type of its activations
//! or cache, and constants of its own. [`specs`] is their product.

use hanzo_quant::{FORMATS, Format, Unpack};

use crate::{Composed, Error, Recipe, Result, Slot, Target, Valid, Value, compose, planes, source, tables};

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
    /// Signed bytes in blocks of 32 with an f16 scale, laid out as [`Planes`](crate::Planes) lays a tensor of the format; of a
    /// cache alone.
    Q8_0,
}

impl Number {
    /// Every type of activations.
    pub const ALL: &[Self] = &[Self::F32, Self::F16, Self::Bf16];
    /// Those of 16 bits.
    pub const HALF: &[Self] = &[Self::F16, Self::Bf16];
    /// Every type of a cache.
    pub const CACHE: &[Self] = &[Self::F32, Self::F16, Self::Bf16, Self::Q8_0];

    /// Its name in conditions and specialisations, and its prelude.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::F32 => ("f32", "number/f32"),
            Self::F16 => ("f16", "number/f16"),
            Self::Bf16 => ("bf16", "number/bf16"),
            Self::Q8_0 => ("q8", "number/q8"),
        }
    }
}

/// A constant with the values it may take.
pub type Choice = (&'static str, &'static [Value]);

/// A kernel and the axes it is specialised along. A file whose axes depend on each other has several rows.
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

/// A kernel without weights, on f32.
const fn plain(name: &'static str, choices: &'static [Choice]) -> Kernel {
    Kernel { name, formats: Formats::None, numbers: &[], choices }
}

/// A kernel without weights, on every number type.
const fn typed(name: &'static str, choices: &'static [Choice]) -> Kernel {
    Kernel { name, formats: Formats::None, numbers: Number::ALL, choices }
}

/// A kernel on a cache of any type.
const fn cached(name: &'static str, choices: &'static [Choice]) -> Kernel {
    Kernel { name, formats: Formats::None, numbers: Number::CACHE, choices }
}

/// A kernel that reads any weight, with f32.
const fn weights(name: &'static str) -> Kernel {
    Kernel { name, formats: Formats::All, numbers: &[], choices: &[] }
}

/// A product of any weight with floats.
const fn floats(name: &'static str, choices: &'static [Choice]) -> Kernel {
    Kernel { name, formats: Formats::All, numbers: Number::ALL, choices }
}

/// A product of integer weights with signed bytes.
const fn bytes(name: &'static str, choices: &'static [Choice]) -> Kernel {
    Kernel { name, formats: Formats::Int, numbers: &[], choices }
}

const NO: &[Value] = &[Value::Bool(false)];
const YES: &[Value] = &[Value::Bool(true)];
const EITHER: &[Value] = &[Value::Bool(false), Value::Bool(true)];
/// Widths of heads that attention makes room for.
const HEAD_MAX: &[Value] = &[Value::U32(64), Value::U32(128), Value::U32(256)];
/// Query heads of a key/value head that one workgroup serves.
const HEADS: &[Value] = &[Value::U32(1), Value::U32(2), Value::U32(4), Value::U32(8)];
const ACTIVATIONS: &[Value] = &[Value::Word("silu"), Value::Word("gelu_erf"), Value::Word("gelu_tanh")];
/// Those without a gate; `none` scales and shifts alone.
const UNGATED: &[Value] = &[
    Value::Word("none"),
    Value::Word("silu"),
    Value::Word("gelu_erf"),
    Value::Word("gelu_tanh"),
    Value::Word("sigmoid"),
    Value::Word("relu"),
    Value::Word("tanh"),
    Value::Word("exp"),
];
const BINARY: &[Value] = &[
    Value::Word("add"),
    Value::Word("sub"),
    Value::Word("mul"),
    Value::Word("div"),
    Value::Word("min"),
    Value::Word("max"),
];
const REDUCTIONS: &[Value] = &[
    Value::Word("sum"),
    Value::Word("mean"),
    Value::Word("squares"),
    Value::Word("max"),
    Value::Word("min"),
];
const CASTS: &[Value] = &[Value::Word("narrow"), Value::Word("widen"), Value::Word("keep")];
/// Axes of a convolution: length, or height and width.
const DIMS: &[Value] = &[Value::U32(1), Value::U32(2)];
const FMA: &[Value] = &[Value::Word("fma")];
const INT8: &[Value] = &[Value::Word("int8")];
const MATRIX: &[Value] = &[Value::Word("matrix")];
/// Sides of the cooperative matrices of devices, and threads of the subgroups that hold one.
const SIDES: &[Value] = &[Value::U32(8), Value::U32(16)];
const SUBGROUPS: &[Value] = &[Value::U32(32)];
/// AMD's gfx9 has 64 threads, and matrices of 16.
const WIDE_SIDES: &[Value] = &[Value::U32(16)];
const WIDE_SUBGROUPS: &[Value] = &[Value::U32(64)];
const ONE: &[Value] = &[Value::U32(1)];
const FEW: &[Value] = &[Value::U32(1), Value::U32(4)];
const COLUMNS: &[Value] = &[Value::U32(1), Value::U32(2), Value::U32(4), Value::U32(8)];

/// Every kernel.
pub static KERNELS: &[Kernel] = &[
    plain("activation", &[("ACTIVATION", UNGATED)]),
    plain("add", &[]),
    plain("argmax", &[]),
    plain("attention_combine", &[("SINKS", EITHER)]),
    cached(
        "attention_decode",
        &[("HEAD_MAX", HEAD_MAX), ("HEADS", HEADS), ("SPLIT", NO), ("SINKS", EITHER), ("SOFTCAP", EITHER)],
    ),
    // The sinks of a split range are added where its parts are joined.
    cached(
        "attention_decode",
        &[("HEAD_MAX", HEAD_MAX), ("HEADS", HEADS), ("SPLIT", YES), ("SINKS", NO), ("SOFTCAP", EITHER)],
    ),
    cached("attention_prefill", &[("HEAD_MAX", HEAD_MAX), ("SINKS", EITHER), ("SOFTCAP", EITHER)]),
    plain("binary", &[("OP", BINARY)]),
    typed("cast", &[("FROM_F32", EITHER)]),
    Kernel {
        name: "cast_strided",
        formats: Formats::None,
        numbers: Number::HALF,
        choices: &[("CAST", CASTS)],
    },
    typed("conv", &[("DIMS", DIMS), ("BIAS", EITHER)]),
    plain("copy_strided", &[]),
    weights("dequantize"),
    weights("embed"),
    plain("gated_activation", &[("ACTIVATION", ACTIVATIONS)]),
    plain("gather_rows", &[]),
    cached("kv_append", &[]),
    plain("layer_norm", &[("ADD", EITHER), ("BIAS", EITHER), ("QUANTIZE", EITHER)]),
    plain("moe_combine", &[]),
    plain("moe_plan", &[("TILE_ROWS", &[Value::U32(64)])]),
    floats("qmatmul", &[("CORE", FMA), ("MOE", NO), ("BIAS", EITHER)]),
    floats("qmatmul", &[("CORE", FMA), ("MOE", YES), ("BIAS", NO)]),
    bytes("qmatmul", &[("CORE", INT8), ("MOE", NO), ("BIAS", EITHER)]),
    bytes("qmatmul", &[("CORE", INT8), ("MOE", YES), ("BIAS", NO)]),
    floats(
        "qmatmul",
        &[("CORE", MATRIX), ("TILE", SIDES), ("SUBGROUP", SUBGROUPS), ("MOE", NO), ("BIAS", EITHER)],
    ),
    floats(
        "qmatmul",
        &[("CORE", MATRIX), ("TILE", SIDES), ("SUBGROUP", SUBGROUPS), ("MOE", YES), ("BIAS", NO)],
    ),
    floats(
        "qmatmul",
        &[
            ("CORE", MATRIX),
            ("TILE", WIDE_SIDES),
            ("SUBGROUP", WIDE_SUBGROUPS),
            ("MOE", NO),
            ("BIAS", EITHER),
        ],
    ),
    floats(
        "qmatmul",
        &[("CORE", MATRIX), ("TILE", WIDE_SIDES), ("SUBGROUP", WIDE_SUBGROUPS), ("MOE", YES), ("BIAS", NO)],
    ),
    floats("qmatvec", &[("INT8", NO), ("MOE", NO), ("BIAS", EITHER), ("COLS", FEW)]),
    floats("qmatvec", &[("INT8", NO), ("MOE", YES), ("BIAS", NO), ("COLS", ONE)]),
    bytes("qmatvec", &[("INT8", YES), ("MOE", NO), ("BIAS", EITHER), ("COLS", COLUMNS)]),
    bytes("qmatvec", &[("INT8", YES), ("MOE", YES), ("BIAS", NO), ("COLS", ONE)]),
    typed("quantize", &[]),
    plain("reduce_rows", &[("OP", REDUCTIONS)]),
    plain("rms_norm", &[("ADD", EITHER), ("WEIGHT", EITHER), ("QUANTIZE", EITHER)]),
    plain("rope", &[("ADJACENT", EITHER)]),
    plain("rope_angles", &[]),
    cached("rope_append", &[("ADJACENT", EITHER), ("NORM", EITHER)]),
    plain("route", &[("RENORMALIZE", EITHER)]),
    plain("scatter_rows", &[]),
    plain("softcap", &[]),
    plain("softmax", &[]),
    plain("top_k", &[]),
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
    matches!(format.unpack, Unpack::Scalar(_))
}

/// Whether kernels can read a weight of this format.
pub fn is_supported(format: &Format) -> bool {
    prelude(format).is_some()
}

impl Kernel {
    /// Whether this row lists a weight format (or none).
    fn reads(&self, format: Option<&Format>) -> bool {
        match (self.formats, format) {
            (Formats::None, format) => format.is_none(),
            (Formats::All, Some(format)) => is_supported(format),
            (Formats::Int, Some(format)) => is_supported(format) && !is_plain(format),
            (Formats::All | Formats::Int, None) => false,
        }
    }

    /// Whether this row lists a number type (or none).
    fn takes(&self, number: Option<Number>) -> bool {
        number.map_or(self.numbers.is_empty(), |number| self.numbers.contains(&number))
    }

    /// Every specialisation of this kernel.
    pub(crate) fn specs(&'static self) -> Vec<Spec> {
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
    /// The listed specialisation of a kernel with these constants; those that its row leaves no choice about may be left
    /// out.
    ///
    /// # Errors
    /// No row lists it: nothing is launched that the tests have not walked.
    pub fn find(
        kernel: &str,
        format: Option<&'static Format>,
        number: Option<Number>,
        constants: &[(&str, Value)],
    ) -> Result<Self> {
        let given = |name: &str| constants.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        for row in KERNELS.iter().filter(|row| row.name == kernel) {
            let fits = row.reads(format) && row.takes(number);
            let known = constants.iter().all(|(name, _)| row.choices.iter().any(|(n, _)| n == name));
            let chosen: Option<Vec<_>> = (row.choices.iter())
                .map(|&(name, values)| match (given(name), values) {
                    (Some(value), _) => values.contains(&value).then_some((name, value)),
                    (None, [only]) => Some((name, *only)),
                    (None, _) => None,
                })
                .collect();
            if let Some(constants) = chosen.filter(|_| fits && known) {
                return Ok(Self { kernel: row, format, number, constants });
            }
        }
        let what = format!("no specialisation is listed for {format:?}, {number:?}, {constants:?}");
        Err(Error::kernel(kernel, what))
    }

    /// The specialisation's name, an identifier: `qmatvec_q4_k_f16_bias_cols4`.
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

    /// Whether a target has what it needs: Metal's matrices have a side of 8, those of CUDA and HIP one of 16; Vulkan's
    /// devices say which. Subgroups of 64 threads are AMD's alone.
    pub fn suits(&self, target: Target) -> bool {
        let value = |name: &str| self.constants.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        let fits = match (value("TILE"), target) {
            (Some(Value::U32(8)), Target::Cuda | Target::Hip) | (Some(Value::U32(16)), Target::Msl) => false,
            (_, Target::SpirV | Target::Msl | Target::Cuda | Target::Hip) => true,
        };
        let is_wide = value("SUBGROUP") == Some(Value::U32(64));
        fits && !(is_wide && matches!(target, Target::Msl | Target::Cuda))
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
