//! The lines that were typed in conversations, kept in a file from one to the next.
//!
//! The file is for its owner's eyes alone (mode 0600 where there are modes), bounded in lines and bytes, and may hold
//! anything: what is no text, or too long, is left out. Nothing that goes wrong with it ends a conversation.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// Lines that are kept.
pub(super) const N_LINES_MAX: usize = 1000;
/// The most that is read of the file.
const BYTES_MAX: u64 = 1 << 20;
/// Longer lines are not kept.
const LINE_BYTES_MAX: usize = 4096;

/// A file of lines.
#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
}

impl History {
    /// The file; it need not be there.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The last lines, oldest first; none if there is no such file.
    pub(super) fn lines(&self) -> io::Result<Vec<String>> {
        let bytes = match File::open(&self.path) {
            Ok(file) => tail(file)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| is_kept(line)).collect();
        let first = lines.len().saturating_sub(N_LINES_MAX);
        Ok(lines[first..].iter().map(ToString::to_string).collect())
    }

    /// Adds a line at the end; a file that has grown to twice its bound is cut. A line that begins with a space is not
    /// kept, as in shells.
    pub(super) fn add(&self, line: &str) -> io::Result<()> {
        if !is_kept(line) {
            return Ok(());
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = private(OpenOptions::new().append(true).create(true)).open(&self.path)?;
        // One write, so that two conversations do not mix their lines.
        file.write_all(format!("{line}\n").as_bytes())?;
        if file.metadata()?.len() > BYTES_MAX || self.n_lines()? > 2 * N_LINES_MAX {
            self.cut()?;
        }
        Ok(())
    }

    fn n_lines(&self) -> io::Result<usize> {
        Ok(tail(File::open(&self.path)?)?.iter().filter(|&&b| b == b'\n').count())
    }

    /// Leaves the last lines alone in the file, by rename.
    fn cut(&self) -> io::Result<()> {
        let text: String = self.lines()?.iter().map(|line| format!("{line}\n")).collect();
        let beside = self.path.with_extension(format!("{}.tmp", std::process::id()));
        let written = private(OpenOptions::new().write(true).create_new(true))
            .open(&beside)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&beside, &self.path));
        if written.is_err() {
            // What is left of it is of no use, and the first failure is the one to tell.
            drop(fs::remove_file(&beside));
        }
        written
    }

    /// The file's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn is_kept(line: &str) -> bool {
    !line.trim().is_empty()
        && !line.starts_with(' ')
        && line.len() <= LINE_BYTES_MAX
        && !line.contains(|c: char| c.is_control() && c != '\t')
}

/// The end of a file, at most [`BYTES_MAX`], from a whole line on.
fn tail(mut file: File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    let cut = len > BYTES_MAX;
    if cut {
        io::Seek::seek(&mut file, io::SeekFrom::End(-(BYTES_MAX as i64)))?;
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    if cut {
        let line = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..line);
    }
    Ok(bytes)
}

/// For the owner alone, where the system has modes.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> (tempfile::TempDir, History) {
        let dir = tempfile::tempdir().unwrap();
        let history = History::new(dir.path().join("below/history"));
        (dir, history)
    }

    #[test]
    fn lines_come_back_in_their_order() {
        let (_dir, history) = history();
        assert_eq!(history.lines().unwrap(), Vec::<String>::new());
        for line in ["one", "zwei é", " secret", "", "  ", "/exit", "a\x1b[31m"] {
            history.add(line).unwrap();
        }
        assert_eq!(history.lines().unwrap(), ["one", "zwei é", "/exit"]);
        #[cfg(unix)]
        {
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&fs::metadata(history.path()).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn the_file_is_bounded() {
        let (dir, history) = history();
        for i in 0..2 * N_LINES_MAX + 1 {
            history.add(&format!("line {i}")).unwrap();
        }
        let lines = history.lines().unwrap();
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (N_LINES_MAX, "line 2000"));
        assert_eq!(fs::read_to_string(history.path()).unwrap().lines().count(), N_LINES_MAX);
        assert_eq!(fs::read_dir(dir.path().join("below")).unwrap().count(), 1, "a temporary file is left");
        history.add(&"x".repeat(LINE_BYTES_MAX + 1)).unwrap();
        assert_eq!(history.lines().unwrap().len(), N_LINES_MAX);
    }

    #[test]
    fn any_file_can_be_read() {
        let (_dir, history) = history();
        history.add("first").unwrap();
        let mut bytes = vec![b'x'; 3 << 20];
        bytes.extend(b"\nlast\n\xff\xfe\n\x00\n");
        fs::write(history.path(), &bytes).unwrap();
        assert_eq!(history.lines().unwrap(), ["last", "\u{fffd}\u{fffd}"]);
        history.add("new").unwrap();
        assert_eq!(fs::read_to_string(history.path()).unwrap(), "last\n\u{fffd}\u{fffd}\nnew\n");
        let folder = History::new(history.path().parent().unwrap().to_owned());
        assert!(folder.lines().is_err() && folder.add("x").is_err());
    }
}
