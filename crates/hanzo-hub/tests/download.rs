//! Downloads from servers that are good, cut off, slow, wrong or hostile, all on loopback.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod support;

use std::{io::Write, time::Duration};

use hanzo_hub::{Event, Hub, Resolved};
use support::*;

#[test]
fn a_good_server_fills_the_cache_once() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(700_000));
    let server = Server::good(&data);
    let hub = tiny_hub(dir.path(), &server.url, &data);
    let Resolved::NotCached(plan) = hub.resolve("tiny").unwrap() else {
        panic!("cached before the download")
    };
    assert_eq!(
        (plan.name.as_str(), plan.size, plan.licence.as_deref()),
        ("tiny:1", Some(700_000), Some("Test-1.0"))
    );
    assert!(server.requests().is_empty(), "resolving used the network");

    let (files, events) = fetch(&hub, "tiny");
    let files = files.unwrap();
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
    assert_eq!(files.files[0].name, "tiny.gguf");
    assert_eq!(data_files(dir.path()), [format!("blobs/sha256-{}", sha256(&data))]);
    let at = |want: fn(&Event) -> bool| events.iter().position(want).unwrap();
    let licence = at(|e| matches!(e, Event::Licence { licence, .. } if licence == "Test-1.0"));
    let source = at(|e| matches!(e, Event::Source { official: true, .. }));
    let first_bytes = at(|e| matches!(e, Event::Progress { .. }));
    assert!(licence < source && source < first_bytes);
    assert!(events.contains(&Event::Progress { done: 700_000, total: Some(700_000) }));
    assert_eq!(events.last(), Some(&Event::Done { name: "tiny:1".into() }));

    let (again, events) = fetch(&hub, "tiny:1");
    assert_eq!(again.unwrap(), files);
    assert_eq!(events, [Event::Done { name: "tiny:1".into() }]);
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    let path = "/org/repo/resolve/0123456789012345678901234567890123456789/tiny.gguf";
    assert_eq!(requests[0].path, path);
    assert!(matches!(hub.resolve("tiny:latest").unwrap(), Resolved::Cached(_)));
}

#[test]
fn a_cut_download_goes_on_where_it_stopped() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(500_000));
    let served = data.clone();
    let server = Server::start(move |request, n, stream| {
        let start = request.range_start().unwrap_or(0);
        if n < 2 {
            let range = format!("bytes {start}-{}/{}", served.len() - 1, served.len());
            let status = if start > 0 { "206 Partial Content" } else { "200 OK" };
            let headers = [("ETag", "\"v1\""), ("Content-Range", range.as_str())];
            head(stream, status, &headers, (served.len() - start) as u64);
            stream.write_all(&served[start..start + 150_000]).unwrap();
        } else {
            serve(request, &served, stream);
        }
    });
    let hub = tiny_hub(dir.path(), &server.url, &data);
    let files = fetch(&hub, "tiny").0.unwrap();
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
    let starts: Vec<_> = server
        .requests()
        .iter()
        .map(|r| (r.range_start(), r.header("if-range").map(str::to_owned)))
        .collect();
    let tag = Some("\"v1\"".to_owned());
    assert_eq!(starts, [(None, None), (Some(150_000), tag.clone()), (Some(300_000), tag)]);
    assert_eq!(data_files(dir.path()).len(), 1);
}

#[test]
fn what_one_run_left_the_next_one_uses() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(100_000));
    let served = data.clone();
    let cut = Server::start(move |request, _, stream| {
        if request.range_start().is_some() {
            return; // closes without an answer
        }
        head(stream, "200 OK", &[("ETag", "\"v1\"")], served.len() as u64);
        stream.write_all(&served[..60_000]).unwrap();
    });
    let error = fetch_error(&tiny_hub(dir.path(), &cut.url, &data), "tiny");
    assert!(error.contains("tiny") && error.contains(&cut.url) && error.contains("next:"), "{error}");
    let left = data_files(dir.path());
    assert!(left.iter().all(|name| name.starts_with("partial/")) && left.len() == 2, "{left:?}");

    let good = Server::good(&data);
    let hub = tiny_hub(dir.path(), &good.url, &data);
    assert!(matches!(hub.resolve("tiny").unwrap(), Resolved::NotCached(_)), "half a file counts as cached");
    let files = fetch(&hub, "tiny").0.unwrap();
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
    assert_eq!(good.requests()[0].range_start(), Some(60_000));
    assert_eq!(good.requests()[0].header("if-range"), None, "the tag of another server was sent");
}

/// Leaves `bytes` as an unfinished download of `data`.
fn leave_partial(dir: &std::path::Path, data: &[u8], bytes: &[u8]) {
    let partial = dir.join("cache/partial");
    std::fs::create_dir_all(&partial).unwrap();
    let key = format!("sha256-{}", sha256(data));
    std::fs::write(partial.join(&key), bytes).unwrap();
    let state = format!(r#"{{"url":"http://x/","etag":"\"v1\"","total":{}}}"#, data.len());
    std::fs::write(partial.join(format!("{key}.json")), state).unwrap();
}

#[test]
fn a_server_that_ignores_or_garbles_ranges_still_serves() {
    for how in ["ignores", "wrong start", "refuses", "no header"] {
        let (dir, data) = (tempfile::tempdir().unwrap(), noise(80_000));
        leave_partial(dir.path(), &data, &data[..30_000]);
        let served = data.clone();
        let server = Server::start(move |request, _, stream| match (request.range_start(), how) {
            (None, _) | (_, "ignores") => respond(stream, "200 OK", &[], &served),
            (_, "wrong start") => {
                let range = [("Content-Range", "bytes 29999-79999/80000")];
                respond(stream, "206 Partial Content", &range, &served[29_999..]);
            }
            (_, "no header") => respond(stream, "206 Partial Content", &[], &served[30_000..]),
            _ => respond(stream, "416 Range Not Satisfiable", &[], b""),
        });
        let files = fetch(&tiny_hub(dir.path(), &server.url, &data), "tiny").0.unwrap();
        assert_eq!(std::fs::read(files.main_path()).unwrap(), data, "{how}");
        assert_eq!(server.requests()[0].range_start(), Some(30_000), "{how}");
        assert_eq!(data_files(dir.path()).len(), 1, "{how}");
    }
}

#[test]
fn a_spoilt_partial_file_is_thrown_away() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(80_000));
    leave_partial(dir.path(), &data, &vec![0; 30_000]);
    let server = Server::good(&data);
    let files = fetch(&tiny_hub(dir.path(), &server.url, &data), "tiny").0.unwrap();
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
    let starts: Vec<_> = server.requests().iter().map(Request::range_start).collect();
    assert_eq!(starts, [Some(30_000), None]);
}

#[test]
fn wrong_bytes_are_never_used() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(50_000));
    let mut wrong = data.clone();
    wrong[49_999] ^= 1;
    let server = Server::good(&wrong);
    let hub = tiny_hub(dir.path(), &server.url, &data);
    let error = fetch_error(&hub, "tiny");
    assert!(error.contains(&sha256(&wrong)) && error.contains(&sha256(&data)), "{error}");
    assert_eq!(data_files(dir.path()), Vec::<String>::new());
    assert!(matches!(hub.resolve("tiny").unwrap(), Resolved::NotCached(_)));
}

#[test]
fn a_silent_server_and_a_dripping_one_are_given_up() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(50_000));
    let silent = Server::start(|_, _, stream| {
        head(stream, "200 OK", &[], 50_000);
        std::thread::sleep(Duration::from_secs(60));
    });
    let error = fetch_error(&tiny_hub(dir.path(), &silent.url, &data), "tiny");
    assert!(error.contains("stopped at 0 of 50000 bytes"), "{error}");

    let drips = Server::start(|_, _, stream| {
        head(stream, "200 OK", &[], 50_000);
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    let error = fetch_error(&tiny_hub(dir.path(), &drips.url, &data), "tiny");
    assert!(error.contains("too slow"), "{error}");

    let mute = Server::start(|_, _, _| std::thread::sleep(Duration::from_secs(60)));
    let error = fetch_error(&tiny_hub(dir.path(), &mute.url, &data), "tiny");
    assert!(error.contains("stopped answering"), "{error}");
}

#[test]
fn refusals_say_what_to_do() {
    for (status, want) in [
        ("404 Not Found", "no such file (status 404)"),
        ("401 Unauthorized", "set HF_TOKEN"),
        ("403 Forbidden", "accept its terms at"),
        ("429 Too Many Requests", "wait 17 s"),
        ("500 Oops", "has a fault (status 500)"),
        ("204 No Content", "unexpected answer (status 204)"),
        ("206 Partial Content", "unexpected answer (status 206)"),
    ] {
        let (dir, data) = (tempfile::tempdir().unwrap(), noise(10));
        let server =
            Server::start(move |_, _, stream| respond(stream, status, &[("Retry-After", "17")], b""));
        let error = fetch_error(&tiny_hub(dir.path(), &server.url, &data), "tiny");
        assert!(error.contains(want) && error.contains(&server.url), "{status}: {error}");
    }
}

#[test]
fn an_absent_server_is_said_to_be_absent() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(10));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = fetch_error(&tiny_hub(dir.path(), &format!("http://127.0.0.1:{port}"), &data), "tiny");
    assert!(error.contains("connection failed"), "{error}");
    let error = fetch_error(&tiny_hub(dir.path(), "https://no-such-host.invalid", &data), "tiny");
    assert!(error.contains("host not found") || error.contains("took too long"), "{error}");
}

#[test]
fn lengths_are_checked_before_the_first_byte() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(10));
    for (length, want) in [(1_u64 << 48, "not enough disk space"), (1 << 60, "beyond belief")] {
        let server = Server::start(move |_, _, stream| head(stream, "200 OK", &[], length));
        let url = format!("{}/m.gguf", server.url);
        let error = fetch_error(&Hub::new(config(dir.path(), &server.url)), &url);
        assert!(error.contains(want), "{error}");
    }
    let server = Server::start(move |_, _, stream| head(stream, "200 OK", &[], 11));
    let error = fetch_error(&tiny_hub(dir.path(), &server.url, &data), "tiny");
    assert!(error.contains("offers 11 bytes, 10 were expected"), "{error}");
    let server = Server::start(move |_, _, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc").unwrap();
    });
    let error = fetch_error(&Hub::new(config(dir.path(), &server.url)), &format!("{}/m.gguf", server.url));
    assert!(error.contains("does not say how long"), "{error}");
    assert_eq!(data_files(dir.path()), Vec::<String>::new());
}

#[test]
fn more_bytes_than_announced_are_refused() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(10));
    let server = Server::start(move |_, _, stream| {
        let body = b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n12345678901\r\n0\r\n\r\n";
        stream.write_all(body).unwrap();
    });
    let error = fetch_error(&tiny_hub(dir.path(), &server.url, &data), "tiny");
    assert!(error.contains("more than the 10 bytes"), "{error}");
    assert_eq!(data_files(dir.path()), Vec::<String>::new());
}

#[test]
fn redirects_are_followed_and_the_token_stays_home() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(30_000));
    let elsewhere = Server::good(&data);
    let target = format!("{}/blob", elsewhere.url);
    let server = Server::start(move |request, _, stream| {
        let location = if request.path == "/second" { target.as_str() } else { "/second" };
        respond(stream, "302 Found", &[("Location", location)], b"ignored");
    });
    let mut config = config(dir.path(), &server.url);
    config.token = Some("hf_secret".into());
    config.catalog = catalog(&data, vec![hub_source(true)]);
    let files = fetch(&Hub::new(config), "tiny").0.unwrap();
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
    assert!(server.requests().iter().all(|r| r.header("authorization") == Some("Bearer hf_secret")));
    assert_eq!(server.requests().len(), 2);
    assert_eq!(elsewhere.requests()[0].header("authorization"), None);
}

#[test]
fn bad_redirects_end() {
    for (location, want) in [
        ("/again", "more than 10 redirects"),
        ("http://example.invalid/x", "only https"),
        ("ftp://127.0.0.1/x", "only https"),
        ("file:///etc/passwd", "not an address"),
    ] {
        let (dir, data) = (tempfile::tempdir().unwrap(), noise(10));
        let server =
            Server::start(move |_, _, stream| respond(stream, "302 Found", &[("Location", location)], b""));
        let error = fetch_error(&tiny_hub(dir.path(), &server.url, &data), "tiny");
        assert!(error.contains(want) || error.contains("only https"), "{location}: {error}");
    }
}

#[test]
fn another_conversion_is_checked_against_the_hubs_own_hash() {
    let (data, other) = (noise(10), noise(20_000));
    let run = |hash: Option<String>| {
        let dir = tempfile::tempdir().unwrap();
        let served = other.clone();
        let server = Server::start(move |request, _, stream| {
            if request.path == "/cdn" {
                return serve(request, &served, stream);
            }
            let quoted = hash.as_ref().map(|hash| format!("\"{hash}\""));
            let mut headers = vec![("Location", "/cdn"), ("X-Linked-Size", "20000")];
            headers.extend(quoted.as_deref().map(|hash| ("X-Linked-Etag", hash)));
            respond(stream, "302 Found", &headers, b"");
        });
        let mut config = config(dir.path(), &server.url);
        config.catalog = catalog(&data, vec![hub_source(false)]);
        fetch(&Hub::new(config), "tiny").0.map(|files| std::fs::read(files.main_path()).unwrap())
    };
    assert_eq!(run(Some(sha256(&other))).unwrap(), other);
    assert!(run(Some(sha256(&data))).unwrap_err().to_string().contains("wrong content"));
    assert!(run(None).unwrap_err().to_string().contains("declares no sha256"));
}

#[test]
fn a_direct_address_is_a_name() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(5000));
    let server = Server::good(&data);
    let hub = Hub::new(config(dir.path(), &server.url));
    let url = format!("{}/files/my%20model.gguf?download=true", server.url);
    let files = fetch(&hub, &url).0.unwrap();
    assert_eq!(files.name, url);
    assert_eq!(files.files[0].name, "my%20model.gguf");
    assert_eq!(std::fs::read(files.main_path()).unwrap(), data);
    assert!(matches!(hub.resolve(&url).unwrap(), Resolved::Cached(_)));
    let error = fetch_error(&hub, "http://example.invalid/m.gguf");
    assert!(error.contains("only https"), "{error}");
}

#[test]
fn offline_mode_names_what_is_missing_and_stays_offline() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(5000));
    let server = Server::good(&data);
    let mut config = config(dir.path(), &server.url);
    config.catalog = catalog(&data, vec![hub_source(true)]);
    let mut offline = config.clone();
    offline.offline = true;
    let offline = Hub::new(offline);
    let error = fetch_error(&offline, "tiny");
    for part in ["tiny.gguf", "5000 bytes", &sha256(&data), "offline", "hanzo pull tiny:1"] {
        assert!(error.contains(part), "{error} has no {part}");
    }
    assert!(fetch_error(&offline, "org/repo:Q8_0").contains("the files of org/repo:Q8_0"));
    assert!(server.requests().is_empty());
    fetch(&Hub::new(config), "tiny").0.unwrap();
    fetch(&offline, "tiny").0.unwrap();
}
