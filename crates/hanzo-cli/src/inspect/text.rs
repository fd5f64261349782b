//! The facts for people: a summary, then tables.

use hanzo_engine::decoder::MemoryPlan;
use indicatif::HumanBytes;
use serde_json::Value as Json;

use super::facts::{Entry, Facts, Shown};
use crate::output::{Style, shortened, styled};

/// Characters of a value, and of a string inside an array.
const VALUE_CHARS_MAX: usize = 100;
const ELEM_CHARS_MAX: usize = 24;
/// Widest column of names; longer ones stick out.
const NAME_CHARS_MAX: usize = 48;

pub(super) fn render(facts: &Facts, plan: Option<&MemoryPlan>, colours: bool) -> String {
    let mut out = String::new();
    summary(&mut out, facts, colours);
    let title = |text: String| styled(&text, Style::Title, colours);
    if let Some(plan) = plan {
        line(&mut out, &["", &title(format!("memory, with a context of {}", plan.context))]);
        table(&mut out, &plan_rows(plan));
    }
    line(&mut out, &["", &title("bytes by type".into())]);
    table(&mut out, &by_type_rows(facts));
    line(&mut out, &["", &title(format!("metadata ({})", facts.metadata.len()))]);
    table(&mut out, &facts.metadata.iter().map(entry_row).collect::<Vec<_>>());
    line(&mut out, &["", &title(format!("tensors ({})", facts.tensors.len()))]);
    let rows = facts.tensors.iter().map(|t| {
        let bytes = t.bytes.map_or("unsupported type".into(), |bytes| bytes.to_string());
        vec![shortened(&t.name, VALUE_CHARS_MAX), format!("{:?}", t.shape), t.kind.into(), bytes]
    });
    table(&mut out, &rows.collect::<Vec<_>>());
    out
}

fn summary(out: &mut String, facts: &Facts, colours: bool) {
    let files = if facts.n_files == 1 { "1 file".into() } else { format!("{} files", facts.n_files) };
    let unknown = || "not stated".into();
    let (supported, reason) = match &facts.support {
        Ok(spec) => (styled("yes", Style::Good, colours), spec.clone()),
        Err(reason) => (styled("no", Style::Bad, colours), shortened(reason, 10 * VALUE_CHARS_MAX)),
    };
    let rows = [
        ("path", facts.path.display().to_string()),
        ("container", format!("{}, {files}, {} bytes", facts.container, facts.file_bytes)),
        ("architecture", facts.architecture.as_ref().map_or_else(unknown, |a| shortened(a, VALUE_CHARS_MAX))),
        ("parameters", facts.n_params().to_string()),
        ("supported", if reason.is_empty() { supported } else { format!("{supported}: {reason}") }),
    ];
    table(out, &rows.map(|(name, value)| vec![name.to_owned(), value]));
}

fn plan_rows(plan: &MemoryPlan) -> Vec<Vec<String>> {
    let head = ["layers", "weights", "mapped", "cache", "workspace", "in all", "free", "device"];
    let bytes = |n: usize| HumanBytes(n as u64).to_string();
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(plan.devices.iter().map(|device| {
        vec![
            device.n_layers.to_string(),
            bytes(device.weights.own),
            bytes(device.weights.mapped),
            bytes(device.cache_bytes),
            bytes(device.workspace_bytes),
            bytes(device.own_bytes()),
            device.memory.map_or("not known".to_owned(), |memory| bytes(memory.free)),
            device.device.clone(),
        ]
    }));
    rows
}

fn by_type_rows(facts: &Facts) -> Vec<Vec<String>> {
    let mut totals: Vec<_> = facts.by_type().into_iter().collect();
    totals.sort_by_key(|(_, total)| std::cmp::Reverse(total.bytes));
    let row = |(kind, total): (&str, super::facts::Total)| {
        let tensors = if total.n_tensors == 1 { "tensor" } else { "tensors" };
        vec![kind.to_owned(), format!("{} {tensors}", total.n_tensors), format!("{} bytes", total.bytes)]
    };
    totals.into_iter().map(row).collect()
}

fn entry_row(entry: &Entry) -> Vec<String> {
    let (kind, value) = match &entry.value {
        Shown::Whole(value) => (entry.kind.clone(), value_text(value)),
        Shown::Begin { len, first } => {
            (format!("{} [{len}]", entry.kind), format!("{}, …", list_text(first)))
        }
    };
    vec![shortened(&entry.key, VALUE_CHARS_MAX), kind, value]
}

fn value_text(value: &Json) -> String {
    match value {
        Json::String(text) => shortened(text, VALUE_CHARS_MAX),
        Json::Array(list) => list_text(list),
        other => shortened(&other.to_string(), VALUE_CHARS_MAX),
    }
}

fn list_text(list: &[Json]) -> String {
    let elem = |value: &Json| match value {
        Json::String(text) => format!("\"{}\"", shortened(text, ELEM_CHARS_MAX)),
        other => shortened(&other.to_string(), ELEM_CHARS_MAX),
    };
    list.iter().map(elem).collect::<Vec<_>>().join(", ")
}

/// Rows in aligned columns, the last one ragged.
fn table(out: &mut String, rows: &[Vec<String>]) {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..n_columns).map(|c| width(c).unwrap_or(0).min(NAME_CHARS_MAX)).collect();
    for row in rows {
        let mut text = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("{cell:width$}  "));
        }
        line(out, &[text.trim_end()]);
    }
}

fn line(out: &mut String, lines: &[&str]) {
    for text in lines {
        out.push_str(text);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_spaces() {
        let rows =
            [vec!["a".into(), "1".into()], vec!["long".into(), String::new()], vec!["é".into(), "2".into()]];
        let mut out = String::new();
        table(&mut out, &rows);
        assert_eq!(out, "a     1\nlong\né     2\n");
    }

    #[test]
    fn values_of_hostile_files_are_escaped_and_cut() {
        let text = value_text(&Json::from(format!("\x1b{}", "x".repeat(500))));
        assert!(text.starts_with("\\u{1b}xxx") && text.ends_with("x…"), "{text}");
        let list = list_text(&[Json::from("\r"), Json::from(3)]);
        assert_eq!(list, "\"\\r\", 3");
    }
}
