//! A hub on loopback that behaves as well or as badly as a test asks, and small helpers.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use hanzo_hub::{CatalogModel, Event, Hub, HubConfig, ModelFiles, Source};
use sha2::{Digest, Sha256};

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// First byte of `Range: bytes=N-`.
    pub fn range_start(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// A server in a thread of its own; it ends with the test program.
pub struct Server {
    pub url: String,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Calls `answer(request, number of requests before it, stream)` for each connection.
    pub fn start(answer: impl Fn(&Request, usize, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (shared, answer) = (Arc::clone(&log), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, shared, answer) =
                    (stream.unwrap(), Arc::clone(&shared), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(request) = read_request(&stream) else { return };
                    let n_before = {
                        let mut log = shared.lock().unwrap();
                        log.push(request.clone());
                        log.len() - 1
                    };
                    answer(&request, n_before, &mut stream);
                });
            }
        });
        Self { url, log }
    }

    /// Serves `data` at every path, with ranges.
    pub fn good(data: &[u8]) -> Self {
        let data = data.to_vec();
        Self::start(move |request, _, stream| serve(request, &data, stream))
    }

    pub fn requests(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            break;
        }
        let (key, value) = line.split_once(':')?;
        headers.push((key.to_owned(), value.trim().to_owned()));
    }
    Some(Request { path, headers })
}

/// Writes a whole answer.
pub fn respond(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) {
    head(stream, status, headers, body.len() as u64);
    let _ = stream.write_all(body);
}

/// Writes the head of an answer that promises `length` bytes.
pub fn head(stream: &mut TcpStream, status: &str, headers: &[(&str, &str)], length: u64) {
    let mut text = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n");
    for (key, value) in headers {
        text.push_str(&format!("{key}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let _ = stream.write_all(text.as_bytes());
}

/// Answers as a proper file server.
pub fn serve(request: &Request, data: &[u8], stream: &mut TcpStream) {
    match request.range_start() {
        Some(start) if start < data.len() => {
            let range = format!("bytes {start}-{}/{}", data.len() - 1, data.len());
            let headers = [("Content-Range", range.as_str()), ("ETag", "\"v1\"")];
            respond(stream, "206 Partial Content", &headers, &data[start..]);
        }
        Some(_) => respond(stream, "416 Range Not Satisfiable", &[], b""),
        None => respond(stream, "200 OK", &[("ETag", "\"v1\"")], data),
    }
}

pub fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes without a pattern that could hide an offset error.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

/// A catalog row `tiny:1` for `data` with these sources.
pub fn catalog(data: &[u8], sources: Vec<Source>) -> &'static [CatalogModel] {
    let row = CatalogModel {
        name: "tiny",
        tags: &["1", "latest"],
        about: "a test",
        file: "tiny.gguf",
        size: data.len() as u64,
        sha256: sha256(data).leak(),
        licence: "Test-1.0",
        sources: sources.leak(),
    };
    vec![row].leak()
}

/// The row's file on the hub.
pub fn hub_source(same_file: bool) -> Source {
    let revision = "0123456789012345678901234567890123456789";
    Source::Hub { repo: "org/repo", revision, file: "tiny.gguf", same_file, official: true }
}

/// Settings with a cache in `dir`, a hub at `url` and short patience.
pub fn config(dir: &Path, url: &str) -> HubConfig {
    let mut config = HubConfig::new(dir.join("cache"));
    url.clone_into(&mut config.endpoint);
    config.stall_timeout = Duration::from_secs(2);
    config.pythons = Vec::new();
    config.catalog = &[];
    config
}

/// A hub whose catalog has `tiny:1` = `data` at `url`.
pub fn tiny_hub(dir: &Path, url: &str, data: &[u8]) -> Hub {
    let mut config = config(dir, url);
    config.catalog = catalog(data, vec![hub_source(true)]);
    Hub::new(config)
}

/// Fetches and keeps the events.
pub fn fetch(hub: &Hub, name: &str) -> (hanzo_hub::Result<ModelFiles>, Vec<Event>) {
    let mut events = Vec::new();
    let files = hub.fetch(name, &mut |event| events.push(event));
    (files, events)
}

/// The error text of a fetch that must fail.
pub fn fetch_error(hub: &Hub, name: &str) -> String {
    fetch(hub, name).0.unwrap_err().to_string()
}

/// Names of the files below `dir`, sorted.
pub fn tree(dir: &Path) -> Vec<String> {
    fn walk(dir: &Path, root: &Path, out: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                walk(&entry.path(), root, out);
            } else {
                out.push(entry.path().strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/"));
            }
        }
    }
    let mut out = Vec::new();
    walk(dir, dir, &mut out);
    out.sort();
    out
}

/// Files of the cache that are neither locks nor manifests.
pub fn data_files(dir: &Path) -> Vec<String> {
    let keep = |name: &String| !name.starts_with("locks/") && !name.starts_with("manifests/");
    tree(&dir.join("cache")).into_iter().filter(keep).collect()
}
