//! The facts for programs. Fields are only ever added.

use hanzo_engine::decoder::MemoryPlan;
use serde_json::{Value as Json, json};

use super::facts::{Entry, Facts, Shown};
use crate::loading;

pub(super) fn render(facts: &Facts, plan: Option<&MemoryPlan>) -> String {
    let tensors: Vec<Json> = facts
        .tensors
        .iter()
        .map(|t| json!({ "name": t.name, "shape": t.shape, "type": t.kind, "bytes": t.bytes }))
        .collect();
    let by_type: Vec<Json> = facts
        .by_type()
        .iter()
        .map(|(kind, total)| {
            json!({ "type": kind, "tensors": total.n_tensors, "bytes": total.bytes, "parameters": total.n_params })
        })
        .collect();
    let mut object = json!({
        "path": facts.path.to_string_lossy(),
        "container": facts.container,
        "files": facts.n_files,
        "file_bytes": facts.file_bytes,
        "architecture": facts.architecture,
        "parameters": facts.n_params(),
        "supported": facts.support.is_ok(),
        "reason": facts.support.as_ref().err(),
        "decoder": facts.support.as_ref().ok(),
        "bytes_by_type": by_type,
        "metadata": facts.metadata.iter().map(entry).collect::<Vec<_>>(),
        "tensors": tensors,
    });
    if let Some(plan) = plan {
        object["plan"] = loading::as_json(plan);
    }
    format!("{object:#}\n")
}

fn entry(entry: &Entry) -> Json {
    match &entry.value {
        Shown::Whole(value) => json!({ "key": entry.key, "type": entry.kind, "value": value }),
        Shown::Begin { len, first } => {
            json!({ "key": entry.key, "type": entry.kind, "length": len, "first": first })
        }
    }
}
