//! Reads little-endian values from a header, never past its end.

/// What is wrong, without the file's name; the caller adds it.
pub(super) type Parsed<T> = Result<T, String>;

/// A position in a header's bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether `bytes` was cut at the header limit rather than at the end of the file.
    capped: bool,
}

impl<'a> Cursor<'a> {
    /// Reads at most `limit` bytes.
    pub(super) fn new(bytes: &'a [u8], limit: usize) -> Self {
        let capped = bytes.len() > limit;
        Self { bytes: &bytes[..bytes.len().min(limit)], at: 0, capped }
    }

    /// Bytes read so far.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: usize, what: &str) -> Parsed<&'a [u8]> {
        let left = self.left();
        if n > left {
            let (at, missing) = (self.at, n - left);
            return Err(if self.capped {
                format!("the header is larger than the limit of {} bytes (at {what})", self.bytes.len())
            } else {
                format!("file is truncated inside {what} at byte {at}: {missing} bytes are missing")
            });
        }
        let taken = &self.bytes[self.at..self.at + n];
        self.at += n;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Parsed<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    /// A 32-bit number.
    pub(super) fn u32(&mut self, what: &str) -> Parsed<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// A 64-bit number.
    pub(super) fn u64(&mut self, what: &str) -> Parsed<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A number of things that each take at least `each_bytes` of what is left, and at most `max` in number.
    pub(super) fn count(&mut self, what: &str, each_bytes: usize, max: usize) -> Parsed<usize> {
        let n = self.u64(what)?;
        if n > max as u64 {
            return Err(format!("{what} is {n}, above the limit of {max}"));
        }
        self.bounded(n, what, each_bytes)
    }

    /// Checks that `n` things of at least `each_bytes` fit in what is left.
    pub(super) fn bounded(&self, n: u64, what: &str, each_bytes: usize) -> Parsed<usize> {
        let left = self.left();
        match usize::try_from(n).ok().and_then(|n| Some((n, n.checked_mul(each_bytes)?))) {
            Some((n, need)) if need <= left => Ok(n),
            Some((_, need)) if !self.capped => {
                Err(format!("{what} is {n}: at least {} bytes are missing from the file", need - left))
            }
            _ => Err(format!("{what} is {n}, more than the {left} bytes that are left can hold")),
        }
    }

    /// A string of at most `max` bytes: a 64-bit length, then UTF-8.
    pub(super) fn string(&mut self, what: &str, max: usize) -> Parsed<&'a str> {
        let len = self.u64(what)?;
        if len > max as u64 {
            return Err(format!("{what} has {len} bytes, above the limit of {max}"));
        }
        std::str::from_utf8(self.take(len as usize, what)?).map_err(|e| format!("{what} is not UTF-8: {e}"))
    }

    /// A string that names something: not empty, no control characters (messages and terminals show it).
    pub(super) fn name(&mut self, what: &str, max: usize) -> Parsed<&'a str> {
        let name = self.string(what, max)?;
        if name.is_empty() {
            return Err(format!("{what} is empty"));
        }
        if name.chars().any(char::is_control) {
            return Err(format!("{what} {name:?} contains control characters"));
        }
        Ok(name)
    }
}
