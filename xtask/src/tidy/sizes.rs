//! Limits on the size of files.

use super::Report;
use crate::repo::Repo;

const MIB: u64 = 1 << 20;
const BLOB_BYTES_MAX: u64 = MIB;
const TESTDATA_BYTES_MAX: u64 = 24 * MIB;
/// Lines of a Rust file above which it is said, and above which it is refused.
const LINES_WARNING: usize = 600;
const LINES_MAX: usize = 900;

pub(super) fn blobs(repo: &Repo, report: &mut Report) {
    for file in repo.files.iter().filter(|f| f.bytes > BLOB_BYTES_MAX) {
        report.error(&file.path, 0, format!("{} bytes, at most {BLOB_BYTES_MAX} are allowed", file.bytes));
    }
}

pub(super) fn testdata(repo: &Repo, report: &mut Report) {
    let bytes: u64 = repo.files.iter().filter(|f| f.path.starts_with("testdata/")).map(|f| f.bytes).sum();
    if bytes > TESTDATA_BYTES_MAX {
        report.error(
            "testdata",
            0,
            format!("{bytes} bytes in all, at most {TESTDATA_BYTES_MAX} are allowed"),
        );
    }
}

pub(super) fn lengths(repo: &Repo, report: &mut Report) {
    for (file, rust) in repo.rust() {
        let n_lines = rust.code.lines().count();
        if n_lines > LINES_MAX {
            report.error(
                &file.path,
                0,
                format!("{n_lines} lines, at most {LINES_MAX} are allowed: split it"),
            );
        } else if n_lines > LINES_WARNING {
            report.warning(&file.path, format!("{n_lines} lines: does it still have one subject?"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Finding, Report, found},
        *,
    };
    use crate::repo::File;

    fn sized(rule: fn(&Repo, &mut Report), files: &[(&str, u64)]) -> Vec<Finding> {
        let file = |&(path, bytes): &(&str, u64)| File { path: path.into(), bytes, text: None, rust: None };
        let mut report = Report { rule: "rule", findings: Vec::new() };
        rule(&Repo::new(files.iter().map(file).collect()), &mut report);
        report.findings
    }

    #[test]
    fn a_blob_is_found() {
        assert_eq!(sized(blobs, &[("a", BLOB_BYTES_MAX), ("b", BLOB_BYTES_MAX + 1)]).len(), 1);
    }

    #[test]
    fn too_many_fixtures_are_found() {
        let half = TESTDATA_BYTES_MAX / 2;
        assert!(sized(testdata, &[("testdata/a", half), ("testdata/b", half), ("c", half)]).is_empty());
        assert_eq!(sized(testdata, &[("testdata/a", half), ("testdata/b", half + 1)]).len(), 1);
    }

    #[test]
    fn long_files_warn_and_longer_ones_fail() {
        let lines = |n: usize| "//\n".repeat(n);
        let (short, long, longer) = (lines(LINES_WARNING), lines(LINES_MAX), lines(LINES_MAX + 1));
        let found = found(lengths, &[("a.rs", &short), ("b.rs", &long), ("c.rs", &longer)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("warning: b.rs") && found[1].starts_with("error: c.rs"));
    }
}
