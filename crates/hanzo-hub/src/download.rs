//! One file over http into a blob: resumed, bounded, hashed on the way.
//!
//! Invariants: bytes go to `partial/` first; a blob is made by rename after length and hash were right; a wrong
//! file is deleted, a cut one is kept for the next try. A resumed body is taken only if the server says that it
//! starts where ours ends, and belongs to the same file (`If-Range`, RFC 9110 section 13.1.5, or a known hash).

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    cache::{self, Cache},
    error::{Error, Result},
    http::{Http, Reply},
    manifest::{self, FILE_BYTES_MAX},
};

/// Most times that a cut connection is taken up again in one call; each must have brought bytes.
const RESUMES_MAX: u32 = 50;
/// Fewer bytes than this in a stall window count as stalled.
const WINDOW_BYTES_MIN: u64 = 1024;
const CHUNK_BYTES: usize = 1 << 18;

/// A complete, checked file in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub sha256: String,
    pub size: u64,
}

/// What is to be downloaded.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    /// Address.
    pub url: String,
    /// Bytes, where known.
    pub size: Option<u64>,
    /// How the content is checked.
    pub check: Check,
    /// Page where access can be asked for, if it is refused.
    pub access_page: Option<String>,
}

/// How a file's content is checked.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// Against this hash.
    Sha256(String),
    /// Against the hash that the hub declares with the file.
    HubHash,
    /// Length alone: nobody states a hash.
    Length,
}

/// Reports of a download: bytes here, bytes in all.
pub(crate) type OnBytes<'a> = &'a mut dyn FnMut(u64, Option<u64>);

/// Downloads into a cache.
pub(crate) struct Downloader<'a> {
    pub http: &'a Http,
    pub cache: &'a Cache,
    pub stall_timeout: Duration,
}

enum Outcome {
    Done(Blob),
    /// What lay in `partial/` was of no use and is gone.
    Restart(Error),
    /// The connection ended early; so many bytes were gained.
    Cut(u64, Error),
}

impl Downloader<'_> {
    /// Gets `want` into a blob; `on_wait` is called if another process is at it.
    pub fn download(&self, want: &Want, on_bytes: OnBytes, on_wait: &mut dyn FnMut()) -> Result<Blob> {
        let key = match &want.check {
            Check::Sha256(sha256) => format!("sha256-{sha256}"),
            Check::HubHash | Check::Length => {
                format!("url-{}", &manifest::hex(&Sha256::digest(want.url.as_bytes()))[..40])
            }
        };
        let _lock = self.cache.lock(&key, on_wait)?;
        if let (Check::Sha256(sha256), Some(size)) = (&want.check, want.size)
            && self.cache.has_blob(sha256, size)
        {
            return Ok(Blob { sha256: sha256.clone(), size });
        }
        let mut restarted = false;
        let mut last = None;
        for _ in 0..RESUMES_MAX {
            match self.attempt(want, &key, on_bytes)? {
                Outcome::Done(blob) => return Ok(blob),
                Outcome::Restart(error) if restarted => return Err(error),
                Outcome::Restart(_) => restarted = true,
                Outcome::Cut(0, error) => return Err(error),
                Outcome::Cut(_, error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::http(&want.url, "gave up")))
    }

    fn attempt(&self, want: &Want, key: &str, on_bytes: OnBytes) -> Result<Outcome> {
        let mut partial = Partial::resume(self.cache, key, want)?;
        let resumed = partial.len > 0;
        let reply = self.http.get(&want.url, &partial.headers())?;
        match reply.status {
            200 => partial.restart()?,
            206 if resumed && reply.range.is_some_and(|(first, _)| first == partial.len) => {}
            206 | 416 if resumed => {
                partial.discard()?;
                return Ok(Outcome::Restart(Error::http(&want.url, "server cannot resume this file")));
            }
            _ => return Err(status_error(want, &reply)),
        }
        let total = agreed_total(want, &reply).map_err(|what| Error::http(&want.url, what))?;
        let sha256 = match &want.check {
            Check::Sha256(sha256) => Some(sha256.clone()),
            Check::HubHash => Some(reply.linked_sha256.clone().ok_or_else(|| {
                Error::http(&want.url, "the hub declares no sha256 for this file, so it cannot be checked")
            })?),
            Check::Length => reply.linked_sha256.clone(),
        };
        self.cache.check_space(total.saturating_sub(partial.len))?;
        partial.remember(&State { url: want.url.clone(), etag: reply.etag.clone(), total })?;
        if let Some(cut) = self.stream(want, reply, total, &mut partial, on_bytes)? {
            return Ok(cut);
        }
        match partial.finish(Some(total), sha256.as_deref(), &want.url) {
            Ok(blob) => Ok(Outcome::Done(blob)),
            // What an earlier run left may have been at fault; a second, whole download decides.
            Err(error) if resumed => Ok(Outcome::Restart(error)),
            Err(error) => Err(error),
        }
    }

    /// Copies the body; None when all `total` bytes are here.
    fn stream(
        &self,
        want: &Want,
        mut reply: Reply,
        total: u64,
        partial: &mut Partial,
        on_bytes: OnBytes,
    ) -> Result<Option<Outcome>> {
        let start = partial.len;
        let mut chunk = vec![0_u8; CHUNK_BYTES];
        let (mut window, mut window_bytes) = (Instant::now(), 0_u64);
        on_bytes(partial.len, Some(total));
        let why = loop {
            let n = match reply.body.read(&mut chunk) {
                Ok(0) => break "the server ended it".to_owned(),
                Ok(n) => n,
                Err(e) => break e.to_string(),
            };
            if partial.len + n as u64 > total {
                partial.discard()?;
                return Err(Error::http(
                    &want.url,
                    format!("server sends more than the {total} bytes it announced"),
                ));
            }
            partial.write(&chunk[..n])?;
            on_bytes(partial.len, Some(total));
            window_bytes += n as u64;
            if window.elapsed() >= self.stall_timeout && partial.len < total {
                if window_bytes < WINDOW_BYTES_MIN {
                    partial.sync()?;
                    let error = cut_error(want, partial.len, total, "the server is too slow");
                    return Ok(Some(Outcome::Cut(0, error)));
                }
                (window, window_bytes) = (Instant::now(), 0);
            }
        };
        if partial.len == total {
            return Ok(None);
        }
        partial.sync()?;
        Ok(Some(Outcome::Cut(partial.len - start, cut_error(want, partial.len, total, &why))))
    }
}

fn cut_error(want: &Want, len: u64, total: u64, why: &str) -> Error {
    let text = format!(
        "download stopped at {len} of {total} bytes ({why}); what is here is kept, and the next try goes on from it"
    );
    Error::http(&want.url, text)
}

/// Bytes of the whole file, as the caller, the server and the hub agree on.
fn agreed_total(want: &Want, reply: &Reply) -> std::result::Result<u64, String> {
    let served = match reply.status {
        206 => reply.range.map(|(_, total)| total),
        _ => reply.length,
    };
    if let (Some(served), Some(linked)) = (served, reply.linked_size)
        && served != linked
    {
        return Err(format!("server offers {served} bytes, but the hub declares {linked}"));
    }
    let total = match (want.size, served.or(reply.linked_size)) {
        (Some(size), Some(served)) if size != served => {
            return Err(format!("server offers {served} bytes, {size} were expected"));
        }
        (Some(size), _) => size,
        (None, Some(served)) => served,
        (None, None) => return Err("server does not say how long the file is".to_owned()),
    };
    if total > FILE_BYTES_MAX { Err(format!("length {total} is beyond belief")) } else { Ok(total) }
}

fn status_error(want: &Want, reply: &Reply) -> Error {
    let status = reply.status;
    let what = match (status, &want.access_page) {
        (401 | 403, Some(page)) => format!(
            "access refused (status {status}): the repository is gated, private or absent; accept its terms at {page} \
             and set HF_TOKEN to a token of yours"
        ),
        (401 | 403, None) => format!("access refused (status {status})"),
        (404 | 410, _) => format!("no such file (status {status})"),
        (429, _) => match &reply.retry_after {
            Some(after) => format!("too many requests (status 429), the server asks to wait {after} s"),
            None => "too many requests (status 429), try again later".to_owned(),
        },
        (500..=599, _) => format!("the server has a fault (status {status}), try again later"),
        _ => format!("unexpected answer (status {status})"),
    };
    Error::http(&want.url, what)
}

/// What must be known to resume: whose bytes these are.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    url: String,
    etag: Option<String>,
    total: u64,
}

/// A file on its way into the cache, with the hash of what it holds.
pub(crate) struct Partial<'a> {
    cache: &'a Cache,
    path: PathBuf,
    file: File,
    hasher: Sha256,
    etag: Option<String>,
    /// Bytes here.
    pub len: u64,
}

impl<'a> Partial<'a> {
    /// An empty file under `key`.
    pub fn fresh(cache: &'a Cache, key: &str) -> Result<Self> {
        let path = cache.partial(key);
        cache::make_parent(&path)?;
        cache::remove_if_there(&state_path(&path))?;
        let file = File::create(&path).map_err(|e| Error::io(&path, e))?;
        Ok(Self { cache, path, file, hasher: Sha256::new(), etag: None, len: 0 })
    }

    /// What lies under `key` where it can be resumed, else an empty file.
    fn resume(cache: &'a Cache, key: &str, want: &Want) -> Result<Self> {
        let path = cache.partial(key);
        let Some(state) = read_state(&state_path(&path)) else { return Self::fresh(cache, key) };
        let pinned = matches!(want.check, Check::Sha256(_));
        let same_file = pinned || (state.url == want.url && state.etag.is_some());
        let len = path.metadata().map_or(0, |meta| meta.len());
        if !same_file || len == 0 || len >= state.total || want.size.is_some_and(|size| size != state.total) {
            return Self::fresh(cache, key);
        }
        let io = |e| Error::io(&path, e);
        let mut file = File::options().read(true).append(true).open(&path).map_err(io)?;
        let mut hasher = Sha256::new();
        std::io::copy(&mut Read::by_ref(&mut file).take(len), &mut hasher).map_err(io)?;
        let etag = state.etag.filter(|_| state.url == want.url);
        Ok(Self { cache, path, file, hasher, etag, len })
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        if self.len == 0 {
            return Vec::new();
        }
        let range = ("Range", format!("bytes={}-", self.len));
        std::iter::once(range).chain(self.etag.clone().map(|etag| ("If-Range", etag))).collect()
    }

    fn remember(&self, state: &State) -> Result<()> {
        let text = serde_json::to_vec(state).map_err(|e| Error::file(&self.path, e.to_string()))?;
        cache::write_atomic(&state_path(&self.path), &text)
    }

    /// Empties the file.
    fn restart(&mut self) -> Result<()> {
        self.file = File::create(&self.path).map_err(|e| Error::io(&self.path, e))?;
        self.hasher = Sha256::new();
        self.len = 0;
        Ok(())
    }

    /// Appends `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| Error::io(&self.path, e))?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| Error::io(&self.path, e))
    }

    /// Deletes the file.
    pub fn discard(&self) -> Result<()> {
        cache::remove_if_there(&state_path(&self.path))?;
        cache::remove_if_there(&self.path)
    }

    /// Checks length and hash and makes the file a blob; a wrong file is deleted. `origin` is named in errors.
    pub fn finish(&mut self, size: Option<u64>, sha256: Option<&str>, origin: &str) -> Result<Blob> {
        self.sync()?;
        let got = manifest::hex(&self.hasher.clone().finalize());
        if let Some(size) = size.filter(|size| *size != self.len) {
            self.discard()?;
            return Err(Error::http(origin, format!("{} bytes came, {size} were expected", self.len)));
        }
        if let Some(want) = sha256.filter(|want| *want != got) {
            self.discard()?;
            return Err(Error::http(
                origin,
                format!("wrong content: its sha256 is {got}, expected {want}; deleted"),
            ));
        }
        let blob = self.cache.blob(&got);
        cache::remove_if_there(&state_path(&self.path))?;
        if self.cache.has_blob(&got, self.len) {
            cache::remove_if_there(&self.path)?;
        } else {
            cache::make_parent(&blob)?;
            fs::rename(&self.path, &blob).map_err(|e| Error::io(&blob, e))?;
        }
        Ok(Blob { sha256: got, size: self.len })
    }
}

/// An empty file is of no use to the next try.
impl Drop for Partial<'_> {
    fn drop(&mut self) {
        if self.len == 0 {
            let _ = self.discard();
        }
    }
}

fn state_path(partial: &std::path::Path) -> PathBuf {
    partial.with_extension("json")
}

fn read_state(path: &std::path::Path) -> Option<State> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(1 << 16).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
