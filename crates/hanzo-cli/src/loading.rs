//! Shows what a model will take of memory, and how far its loading is.

use hanzo_engine::{
    Model, ModelFile,
    decoder::{Decoder, DecoderOptions, DevicePlan, Devices, MemoryPlan, Prepared},
};
use hanzo_ml::backend::MemoryInfo;
use indicatif::{HumanBytes, ProgressBar};
use serde_json::{Value, json};

use crate::{environment::Environment, error::Result, output::note, progress::bar};

/// Weights of which more bytes than these have a bar: fewer are there at once.
const BAR_BYTES_MIN: usize = 256 << 20;

/// Loads models before the eyes of a person.
pub(crate) struct Loading {
    bars: bool,
    /// Whether the memory plan is told.
    tells: bool,
}

impl Loading {
    /// On a terminal the plan is told, and elsewhere if it is asked for.
    pub(crate) fn new(environment: &Environment, verbose: bool) -> Self {
        Self { bars: environment.bars, tells: verbose || environment.bars }
    }

    /// A decoder.
    ///
    /// # Errors
    /// If the model is not supported or does not fit, or a device is not available.
    pub(crate) fn decoder(
        &self,
        file: &ModelFile,
        devices: &Devices,
        options: DecoderOptions,
        n_logit_rows: usize,
    ) -> Result<Decoder> {
        self.load(Prepared::new(file, devices, options, n_logit_rows)?)
    }

    /// The decoder that was prepared.
    ///
    /// # Errors
    /// If a tensor does not fit, or a device lacks memory.
    pub(crate) fn load(&self, prepared: Prepared<'_>) -> Result<Decoder> {
        self.tell(prepared.plan());
        let mut view = View { bars: self.bars, bar: None };
        let decoder = prepared.load(&mut |done, total| view.show(done, total));
        view.finish();
        Ok(decoder?)
    }

    /// The model that was prepared.
    ///
    /// # Errors
    /// As [`Self::load`], and if its text is not supported.
    pub(crate) fn model(&self, prepared: Prepared<'_>, pre: Option<&str>) -> Result<Model> {
        self.tell(prepared.plan());
        let mut view = View { bars: self.bars, bar: None };
        let model = Model::load_prepared(prepared, pre, &mut |done, total| view.show(done, total));
        view.finish();
        Ok(model?)
    }

    fn tell(&self, plan: &MemoryPlan) {
        if self.tells {
            lines(plan).iter().for_each(|line| note(line));
        }
    }
}

struct View {
    bars: bool,
    bar: Option<ProgressBar>,
}

impl View {
    fn show(&mut self, done: usize, total: usize) {
        if self.bars && total >= BAR_BYTES_MIN {
            let template = "loading {wide_bar} {bytes}/{total_bytes}";
            let bar = self.bar.get_or_insert_with(|| bar(Some(total as u64), template, true));
            bar.set_position(done as u64);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// The plan for people: a line for each device.
pub(crate) fn lines(plan: &MemoryPlan) -> Vec<String> {
    let spread = plan.devices.len() > 1;
    let mut lines: Vec<String> =
        plan.devices.iter().map(|device| line(device, plan.context, spread)).collect();
    let mapped = |device: &&DevicePlan| {
        let needed = device.weights.total().saturating_add(device.own_bytes() - device.weights.own);
        device.memory.is_some_and(|memory| device.weights.mapped > 0 && needed > memory.free)
    };
    lines.extend(plan.devices.iter().find(mapped).map(|device| {
        format!("memory: {}: the mapped weights are read again and again, for they do not fit", device.device)
    }));
    lines
}

fn line(device: &DevicePlan, context: usize, spread: bool) -> String {
    let bytes = |n: usize| HumanBytes(n as u64);
    let layers = match device.n_layers {
        _ if !spread => String::new(),
        1 => "1 layer: ".to_owned(),
        n => format!("{n} layers: "),
    };
    let weights = match (device.weights.own, device.weights.mapped) {
        (own, 0) => bytes(own).to_string(),
        (own, mapped) => format!("{} and {} mapped", bytes(own), bytes(mapped)),
    };
    let free = device.memory.map(|memory| format!(" of {} free", bytes(memory.free))).unwrap_or_default();
    format!(
        "memory: {layers}weights {weights}, cache {} for {context} tokens, workspace {}: {}{free} on {}",
        bytes(device.cache_bytes),
        bytes(device.workspace_bytes),
        bytes(device.own_bytes()),
        device.device,
    )
}

/// The plan for programs.
pub(crate) fn as_json(plan: &MemoryPlan) -> Value {
    let device = |device: &DevicePlan| {
        let memory = |get: fn(MemoryInfo) -> usize| device.memory.map(get);
        json!({
            "device": device.device,
            "layers": device.n_layers,
            "weights_bytes": device.weights.own,
            "mapped_bytes": device.weights.mapped,
            "cache_bytes": device.cache_bytes,
            "workspace_bytes": device.workspace_bytes,
            "free_bytes": memory(|memory| memory.free),
            "memory_bytes": memory(|memory| memory.total),
        })
    };
    json!({ "context": plan.context, "devices": plan.devices.iter().map(device).collect::<Value>() })
}

#[cfg(test)]
mod tests {
    use hanzo_ml::backend::Footprint;

    use super::*;

    fn device(mapped: usize, free: usize) -> DevicePlan {
        DevicePlan {
            device: "cpu".to_owned(),
            n_layers: 3,
            weights: Footprint { own: 1 << 20, mapped },
            cache_bytes: 1 << 19,
            workspace_bytes: 1 << 18,
            memory: Some(MemoryInfo { free, total: 1 << 30 }),
        }
    }

    #[test]
    fn a_device_is_a_line() {
        let plan = |devices| MemoryPlan { context: 64, devices };
        let one = "memory: weights 1.00 MiB, cache 512.00 KiB for 64 tokens, workspace 256.00 KiB: 1.75 MiB of 2.00 MiB free on cpu";
        assert_eq!(lines(&plan(vec![device(0, 2 << 20)])), [one]);
        let two = lines(&plan(vec![device(0, 2 << 20), device(1 << 20, 2 << 20)]));
        assert!(two[0].starts_with("memory: 3 layers: weights 1.00 MiB, cache"), "{two:?}");
        assert!(two[1].contains("weights 1.00 MiB and 1.00 MiB mapped"), "{two:?}");
        // 1.75 MiB of its own and one that is mapped, of 2.
        assert!(two[2].contains("again and again") && two.len() == 3, "{two:?}");
    }
}
