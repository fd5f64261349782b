//! The kernels keep to the part of WGSL that every target gets right.
//!
//! Each rule names a fault of naga 30 or of a language it writes; `naga_faults.rs` shows those that it has today.
#![allow(clippy::unwrap_used, reason = "a test panics where something is missing")]

use hanzo_kernel::{SOURCES, specs};
use naga::{Block, Statement};

/// A rule on lines of code: what breaks it, and why.
type Rule = (fn(file: &str, line: &str) -> bool, &'static str);

const RULES: &[Rule] = &[
    (
        |_, l| l.contains("bitcast<vec2<f16>>") || l.contains("bitcast<vec4<f16>>"),
        "bitcasts to f16 become bitcasts to f32",
    ),
    (
        |_, l| l.trim_start().starts_with("const ") && l.contains("array<"),
        "constant arrays are copied at every access",
    ),
    (
        |_, l| l.contains("let ") && l.contains("= array<"),
        "arrays that are values are copied at every access",
    ),
    (|_, l| l.contains("var<storage") && l.contains("vec3<"), "a vec3 in a buffer takes the room of four"),
    (|_, l| l.contains("arrayLength"), "lengths come with the parameters"),
    (
        |_, l| l.contains("ptr<storage") || l.contains("ptr<workgroup"),
        "pointers to buffers are no parameters",
    ),
    (|_, l| l.contains("var<private>"), "the C writer has no private globals; a local variable does"),
    (|_, l| l.contains("fn set("), "a name that MSL has taken"),
    (|_, l| l.contains("enable subgroups"), "naga refuses the line and needs none"),
    (|file, l| l.contains("dot4I8Packed") && file != "dot", "products of bytes go through x_dp4"),
    (
        |_, l| ["coopLoad", "coopStore", "atomic"].iter().all(|name| !l.contains(name)) && borrows_part(l),
        "a pointer to a part makes the SPIR-V writer panic",
    ),
    (
        |_, l| (l.contains("coopLoad") || l.contains("coopStore")) && !coop_is_plain(l),
        "operands of cooperative loads and stores are names: the store is written before what it needs",
    ),
];

/// Whether a line takes the address of an element or a field.
fn borrows_part(line: &str) -> bool {
    line.match_indices('&').any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after: &str = &line[at + 1..];
        let name = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').count();
        let starts =
            matches!(before, Some('(' | ' ' | ',')) && after.starts_with(|c: char| c.is_alphabetic());
        starts && after[name..].starts_with(['[', '.'])
    })
}

/// Whether the arguments of a cooperative operation are names, literals, or an element whose index is one.
fn coop_is_plain(line: &str) -> bool {
    let Some(call) = line.find("coop").map(|at| &line[at..]) else { return false };
    let (Some(open), Some(close)) = (call.find('('), call.rfind(')')) else { return false };
    let is_word = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_alphanumeric() || c == '_');
    call[open + 1..close].split(',').map(str::trim).all(|argument| {
        match argument.strip_prefix('&').and_then(|a| a.split_once('[')) {
            Some((name, index)) => is_word(name) && index.strip_suffix(']').is_some_and(is_word),
            None => is_word(argument),
        }
    })
}

/// The code of a line: comments say what they like.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

#[test]
fn every_file_keeps_to_the_subset() {
    let mut findings = Vec::new();
    for source in SOURCES {
        for (i, line) in source.text.lines().enumerate() {
            for (_, why) in RULES.iter().filter(|rule| rule.0(source.name, code(line))) {
                findings.push(format!("wgsl/{}.wgsl:{}: {why}: {}", source.name, i + 1, line.trim()));
            }
        }
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn every_rule_finds_what_it_is_for() {
    let bad = [
        "let h = bitcast<vec2<f16>>(word);",
        "const TABLE = array<u32, 4>(1u, 2u, 3u, 4u);",
        "    let t = array<f32, 2>(a, b);",
        "@group(0) @binding(0) var<storage, read> x: array<vec3<f32>>;",
        "let n = arrayLength(&x);",
        "fn f(p: ptr<storage, u32>) {",
        "var<private> n: u32;",
        "fn set(i: u32) {",
        "enable subgroups;",
        "let d = dot4I8Packed(a, b);",
        "f(&values[3]);",
        "coopStoreT(sums[i], &results[place], n);",
    ];
    for ((rule, why), line) in RULES.iter().zip(bad) {
        assert!(rule("some", line), "{why}: not found in {line}");
        assert!(
            RULES
                .iter()
                .all(|(r, _)| !r("some", "x = y & mask; f(&whole); coopStoreT(sum, &results[at], 8u);"))
        );
    }
}

/// Whether a block has a subgroup operation inside a branch.
fn branches_around_subgroup(block: &Block, branched: bool) -> bool {
    block.iter().any(|statement| match statement {
        Statement::SubgroupBallot { .. }
        | Statement::SubgroupGather { .. }
        | Statement::SubgroupCollectiveOperation { .. } => branched,
        Statement::If { accept, reject, .. } => {
            branches_around_subgroup(accept, true) || branches_around_subgroup(reject, true)
        }
        Statement::Switch { cases, .. } => cases.iter().any(|c| branches_around_subgroup(&c.body, true)),
        Statement::Loop { body, continuing, .. } => {
            branches_around_subgroup(body, branched) || branches_around_subgroup(continuing, branched)
        }
        Statement::Block(block) => branches_around_subgroup(block, branched),
        _ => false,
    })
}

/// A shuffle whose partner took another branch is undefined, and naga does not look.
#[test]
fn no_subgroup_operation_stands_in_a_branch() {
    // Formats and number types change nothing here.
    let mut seen = Vec::new();
    for spec in specs() {
        let shape = (spec.kernel.name, format!("{:?}", spec.constants));
        if seen.contains(&shape) {
            continue;
        }
        seen.push(shape);
        let valid = spec.valid().unwrap();
        let module = valid.module();
        let functions =
            module.functions.iter().map(|(_, f)| f).chain(module.entry_points.iter().map(|e| &e.function));
        for function in functions {
            assert!(
                !branches_around_subgroup(&function.body, false),
                "{}: {:?}",
                valid.name(),
                function.name
            );
        }
    }
}
