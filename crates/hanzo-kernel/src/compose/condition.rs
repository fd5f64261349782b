//! Conditions of `//@if`: `NAME`, `!NAME`, `NAME == value`, `NAME != value`, joined by `&&` and, weaker, `||`.

use super::Value;

/// Whether a condition holds; the error says what is wrong with it.
pub(super) fn holds(text: &str, constants: &[(&'static str, Value)]) -> Result<bool, String> {
    let mut any = false;
    for term in text.split("||") {
        let mut all = true;
        for factor in term.split("&&") {
            // No short cut: a misspelt name is found in every specialisation.
            all &= factor_holds(factor.trim(), constants)?;
        }
        any |= all;
    }
    Ok(any)
}

fn factor_holds(factor: &str, constants: &[(&'static str, Value)]) -> Result<bool, String> {
    if let Some((name, value)) = factor.split_once("==") {
        return Ok(lookup(name.trim(), constants)? == value.trim());
    }
    if let Some((name, value)) = factor.split_once("!=") {
        return Ok(lookup(name.trim(), constants)? != value.trim());
    }
    let (name, negated) = match factor.strip_prefix('!') {
        Some(name) => (name.trim(), true),
        None => (factor, false),
    };
    match lookup(name, constants)?.as_str() {
        "true" => Ok(!negated),
        "false" => Ok(negated),
        value => Err(format!("{name} is {value}, which is neither true nor false")),
    }
}

/// The text of a constant's value.
fn lookup(name: &str, constants: &[(&'static str, Value)]) -> Result<String, String> {
    match constants.iter().find(|(n, _)| *n == name) {
        Some((_, Value::Bool(v))) => Ok(v.to_string()),
        Some((_, Value::U32(v))) => Ok(v.to_string()),
        Some((_, Value::Word(v))) => Ok((*v).into()),
        None => Err(format!("the condition names `{name}`, which is no constant of this kernel")),
    }
}
