//! `hanzo doctor --numerics`: whether the devices compute what they should.

use hanzo_ml::{
    Device,
    gpu::GpuOptions,
    numerics::{self, Depth, Processor, Report, Subject},
};
use serde_json::{Value as Json, json};

use crate::{
    environment::Environment,
    error::{Error, Result},
    output::{self, Style, note, styled},
    progress::Progress,
};

/// Checks one device, or all that are found.
pub(super) fn run(
    device: Option<Device>,
    as_json: bool,
    gpu: &GpuOptions,
    environment: &Environment,
) -> Result<()> {
    let devices = device.map_or_else(|| found(gpu), |device| vec![device]);
    let mut reports = Vec::with_capacity(devices.len());
    for device in devices {
        reports.push(check(device, gpu, environment)?);
    }
    let shown = if as_json {
        format!("{:#}\n", reports.iter().map(report_as_json).collect::<Json>())
    } else {
        reports.iter().map(|report| as_text(report, environment.colours)).collect::<Vec<_>>().join("\n")
    };
    output::print(&shown)?;
    let n_failed: usize = reports.iter().map(Report::n_failed).sum();
    if n_failed > 0 {
        let n_checks: usize = reports.iter().map(Report::n_checks).sum();
        return Err(Error::failed(format!("{n_failed} of {n_checks} combinations failed")));
    }
    Ok(())
}

/// The processor, and every GPU that can be used.
fn found(gpu: &GpuOptions) -> Vec<Device> {
    let gpus = Device::gpus(&gpu.driver).into_iter().filter_map(|(_, found)| found.ok()).flatten();
    let usable = gpus.filter(|gpu| gpu.unusable.is_none()).filter_map(|gpu| gpu.device.parse().ok());
    [Device::Cpu].into_iter().chain(usable).collect()
}

fn check(device: Device, gpu: &GpuOptions, environment: &Environment) -> Result<Report> {
    let mut subject: Box<dyn Subject> = match device {
        Device::Cpu => Box::new(Processor::new(None)?),
        _ => Box::new(device.open_gpu(gpu.clone())?),
    };
    let name = subject.backend().name();
    note(&format!("checking {name}"));
    let mut progress: Option<Progress> = None;
    let report = numerics::check(&mut *subject, Depth::for_device(&name), &mut |what, n_steps| {
        let progress = progress.get_or_insert_with(|| Progress::new(n_steps, "steps", environment));
        progress.step(what);
    });
    if let Some(progress) = &mut progress {
        progress.finish();
    }
    Ok(report?)
}

fn report_as_json(report: &Report) -> Json {
    let operation = |o: &numerics::Outcome| {
        json!({
            "operation": o.operation,
            "arithmetic": o.arithmetic.map(|a| a.to_string()),
            "passed": o.n_checks - o.n_failed,
            "failed": o.n_failed,
            "subnormals_flushed": o.n_flushed,
            "failures": o.failures,
        })
    };
    json!({
        "device": report.device,
        "passed": report.n_checks() - report.n_failed(),
        "failed": report.n_failed(),
        "operations": report.outcomes.iter().map(operation).collect::<Json>(),
    })
}

fn as_text(report: &Report, colours: bool) -> String {
    let mut rows = Vec::new();
    for outcome in &report.outcomes {
        let (state, style) = if outcome.n_failed == 0 { ("ok", Style::Good) } else { ("fail", Style::Bad) };
        let mut found = format!("{} of {}", outcome.n_checks - outcome.n_failed, outcome.n_checks);
        if outcome.n_flushed > 0 {
            found.push_str(&format!(", {} subnormal values flushed to zero", outcome.n_flushed));
        }
        rows.push(vec![styled(state, style, colours), outcome.name(), found]);
        let words = |failure: &String| vec![String::new(), String::new(), failure.clone()];
        rows.extend(outcome.failures.iter().map(words));
    }
    let (n_checks, n_failed) = (report.n_checks(), report.n_failed());
    let device = styled(&report.device, Style::Title, colours);
    format!("{device}\n{}{} of {n_checks} combinations passed\n", output::columns(&rows), n_checks - n_failed)
}
