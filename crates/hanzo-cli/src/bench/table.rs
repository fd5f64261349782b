//! The results as rows: the columns and field names that users of llama-bench know.

use serde_json::{Value, json};

use super::plan::{Format, Setting, Test, mean_and_deviation};

/// What all rows of a model share.
pub(super) struct Subject {
    /// The file.
    pub path: String,
    /// Family, size and format in words: `qwen2 1.5B Q4_K`.
    pub name: String,
    /// Bytes of the tensors.
    pub bytes: u64,
    /// Elements of the tensors.
    pub n_params: u64,
    /// Element types of cached keys and values.
    pub cache_types: [String; 2],
}

/// One measured row.
pub(super) struct Row {
    pub test: Test,
    pub setting: Setting,
    /// The device, and its threads.
    pub backend: String,
    pub n_threads: usize,
    /// Seconds of each repetition.
    pub seconds: Vec<f64>,
}

impl Row {
    fn tokens_per_s(&self) -> Vec<f64> {
        self.seconds.iter().map(|s| self.test.n_tokens() as f64 / s).collect()
    }

    fn json(&self, subject: &Subject) -> Value {
        let speeds = self.tokens_per_s();
        let nanos: Vec<f64> = self.seconds.iter().map(|s| (s * 1e9).round()).collect();
        let (avg_ns, stddev_ns) = mean_and_deviation(&nanos);
        let (avg_ts, stddev_ts) = mean_and_deviation(&speeds);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "model_filename": subject.path,
            "model_type": subject.name,
            "model_size": subject.bytes,
            "model_n_params": subject.n_params,
            "backend": self.backend,
            "n_batch": self.setting.batch,
            "n_ubatch": self.setting.ubatch,
            "n_threads": self.n_threads,
            "type_k": subject.cache_types[0],
            "type_v": subject.cache_types[1],
            "n_prompt": self.test.n_prompt,
            "n_gen": self.test.n_gen,
            "n_depth": self.test.depth,
            "test": self.test.name(),
            "avg_ns": avg_ns.round(),
            "stddev_ns": stddev_ns.round(),
            "avg_ts": avg_ts,
            "stddev_ts": stddev_ts,
            "samples_ns": nanos,
            "samples_ts": speeds,
        })
    }
}

/// Text of what comes before the first row.
pub(super) fn head(output: Format, subject: &Subject) -> String {
    match output {
        Format::Md => {
            let names = ["model", "size", "params", "backend", "threads", "test", "tok/s"];
            let rule = ["---", "---:", "---:", "---", "---:", "---:", "---:"];
            format!("| {} |\n| {} |\n", names.join(" | "), rule.join(" | "))
        }
        Format::Csv => {
            let names = fields(&Row::example().json(subject)).into_iter().map(|(name, _)| name);
            format!("{}\n", names.collect::<Vec<_>>().join(","))
        }
        Format::Json => "[\n".to_owned(),
        Format::Jsonl => String::new(),
    }
}

/// Text of a row; `first` says whether none stands before it.
pub(super) fn row(output: Format, subject: &Subject, row: &Row, first: bool) -> String {
    match output {
        Format::Md => {
            let (mean, deviation) = mean_and_deviation(&row.tokens_per_s());
            format!(
                "| {} | {:.2} MiB | {:.2} M | {} | {} | {} | {mean:.2} ± {deviation:.2} |\n",
                subject.name,
                subject.bytes as f64 / f64::from(1 << 20),
                subject.n_params as f64 / 1e6,
                row.backend,
                row.n_threads,
                row.test.name(),
            )
        }
        Format::Json => format!("{}{}", if first { "  " } else { ",\n  " }, row.json(subject)),
        Format::Jsonl => format!("{}\n", row.json(subject)),
        Format::Csv => {
            let cells = fields(&row.json(subject)).into_iter().map(|(_, value)| quoted(&value));
            format!("{}\n", cells.collect::<Vec<_>>().join(","))
        }
    }
}

/// Text of what comes after the last row.
pub(super) fn foot(output: Format) -> &'static str {
    match output {
        Format::Json => "\n]\n",
        Format::Md | Format::Jsonl | Format::Csv => "",
    }
}

/// The fields of a row but its lists.
fn fields(row: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let object = row.as_object().into_iter().flatten();
    object.filter(|(_, value)| !value.is_array()).map(|(name, value)| (name.clone(), text(value))).collect()
}

/// A CSV cell (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

impl Row {
    /// A row for the names of its fields.
    fn example() -> Self {
        Self {
            test: Test { n_prompt: 1, n_gen: 0, depth: 0 },
            setting: Setting { threads: None, batch: 1, ubatch: 1 },
            backend: String::new(),
            n_threads: 1,
            seconds: vec![1.0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject {
            path: "a,b.gguf".into(),
            name: "llama 1.5B Q4_K".into(),
            bytes: 3 << 20,
            n_params: 1_500_000,
            cache_types: ["f16".into(), "f16".into()],
        }
    }

    fn sample() -> Row {
        Row { test: Test { n_prompt: 512, n_gen: 0, depth: 64 }, seconds: vec![2.0, 4.0], ..Row::example() }
    }

    #[test]
    fn markdown_has_mean_and_deviation() {
        let text = row(Format::Md, &subject(), &sample(), true);
        assert!(
            text.contains("| 3.00 MiB | 1.50 M |") && text.contains("| pp512 @ d64 | 192.00 ± 90.51 |"),
            "{text}"
        );
    }

    #[test]
    fn json_is_whole_and_csv_has_a_cell_for_each_name() {
        let rows = [true, false].map(|first| row(Format::Json, &subject(), &sample(), first));
        let text = format!("{}{}{}{}", head(Format::Json, &subject()), rows[0], rows[1], foot(Format::Json));
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json[1]["samples_ts"], json!([256.0, 128.0]));
        let (names, cells) = (head(Format::Csv, &subject()), row(Format::Csv, &subject(), &sample(), true));
        assert!(cells.contains("\"a,b.gguf\""));
        assert_eq!(names.matches(',').count() + 1, cells.matches(',').count());
    }
}
