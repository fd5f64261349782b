//! Words that do not belong: markers of unfinished work, and places that exist on one machine alone.

use super::Report;
use crate::repo::{File, Repo};

/// Markers of unfinished work, spelled so that this file passes its own rule.
const MARKERS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

/// Folders of somebody's machine.
const FOLDERS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/tm", "p/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Endings of hosts that only one network knows.
const PRIVATE_HOSTS: [&str; 6] = [".internal", ".intranet", ".corp", ".lan", ".local", ".localdomain"];

pub(super) fn markers(repo: &Repo, report: &mut Report) {
    each_line(repo, |file, n, line| {
        for marker in MARKERS.iter().filter(|m| has_word(line, m)) {
            report.error(&file.path, n, format!("{marker}: finish it, or file an issue"));
        }
    });
}

pub(super) fn paths(repo: &Repo, report: &mut Report) {
    each_line(repo, |file, n, line| {
        for folder in FOLDERS.iter().filter(|f| has_absolute(line, f)) {
            report.error(&file.path, n, format!("the path {folder}… exists on one machine alone"));
        }
    });
}

pub(super) fn hosts(repo: &Repo, report: &mut Report) {
    each_line(repo, |file, n, line| {
        // Tests speak to hosts of their own making.
        if file.rust.as_ref().is_some_and(|r| r.is_test(n)) {
            return;
        }
        for host in line.split("://").skip(1).map(host).filter(|h| is_private(h)) {
            report.error(&file.path, n, format!("the host {host:?} is not public"));
        }
    });
}

/// Calls `check` with every line that people wrote, and its number.
fn each_line(repo: &Repo, mut check: impl FnMut(&File, usize, &str)) {
    for file in &repo.files {
        for (i, line) in file.prose().unwrap_or_default().lines().enumerate() {
            check(file, i + 1, line);
        }
    }
}

/// Whether `word` stands alone.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

/// Whether an absolute path begins with `folder`: nothing that could be a longer path or an address stands before it.
fn has_absolute(line: &str, folder: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || ['_', '.', '-', '/', '}', '>'].contains(&c);
    line.match_indices(folder).any(|(at, _)| !line[..at].ends_with(part))
}

/// The host at the beginning of what follows `://`, without user, port and path.
fn host(address: &str) -> &str {
    let stop = |c: char| !(c.is_ascii_alphanumeric() || ['.', '-', '_', '@', ':'].contains(&c));
    let authority = &address[..address.find(stop).unwrap_or(address.len())];
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.split(':').next().unwrap_or(host)
}

/// Whether a host is a bare address, has a private ending or no domain at all. This machine itself is nobody's secret.
fn is_private(host: &str) -> bool {
    let lower = host.trim_end_matches('.').to_ascii_lowercase();
    if lower.is_empty() || ["localhost", "127.0.0.1", "0.0.0.0"].contains(&lower.as_str()) {
        return false;
    }
    let numeric = lower.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    numeric || !lower.contains('.') || PRIVATE_HOSTS.iter().any(|end| lower.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::{super::found, *};

    #[test]
    fn every_marker_is_found_and_longer_words_pass() {
        for marker in MARKERS {
            assert_eq!(found(markers, &[("a.md", &format!("x\n{marker}: y\n"))]).len(), 1, "{marker}");
            assert_eq!(found(markers, &[("a.md", &format!("a{marker}b {marker}S"))]), [""; 0]);
        }
    }

    #[test]
    fn every_folder_is_found() {
        for folder in FOLDERS {
            assert_eq!(found(paths, &[("a.py", &format!("open('{folder}x')\n"))]).len(), 1, "{folder}");
            assert_eq!(
                found(paths, &[("a.py", &format!("a{folder} ..{folder} https://h.org{folder}"))]),
                [""; 0]
            );
        }
    }

    #[test]
    fn private_hosts_are_found() {
        let scheme = "http://";
        for host in ["10.0.0.1/x", "mirror/x", "user@index.corp:80", "a.b.internal", "printer.local."] {
            assert_eq!(found(hosts, &[("a.md", &format!("see {scheme}{host}\n"))]).len(), 1, "{host}");
        }
        for host in ["github.com/a/b", "localhost:8080", "127.0.0.1", "", "{host}"] {
            assert_eq!(found(hosts, &[("a.md", &format!("see {scheme}{host}\n"))]), [""; 0], "{host}");
        }
        let test = format!("#[cfg(test)]\nmod tests {{\n    const A: &str = \"{scheme}h\";\n}}\n");
        assert_eq!(found(hosts, &[("a.rs", &test)]), [""; 0]);
    }
}
