//! `hanzo pull`, `list`, `show`, `rm` and `cp` against a hub on loopback.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
};

use serde_json::{Value as Json, json};
use support::{Done, Home, facts, model};

/// A hub with the repository `org/tiny`, which holds the tiny chat model; it ends with the test.
fn hub() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().for_each(|stream| answer(&stream.unwrap())));
    url
}

fn answer(stream: &TcpStream) {
    let mut lines = BufReader::new(stream).lines();
    let Some(Ok(request)) = lines.next() else { return };
    // The rest of the request, up to its empty line.
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let data = fs::read(model()).unwrap();
    let path = request.split(' ').nth(1).unwrap();
    let (status, body) = if path.starts_with("/api/models/org/tiny") {
        let file = json!({ "rfilename": "tiny.gguf", "size": data.len() });
        let repo = json!({ "sha": "a1".repeat(20), "cardData": { "license": "mit" }, "siblings": [file] });
        ("200 OK", repo.to_string().into_bytes())
    } else if path.ends_with("/tiny.gguf") {
        ("200 OK", data)
    } else {
        ("404 Not Found", Vec::new())
    };
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut stream = stream;
    // A client that goes away has what it wanted.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)));
}

/// Runs a command in a home whose hub is on loopback.
fn hanzo(home: &Home, hub: &str, args: &[&str]) -> Done {
    home.run_with(args, "", &[("HF_ENDPOINT", hub)])
}

fn names(list: &Json) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap()).collect()
}

#[test]
fn a_model_is_pulled_listed_shown_copied_run_and_removed() {
    let (home, hub) = (Home::new(), hub());
    let hanzo = |args: &[&str]| hanzo(&home, &hub, args);
    let size = fs::metadata(model()).unwrap().len();

    let pulled = hanzo(&["pull", "org/tiny"]);
    assert!(pulled.err.contains("licence: mit") && pulled.err.contains("org/tiny is here"), "{}", pulled.err);
    let path = pulled.good();
    assert_eq!(fs::read(path.trim_end()).unwrap(), fs::read(model()).unwrap());

    let list = hanzo(&["list", "--json"]).json();
    assert_eq!(names(&list), ["org/tiny"]);
    assert_eq!((&list[0]["bytes"], &list[0]["licence"]), (&json!(size), &json!("mit")));
    let text = hanzo(&["list"]).good();
    assert!(text.starts_with("NAME") && text.contains("org/tiny  112.91 KiB  mit"), "{text}");

    let shown = hanzo(&["show", "org/tiny", "--json"]).json();
    assert_eq!((&shown["here"], &shown["files"][0]["name"]), (&json!(true), &json!("tiny.gguf")));
    assert_eq!(shown["files"][0]["path"], path.trim_end());
    let text = hanzo(&["show", "org/tiny"]).good();
    assert!(text.contains("tiny.gguf, 112.91 KiB") && text.contains(path.trim_end()), "{text}");

    assert!(hanzo(&["cp", "org/tiny", "Mine:1"]).good().starts_with("mine:1 is a second name of org/tiny"));
    // What is here needs no network.
    let run = hanzo(&["run", "--offline", "-m", "mine:1", "Hello?"]).good();
    assert_eq!(run.trim_end(), facts()["answer"]);

    let removed = hanzo(&["rm", "org/tiny"]).good();
    assert!(removed.starts_with("removed org/tiny: nothing freed"), "{removed}");
    let removed = hanzo(&["rm", "mine:1"]).good();
    assert_eq!(removed, "removed mine:1: 112.91 KiB freed\n");
    assert!(!Path::new(path.trim_end()).exists());
    assert_eq!(hanzo(&["list", "--json"]).json(), json!([]));
    let empty = hanzo(&["list"]);
    assert!(empty.err.contains("hanzo list --catalog"), "{}", empty.err);
    assert_eq!(empty.good(), "");
}

#[test]
fn an_address_is_pulled_and_a_folder_of_ones_own_keeps_it() {
    let (home, hub) = (Home::new(), hub());
    let cache = home.path("models of mine").display().to_string();
    let url = format!("{hub}/files/tiny.gguf");
    let path = hanzo(&home, &hub, &["pull", &url, "--cache-dir", &cache]).good();
    assert!(path.starts_with(&cache), "{path}");
    let list = hanzo(&home, &hub, &["list", "--json", "--cache-dir", &cache]).json();
    assert_eq!(names(&list), [&url]);
    // The usual folder has nothing.
    assert_eq!(hanzo(&home, &hub, &["list", "--json"]).json(), json!([]));
}

#[test]
fn the_catalog_is_listed_with_licence_size_and_uploader() {
    let home = Home::new();
    let list = home.run(&["list", "--catalog", "--json"]).json();
    assert!(names(&list).contains(&"smollm2:135m"));
    for row in list.as_array().unwrap() {
        assert!(row["bytes"].as_u64().unwrap() > 1 << 20);
        assert_eq!(row["here"], false);
        assert!(!row["licence"].as_str().unwrap().is_empty());
        assert!(row["sources"].as_array().unwrap().iter().all(|source| source["official"].is_boolean()));
    }
    let text = home.run(&["list", "--catalog"]).good();
    for wanted in ["NAME", "PACKAGE", "smollm2:135m", "93.81 MiB", "Apache-2.0"] {
        assert!(text.contains(wanted), "{wanted:?} is missing from {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_model_that_is_not_here_shows_where_it_can_be_had() {
    let home = Home::new();
    let shown = home.run(&["show", "smollm2", "--json"]).json();
    assert_eq!((&shown["name"], &shown["here"]), (&json!("smollm2:135m"), &json!(false)));
    assert_eq!(shown["bytes"], 98_362_432);
    assert!(shown["sources"].as_array().unwrap().len() > 1);
    let text = home.run(&["show", "smollm2"]).good();
    assert!(text.contains("hanzo pull smollm2:135m") && text.contains("Apache-2.0"), "{text}");
    let text = home.run(&["show", "org/unknown"]).good();
    assert!(text.contains("not known before it is fetched"), "{text}");
}

#[test]
fn what_cannot_be_is_refused_with_a_way_on() {
    let (home, hub) = (Home::new(), hub());
    for (args, code, wanted) in [
        (&["pull", "--offline", "org/tiny"][..], 1, "offline"),
        (&["pull", "org/absent"], 1, "404"),
        (&["pull", "no-such-name"], 1, "smollm2:135m"),
        (&["pull"], 2, "MODEL"),
        (&["show", "no-such-name"], 1, "no-such-name"),
        (&["show", "."], 2, "hanzo inspect"),
        (&["rm", "org/tiny"], 1, "not in the model cache"),
        (&["rm"], 2, "MODEL"),
        (&["cp", "org/tiny", "mine"], 1, "not in the model cache"),
    ] {
        let error = hanzo(&home, &hub, args).bad(code);
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
    hanzo(&home, &hub, &["pull", "org/tiny"]).good();
    for (to, wanted) in
        [("smollm2:135m", "the catalog has this name"), ("a/b", "second name"), ("", "second name")]
    {
        let error = hanzo(&home, &hub, &["cp", "org/tiny", to]).bad(1);
        assert!(error.contains(wanted), "{to:?}: {error}");
    }
    hanzo(&home, &hub, &["cp", "org/tiny", "mine"]).good();
    assert!(hanzo(&home, &hub, &["cp", "org/tiny", "mine"]).bad(1).contains("already"));
}

#[test]
fn a_damaged_cache_is_told_by_list_and_doctor_and_mended_by_rm() {
    let (home, hub) = (Home::new(), hub());
    let hanzo = |args: &[&str]| hanzo(&home, &hub, args);
    let path = hanzo(&["pull", "org/tiny"]).good();
    let sound = hanzo(&["doctor", "--json", "--verify"]);
    let checks: Json = serde_json::from_str(&sound.out).unwrap();
    let models = |checks: &Json| {
        let of_models = |check: &&Json| check["check"] == "models";
        checks.as_array().unwrap().iter().filter(of_models).map(|c| c["state"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(models(&checks), ["ok"]);
    // Wrong bytes of the right length are found by hashing alone.
    let path = path.trim_end();
    let mut damaged = fs::read(path).unwrap();
    damaged[9000] ^= 1;
    fs::write(path, &damaged).unwrap();
    assert_eq!(models(&serde_json::from_str(&hanzo(&["doctor", "--json"]).out).unwrap()), ["ok"]);
    let found = hanzo(&["doctor", "--json", "--verify"]);
    assert_eq!(found.code, Some(1));
    assert_eq!(models(&serde_json::from_str(&found.out).unwrap()), ["ok", "fail"]);
    // A file that was cut is seen at once.
    fs::write(path, &damaged[..1000]).unwrap();
    let done = hanzo(&["doctor"]);
    assert_eq!(done.code, Some(1));
    assert!(done.out.contains("fail  models") && done.out.contains("hanzo rm org/tiny"), "{}", done.out);
    assert!(done.err.contains("1 of"), "{}", done.err);
    assert!(hanzo(&["list"]).good().contains("tiny.gguf"));
    assert_eq!(hanzo(&["list", "--json"]).json()[0]["here"], false);
    hanzo(&["rm", "org/tiny"]).good();
    let manifest = home.path("cache/hanzo/manifests/broken.json");
    fs::write(&manifest, "{").unwrap();
    assert!(hanzo(&["list"]).good().contains("broken"));
    assert_eq!(hanzo(&["doctor"]).code, Some(1));
    hanzo(&["rm", "broken"]).good();
    assert!(!manifest.exists());
}
