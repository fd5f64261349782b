//! Directives of the composer, and errors at the file and line of the original source.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

use hanzo_kernel::{Composed, Number, Recipe, Result, Slot, Spec, Valid, Value, compose};

/// Composes a text through a file that imports it.
fn composed(text: &str) -> Result<Composed> {
    compose(&Recipe {
        name: "snippet".into(),
        file: "tables",
        constants: vec![
            ("YES", Value::Bool(true)),
            ("NO", Value::Bool(false)),
            ("FOUR", Value::U32(4)),
            ("KIND", Value::Word("plain")),
        ],
        slots: vec![("tables", Slot::Text { name: "some.wgsl".into(), text: text.into() })],
    })
}

/// The lines of a text that are taken.
fn taken(text: &str) -> Vec<String> {
    let composed = composed(text).unwrap();
    composed.text.lines().filter_map(|l| l.strip_prefix("LINE ")).map(String::from).collect()
}

#[test]
fn conditions_choose_lines() {
    for (condition, holds) in [
        ("YES", true),
        ("!YES", false),
        ("NO", false),
        ("FOUR == 4", true),
        ("FOUR != 4", false),
        ("KIND == plain", true),
        ("KIND == other || YES", true),
        ("KIND == plain && NO", false),
        ("NO && NO || YES && YES", true),
    ] {
        let text = format!("//@if {condition}\nLINE then\n//@else\nLINE else\n//@end\nLINE after\n");
        assert_eq!(taken(&text), [if holds { "then" } else { "else" }, "after"], "{condition}");
    }
}

#[test]
fn one_branch_is_taken_and_branches_nest() {
    let text = "//@if NO\nLINE a\n//@if YES\nLINE b\n//@else\nLINE c\n//@end\n//@elif YES\nLINE d\n//@if NO\nLINE e\n\
                //@else\nLINE f\n//@end\n//@elif YES\nLINE g\n//@else\nLINE h\n//@end\n";
    assert_eq!(taken(text), ["d", "f"]);
}

#[test]
fn enables_come_first_once_and_constants_before_the_text() {
    let text = "LINE a\nenable f16;\n//@if YES\nenable f16;\n//@end\n";
    let composed = composed(text).unwrap();
    let lines: Vec<&str> = composed.text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "enable f16;",
            "const YES: bool = true;",
            "const NO: bool = false;",
            "const FOUR: u32 = 4u;",
            "// KIND is plain"
        ]
    );
    assert_eq!(composed.text.matches("enable f16;").count(), 1);
}

#[test]
fn imports_happen_once() {
    let text = composed("//@import grid\n//@import grid\n").unwrap().text;
    assert_eq!(text.matches("fn grid_thread").count(), 1);
}

#[test]
fn faults_name_their_line() {
    for (text, what) in [
        (
            "\n//@if MAYBE\n//@end",
            "some.wgsl:2: the condition names `MAYBE`, which is no constant of this kernel",
        ),
        ("//@if KIND\n//@end", "some.wgsl:1: KIND is plain, which is neither true nor false"),
        ("//@if YES\n", "some.wgsl:1: this `if` has no `end`"),
        ("//@end", "some.wgsl:1: `end` without `if`"),
        ("//@else", "some.wgsl:1: `else` without `if`"),
        ("//@if YES\n//@else\n//@else\n//@end", "some.wgsl:3: `else` without `if`"),
        ("//@include grid", "some.wgsl:1: `include` is no directive"),
        ("//@import nowhere", "some.wgsl:1: there is no file wgsl/nowhere.wgsl"),
        ("//@import <nothing>", "some.wgsl:1: nothing fills the slot <nothing>"),
    ] {
        assert_eq!(composed(text).unwrap_err().to_string(), what);
    }
}

#[test]
fn what_the_validator_refuses_is_named_by_its_source() {
    let bad = "// head\n//@if YES\nfn f() -> u32 {\n    return 1.5f;\n}\n//@end\n@compute @workgroup_size(1) fn main() { _ = f(); }";
    let error = Valid::new(&composed(bad).unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("some.wgsl:4: kernel snippet: "), "{error}");
    let unparsed = Valid::new(&composed("\n\nfn f( {}").unwrap()).unwrap_err().to_string();
    assert!(unparsed.starts_with("some.wgsl:3: kernel snippet: "), "{unparsed}");
    let none = Valid::new(&composed("").unwrap()).unwrap_err().to_string();
    assert_eq!(none, "kernel snippet: a kernel has one entry point, `main`");
}

#[test]
fn only_what_is_listed_is_found() {
    let find = |constants: &[(&str, Value)]| Spec::find("rope_append", None, Some(Number::F16), constants);
    let spec = find(&[("NORM", Value::Bool(true)), ("ADJACENT", Value::Bool(false))]).unwrap();
    assert_eq!(spec.name(), "rope_append_f16_norm");
    assert!(find(&[("NORM", Value::Bool(true))]).is_err(), "a choice is left open");
    assert!(find(&[("NORM", Value::U32(1)), ("ADJACENT", Value::Bool(false))]).is_err(), "no such value");
    assert!(Spec::find("rope_append", None, None, &[]).is_err(), "no number type");
    assert!(Spec::find("nothing", None, None, &[]).is_err());
}
