//! Chat templates against Python's jinja2 as `transformers` sets it up.
//!
//! Expected renders: `testdata/templates`, made by `tools/oracle/template_goldens.py`. The 70 templates themselves come
//! with `tools/models/fetch_vocabs.py`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking and say what they skip"
)]

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use hanzo_engine::text::{ChatTemplate, RenderOptions};
use serde_json::{Value, json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// 2024-07-26 12:34:56, the oracle's clock.
const NOW: u64 = 1_721_997_296;

/// Templates and conversations where the render differs from jinja2's, with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("CohereForAI-c4ai-command-r-plus-tool_use", "system", NO_TOOLS),
    ("CohereForAI-c4ai-command-r-plus-tool_use", "turns", NO_TOOLS),
    ("CohereForAI-c4ai-command-r-plus-tool_use", "reasoning", NO_TOOLS),
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "system", NO_TOOLS),
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "turns", NO_TOOLS),
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "reasoning", NO_TOOLS),
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "empty", NO_TOOLS),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "system", NO_TOOLS),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "turns", NO_TOOLS),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "reasoning", NO_TOOLS),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "empty", NO_TOOLS),
    (
        "llama-cpp-deepseek-r1",
        "tools",
        "writes a generator as JSON, which Python refuses; here map gives a list",
    ),
    (
        "meetkai-functionary-medium-v3.1",
        "tools",
        "adds text to a `safe` string, which escapes it as HTML in Python",
    ),
];
const NO_TOOLS: &str =
    "loops over tools without asking whether there are any; Python refuses, here none is empty";

/// Feature templates that Python renders and we refuse.
const UNSUPPORTED: &[&str] = &["{{ '%s-%d' % ('a', 3) }}"];

fn golden(name: &str) -> Value {
    let path = Path::new(ROOT).join("testdata/templates").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn render(source: &str, conversation: &Value, extra: &Value) -> hanzo_engine::Result<String> {
    let mut more = conversation["extra"].as_object().cloned().unwrap_or_default();
    more.extend(extra.as_object().cloned().unwrap_or_default());
    let options = RenderOptions {
        tools: conversation.get("tools"),
        bos_token: Some("<s>"),
        eos_token: Some("</s>"),
        extra: Some(&more),
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(NOW),
        ..RenderOptions::default()
    };
    ChatTemplate::new(source, "test")?.render(&conversation["messages"], &options)
}

fn fnv(bytes: &[u8]) -> String {
    let step = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

#[test]
fn features_render_as_in_jinja2() {
    let (features, conversations) = (golden("features.json"), golden("conversations.json"));
    let mut failures = vec![];
    let cases = features["cases"].as_array().unwrap();
    for case in cases {
        let source = case["template"].as_str().unwrap();
        let got = render(source, &conversations["system"], &json!({"data": features["data"]}));
        match (&got, case["render"].as_str()) {
            (Ok(got), Some(want)) if got == want => {}
            (Err(_), None) => {}
            (Err(_), _) if UNSUPPORTED.contains(&source) => {}
            (got, want) => {
                failures.push(format!("{source}\n  want {want:?} {}\n  got  {got:?}", case["refused"]))
            }
        }
    }
    assert!(cases.len() > 40);
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn real_templates_render_as_in_jinja2() {
    let folder = Path::new(ROOT).join("models/templates");
    if !folder.exists() {
        println!(
            "SKIPPED real_templates_render_as_in_jinja2: tools/models/fetch_vocabs.py fetches models/templates"
        );
        return;
    }
    let (renders, conversations) = (golden("renders.json"), golden("conversations.json"));
    let (mut equal, mut refused, mut failures) = (0, 0, vec![]);
    for (name, row) in renders.as_object().unwrap() {
        let source = std::fs::read_to_string(folder.join(format!("{name}.jinja"))).unwrap();
        for (conversation, want) in row.as_object().unwrap() {
            let got = render(&source, &conversations[conversation], &Value::Null);
            let excepted = EXCEPTIONS.iter().any(|&(t, c, _)| t == name && c == conversation);
            let same = match (&got, want) {
                (Ok(text), Value::Array(want)) => {
                    json!([text.len(), fnv(text.as_bytes())]) == Value::from(want.clone())
                }
                (Err(_), Value::Null) => true,
                _ => false,
            };
            match (same, excepted) {
                (true, false) if want.is_null() => refused += 1,
                (true, false) => equal += 1,
                (true, true) => failures.push(format!("{name} {conversation}: no exception any more")),
                (false, true) => {}
                (false, false) => {
                    let got = got.map(|t| format!("{} bytes", t.len()));
                    failures.push(format!("{name} {conversation}: want {want}, got {got:?}"));
                }
            }
        }
    }
    println!("{equal} renders equal, {refused} refused by both");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn hostile_templates_end_in_errors() {
    let cases = [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "endless loop"),
        (
            "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(80) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "doubling",
        ),
        ("{{ 'a' * 999999999999 }}", "repeat"),
        ("{{ [0] * 999999999999 }}", "repeat list"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ messages | tojson(indent=999999999) }}{{ range(99999999) | list | length }}", "range"),
        ("{% include 'x' %}", "include"),
        ("{{ messages.__class__.__mro__ }}", "python internals"),
        (
            "{% set ns = namespace(x=[]) %}{% for i in range(900) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
            "deep json",
        ),
        (
            "{% set ns = namespace(x=[]) %}{% for i in range(900) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
            "deep repr",
        ),
        ("{{ (1).__add__ }}{{ nope.nope }}", "attributes"),
        ("{{", "syntax"),
        ("{% if %}", "syntax"),
        ("{% generation %}", "open block"),
    ];
    for (source, what) in cases {
        let got = render(source, &json!({"messages": [{"role": "user", "content": "x"}]}), &Value::Null);
        assert!(got.is_err(), "{what}: {:?}", got.map(|t| t.len()));
    }
    let nested = "(".repeat(100_000) + &")".repeat(100_000);
    assert!(ChatTemplate::new(&format!("{{{{ {nested} }}}}"), "nested").is_err());
    let text = "x".repeat(2 << 20);
    assert!(ChatTemplate::new(&text, "long").is_err());
}

#[test]
fn extra_variables_cannot_replace_the_conversation() {
    let conversation = json!({"messages": [{"role": "user", "content": "x"}]});
    for name in ["messages", "tools", "add_generation_prompt", "bos_token", "raise_exception", "strftime_now"]
    {
        let got = render("{{ messages }}", &conversation, &json!({name: "evil"}));
        assert!(got.unwrap_err().to_string().contains(name));
    }
    assert_eq!(render("{{ style }}", &conversation, &json!({"style": "kind"})).unwrap(), "kind");
    let bad = json!({"messages": "no list"});
    assert!(render("x", &bad, &Value::Null).is_err());
    assert!(render("x", &json!({"messages": ["no object"]}), &Value::Null).is_err());
}

#[test]
fn a_template_s_own_refusal_reaches_the_caller() {
    let got = render("{{ raise_exception('roles must alternate') }}", &json!({"messages": []}), &Value::Null);
    assert!(got.unwrap_err().to_string().contains("roles must alternate"));
}
