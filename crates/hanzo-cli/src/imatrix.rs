//! `hanzo imatrix`: which columns of each weight matter for a text, for quantising by it.

use std::path::PathBuf;

use clap::Args;
use hanzo_engine::{CancelToken, Importance, ModelFile, score};
use hanzo_ml::file::imatrix::Imatrix;
use serde_json::json;

use crate::{
    compute::{ReadingArgs, Windowed},
    environment::Environment,
    error::{Error, Result},
    fetch::HubArgs,
    output::{note, print},
    perplexity::{go_on, text},
    progress::Progress,
    run::end_on_interrupt,
};

const EXAMPLES: &str = "\
Examples:
  hanzo imatrix smollm2:135m -f book.txt -o imatrix.gguf --chunks 50
  hanzo imatrix model.gguf -f more.txt --in-file imatrix.gguf -o both.gguf
  hanzo imatrix --in-file a.gguf --in-file b.dat -o both.gguf

The text is read in chunks of -c tokens. Files are those of llama.cpp's tool of
this name. What there is is written every 10 chunks, and after Ctrl-C.";

/// Chunks after which the file is written.
const SAVE_EVERY: usize = 10;

/// Measure which columns of the weights matter for a text
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImatrixArgs {
    /// Model: a file or folder, a catalog name, or a hub id org/repo[:quant]
    #[arg(value_name = "MODEL", required_unless_present = "in_file")]
    model: Option<String>,
    /// The text [default: standard input]
    #[arg(short, long, value_name = "FILE", requires = "model")]
    file: Option<PathBuf>,
    /// The importance matrix to write
    #[arg(short, long, value_name = "FILE", default_value = "imatrix.gguf")]
    output: PathBuf,
    /// An importance matrix to add to; repeatable
    #[arg(long, value_name = "FILE")]
    in_file: Vec<PathBuf>,
    /// Tokens of a chunk
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(4..))]
    ctx_size: u32,
    /// Read at most so many chunks [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Take the output matrix too, where the model has one of its own
    #[arg(long)]
    process_output: bool,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubArgs,
}

/// Runs the command.
pub(crate) fn run(args: &ImatrixArgs, environment: &Environment) -> Result<()> {
    let mut collected =
        Collected { args, importance: Importance::new(args.process_output), datasets: Vec::new() };
    for path in &args.in_file {
        let earlier = Imatrix::open(path)?;
        collected.importance.merge(&earlier, args.ctx_size)?;
        collected.datasets.extend(earlier.datasets);
    }
    if let Some(model) = &args.model {
        collected.read(model, environment)?;
    }
    let imatrix = collected.write()?;
    for (name, share) in collected.importance.partial() {
        note(&format!("{name}: no token was sent to {:.1} % of the experts", 100.0 * share));
    }
    let out = args.output.display();
    if !args.json {
        let (n, chunks) = (imatrix.len(), imatrix.chunk_count);
        return print(&format!("{out}: {n} weights, {chunks} chunks of {} tokens\n", args.ctx_size));
    }
    let object = json!({
        "output": out.to_string(),
        "n_weights": imatrix.len(),
        "n_chunks": imatrix.chunk_count,
        "n_ctx": imatrix.chunk_size,
        "datasets": imatrix.datasets,
    });
    print(&format!("{object}\n"))
}

/// What was collected so far.
struct Collected<'a> {
    args: &'a ImatrixArgs,
    importance: Importance,
    datasets: Vec<String>,
}

impl Collected<'_> {
    fn read(&mut self, model: &str, environment: &Environment) -> Result<()> {
        let args = self.args;
        let text = text(args.file.as_ref(), environment)?;
        let files = args.hub.fetch(model, environment)?;
        let file = ModelFile::open(files.main_path())?;
        let (tokens, bos) = score::tokenize(&args.reading.tokenizer(&file)?, &text)?;
        let size = args.ctx_size as usize;
        let windows = score::Windows::side_by_side(tokens, size, args.chunks.map(|n| n as usize), bos)?;
        let n_logit_rows = match args.process_output {
            true => score::n_logit_rows(args.reading.ubatch_size, file.spec()?.vocab_size),
            false => 0,
        };
        let asked = Windowed { size, n_together: 1, n_logit_rows };
        let mut decoder = args.reading.decoder(&file, &asked, &args.hub, environment)?;
        let dataset = args.file.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string());
        self.datasets.push(dataset);
        let mut progress = Progress::new(windows.len(), "chunks", environment);
        let cancel = CancelToken::default();
        end_on_interrupt(&cancel)?;
        let mut importance = std::mem::take(&mut self.importance);
        let read = score::observe::<Error, _>(
            &mut decoder,
            &windows,
            args.process_output,
            &mut importance,
            |importance, window| {
                progress.step(&format!("{} weights", importance.len()));
                if (window + 1) % SAVE_EVERY == 0 || cancel.is_cancelled() {
                    write(importance, &self.datasets, args)?;
                }
                go_on(&cancel)
            },
        );
        progress.finish();
        self.importance = importance;
        read
    }

    fn write(&self) -> Result<Imatrix> {
        write(&self.importance, &self.datasets, self.args)
    }
}

/// Writes what there is.
fn write(importance: &Importance, datasets: &[String], args: &ImatrixArgs) -> Result<Imatrix> {
    let imatrix = importance.to_imatrix(datasets.to_vec(), args.ctx_size)?;
    if args.output.extension().is_some_and(|e| e == "dat") {
        imatrix.write_dat(&args.output)?;
    } else {
        imatrix.write(&args.output)?;
    }
    Ok(imatrix)
}
