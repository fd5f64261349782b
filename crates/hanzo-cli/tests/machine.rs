//! `hanzo devices`, `doctor` and `completions`.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod support;

use std::fs;

use serde_json::Value as Json;
use support::{Home, model};

fn states(checks: &Json) -> Vec<(&str, &str)> {
    let list = checks.as_array().unwrap().iter();
    list.map(|c| (c["check"].as_str().unwrap(), c["state"].as_str().unwrap())).collect()
}

#[test]
fn devices_are_the_cpu_the_gpus_and_why_others_are_absent() {
    let home = Home::new();
    let devices = home.run(&["devices", "--json"]).json();
    let cpu = &devices[0];
    assert_eq!((&cpu["device"], &cpu["available"]), (&"cpu".into(), &true.into()));
    assert_eq!(cpu["logical_cores"], std::thread::available_parallelism().unwrap().get());
    assert!(cpu["memory_bytes"].as_u64() >= cpu["memory_available_bytes"].as_u64());
    assert!(cpu["memory_bytes"].as_u64().unwrap() > 1 << 26);
    // The backend that computes names the same instructions and threads.
    let run = home.run(&["run", "-m", &model(), "--json", "Hello?"]).json();
    let named = format!("cpu ({} threads, {})", cpu["threads"], cpu["instructions"].as_str().unwrap());
    assert_eq!(run["backend"], named);
    // Where there are GPUs they have numbers.
    let kind = |d: &Json| d["device"].as_str().unwrap().split(':').next().unwrap().to_owned();
    let mut others: Vec<String> = devices.as_array().unwrap()[1..].iter().map(kind).collect();
    others.dedup();
    assert_eq!(others, ["cuda", "rocm", "vulkan", "metal"]);
    let absent = |d: &&Json| d["available"] == false;
    for device in devices.as_array().unwrap()[1..].iter().filter(absent) {
        assert!(device["reason"].as_str().unwrap().starts_with("not available"), "{device}");
    }
    let text = home.run(&["devices"]).good();
    assert!(text.contains("cuda") && text.contains("metal"), "{text}");
    if !cfg!(target_os = "macos") {
        assert!(text.contains("not available: only macOS has it"), "{text}");
    }
    // What is there has a name, memory where the API tells, and features.
    for gpu in devices.as_array().unwrap()[1..].iter().filter(|d| d["available"] == true) {
        assert!(gpu["name"].is_string() && gpu["memory_bytes"].as_u64() != Some(0), "{gpu}");
        assert!(
            gpu["features"].as_array().unwrap().iter().any(|f| f.as_str().unwrap().contains("subgroups")),
            "{gpu}"
        );
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn devices_are_measured_when_asked() {
    let home = Home::new();
    assert!(home.run(&["devices", "--json"]).json()[0]["measured"].is_null());
    let devices = home.run(&["devices", "--measure", "--json"]).json();
    let (threads, measured) = (&devices[0]["threads"], devices[0]["measured"].as_array().unwrap());
    assert_eq!((&measured[0]["threads"], &measured.last().unwrap()["threads"]), (&1.into(), threads));
    for limits in measured {
        // Slower than any machine that could run a model, and faster than any there is.
        let within = |name: &str, most: f64| limits[name].as_f64().is_some_and(|x| x > 1e7 && x < most);
        assert!(within("read_bytes_per_s", 1e14) && within("f32_ops_per_s", 1e16), "{limits}");
        assert!(limits["int8_ops_per_s"].is_null() || within("int8_ops_per_s", 1e17), "{limits}");
    }
}

#[test]
fn doctor_finds_an_empty_home_in_order() {
    let home = Home::new();
    let done = home.run(&["doctor", "--json"]);
    let checks: Json = serde_json::from_str(&done.out).unwrap();
    let states = states(&checks);
    let names: Vec<&str> = states.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["processor", "memory", "cache folder", "disk", "models", "python"]);
    for (name, wanted) in [("cache folder", "ok"), ("models", "ok")] {
        assert!(states.contains(&(name, wanted)), "{states:?}");
    }
    for check in checks.as_array().unwrap() {
        assert_eq!(check["state"] != "ok", check["next"].is_string(), "{check}");
    }
    assert_eq!(done.code, Some(i32::from(states.iter().any(|(_, state)| *state == "fail"))), "{}", done.err);
    // Its probes leave nothing behind.
    assert_eq!(fs::read_dir(home.path("cache/hanzo/tmp")).unwrap().count(), 0);
}

#[test]
fn doctor_fails_where_the_cache_folder_cannot_be() {
    let home = Home::new();
    let file = home.file("file", "x");
    let done = home.run(&["doctor", "--cache-dir", &file]);
    assert_eq!(done.code, Some(1));
    assert!(done.out.contains("fail  cache folder") && done.out.contains("next: "), "{}", done.out);
    assert!(done.err.starts_with("error: "), "{}", done.err);
}

#[cfg(unix)]
#[test]
fn doctor_warns_where_there_is_no_python() {
    let home = Home::new();
    let done = home.run_with(&["doctor", "--json"], "", &[("PATH", "/nowhere")]);
    let checks: Json = serde_json::from_str(&done.out).unwrap();
    assert!(states(&checks).contains(&("python", "warn")), "{checks}");
    let python = checks.as_array().unwrap().iter().find(|check| check["check"] == "python").unwrap();
    assert!(python["next"].as_str().unwrap().starts_with("install Python 3 with pip"), "{python}");
}

/// On the processor, since how long a GPU takes depends on the machine; the matrix has tests of its own.
#[test]
fn doctor_checks_what_a_device_computes() {
    let home = Home::new();
    let done = home.run(&["doctor", "--numerics", "--device", "cpu", "--json"]);
    let reports: Json = serde_json::from_str(&done.out).unwrap();
    assert_eq!((done.code, reports.as_array().unwrap().len()), (Some(0), 1), "{}", done.err);
    let report = &reports[0];
    assert!(report["device"].as_str().unwrap().starts_with("cpu ("), "{report}");
    assert_eq!(report["failed"], 0);
    let operations = report["operations"].as_array().unwrap();
    let of = |name: &str, arithmetic: Json| {
        operations.iter().find(|o| o["operation"] == name && o["arithmetic"] == arithmetic).unwrap()
    };
    let formats = of("embed", Json::Null)["passed"].as_u64();
    assert_eq!(of("matmul", "float f32".into())["passed"].as_u64(), formats);
    assert!(of("MoE matvec", "int8 f32".into())["passed"].as_u64() < formats);
    assert!(of("attention", Json::Null)["failed"] == 0);
    let all: u64 = operations.iter().map(|o| o["passed"].as_u64().unwrap()).sum();
    assert_eq!(report["passed"], all);
    let absent = home.run(&["doctor", "--numerics", "--device", "vulkan:99"]);
    assert!(absent.bad(1).contains("vulkan is not available"));
    home.run(&["doctor", "--device", "cpu"]).bad(2);
}

#[test]
fn completions_know_the_commands_in_every_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = home.run(&["completions", shell]).good();
        for word in ["hanzo", "detokenize", "cache-type-k"] {
            assert!(script.contains(word), "{shell}: {word} is missing");
        }
    }
    assert!(home.run(&["completions", "cmd"]).bad(2).contains("bash"));
}
