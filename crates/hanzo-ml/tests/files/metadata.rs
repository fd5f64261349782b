//! The typed accessors.

use hanzo_ml::file::{Array, Metadata, Value};

use crate::refused;

fn metadata() -> Metadata {
    let mut m = Metadata::new("m.gguf");
    m.insert("int", Value::I32(7));
    m.insert("negative", Value::I8(-1));
    m.insert("large", Value::U64(1 << 40));
    m.insert("float", Value::F32(0.5));
    m.insert("double", Value::F64(0.25));
    m.insert("flag", Value::Bool(true));
    m.insert("text", Value::String("x".into()));
    m.insert("ints", Value::Array(Array::I64(vec![0, 1, 1])));
    m.insert("floats", Value::Array(Array::F32(vec![1.5])));
    m.insert("flags", Value::Array(Array::Bool(vec![true, false])));
    m.insert("texts", Value::Array(Array::String(vec!["a".into()])));
    m
}

#[test]
fn an_absent_key_is_none_for_every_type() {
    let m = metadata();
    assert!(m.u32("no").unwrap().is_none() && m.i32("no").unwrap().is_none());
    assert!(m.u64("no").unwrap().is_none() && m.usize("no").unwrap().is_none());
    assert!(m.f32("no").unwrap().is_none() && m.bool("no").unwrap().is_none());
    assert!(m.str("no").unwrap().is_none() && m.strings("no").unwrap().is_none());
    assert!(m.f32s("no").unwrap().is_none() && m.bools("no").unwrap().is_none());
    assert!(m.u32s("no").unwrap().is_none() && m.i32s("no").unwrap().is_none());
    assert!(m.get("no").is_none());
}

#[test]
fn values_convert_where_they_fit() {
    let m = metadata();
    assert_eq!(m.u32("int").unwrap(), Some(7));
    assert_eq!(m.u64("int").unwrap(), Some(7));
    assert_eq!(m.usize("large").unwrap(), Some(1 << 40));
    assert_eq!(m.i32("negative").unwrap(), Some(-1));
    assert_eq!(m.f32("int").unwrap(), Some(7.0));
    assert_eq!(m.f32("float").unwrap(), Some(0.5));
    assert_eq!(m.f32("double").unwrap(), Some(0.25));
    assert_eq!(m.bool("flag").unwrap(), Some(true));
    assert_eq!(m.str("text").unwrap(), Some("x"));
    assert_eq!(m.u32s("ints").unwrap().unwrap(), [0, 1, 1]);
    assert_eq!(m.i32s("ints").unwrap().unwrap(), [0, 1, 1]);
    assert_eq!(m.f32s("ints").unwrap().unwrap(), [0.0, 1.0, 1.0]);
    assert_eq!(m.f32s("floats").unwrap().unwrap(), [1.5]);
    assert_eq!(m.bools("ints").unwrap().unwrap(), [false, true, true]);
    assert_eq!(m.bools("flags").unwrap().unwrap(), [true, false]);
    assert_eq!(m.strings("texts").unwrap().unwrap(), ["a"]);
}

/// llama.cpp #26690: one type's bytes read as another's.
#[test]
fn no_type_is_taken_for_another() {
    let m = metadata();
    refused(m.u32("float"), &["m.gguf", "\"float\" should be u32, found f32"]);
    refused(m.u32("flag"), &["should be u32, found bool"]);
    refused(m.u32("ints"), &["should be u32, found array of i64"]);
    refused(m.f32("text"), &["should be f32, found string"]);
    refused(m.f32("flag"), &["should be f32, found bool"]);
    refused(m.bool("int"), &["should be bool, found i32"]);
    refused(m.str("texts"), &["should be string, found array of string"]);
    refused(m.strings("text"), &["should be array of string, found string"]);
    refused(m.strings("ints"), &["should be array of string, found array of i64"]);
    refused(m.f32s("float"), &["should be array of f32, found f32"]);
    refused(m.f32s("flags"), &["should be array of f32, found array of bool"]);
    refused(m.u32s("texts"), &["should be array of u32, found array of string"]);
    refused(m.i32s("floats"), &["should be array of i32, found array of f32"]);
    refused(m.bools("floats"), &["should be array of bool, found array of f32"]);
}

#[test]
fn values_that_do_not_fit_are_refused_with_the_value() {
    let mut m = metadata();
    m.insert("wide", Value::Array(Array::I64(vec![0, 2, -1, 1 << 33])));
    m.insert("inexact", Value::U32((1 << 24) + 1));
    refused(m.u32("large"), &["\"large\" should be u32, found the value 1099511627776"]);
    refused(m.u64("negative"), &["should be u64, found the value -1"]);
    refused(m.usize("negative"), &["found the value -1"]);
    refused(m.f32("inexact"), &["found the value 16777217"]);
    refused(m.u32s("wide"), &["found the value -1 at index 2"]);
    refused(m.i32s("wide"), &["found the value 8589934592 at index 3"]);
    refused(m.f32s("wide"), &["found the value 8589934592 at index 3"]);
    refused(m.bools("wide"), &["found the value 2 at index 1"]);
}

#[test]
fn entries_keep_their_order_and_are_replaced_in_place() {
    let mut m = metadata();
    assert_eq!(m.insert("float", Value::U8(1)), Some(Value::F32(0.5)));
    let keys: Vec<&str> = m.iter().map(|(k, _)| k).collect();
    assert_eq!(keys[..5], ["int", "negative", "large", "float", "double"]);
    assert_eq!((m.len(), m.get("float")), (11, Some(&Value::U8(1))));
}
