//! What became of each tensor, for people and for programs. Fields of the JSON are only ever added.

use std::path::Path;

use hanzo_engine::quantize::{Plan, Planned, Source};
use indicatif::HumanBytes;
use serde_json::{Value as Json, json};

use crate::output::{columns, shortened};

/// Names longer than this are cut.
const NAME_CHARS_MAX: usize = 60;

/// What is said about a plan.
pub(super) struct Report<'a> {
    model: &'a str,
    kind: &'a str,
    out: Option<&'a Path>,
    notes: &'a [String],
    tensors: &'a [Planned],
}

impl<'a> Report<'a> {
    pub(super) fn new(
        model: &'a str,
        kind: &'a str,
        out: Option<&'a Path>,
        source: &'a Source,
        plan: &'a Plan<'_>,
    ) -> Self {
        Self { model, kind, out, notes: source.notes(), tensors: plan.tensors() }
    }

    fn bytes(&self, of: impl Fn(&Planned) -> usize) -> u64 {
        self.tensors.iter().map(|t| of(t) as u64).sum()
    }

    fn n_params(&self) -> u64 {
        self.bytes(|t| t.shape.iter().product())
    }

    /// Bits that a parameter takes on average.
    fn bits(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.n_params().max(1) as f64
    }

    fn names(&self, which: impl Fn(&Planned) -> bool) -> Vec<&str> {
        self.tensors.iter().filter(|t| which(t)).map(|t| t.name.as_str()).collect()
    }

    /// What people should know before they use the file.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut lines = self.notes.to_vec();
        let n = self.tensors.len();
        let fallen = self.names(|t| t.wanted.is_some()).len();
        if fallen > 0 {
            lines.push(format!(
                "{fallen} of {n} tensors have rows that are no whole blocks of their format and get a larger one"
            ));
        }
        if let [first, rest @ ..] = self.names(Planned::is_blind).as_slice() {
            let first = shortened(first, NAME_CHARS_MAX);
            lines.push(format!(
                "the importance matrix knows nothing of {} tensors, the first of them {first}",
                1 + rest.len()
            ));
        }
        if self.out.is_none() && self.tensors.iter().any(|t| t.lacks_importance) {
            let n = self.names(|t| t.lacks_importance).len();
            lines.push(format!("{n} tensors need an importance matrix (--imatrix)"));
        }
        lines
    }

    /// A table where nothing is written, else one line.
    pub(super) fn text(&self) -> String {
        let (from, to) = (self.bytes(|t| t.bytes_from), self.bytes(|t| t.bytes_to));
        let sizes = format!(
            "{} → {}, {:.2} → {:.2} bits per weight",
            HumanBytes(from),
            HumanBytes(to),
            self.bits(from),
            self.bits(to)
        );
        if let Some(out) = self.out {
            return format!("{}: {sizes}\n", out.display());
        }
        let head = ["tensor", "shape", "from", "to", "size"].map(str::to_owned).to_vec();
        let rows = self.tensors.iter().map(|t| {
            let shape = t.shape.iter().map(usize::to_string).collect::<Vec<_>>().join("×");
            let to = match t.wanted {
                Some(wanted) => format!("{} (not {})", t.to.name, wanted.name),
                None => t.to.name.to_owned(),
            };
            let name = shortened(&t.name, NAME_CHARS_MAX);
            vec![name, shape, t.from.name.to_owned(), to, HumanBytes(t.bytes_to as u64).to_string()]
        });
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        format!("{}\n{} tensors, {sizes}\n", columns(&rows), self.tensors.len())
    }

    pub(super) fn json(&self) -> String {
        let (from, to) = (self.bytes(|t| t.bytes_from), self.bytes(|t| t.bytes_to));
        let tensors: Vec<Json> = self
            .tensors
            .iter()
            .map(|t| {
                json!({
                    "name": t.name,
                    "shape": t.shape,
                    "from": t.from.name,
                    "to": t.to.name,
                    "instead_of": t.wanted.map(|format| format.name),
                    "bytes_from": t.bytes_from,
                    "bytes_to": t.bytes_to,
                    "importance": t.importance().is_some(),
                    "needs_importance": t.lacks_importance,
                })
            })
            .collect();
        let object = json!({
            "model": self.model,
            "type": self.kind,
            "written": self.out.map(|path| path.display().to_string()),
            "parameters": self.n_params(),
            "bytes_from": from,
            "bytes_to": to,
            "bits_per_weight_from": self.bits(from),
            "bits_per_weight_to": self.bits(to),
            "tensors": tensors,
        });
        format!("{object:#}\n")
    }
}
