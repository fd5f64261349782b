//! `hanzo doctor`: whether this machine has what Hanzo needs, and what to do where it has not.

mod numerics;

use std::env::consts;

use clap::Args;
use hanzo_hub::Hub;
use hanzo_ml::Device;
use indicatif::HumanBytes;
use serde_json::json;

use crate::{
    devices,
    environment::Environment,
    error::{Error, Result},
    fetch::HubArgs,
    machine::Machine,
    output::{self, Style, shortened, styled},
};

/// Free space below which the smallest model of the catalog does not fit, and below which most others do not.
const DISK_FAIL_BYTES: u64 = 256 << 20;
const DISK_WARN_BYTES: u64 = 5 << 30;
/// Available memory below which the default model with its cache does not fit, and below which most others do not.
const MEMORY_FAIL_BYTES: u64 = 256 << 20;
const MEMORY_WARN_BYTES: u64 = 2 << 30;

const EXAMPLES: &str = "\
Examples:
  hanzo doctor
  hanzo doctor --verify --json
  hanzo doctor --numerics --device vulkan:0

Each line is ok, warn or fail, with what to do next. The exit code is 1 if one
of them is fail. Nothing is fetched and nothing but a probe file is written.

With --numerics each operation is computed on each device and compared with exact
sums, for every weight format: a minute or so for a GPU. The exit code is 1 if a
result is outside what the arithmetic allows.";

/// Check this machine and the model cache
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Hash every file of the cache too (reads all of them)
    #[arg(long)]
    verify: bool,
    /// Check what the devices compute instead
    #[arg(long)]
    numerics: bool,
    /// The only device to check: cpu, cuda:0, rocm:0, vulkan:0
    #[arg(long, requires = "numerics")]
    device: Option<Device>,
    #[command(flatten)]
    hub: HubArgs,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    Warn,
    Fail,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One line.
#[derive(Debug)]
struct Check {
    name: &'static str,
    state: State,
    /// What was found.
    found: String,
    /// What to do, unless all is well.
    next: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), next: None }
    }

    fn bad(name: &'static str, state: State, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, state, found: found.into(), next: Some(next.into()) }
    }
}

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs, environment: &Environment) -> Result<()> {
    if args.numerics {
        let gpu = environment.gpu(args.hub.cache_dir());
        return numerics::run(args.device, args.json, &gpu, environment);
    }
    let machine = Machine::look()?;
    let mut checks = vec![processor(&machine), memory(&machine)];
    match args.hub.hub(environment) {
        Ok(hub) => {
            let written = hub.probe_cache();
            checks.push(cache_folder(&hub, &written));
            checks.extend(written.as_ref().ok().map(|&free| disk(free)));
            checks.extend(models(&hub, args.verify));
            checks.extend(written.is_ok().then(|| python(&hub)));
        }
        Err(error) => checks.push(Check::bad(
            "cache folder",
            State::Fail,
            error.to_string(),
            "name a folder with --cache-dir",
        )),
    }
    output::print(&if args.json { as_json(&checks) } else { as_text(&checks, environment.colours) })?;
    let n_failed = checks.iter().filter(|check| check.state == State::Fail).count();
    if n_failed > 0 {
        return Err(Error::failed(format!("{n_failed} of {} checks failed", checks.len())));
    }
    Ok(())
}

fn processor(machine: &Machine) -> Check {
    let found = format!(
        "{}, {} threads, {}",
        shortened(&machine.cpu, 60),
        machine.threads,
        devices::instructions_in_words(machine.instructions)
    );
    match machine.instructions {
        "portable" if consts::ARCH == "x86_64" => {
            let next = "this processor, or the virtual machine, has no AVX2 with FMA: answers will be slow";
            Check::bad("processor", State::Warn, found, next)
        }
        "portable" => {
            let next = format!("there is no vector code for {} yet: answers will be slow", consts::ARCH);
            Check::bad("processor", State::Warn, found, next)
        }
        _ => Check::ok("processor", found),
    }
}

fn memory(machine: &Machine) -> Check {
    let found = devices::memory_in_words(machine);
    let Some(memory) = machine.memory else {
        return Check::bad("memory", State::Warn, found, "a model needs its file's size and a little more");
    };
    let next = "end other programs, or choose a smaller model or a smaller context (-c)";
    graded("memory", memory.available, (MEMORY_FAIL_BYTES, MEMORY_WARN_BYTES), found, next)
}

fn cache_folder(hub: &Hub, written: &hanzo_hub::Result<u64>) -> Check {
    let dir = hub.config().cache_dir.display();
    match written {
        Ok(_) => Check::ok("cache folder", format!("{dir} can be written")),
        Err(error) => {
            let next = "make it writable, or name another folder with --cache-dir";
            Check::bad("cache folder", State::Fail, format!("cannot be written: {error}"), next)
        }
    }
}

fn disk(free: u64) -> Check {
    let next = "remove models (hanzo list, hanzo rm), or name a folder on another disk with --cache-dir";
    let found = format!("{} free for models", HumanBytes(free));
    graded("disk", free, (DISK_FAIL_BYTES, DISK_WARN_BYTES), found, next)
}

/// Fails below the first limit, warns below the second.
fn graded(name: &'static str, bytes: u64, limits: (u64, u64), found: String, next: &str) -> Check {
    match bytes {
        bytes if bytes < limits.0 => Check::bad(name, State::Fail, found, next),
        bytes if bytes < limits.1 => Check::bad(name, State::Warn, found, next),
        _ => Check::ok(name, found),
    }
}

/// One line for all models that are sound, and one for each that is not.
fn models(hub: &Hub, verify: bool) -> Vec<Check> {
    let list = match hub.list() {
        Ok(list) => list,
        Err(error) => {
            let next = "make the folder readable, or name another with --cache-dir";
            return vec![Check::bad("models", State::Fail, error.to_string(), next)];
        }
    };
    let mut checks = Vec::new();
    let (mut n_sound, mut bytes) = (0, 0_u64);
    for model in &list {
        let problem = model.problem.clone().or_else(|| {
            let verified = if verify { hub.verify(&model.name, &mut |_| ()) } else { Ok(()) };
            verified.err().map(|error| error.to_string())
        });
        let name = shortened(&model.name, 200);
        if let Some(problem) = problem {
            let found = format!("{name}: {}", shortened(&problem, 400));
            let next = format!("hanzo rm {name}, then hanzo pull it again");
            checks.push(Check::bad("models", State::Fail, found, next));
        } else {
            n_sound += 1;
            bytes = bytes.saturating_add(model.size);
        }
    }
    let how = if verify { "hashed and sound" } else { "of the right size" };
    let found = match n_sound {
        0 => "none here".to_owned(),
        n => format!("{n} here and {how}, {}", HumanBytes(bytes)),
    };
    checks.insert(0, Check::ok("models", found));
    checks
}

fn python(hub: &Hub) -> Check {
    match hub.probe_python() {
        Ok(Ok(found)) => Check::ok("python", shortened(&found, 200)),
        Ok(Err(none)) => {
            let found = format!("no Python with pip was found ({})", shortened(&none.tried, 400));
            let next = format!("{}; only models that come as Python packages need it", none.install);
            Check::bad("python", State::Warn, found, next)
        }
        Err(error) => Check::bad("python", State::Fail, error.to_string(), "make the cache folder writable"),
    }
}

fn as_json(checks: &[Check]) -> String {
    let check = |check: &Check| json!({ "check": check.name, "state": check.state.name(), "found": check.found, "next": check.next });
    format!("{:#}\n", checks.iter().map(check).collect::<serde_json::Value>())
}

fn as_text(checks: &[Check], colours: bool) -> String {
    let mut rows = Vec::new();
    for check in checks {
        let style = match check.state {
            State::Ok => Style::Good,
            State::Warn => Style::Title,
            State::Fail => Style::Bad,
        };
        let state = styled(check.state.name(), style, colours);
        rows.push(vec![state, check.name.to_owned(), check.found.clone()]);
        let next = check.next.iter().map(|next| vec![String::new(), String::new(), format!("next: {next}")]);
        rows.extend(next);
    }
    output::columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_divide_fail_from_warn_from_ok() {
        let state = |bytes| graded("x", bytes, (10, 20), String::new(), "do").state;
        assert_eq!([9, 10, 19, 20].map(state), [State::Fail, State::Warn, State::Warn, State::Ok]);
    }

    #[test]
    fn what_is_not_well_says_what_to_do_next() {
        let checks = [Check::ok("a", "fine"), Check::bad("b", State::Fail, "broken", "mend it")];
        assert_eq!(as_text(&checks, false), "ok    a  fine\nfail  b  broken\n         next: mend it\n");
    }
}
