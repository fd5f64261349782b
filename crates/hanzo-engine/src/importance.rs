//! Which columns of each weight matter: the squares of what meets them while a text is read, summed.
//!
//! As llama.cpp's imatrix tool collects it: every product with a weight of a layer; for experts, each row counts for the
//! expert that it was sent to. Sums are f64, so that the order of the rows does not matter; the file holds f32.

use std::collections::BTreeMap;

use hanzo_ml::file::imatrix::{Entry, Imatrix};

use crate::{
    Error, Result,
    decoder::{Observer, Product},
};

/// The beginning of the name of a layer's weight.
const LAYER_PREFIX: &str = "blk.";
/// The output matrix, where the model has one of its own.
const OUTPUT_NAME: &str = "output.weight";

/// An observer that collects an importance matrix.
#[derive(Clone, Debug, Default)]
pub struct Importance {
    with_output: bool,
    sums: BTreeMap<String, Sums>,
}

/// Of one weight.
#[derive(Clone, Debug)]
struct Sums {
    /// `[E, K]`.
    squares: Vec<f64>,
    /// `[E]`.
    counts: Vec<f64>,
}

impl Importance {
    /// Nothing yet. `with_output` takes the output matrix too.
    pub fn new(with_output: bool) -> Self {
        Self { with_output, ..Self::default() }
    }

    /// Adds what was collected before. A file that does not say how long its chunks are counts calls instead of rows
    /// (the older container does): it is taken as of chunks of `chunk_size` tokens.
    ///
    /// # Errors
    /// If a weight has other dimensions there than here.
    pub fn merge(&mut self, earlier: &Imatrix, chunk_size: u32) -> Result<()> {
        let rows = if earlier.chunk_size == 0 { f64::from(chunk_size) } else { 1.0 };
        let scaled = |values: &[f32]| values.iter().map(|&v| f64::from(v) * rows).collect::<Vec<_>>();
        for (name, entry) in earlier.iter() {
            self.add(name, &scaled(entry.sums()), &scaled(entry.counts()))?;
        }
        Ok(())
    }

    /// What was collected, and of which texts.
    ///
    /// # Errors
    /// If a sum is not a finite number of f32.
    pub fn to_imatrix(&self, datasets: Vec<String>, chunk_size: u32) -> Result<Imatrix> {
        let counts = self.sums.values().flat_map(|sums| &sums.counts);
        let most = counts.copied().fold(0.0, f64::max);
        let chunk_count = (most / f64::from(chunk_size.max(1))) as u32;
        let mut imatrix = Imatrix::default();
        (imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size) = (datasets, chunk_count, chunk_size);
        for (name, sums) in &self.sums {
            let narrow = |values: &[f64]| values.iter().map(|&v| v as f32).collect();
            let entry = Entry::new(narrow(&sums.squares), narrow(&sums.counts));
            imatrix.insert(name, entry.map_err(|what| Error::engine(format!("inputs of {name}: {what}")))?);
        }
        Ok(imatrix)
    }

    /// Weights with an expert that no row was sent to, and the share of such experts.
    pub fn partial(&self) -> impl Iterator<Item = (&str, f64)> {
        let share =
            |sums: &Sums| sums.counts.iter().filter(|&&n| n == 0.0).count() as f64 / sums.counts.len() as f64;
        self.sums
            .iter()
            .map(move |(name, sums)| (name.as_str(), share(sums)))
            .filter(|(_, share)| *share > 0.0)
    }

    /// Number of weights.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Whether nothing was collected.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    fn add(&mut self, name: &str, squares: &[f64], counts: &[f64]) -> Result<()> {
        let sums = self.of(name, squares.len(), counts.len())?;
        sums.squares.iter_mut().zip(squares).for_each(|(sum, x)| *sum += x);
        sums.counts.iter_mut().zip(counts).for_each(|(sum, x)| *sum += x);
        Ok(())
    }

    /// The sums of a weight. Where a file has one count for all experts, it is that of each.
    fn of(&mut self, name: &str, n_squares: usize, n_counts: usize) -> Result<&mut Sums> {
        let sums = self
            .sums
            .entry(name.to_owned())
            .or_insert_with(|| Sums { squares: vec![0.0; n_squares], counts: vec![0.0; n_counts] });
        if let [count] = sums.counts[..] {
            sums.counts = vec![count; n_counts];
        }
        let (squares, counts) = (sums.squares.len(), sums.counts.len());
        if (squares, counts) != (n_squares, n_counts) {
            return Err(Error::request(format!(
                "{name} has {squares} sums and {counts} counts before, and {n_squares} and {n_counts} now"
            )));
        }
        Ok(sums)
    }
}

impl Observer for Importance {
    fn wants(&self, name: &str) -> bool {
        name.starts_with(LAYER_PREFIX) || (self.with_output && name == OUTPUT_NAME)
    }

    fn product(&mut self, product: &Product<'_>) -> Result<()> {
        let k = product.k;
        let sums = self.of(product.name, product.n_experts * k, product.n_experts)?;
        for (expert, row) in product.rows() {
            sums.counts[expert] += 1.0;
            let squares = &mut sums.squares[expert * k..(expert + 1) * k];
            squares.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x) * f64::from(x));
        }
        Ok(())
    }
}
