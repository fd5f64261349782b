//! What templates expect of Python: how values print, `json.dumps`, `strftime`.

use std::{
    fmt::Write,
    time::{Duration, SystemTime},
};

use minijinja::{
    Error, ErrorKind, Output, State, Value,
    value::{Tuple, ValueKind, from_args},
};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde_json::Value as Json;

type Result<T> = std::result::Result<T, Error>;

/// Values deeper than this are refused.
const DEPTH_MAX: usize = 200;

/// JSON as a template sees it; keys keep their order.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), _, _) => Value::from(n),
            (_, Some(n), _) => Value::from(n),
            (_, _, n) => Value::from(n.unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::from(s.as_str()),
        Json::Array(items) => items.iter().map(value).collect::<Vec<_>>().into(),
        Json::Object(fields) => Value::from_pairs(fields.iter().map(|(k, v)| (k.as_str(), value(v)))),
    }
}

/// How to write JSON, as the arguments of `json.dumps`.
#[derive(Default)]
pub(super) struct JsonStyle {
    pub indent: Option<usize>,
    pub ensure_ascii: bool,
    pub sort_keys: bool,
    pub separators: Option<Vec<String>>,
}

/// The text that `json.dumps` gives.
pub(super) fn json(value: &Value, style: &JsonStyle) -> Result<String> {
    let default_comma = if style.indent.is_some() { "," } else { ", " };
    let (comma, colon) = match style.separators.as_deref() {
        None => (default_comma, ": "),
        Some([comma, colon]) => (comma.as_str(), colon.as_str()),
        Some(_) => return Err(invalid("tojson: separators is not a pair")),
    };
    let mut out = String::new();
    JsonWriter { style, comma, colon, out: &mut out }.value(value, 0)?;
    Ok(out)
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

struct JsonWriter<'a> {
    style: &'a JsonStyle,
    comma: &'a str,
    colon: &'a str,
    out: &'a mut String,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(invalid("tojson: the value is nested too deep"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(&items, depth, ('[', ']'), |w, item, depth| w.value(item, depth))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.style.sort_keys {
                    keys.sort_by_key(ToString::to_string);
                }
                self.list(&keys, depth, ('{', '}'), |w, key, depth| {
                    w.string(&key_text(key)?);
                    w.out.push_str(w.colon);
                    w.value(&value.get_item(key)?, depth)
                })?;
            }
            other => return Err(invalid(format!("tojson: {other} is not JSON serializable"))),
        }
        Ok(())
    }

    fn list(
        &mut self,
        items: &[Value],
        depth: usize,
        (open, close): (char, char),
        mut one: impl FnMut(&mut Self, &Value, usize) -> Result<()>,
    ) -> Result<()> {
        self.out.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out.push_str(self.comma);
            }
            self.line(depth + 1);
            one(self, item, depth + 1)?;
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent.min(64) * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.style.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn key_text(key: &Value) -> Result<String> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::Number => number(key),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::None => "null".to_owned(),
        other => return Err(invalid(format!("tojson: a key of type {other}"))),
    })
}

/// A number as Python's `repr` writes it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// Shortest digits that read back; an exponent outside 1e-4 to 1e16.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) {
        return format!("{x:?}");
    }
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// The methods of Python's types.
pub(super) fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value> {
    let text = value.as_str();
    match (text, name) {
        (Some(text), "removeprefix") => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        (Some(text), "removesuffix") => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        _ => unknown_method_callback(state, value, name, args),
    }
}

/// The test `iterable`: unlike `minijinja`'s own, none is not.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// How a value prints: Python's `str`.
pub(super) fn format(out: &mut Output, _state: &mut State, value: &Value) -> Result<()> {
    if value.is_undefined() {
        return Ok(());
    }
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&text(value)?),
    };
    written.map_err(|e| Error::new(ErrorKind::WriteFailure, "output").with_source(e))
}

/// The filter `string`.
pub(super) fn to_string(value: &Value) -> Result<Value> {
    match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => text(value).map(Value::from),
    }
}

fn text(value: &Value) -> Result<String> {
    let mut out = String::new();
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => out.push_str(value.as_str().unwrap_or_default()),
        _ => repr(value, 0, &mut out)?,
    }
    Ok(out)
}

/// Python's `repr`.
fn repr(value: &Value, depth: usize, out: &mut String) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(invalid("the value is nested too deep"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value).replace("Infinity", "inf").replace("NaN", "nan")),
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => {
            let tuple = value.as_object().is_some_and(|o| o.downcast_ref::<Tuple>().is_some());
            out.push(if tuple { '(' } else { '[' });
            let mut n = 0;
            for item in value.try_iter()? {
                if n > 0 {
                    out.push_str(", ");
                }
                repr(&item, depth + 1, out)?;
                n += 1;
            }
            out.push_str(match (tuple, n) {
                (true, 1) => ",)",
                (true, _) => ")",
                (false, _) => "]",
            });
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(&key, depth + 1, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// Turns `{% generation %}` and its end into a block that changes nothing; white-space marks stay.
pub(super) fn strip_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inner = &tag[2..end];
        let name = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let replacement = match name {
            "generation" => Some(" if true "),
            "endgeneration" => Some(" endif "),
            _ => None,
        };
        match replacement {
            Some(new) => {
                let mark = |c: Option<char>| c.filter(|c| matches!(c, '-' | '+'));
                out.push_str("{%");
                out.extend(mark(inner.chars().next()));
                out.push_str(new);
                out.extend(mark(inner.chars().next_back()));
                out.push_str("%}");
                rest = &tag[end + 2..];
            }
            // Only the opening is done: `%}` may stand in a string of this tag.
            None => {
                out.push_str("{%");
                rest = &tag[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// A point in time, in UTC.
struct Date {
    year: i64,
    month: usize,
    day: u64,
    day_of_year: u64,
    weekday: usize,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Date {
    /// The proleptic Gregorian date; times before 1970 count as 1970.
    fn new(time: SystemTime) -> Self {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
        let weekday = ((days + 3) % 7) as usize;
        let leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
        // 400 years are 146,097 days.
        let mut year = 1970 + (days / 146_097) as i64 * 400;
        days %= 146_097;
        while days >= 365 + u64::from(leap(year)) {
            days -= 365 + u64::from(leap(year));
            year += 1;
        }
        let day_of_year = days + 1;
        let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        while month < 11 && days >= lengths[month] {
            days -= lengths[month];
            month += 1;
        }
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        Self { year, month, day: days + 1, day_of_year, weekday, hour, minute, second }
    }
}

/// Python's `strftime` in the C locale. `%-x` leaves padding out; an unknown directive stays as it is.
pub(super) fn strftime(format: &str, time: SystemTime) -> String {
    let d = Date::new(time);
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let bare = chars.next_if_eq(&'-').is_some();
        let Some(directive) = chars.next() else {
            out.push('%');
            break;
        };
        let padded = |n: u64, width: usize| if bare { n.to_string() } else { format!("{n:0width$}") };
        let hour12 = (d.hour + 11) % 12 + 1;
        let day_time = if d.hour < 12 { "AM" } else { "PM" };
        out.push_str(&match directive {
            'Y' => d.year.to_string(),
            'y' => padded(d.year.rem_euclid(100) as u64, 2),
            'm' => padded(d.month as u64 + 1, 2),
            'd' => padded(d.day, 2),
            'e' => format!("{:>2}", d.day),
            'j' => padded(d.day_of_year, 3),
            'H' => padded(d.hour, 2),
            'I' => padded(hour12, 2),
            'M' => padded(d.minute, 2),
            'S' => padded(d.second, 2),
            'p' => day_time.into(),
            'B' => MONTHS[d.month].into(),
            'b' | 'h' => MONTHS[d.month][..3].into(),
            'A' => DAYS[d.weekday].into(),
            'a' => DAYS[d.weekday][..3].into(),
            'F' => format!("{}-{:02}-{:02}", d.year, d.month + 1, d.day),
            'T' => format!("{:02}:{:02}:{:02}", d.hour, d.minute, d.second),
            'Z' => "UTC".into(),
            'z' => "+0000".into(),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            other => format!("%{other}"),
        });
    }
    out
}
