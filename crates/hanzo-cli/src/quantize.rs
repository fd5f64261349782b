//! `hanzo quantize`: a model in a smaller format, or a Hugging Face folder as a GGUF file.

mod report;

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use clap::Args;
use hanzo_engine::{
    CancelToken,
    quantize::{Options, Outcome, Plan, Progress, Source, Target, TensorRule},
};
use hanzo_ml::{file::imatrix::Imatrix, parallel::Parallel};
use hanzo_quant::{Format, MIXES, Mix};
use indicatif::HumanBytes;

use crate::{
    environment::Environment,
    error::{Error, Result},
    fetch::HubArgs,
    output::{note, print},
    progress::bar,
    run::end_on_interrupt,
};
use report::Report;

const EXAMPLES: &str = "\
Examples:
  hanzo quantize model-f16.gguf small.gguf Q4_K_M
  hanzo quantize hugging-face-folder model.gguf Q8_0
  hanzo quantize model-f16.gguf Q4_K_M --dry-run
  hanzo quantize model-f16.gguf small.gguf IQ2_XS --imatrix model.imatrix
  hanzo quantize folder out.gguf Q4_K_M --tensor-type ffn_down=Q6_K

A mix gives some tensors more bits than others, as llama-quantize does. Files
that are quantised already lose more when it is done again: begin with F16, BF16
or F32.";

/// What the name of a mix that copies is.
const COPY: &str = "COPY";
/// Bytes that stay free on the disk.
const SPARE_BYTES: u64 = 64 << 20;

/// Make a model smaller, or a GGUF file of a Hugging Face folder
#[derive(Debug, Args)]
#[command(allow_missing_positional = true, after_help = EXAMPLES, after_long_help = after_long_help())]
pub(crate) struct QuantizeArgs {
    /// Model: a GGUF file, a folder with config.json and safetensors, or a name
    model: String,
    /// The GGUF file to be written; may be left out with --dry-run
    #[arg(required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// What to make, for example Q4_K_M; `hanzo help quantize` lists the types
    #[arg(value_name = "TYPE", required = true)]
    kind: String,
    /// Importance matrix (see `hanzo imatrix`), as GGUF or .dat
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Show what each tensor would become and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace OUT if it is there
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Threads [default: one per physical core]
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    /// Take weights that are quantised already; costs quality
    #[arg(long)]
    allow_requantize: bool,
    /// Format of tensors whose name has PATTERN in it (a regular expression);
    /// the first that matches wins
    #[arg(long, value_name = "PATTERN=FORMAT", help_heading = "Formats of tensors")]
    tensor_type: Vec<String>,
    /// Format of the output matrix
    #[arg(long, value_name = "FORMAT", help_heading = "Formats of tensors")]
    output_tensor_type: Option<String>,
    /// Format of the token embedding
    #[arg(long, value_name = "FORMAT", help_heading = "Formats of tensors")]
    token_embedding_type: Option<String>,
    /// Leave the output matrix as it is
    #[arg(long, help_heading = "Formats of tensors")]
    leave_output_tensor: bool,
    /// Every matrix in the base format of the mix
    #[arg(long, help_heading = "Formats of tensors")]
    pure: bool,
    #[command(flatten)]
    hub: HubArgs,
}

/// The types below the examples, from the table.
fn after_long_help() -> String {
    let mut lines = vec![EXAMPLES.to_owned(), String::new(), "Types, from small to large:".to_owned()];
    for mix in MIXES.iter().map(|mix| mix.name).chain([COPY]) {
        match lines.last_mut() {
            Some(line)
                if line.starts_with("  ") && line.len() + mix.len() < 79 && !line.contains("hanzo") =>
            {
                line.push(' ');
                line.push_str(mix);
            }
            _ => lines.push(format!("  {mix}")),
        }
    }
    lines.join("\n")
}

impl QuantizeArgs {
    fn options(&self) -> Result<Options> {
        let kind = self.kind.as_str();
        let target = if kind.eq_ignore_ascii_case(COPY) {
            Target::Copy
        } else {
            let known: Vec<&str> = MIXES.iter().map(|mix| mix.name).chain([COPY]).collect();
            let unknown = || Error::usage(format!("type {kind:?} is not one of {}", known.join(", ")));
            Target::Mix(Mix::from_name(kind).ok_or_else(unknown)?)
        };
        let parse =
            |rule: &String| TensorRule::parse(rule).map_err(|e| Error::usage(format!("--tensor-type {e}")));
        Ok(Options {
            target,
            pure: self.pure,
            keep_output: self.leave_output_tensor,
            requantize: self.allow_requantize,
            output: format("--output-tensor-type", self.output_tensor_type.as_deref())?,
            embedding: format("--token-embedding-type", self.token_embedding_type.as_deref())?,
            rules: self.tensor_type.iter().map(parse).collect::<Result<_>>()?,
        })
    }
}

fn format(option: &str, name: Option<&str>) -> Result<Option<&'static Format>> {
    let find = |name: &str| {
        let format = Format::from_name(name).filter(|format| format.encode.is_some());
        format.ok_or_else(|| Error::usage(format!("{option} {name:?}: no encoder of that format")))
    };
    name.map(find).transpose()
}

/// Runs the command.
pub(crate) fn run(args: &QuantizeArgs, environment: &Environment) -> Result<()> {
    let options = args.options()?;
    let out = args.out.as_deref().filter(|_| !args.dry_run);
    if let Some(out) = out.filter(|out| out.exists() && !(args.force && out.is_file())) {
        let what = if out.is_file() { "is there already; --force replaces it" } else { "is no file" };
        return Err(Error::usage(format!("{} {what}", out.display())));
    }
    let imatrix = args.imatrix.as_deref().map(Imatrix::open).transpose()?;
    let files = args.hub.fetch(&args.model, environment)?;
    let source = Source::open(files.main_path())?;
    let mut plan = Plan::new(&source, &options, imatrix.as_ref())?;
    if let (Some(file), Some(imatrix)) = (&args.imatrix, &imatrix) {
        plan.note_imatrix(&file.display().to_string(), imatrix);
    }
    let report = Report::new(&files.name, &args.kind, out, &source, &plan);
    for line in report.warnings() {
        note(&line);
    }
    if let Some(out) = out {
        check_space(out, plan.bytes())?;
        write(&plan, out, args.threads, environment)?;
    }
    print(&if args.json { report.json() } else { report.text() })
}

fn check_space(out: &Path, bytes: u64) -> Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let free = fs4::available_space(folder);
    let free = free.map_err(|e| Error::failed(format!("{}: {e}", folder.display())))?;
    let need = bytes.saturating_add(SPARE_BYTES);
    if need > free {
        return Err(Error::failed(format!(
            "{}: {} are needed, {} are free",
            folder.display(),
            HumanBytes(need),
            HumanBytes(free)
        )));
    }
    Ok(())
}

fn write(plan: &Plan<'_>, out: &Path, threads: Option<usize>, environment: &Environment) -> Result<()> {
    let cancel = CancelToken::default();
    end_on_interrupt(&cancel)?;
    let bar = bar(None, "{wide_bar} {percent}% {eta} {msg}", environment.bars);
    let outcome = plan.write(out, &Parallel::new(threads)?, &mut |progress: Progress<'_>| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        bar.set_message(progress.tensor.to_owned());
        if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    match outcome? {
        Outcome::Written => Ok(()),
        Outcome::Stopped => Err(Error::interrupted()),
    }
}
