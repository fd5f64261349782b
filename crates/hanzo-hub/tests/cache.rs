//! The cache: what it holds, who shares it, and what a forged entry can do.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod support;

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use hanzo_hub::{Event, Hub, Resolved};
use support::*;

/// Answers the hub's API and serves `files` (path in repository, content).
fn repository(files: Vec<(&'static str, Vec<u8>)>) -> Server {
    Server::start(move |request, _, stream| {
        if request.path.starts_with("/api/models/org/repo?") {
            let siblings: Vec<String> = files
                .iter()
                .map(|(name, data)| {
                    let hash = sha256(data);
                    format!(r#"{{"rfilename":"{name}","size":{},"lfs":{{"sha256":"{hash}"}}}}"#, data.len())
                })
                .chain([r#"{"rfilename":"../../evil-Q4_K_M.gguf","size":1}"#.to_owned()])
                .collect();
            let body = format!(
                r#"{{"sha":"{}","cardData":{{"license":"mit"}},"siblings":[{}]}}"#,
                "c".repeat(40),
                siblings.join(",")
            );
            return respond(stream, "200 OK", &[], body.as_bytes());
        }
        let name = request.path.strip_prefix(&format!("/org/repo/resolve/{}/", "c".repeat(40)));
        match files.iter().find(|(file, _)| Some(*file) == name) {
            Some((_, data)) => serve(request, data, stream),
            None => respond(stream, "404 Not Found", &[], b""),
        }
    })
}

#[test]
fn a_hub_id_brings_the_quantization_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let server = repository(vec![("m-Q8_0.gguf", noise(900)), ("sub/m-Q4_K_M.gguf", noise(800))]);
    let hub = Hub::new(config(dir.path(), &server.url));
    let (files, events) = fetch(&hub, "org/repo");
    assert_eq!(std::fs::read(files.unwrap().main_path()).unwrap(), noise(800));
    let licence = Event::Licence { name: "org/repo".into(), licence: "mit".into(), size: Some(800) };
    assert!(events.contains(&licence), "{events:?}");
    let files = fetch(&hub, "org/repo:q8_0").0.unwrap();
    assert_eq!((files.name.as_str(), files.size()), ("org/repo:Q8_0", 900));
    let files = fetch(&hub, "org/repo/sub/m-Q4_K_M.gguf").0.unwrap();
    assert_eq!(files.files[0].name, "sub/m-Q4_K_M.gguf");
    let error = fetch_error(&hub, "org/repo:Q2_K");
    assert!(error.contains("no Q2_K GGUF") && error.contains("m-Q8_0.gguf"), "{error}");
    let error = fetch_error(&hub, "org/other");
    assert!(error.contains("no such repository"), "{error}");
    assert_eq!(hub.list().unwrap().len(), 3);
}

#[test]
fn files_that_find_each_other_by_name_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let server = repository(vec![
        ("config.json", b"{}".to_vec()),
        ("model-00001-of-00002.safetensors", noise(300)),
        ("model-00002-of-00002.safetensors", noise(400)),
        ("model.safetensors.index.json", b"{ }".to_vec()),
    ]);
    let hub = Hub::new(config(dir.path(), &server.url));
    let (files, events) = fetch(&hub, "org/repo");
    let files = files.unwrap();
    let root = files.dir.clone().unwrap();
    assert_eq!(files.main_path(), root);
    assert_eq!(
        tree(&root),
        [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json"
        ]
    );
    assert_eq!(std::fs::read(root.join("model-00002-of-00002.safetensors")).unwrap(), noise(400));
    assert!(events.contains(&Event::Progress { done: 705, total: Some(705) }), "{events:?}");
    hub.remove("org/repo").unwrap();
    assert_eq!(data_files(dir.path()), Vec::<String>::new());
}

#[test]
fn names_are_listed_shown_copied_and_removed() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(1000));
    let server = Server::good(&data);
    let hub = tiny_hub(dir.path(), &server.url, &data);
    assert!(hub.list().unwrap().is_empty());
    assert!(hub.show("tiny").unwrap_err().to_string().contains("hanzo pull tiny:1"));
    assert!(hub.copy("tiny", "mine").is_err() && hub.remove("tiny").is_err());
    fetch(&hub, "tiny").0.unwrap();
    let shown = hub.show("tiny").unwrap();
    assert_eq!(
        (shown.size, shown.licence.as_str(), shown.official, shown.problem),
        (1000, "Test-1.0", true, None)
    );
    assert_eq!(shown.files, [("tiny.gguf".to_owned(), 1000, sha256(&data))]);
    assert!(shown.source.contains("org/repo"), "{}", shown.source);

    hub.copy("tiny", "Mine:v2").unwrap();
    for (to, want) in
        [("tiny", "catalog"), ("mine:v2", "there already"), ("../x", "second name"), ("a/b", "second name")]
    {
        assert!(hub.copy("tiny", to).unwrap_err().to_string().contains(want), "{to}");
    }
    let names: Vec<String> = hub.list().unwrap().into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["mine:v2", "tiny:1"]);

    assert_eq!(hub.remove("tiny").unwrap().freed, Some(0), "a blob that another name needs went");
    let files = fetch(&hub, "mine:v2").0.unwrap();
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
    assert_eq!(fetch(&hub, "tiny").0.unwrap().main_path(), files.main_path(), "the blob was there already");
    assert_eq!(server.requests().len(), 1);
    hub.remove("tiny").unwrap();
    assert_eq!(hub.remove("mine:v2").unwrap().freed, Some(1000));
    assert_eq!(data_files(dir.path()), Vec::<String>::new());
    let error = fetch_error(&hub, "mine:v2");
    assert!(error.contains("no such model in the catalog (tiny:1)"), "{error}");
}

#[test]
fn spoilt_blobs_are_noticed() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(1000));
    let server = Server::good(&data);
    let hub = tiny_hub(dir.path(), &server.url, &data);
    let path = fetch(&hub, "tiny").0.unwrap().main_path().to_owned();
    hub.verify("tiny", &mut |_| ()).unwrap();
    std::fs::write(&path, vec![0; 1000]).unwrap();
    let error = hub.verify("tiny", &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains(&sha256(&data)) && error.contains("pull it"), "{error}");
    std::fs::write(&path, vec![0; 999]).unwrap();
    assert!(hub.show("tiny").unwrap().problem.unwrap().contains("missing or cut"));
    assert!(matches!(hub.resolve("tiny").unwrap(), Resolved::NotCached(_)));
    let files = fetch(&hub, "tiny").0.unwrap();
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
}

#[test]
fn a_forged_manifest_cannot_name_a_file_outside() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(1000));
    let server = Server::good(&data);
    let mut config = config(dir.path(), &server.url);
    config.catalog = catalog(&data, vec![hub_source(true)]);
    config.hf_cache_dir = Some(dir.path().join("hf"));
    std::fs::create_dir_all(dir.path().join("hf")).unwrap();
    let hub = Hub::new(config);
    let secret = dir.path().join("secret");
    std::fs::write(&secret, noise(1000)).unwrap();
    fetch(&hub, "tiny").0.unwrap();
    let manifest = dir.path().join("cache/manifests").join(&tree(&dir.path().join("cache/manifests"))[0]);
    let good = std::fs::read_to_string(&manifest).unwrap();

    for outside in [secret.clone(), dir.path().join("hf/../secret")] {
        let external = format!(r#""external": {:?}, "name": "tiny.gguf""#, outside.display().to_string());
        let forged =
            good.replace("\"name\": \"tiny.gguf\"", &external).replace(&sha256(&data), &"0".repeat(64));
        assert_ne!(forged, good);
        std::fs::write(&manifest, forged).unwrap();
        assert!(matches!(hub.resolve("tiny").unwrap(), Resolved::NotCached(_)), "{}", outside.display());
    }
    std::fs::write(&manifest, good.replace("tiny.gguf", "../../../secret")).unwrap();
    assert!(hub.show("tiny").unwrap_err().to_string().contains("leaves its directory"));
    let listed = hub.list().unwrap();
    assert!(listed[0].problem.as_ref().unwrap().contains("leaves its directory"));
    hub.copy("tiny", "x").unwrap_err();
    assert_eq!(
        hub.remove(&listed[0].name).unwrap().freed,
        Some(1000),
        "a damaged model is removed by its listed name"
    );
    assert!(secret.exists());
}

#[test]
fn a_damaged_manifest_keeps_all_blobs() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(1000));
    let server = Server::good(&data);
    let hub = tiny_hub(dir.path(), &server.url, &data);
    fetch(&hub, "tiny").0.unwrap();
    std::fs::write(dir.path().join("cache/manifests/other.json"), "{").unwrap();
    assert_eq!(hub.remove("tiny").unwrap().freed, None);
    assert_eq!(data_files(dir.path()).len(), 1);
}

#[test]
fn hugging_faces_cache_is_used_and_left_alone() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(1000));
    let hf = dir.path().join("hf");
    let repo = hf.join("models--org--repo");
    let commit = "d".repeat(40);
    for sub in ["blobs", "refs", &format!("snapshots/{commit}")] {
        std::fs::create_dir_all(repo.join(sub)).unwrap();
    }
    std::fs::write(repo.join("blobs").join(sha256(&data)), &data).unwrap();
    std::fs::write(repo.join("blobs/aaaa.incomplete"), b"half").unwrap();
    std::fs::write(repo.join("refs/main"), &commit).unwrap();
    std::fs::write(repo.join(format!("snapshots/{commit}/m-Q8_0.gguf")), &data).unwrap();
    let before = tree(&hf);

    let mut config = config(dir.path(), "http://127.0.0.1:1");
    config.catalog = catalog(&data, vec![hub_source(true)]);
    config.hf_cache_dir = Some(hf.clone());
    config.offline = true;
    let hub = Hub::new(config);
    let files = fetch(&hub, "org/repo:Q8_0").0.unwrap();
    assert_eq!(files.main_path(), repo.join(format!("snapshots/{commit}/m-Q8_0.gguf")));
    assert!(fetch(&hub, "org/repo:Q4_0").0.is_err());

    let (files, events) = fetch(&hub, "tiny");
    let path = files.unwrap().main_path().to_owned();
    assert!(path.starts_with(hf.canonicalize().unwrap()), "{}", path.display());
    assert!(events.iter().any(|event| matches!(event, Event::Verifying { .. })));
    assert_eq!(hub.show("tiny").unwrap().problem, None);
    hub.remove("tiny").unwrap();
    assert_eq!(tree(&hf), before);

    // A file there whose content is not what its name says is passed over.
    std::fs::write(repo.join("blobs").join(sha256(&data)), vec![0; 1000]).unwrap();
    assert!(fetch_error(&hub, "tiny").contains("offline"));
}

#[test]
fn an_existing_path_comes_first() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::new(config(dir.path(), "http://127.0.0.1:1"));
    let file = dir.path().join("m.gguf");
    std::fs::write(&file, b"12345").unwrap();
    let Resolved::Path(files) = hub.resolve(file.to_str().unwrap()).unwrap() else { panic!("not a path") };
    assert_eq!((files.main_path(), files.size()), (file.as_path(), 5));
    let Resolved::Path(files) = hub.resolve(dir.path().to_str().unwrap()).unwrap() else {
        panic!("not a path")
    };
    assert_eq!(files.files[0].name, "m.gguf");
    assert_eq!(files.dir.as_deref(), Some(dir.path()));
    let missing = dir.path().join("n.gguf");
    assert!(fetch_error(&hub, missing.to_str().unwrap()).contains("no such file"));
}

#[test]
fn two_threads_download_once() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(200_000));
    let served = data.clone();
    // The first answer is held back until the second fetch is known to wait.
    let (waiting, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let server = Server::start(move |request, _, stream| {
        held.lock().unwrap().recv_timeout(Duration::from_secs(1)).ok();
        serve(request, &served, stream);
    });
    let hub = tiny_hub(dir.path(), &server.url, &data);
    let n_waits = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let waiting = waiting.clone();
            let (hub, n_waits, data) = (&hub, &n_waits, &data);
            scope.spawn(move || {
                let files = hub.fetch("tiny", &mut |event| {
                    if matches!(event, Event::Waiting { .. }) && n_waits.fetch_add(1, Ordering::SeqCst) == 1 {
                        waiting.send(()).ok();
                    }
                });
                assert_eq!(&std::fs::read(files.unwrap().main_path()).unwrap(), data);
            });
        }
    });
    assert_eq!(server.requests().len(), 1);
    assert_eq!(n_waits.load(Ordering::SeqCst), 2);
}

/// A filter of tests that no test has: it tells this program's other process what to fetch.
const ASKED: &str = "fetch=";

/// The second process of the tests below, which run this very program again with this test alone and one filter more:
/// the size of the data, the server's address and the cache's directory. A run that nobody asked for has nothing to do.
#[test]
fn other_process() {
    let asked = std::env::args().find_map(|arg| arg.strip_prefix(ASKED).map(str::to_owned));
    let Some(asked) = asked else { return };
    let mut parts = asked.splitn(3, ' ');
    let mut next = || parts.next().unwrap();
    let (data, url, dir) = (noise(next().parse().unwrap()), next(), next());
    let files = fetch(&tiny_hub(Path::new(dir), url, &data), "tiny").0.unwrap();
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
}

fn spawn_other(dir: &Path, url: &str, size: usize) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "other_process", &format!("{ASKED}{size} {url} {}", dir.display())])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_download_once() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(200_000));
    let served = data.clone();
    let server = Server::start(move |request, _, stream| {
        std::thread::sleep(Duration::from_millis(300));
        serve(request, &served, stream);
    });
    let mut children: Vec<_> = (0..3).map(|_| spawn_other(dir.path(), &server.url, data.len())).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_killed_process_leaves_a_usable_part() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(600_000));
    let served = data.clone();
    let server = Server::start(move |request, n, stream| {
        if n > 0 {
            return serve(request, &served, stream);
        }
        head(stream, "200 OK", &[("ETag", "\"v1\"")], served.len() as u64);
        stream.write_all(&served[..400_000]).unwrap();
        std::thread::sleep(Duration::from_secs(60));
    });
    let mut child = spawn_other(dir.path(), &server.url, data.len());
    let partial = dir.path().join(format!("cache/partial/sha256-{}", sha256(&data)));
    for _ in 0..1000 {
        if partial.metadata().is_ok_and(|meta| meta.len() == 400_000) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let hub = tiny_hub(dir.path(), &server.url, &data);
    assert!(matches!(hub.resolve("tiny").unwrap(), Resolved::NotCached(_)));
    let files = fetch(&hub, "tiny").0.unwrap();
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
    assert_eq!(server.requests()[1].range_start(), Some(400_000));
}
