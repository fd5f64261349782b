//! `hanzo perplexity`: how well a model predicts a text, and how its predictions differ from those of another model.

use std::path::PathBuf;

use clap::Args;
use hanzo_engine::{
    CancelToken, ModelFile,
    score::{
        self, BaseReader, BaseWriter, Divergence, DivergenceSummary, Estimate, Mean, Percentile, Scorer,
        Windows, surprises,
    },
};
use serde_json::{Value, json};

use crate::{
    compute::{ReadingArgs, Windowed},
    environment::Environment,
    error::{Error, Result},
    fetch::HubArgs,
    input,
    output::print,
    progress::Progress,
    run::end_on_interrupt,
};

const EXAMPLES: &str = "\
Examples:
  hanzo perplexity smollm2:135m -f book.txt --chunks 20
  hanzo perplexity f16.gguf -f book.txt --save-all-logits base.kld
  hanzo perplexity q4.gguf --kl-divergence --kl-divergence-base base.kld

The text is cut into chunks of -c tokens; the second half of each is scored, as
llama.cpp's perplexity tool does. Files of saved logits are those of that tool.";

/// Measure how well a model predicts a text
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PerplexityArgs {
    /// Model: a file or folder, a catalog name, or a hub id org/repo[:quant]
    #[arg(value_name = "MODEL", default_value = crate::run::DEFAULT_MODEL)]
    model: String,
    /// The text [default: standard input]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Tokens of a chunk
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(4..))]
    ctx_size: u32,
    /// Score at most so many chunks [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Let chunks begin N tokens apart and score the last N of each
    #[arg(long, value_name = "N", conflicts_with_all = ["base", "kl_divergence"])]
    ppl_stride: Option<usize>,
    /// Compare with the logits saved in --kl-divergence-base, on its text
    #[arg(long, requires = "base", conflicts_with_all = ["file", "chunks", "ctx_size"])]
    kl_divergence: bool,
    /// Save the logits of all chunks, or, with --kl-divergence, read them
    #[arg(long = "kl-divergence-base", visible_alias = "save-all-logits", value_name = "FILE")]
    base: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

/// The text of `-f`, or standard input.
pub(crate) fn text(file: Option<&PathBuf>, environment: &Environment) -> Result<String> {
    let text = match file {
        Some(path) => Some(input::file(path)?),
        None => input::piped(environment)?,
    };
    text.ok_or_else(|| Error::usage("no text: give one with -f FILE or on standard input"))
}

/// Runs the command.
pub(crate) fn run(args: &PerplexityArgs, environment: &Environment) -> Result<()> {
    let text = if args.kl_divergence { String::new() } else { text(args.file.as_ref(), environment)? };
    let files = args.hub.fetch(&args.model, environment)?;
    let file = ModelFile::open(files.main_path())?;
    let tokenizer = args.reading.tokenizer(&file)?;
    let vocab = file.spec()?.vocab_size;
    let (tokens, bos) = score::tokenize(&tokenizer, &text)?;
    let base = match &args.base {
        Some(path) if args.kl_divergence => Some(BaseReader::open(path, vocab, bos)?),
        _ => None,
    };
    let (size, n_max) = (args.ctx_size as usize, args.chunks.map(|n| n as usize));
    let windows = match (&base, args.ppl_stride) {
        (Some(base), _) => base.windows().clone(),
        (None, Some(stride)) => Windows::strided(tokens, size, stride, n_max, bos)?,
        (None, None) => Windows::side_by_side(tokens, size, n_max, bos)?,
    };
    let n_together = Scorer::n_together(windows.size(), args.reading.ubatch_size, vocab).min(windows.len());
    let n_logit_rows = score::n_logit_rows(args.reading.ubatch_size, vocab);
    let asked = Windowed { size: windows.size(), n_together, n_logit_rows };
    let decoder = args.reading.decoder(&file, &asked, &args.hub, environment)?;
    let mut reading = Reading {
        model: &files.name,
        backend: decoder.backend_name(),
        scorer: Scorer::new(decoder, args.reading.threads)?,
        progress: Progress::new(windows.len(), "chunks", environment),
        windows,
        cancel: CancelToken::default(),
    };
    end_on_interrupt(&reading.cancel)?;
    match base {
        Some(base) => reading.compare(base, args.json),
        None => reading.measure(args, vocab),
    }
}

struct Reading<'a> {
    model: &'a str,
    backend: String,
    scorer: Scorer,
    windows: Windows,
    progress: Progress,
    cancel: CancelToken,
}

impl Reading<'_> {
    /// Perplexity alone; the logits are saved where a file is named.
    fn measure(&mut self, args: &PerplexityArgs, vocab: usize) -> Result<()> {
        let Self { scorer, windows, progress, cancel, .. } = self;
        let mut saved =
            args.base.as_ref().map(|path| BaseWriter::create(path, windows, vocab)).transpose()?;
        let mut mean = Mean::default();
        let mut running = Vec::new();
        scorer.score::<Error>(windows, |parallel, scored| {
            if let Some(saved) = &mut saved {
                saved.write(parallel, &scored)?;
            }
            surprises(parallel, &scored)?.into_iter().for_each(|nll| mean.add(nll));
            if scored.ends_window {
                let ppl = mean.perplexity().value;
                running.push(ppl);
                progress.step(&format!("{ppl:.4}"));
            }
            go_on(cancel)
        })?;
        progress.finish();
        if let Some(saved) = saved {
            saved.finish()?;
        }
        let ppl = mean.perplexity();
        if !args.json {
            let n = windows.len();
            let Estimate { value, error } = ppl;
            return print(&format!(
                "perplexity: {value:.4} +/- {error:.5} ({n} chunks of {} tokens)\n",
                windows.size()
            ));
        }
        let object = json!({
            "model": self.model,
            "backend": self.backend,
            "n_ctx": self.windows.size(),
            "n_chunks": self.windows.len(),
            "n_scored": mean.n,
            "ppl": ppl.value,
            "ppl_error": ppl.error,
            "running": running,
        });
        print(&format!("{object}\n"))
    }

    /// Perplexity, and the difference from saved logits.
    fn compare(&mut self, mut base: BaseReader, json: bool) -> Result<()> {
        let Self { scorer, windows, progress, cancel, .. } = self;
        let mut divergence = Divergence::default();
        scorer.score::<Error>(windows, |parallel, scored| {
            divergence.take(parallel, &scored, &mut base)?;
            if scored.ends_window {
                let (ppl, kld) = (divergence.perplexity().value, divergence.kld().value);
                progress.step(&format!("{ppl:.4}, KLD {kld:.6}"));
            }
            go_on(cancel)
        })?;
        progress.finish();
        let summary = divergence.summary();
        if !json {
            return print(&table(&summary));
        }
        print(&format!("{}\n", object(&summary, self)))
    }
}

/// Ends the reading where the person at the terminal wants it.
pub(crate) fn go_on(cancel: &CancelToken) -> Result<()> {
    if cancel.is_cancelled() { Err(Error::interrupted()) } else { Ok(()) }
}

/// The lines of llama.cpp's perplexity tool.
fn table(summary: &DivergenceSummary) -> String {
    let line = |name: &str, Estimate { value, error }: Estimate| {
        format!("{name:<30}: {value:>10.6} ± {error:>10.6}\n")
    };
    let percents = |name: &str, Estimate { value, error }: Estimate| {
        format!("{name}: {:>6.3} ± {:>5.3} %\n", 100.0 * value, 100.0 * error)
    };
    let mut out = String::from("====== Perplexity statistics ======\n");
    out += &line("Mean PPL(Q)", summary.ppl);
    out += &line("Mean PPL(base)", summary.ppl_base);
    out += &format!("Cor(ln(PPL(Q)), ln(PPL(base))): {:>6.2}%\n", 100.0 * summary.correlation);
    out += &line("Mean ln(PPL(Q)/PPL(base))", summary.ln_ratio);
    out += &line("Mean PPL(Q)/PPL(base)", summary.ratio);
    out += &line("Mean PPL(Q)-PPL(base)", summary.difference);
    out += "\n====== KL divergence statistics ======\n";
    out += &format!("Mean    KLD: {:>10.6} ± {:>10.6}\n", summary.kld.value, summary.kld.error);
    for p in &summary.kld_percentiles {
        out += &format!("{:<7} KLD: {:>10.6}\n", name_of(p), p.value);
    }
    out += "\n====== Token probability statistics ======\n";
    out += &percents("Mean    Δp", summary.p_diff);
    for p in &summary.p_diff_percentiles {
        out += &format!("{:<7} Δp: {:>6.3}%\n", name_of(p), 100.0 * p.value);
    }
    out += &percents("RMS Δp    ", summary.p_diff_rms);
    out + &percents("Same top p", summary.same_top)
}

fn name_of(p: &Percentile) -> String {
    match p.percent {
        100.0 => "Maximum".to_owned(),
        50.0 => "Median".to_owned(),
        0.0 => "Minimum".to_owned(),
        percent => format!("{percent:>4.1}%"),
    }
}

fn object(summary: &DivergenceSummary, reading: &Reading<'_>) -> Value {
    let estimate = |Estimate { value, error }: Estimate| json!({ "value": value, "error": error });
    let percentiles = |list: &[Percentile]| -> Value {
        list.iter().map(|p| (p.percent.to_string(), p.value.into())).collect::<serde_json::Map<_, _>>().into()
    };
    json!({
        "model": reading.model,
        "backend": reading.backend,
        "n_ctx": reading.windows.size(),
        "n_chunks": reading.windows.len(),
        "n_scored": summary.n_tokens,
        "ppl": summary.ppl.value,
        "ppl_error": summary.ppl.error,
        "ppl_base": estimate(summary.ppl_base),
        "ln_ppl_ratio": estimate(summary.ln_ratio),
        "ppl_ratio": estimate(summary.ratio),
        "ppl_difference": estimate(summary.difference),
        "correlation": summary.correlation,
        "kld": estimate(summary.kld),
        "kld_percentiles": percentiles(&summary.kld_percentiles),
        "p_diff": estimate(summary.p_diff),
        "p_diff_percentiles": percentiles(&summary.p_diff_percentiles),
        "p_diff_rms": estimate(summary.p_diff_rms),
        "same_top": estimate(summary.same_top),
    })
}
