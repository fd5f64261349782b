//! `hanzo perplexity` and `hanzo imatrix` against llama.cpp's programs on tiny models (`testdata/score`).

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod support;

use std::{borrow::Cow, fs, path::Path};

use hanzo_ml::file::{
    Metadata,
    gguf::{Gguf, NewTensor, write},
    imatrix::Imatrix,
};
use hanzo_quant::Format;
use serde_json::Value as Json;
use support::{Home, testdata};

/// Computed in F32 by both, in another order of additions.
const TOLERANCE: f64 = 2e-4;

fn facts() -> Json {
    serde_json::from_slice(&fs::read(testdata("score/facts.json")).unwrap()).unwrap()
}

fn gguf(name: &str) -> Gguf {
    Gguf::open(&testdata(name)).unwrap()
}

/// Writes a model with every weight decoded to F32 and changed: `change(name, shape, values)`.
fn write_f32(
    path: &Path,
    metadata: &Metadata,
    from: &Gguf,
    change: impl Fn(&str, &mut Vec<usize>, &mut Vec<f32>),
) -> String {
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = from
        .tensors()
        .iter()
        .map(|info| {
            let (mut shape, mut values) = (info.shape.clone(), from.tensor(&info.name).unwrap().to_f32());
            change(&info.name, &mut shape, &mut values);
            (info.name.clone(), shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
        })
        .collect();
    let new = tensors.iter().map(|(name, shape, bytes)| NewTensor {
        name,
        format: Format::from_ggml_type(0).unwrap(),
        shape,
        bytes: Cow::Borrowed(bytes),
    });
    write(path, metadata, new).unwrap();
    path.display().to_string()
}

/// The models of `tools/oracle/score.py`.
fn plain(home: &Home) -> String {
    let from = gguf("tiny/with-vocab.gguf");
    write_f32(&home.path("plain.gguf"), from.metadata(), &from, |_, _, _| ())
}

fn coarse(home: &Home) -> String {
    let from = gguf("tiny/with-vocab.gguf");
    write_f32(&home.path("coarse.gguf"), from.metadata(), &from, |_, shape, values| {
        if shape.len() > 1 {
            values.iter_mut().for_each(|v| *v = (*v * 8.0).round_ties_even() / 8.0);
        }
    })
}

fn experts(home: &Home) -> String {
    let (from, vocab) = (gguf("tiny/qwen3moe/model.gguf"), gguf("tiny/with-vocab.gguf"));
    let mut metadata = Metadata::new("");
    let own =
        from.metadata().iter().filter(|(k, _)| !k.starts_with("tokenizer.") && *k != "qwen3moe.vocab_size");
    for (key, value) in own.chain(vocab.metadata().iter().filter(|(k, _)| k.starts_with("tokenizer."))) {
        metadata.insert(key, value.clone());
    }
    write_f32(&home.path("experts.gguf"), &metadata, &from, |name, shape, values| {
        if ["token_embd.weight", "output.weight"].contains(&name) {
            let width = shape[1];
            let rows = (0..305).flat_map(|i| values[i % 64 * width..(i % 64 + 1) * width].to_vec());
            (*values, *shape) = (rows.collect(), vec![305, width]);
        }
    })
}

const F32: [&str; 4] = ["--cache-type-k", "f32", "--cache-type-v", "f32"];

fn run(home: &Home, args: &[&str]) -> support::Done {
    let args: Vec<&str> = args.iter().copied().chain(F32).collect();
    home.run(&args)
}

fn text() -> String {
    testdata("score/text.txt").display().to_string()
}

fn close(ours: f64, theirs: f64, tolerance: f64, what: &str) {
    assert!((ours - theirs).abs() <= tolerance * theirs.abs().max(1e-3), "{what}: {ours} is not {theirs}");
}

fn numbers(list: &Json) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

#[test]
fn perplexity_is_that_of_llama_cpp() {
    let (home, facts) = (Home::new(), facts());
    let model = plain(&home);
    let theirs = numbers(&facts["running"]);
    for more in [&[][..], &["-u", "7"], &["-t", "1", "-u", "100"]] {
        let args = ["perplexity", &model, "-f", &text(), "-c", "32", "--chunks", "8", "--json"];
        let json = run(&home, &[&args, more].concat()).json();
        close(json["ppl"].as_f64().unwrap(), facts["ppl"][0].as_f64().unwrap(), TOLERANCE, "ppl");
        close(json["ppl_error"].as_f64().unwrap(), facts["ppl"][1].as_f64().unwrap(), TOLERANCE, "error");
        let ours = numbers(&json["running"]);
        assert_eq!(ours.len(), theirs.len());
        ours.iter().zip(&theirs).for_each(|(a, b)| close(*a, *b, TOLERANCE, "running"));
        assert_eq!(
            (&json["n_scored"], &json["n_chunks"], &json["n_ctx"]),
            (&120.into(), &8.into(), &32.into())
        );
    }
    let done = run(&home, &["perplexity", &model, "-f", &text(), "-c", "32", "--chunks", "2"]);
    assert!(
        done.err.contains("1 of 2 chunks: 2532.") && done.err.contains("2 of 2 chunks: 2573."),
        "{}",
        done.err
    );
    assert!(done.good().starts_with("perplexity: 257"));
}

#[test]
fn a_stride_scores_the_end_of_each_window() {
    let (home, facts) = (Home::new(), facts());
    let model = plain(&home);
    let stride = &facts["stride"];
    let n = |name: &str| stride[name].to_string();
    let (size, step, chunks) = (n("size"), n("stride"), n("chunks"));
    let args = [
        "perplexity",
        &model,
        "-f",
        &text(),
        "-c",
        &size,
        "--ppl-stride",
        &step,
        "--chunks",
        &chunks,
        "--json",
    ];
    let ours = numbers(&run(&home, &args).json()["running"]);
    // llama-perplexity does not put the first token of a window aside for the beginning of the sequence with a stride.
    let theirs = numbers(&stride["running"]);
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(&theirs).for_each(|(a, b)| close(*a, *b, 2e-2, "running"));
}

/// Every `name: value ± error` of a comparison's lines.
fn lines(table: &str) -> Vec<(String, Vec<f64>)> {
    let line = |line: &str| {
        let (name, values) = line.rsplit_once(": ")?;
        let values = values.split(['±', '%']).map(str::trim).filter(|v| !v.is_empty());
        Some((name.trim().to_owned(), values.map(|v| v.parse().unwrap()).collect()))
    };
    table.lines().filter_map(line).collect()
}

#[test]
fn a_comparison_with_saved_logits_is_that_of_llama_cpp() {
    let (home, facts) = (Home::new(), facts());
    let model = coarse(&home);
    let base = testdata("score/base.kld").display().to_string();
    let args = ["perplexity", &model, "--kl-divergence", "--kl-divergence-base", &base];
    let ours = lines(&run(&home, &args).good());
    let theirs = facts["compare"].as_object().unwrap();
    assert!(theirs.len() > 25 && ours.len() == theirs.len(), "{} and {} lines", ours.len(), theirs.len());
    for (name, ours) in ours {
        let theirs = numbers(&theirs[&name]);
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (a, b) in ours.iter().zip(&theirs) {
            // Printed with six or three digits after the point.
            assert!((a - b).abs() <= 1.5e-3 + TOLERANCE * b.abs(), "{name}: {a} is not {b}");
            assert!(!name.contains("KLD") || (a - b).abs() <= 3e-6, "{name}: {a} is not {b}");
        }
    }
    let json = run(&home, &[&args[..], &["--json"]].concat()).json();
    let kld = facts["compare"]["Mean    KLD"][0].as_f64().unwrap();
    close(json["kld"]["value"].as_f64().unwrap(), kld, 1e-3, "kld");
    assert!(json["kld_percentiles"]["99.9"].is_f64() && json["same_top"]["value"] == 1.0, "{json}");
}

#[test]
fn saved_logits_are_those_of_llama_cpp() {
    let home = Home::new();
    let model = plain(&home);
    let file = home.path("ours.kld").display().to_string();
    let args = ["perplexity", &model, "-f", &text(), "-c", "32", "--chunks", "8", "--save-all-logits", &file];
    run(&home, &args).good();
    let (ours, theirs) = (fs::read(&file).unwrap(), fs::read(testdata("score/base.kld")).unwrap());
    let (head, row) = (20 + 4 * 8 * 32, 2 * (306 + 4));
    assert_eq!(ours.len(), theirs.len());
    assert_eq!(ours[..head], theirs[..head], "header and tokens");
    let mut largest = 0;
    for (ours, theirs) in ours[head..].chunks_exact(row).zip(theirs[head..].chunks_exact(row)) {
        for at in [0, 4] {
            let number = |row: &[u8]| f64::from(f32::from_le_bytes(row[at..at + 4].try_into().unwrap()));
            close(number(ours), number(theirs), TOLERANCE, "scale and minimum");
        }
        for at in (8..row - 2).step_by(2) {
            let value = |row: &[u8]| i32::from(u16::from_le_bytes([row[at], row[at + 1]]));
            largest = largest.max((value(ours) - value(theirs)).abs());
        }
    }
    // Of 65535 steps.
    assert!(largest <= 4, "{largest}");
    // What is compared with itself differs by the steps alone.
    let args = ["perplexity", &model, "--kl-divergence", "--kl-divergence-base", &file, "--json"];
    let json = run(&home, &args).json();
    assert!(json["kld"]["value"].as_f64().unwrap().abs() < 1e-6, "{json}");
}

#[test]
fn damaged_files_of_logits_are_refused() {
    let home = Home::new();
    let model = plain(&home);
    let good = fs::read(testdata("score/base.kld")).unwrap();
    let head = 20 + 4 * 8 * 32;
    let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        (name.to_owned(), bytes)
    };
    let word = |at: usize, value: u32| {
        move |bytes: &mut Vec<u8>| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes())
    };
    for ((wanted, bytes), n) in [
        damage("no file of saved logits", &|b| b.clear()),
        damage("no file of saved logits", &|b| b[0] = 0),
        damage("no file of saved logits", &|b| b.truncate(19)),
        damage("do not take", &|b| b.truncate(20)),
        damage("do not take", &|b| b.truncate(good.len() - 1)),
        damage("do not take", &|b| b.push(0)),
        damage("vocabulary of 304", &word(12, 304)),
        damage("0 windows", &word(16, 0)),
        damage("windows of 0 tokens", &word(8, 0)),
        damage("windows of 1 tokens", &word(8, 1)),
        damage("do not take", &word(8, u32::MAX)),
        damage("do not take", &word(16, u32::MAX)),
        damage("token 305 of 305", &word(20, 305)),
        damage("scale NaN", &word(head, f32::NAN.to_bits())),
        damage("scale -1", &word(head, (-1.0f32).to_bits())),
        damage("scale inf", &word(head, f32::INFINITY.to_bits())),
        damage("minimum 1", &word(head + 4, 1.0f32.to_bits())),
        damage("minimum -inf", &word(head + 4, f32::NEG_INFINITY.to_bits())),
    ]
    .into_iter()
    .zip(0..)
    {
        let file = home.file(&format!("{n}.kld"), bytes);
        let args = ["perplexity", &model, "--kl-divergence", "--kl-divergence-base", &file];
        let error = home.run(&args).err;
        assert!(error.contains(&wanted) && error.contains(&file), "{wanted}: {error}");
        assert!(!error.contains("panicked"), "{error}");
    }
}

#[test]
fn impossible_readings_are_refused() {
    let home = Home::new();
    let (model, text) = (plain(&home), text());
    for (args, code, wanted) in [
        (&["-c", "512"][..], 1, "two windows of 512"),
        (&["-c", "257"], 1, "exceed the 256 of training"),
        (&["-c", "3"], 2, "--ctx-size"),
        (&["--chunks", "0"], 2, "--chunks"),
        (&["-c", "32", "--ppl-stride", "0"], 1, "stride 0"),
        (&["-c", "32", "--ppl-stride", "32"], 1, "stride 32"),
        (&["-c", "32", "--save-all-logits", "no/such/folder/x"], 1, "no/such/folder"),
        (&["--kl-divergence"], 2, "--kl-divergence"),
        (&["-c", "32", "--device", "rocm:99"], 1, "rocm"),
        (&["-c", "32", "--device-map", "cpu:99"], 1, "99 layers of a model that has"),
    ] {
        let all = [&["perplexity", &model, "-f", &text], args].concat();
        let error = home.run(&all).bad(code);
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
    assert!(home.run(&["perplexity", &model]).bad(1).contains("two windows"));
    assert!(home.run(&["imatrix", &model, "-f", &text, "-c", "512"]).bad(1).contains("two windows"));
    assert!(home.run(&["imatrix"]).bad(2).contains("MODEL"));
    let bad = home.file("bad.gguf", "GGUF");
    assert!(home.run(&["imatrix", "--in-file", &bad]).bad(1).contains("bad.gguf"));
}

/// Compares importance matrices; `factor` is how often theirs is in ours.
fn same_importance(ours: &Imatrix, theirs: &Imatrix, factor: f32) {
    let names = |imatrix: &Imatrix| imatrix.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(ours), names(theirs));
    for (name, theirs) in theirs.iter() {
        let ours = ours.get(name).unwrap();
        let counts: Vec<f32> = theirs.counts().iter().map(|n| n * factor).collect();
        assert_eq!(ours.counts(), counts, "{name}");
        let largest = theirs.sums().iter().copied().fold(0.0, f32::max);
        for (a, b) in ours.sums().iter().zip(theirs.sums()) {
            assert!((a / factor - b).abs() <= 2e-4 * b + 1e-5 * largest, "{name}: {a} is not {b}");
        }
    }
}

#[test]
fn an_importance_matrix_is_that_of_llama_cpp() {
    let home = Home::new();
    for (model, name, more) in
        [(plain(&home), "plain", &["--process-output"][..]), (experts(&home), "experts", &[])]
    {
        let theirs = Imatrix::open(&testdata(&format!("score/{name}.imatrix.gguf"))).unwrap();
        for rows in ["512", "9"] {
            let out = home.path("out.gguf");
            let file = out.display().to_string();
            let args = [
                "imatrix",
                &model,
                "-f",
                &text(),
                "-c",
                "32",
                "--chunks",
                "8",
                "-u",
                rows,
                "-o",
                &file,
                "--json",
            ];
            let json = run(&home, &[&args, more].concat()).json();
            let ours = Imatrix::open(&out).unwrap();
            same_importance(&ours, &theirs, 1.0);
            assert_eq!((ours.chunk_count, ours.chunk_size), (theirs.chunk_count, theirs.chunk_size));
            assert_eq!(ours.datasets, [text()]);
            assert_eq!(json["n_weights"], theirs.len());
        }
    }
}

#[test]
fn importance_matrices_are_added() {
    let home = Home::new();
    let model = experts(&home);
    let file = |name: &str| home.path(name).display().to_string();
    let theirs = testdata("score/experts.imatrix.gguf").display().to_string();
    let collect = ["imatrix", &model, "-f", &text(), "-c", "32", "--chunks", "8"];
    run(&home, &[&collect[..], &["--in-file", &theirs, "-o", &file("twice.gguf")]].concat()).good();
    let reference = Imatrix::open(Path::new(&theirs)).unwrap();
    let twice = Imatrix::open(&home.path("twice.gguf")).unwrap();
    same_importance(&twice, &reference, 2.0);
    assert_eq!((twice.chunk_count, twice.datasets.len()), (16, 2));
    // Without a model, and in the older container.
    let (a, b) = (file("twice.gguf"), file("three.dat"));
    home.run(&["imatrix", "--in-file", &a, "--in-file", &theirs, "-c", "32", "-o", &b]).good();
    let three = Imatrix::open(&home.path("three.dat")).unwrap();
    assert_eq!((three.chunk_count, three.len()), (24, reference.len()));
    // A weight of another shape.
    let other = testdata("score/plain.imatrix.gguf").display().to_string();
    let error =
        home.run(&["imatrix", "--in-file", &theirs, "--in-file", &other, "-o", &file("x.gguf")]).bad(1);
    assert!(error.contains("blk.0.attn_"), "{error}");
    assert!(!home.path("x.gguf").exists());
}
