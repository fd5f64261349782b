//! Reading members out of zip archives (wheels): just what is needed, with every length checked.
//!
//! Source: PKWARE APPNOTE 6.3.10, sections 4.3.7 (local header), 4.3.12 (central directory), 4.3.16 (its end).
//! Stored and deflated members; no zip64 (a wheel here is under 4 GiB), no encryption. Member names are compared,
//! never used as paths. Nothing is allocated by a size that the archive states.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use flate2::{Crc, read::DeflateDecoder};

use crate::error::{Error, Result};

const END_BYTES: u64 = 22;
const COMMENT_BYTES_MAX: u64 = 65_535;
const DIRECTORY_BYTES_MAX: u64 = 32 << 20;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const ENCRYPTED: u16 = 1;

/// An opened archive and its members.
#[derive(Debug)]
pub(crate) struct Archive {
    path: PathBuf,
    bytes: u64,
    /// Members, in the order of the central directory.
    pub members: Vec<Member>,
}

/// One member, as the central directory states it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Its name.
    pub name: String,
    /// Bytes unpacked.
    pub size: u64,
    packed_size: u64,
    method: u16,
    crc: u32,
    header_at: u64,
}

/// Little-endian fields of a byte string; None past its end.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(at..at + 2)?.try_into().ok()?))
    }
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }
    fn bytes(&self, at: usize, len: u16) -> Option<&'a [u8]> {
        self.0.get(at..at + usize::from(len))
    }
}

impl Archive {
    /// Reads the central directory of the archive at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |e| Error::io(path, e);
        let bad = |what: &str| Error::file(path, format!("not a usable zip archive: {what}"));
        let mut file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        let tail_bytes = bytes.min(END_BYTES + COMMENT_BYTES_MAX);
        file.seek(SeekFrom::Start(bytes - tail_bytes)).map_err(io)?;
        let mut tail = Vec::new();
        file.by_ref().take(tail_bytes).read_to_end(&mut tail).map_err(io)?;
        let end =
            tail.windows(4).rposition(|word| word == b"PK\x05\x06").ok_or_else(|| bad("no end record"))?;
        let (n_members, size, at) = end_record(&tail[end..]).ok_or_else(|| bad("end record cut off"))?;
        if n_members == u16::MAX || size == u64::from(u32::MAX) || at == u64::from(u32::MAX) {
            return Err(bad("zip64 is not supported"));
        }
        if size > DIRECTORY_BYTES_MAX || at.saturating_add(size) > bytes {
            return Err(bad("central directory lies outside the file"));
        }
        file.seek(SeekFrom::Start(at)).map_err(io)?;
        let mut directory = Vec::new();
        file.take(size).read_to_end(&mut directory).map_err(io)?;
        let members =
            directory_members(&directory, n_members).ok_or_else(|| bad("central directory is damaged"))?;
        Ok(Self { path: path.to_owned(), bytes, members })
    }

    /// The member called `name`.
    pub fn named(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// The member with the most bytes.
    pub fn largest(&self) -> Option<&Member> {
        self.members.iter().max_by_key(|member| member.size)
    }

    /// Reads `member`; its length and checksum are checked at its end.
    pub fn read(&self, member: &Member) -> Result<MemberReader> {
        let io = |e| Error::io(&self.path, e);
        let bad = |what: &str| Error::file(&self.path, format!("zip member {:?}: {what}", member.name));
        let mut file = File::open(&self.path).map_err(io)?;
        file.seek(SeekFrom::Start(member.header_at)).map_err(io)?;
        let header_bytes = skip_local_header(&mut file).map_err(|e| bad(&e.to_string()))?;
        let end =
            member.header_at.checked_add(header_bytes).and_then(|at| at.checked_add(member.packed_size));
        if end.is_none_or(|end| end > self.bytes) {
            return Err(bad("lies outside the file"));
        }
        let packed = BufReader::with_capacity(1 << 16, file.take(member.packed_size));
        let data: Box<dyn Read> = match member.method {
            STORED => Box::new(packed),
            DEFLATED => Box::new(DeflateDecoder::new(packed)),
            method => return Err(bad(&format!("packing method {method} is not supported"))),
        };
        Ok(MemberReader { data, left: member.size, crc: Crc::new(), want_crc: member.crc })
    }
}

/// Number of members, bytes and position of the central directory.
fn end_record(record: &[u8]) -> Option<(u16, u64, u64)> {
    let fields = Fields(record);
    Some((fields.u16(10)?, fields.u32(12)?.into(), fields.u32(16)?.into()))
}

fn directory_members(directory: &[u8], n_members: u16) -> Option<Vec<Member>> {
    let mut members = Vec::new();
    let mut rest = directory;
    for _ in 0..n_members {
        let fields = Fields(rest);
        if fields.bytes(0, 4)? != b"PK\x01\x02" || fields.u16(8)? & ENCRYPTED != 0 {
            return None;
        }
        let (name_len, extra_len, comment_len) = (fields.u16(28)?, fields.u16(30)?, fields.u16(32)?);
        members.push(Member {
            name: String::from_utf8_lossy(fields.bytes(46, name_len)?).into_owned(),
            method: fields.u16(10)?,
            crc: fields.u32(16)?,
            packed_size: fields.u32(20)?.into(),
            size: fields.u32(24)?.into(),
            header_at: fields.u32(42)?.into(),
        });
        rest = rest.get(46 + usize::from(name_len) + usize::from(extra_len) + usize::from(comment_len)..)?;
    }
    Some(members)
}

/// Reads a local header and leaves `input` at the packed bytes; the header's length.
fn skip_local_header(input: &mut impl Read) -> io::Result<u64> {
    let mut header = [0_u8; 30];
    input.read_exact(&mut header)?;
    let fields = Fields(&header);
    if fields.bytes(0, 4) != Some(b"PK\x03\x04") {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no local header where one should be"));
    }
    let variable = u64::from(fields.u16(26).unwrap_or(0)) + u64::from(fields.u16(28).unwrap_or(0));
    io::copy(&mut input.by_ref().take(variable), &mut io::sink())?;
    Ok(30 + variable)
}

/// The deflated member whose local header starts `skip` bytes into `input`; ends where its packed stream does.
pub(crate) fn member_in_stream<R: Read>(mut input: R, skip: u64) -> io::Result<DeflateDecoder<BufReader<R>>> {
    let skipped = io::copy(&mut input.by_ref().take(skip), &mut io::sink())?;
    if skipped != skip {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "volumes end before the member starts"));
    }
    skip_local_header(&mut input)?;
    Ok(DeflateDecoder::new(BufReader::with_capacity(1 << 16, input)))
}

/// The unpacked bytes of a member.
pub(crate) struct MemberReader {
    data: Box<dyn Read>,
    left: u64,
    crc: Crc,
    want_crc: u32,
}

impl Read for MemberReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if buf.is_empty() {
            return Ok(0);
        }
        let n = self.data.read(buf)?;
        if n as u64 > self.left {
            return invalid("zip member is longer than it states".to_owned());
        }
        self.left -= n as u64;
        self.crc.update(&buf[..n]);
        if n == 0 && self.left > 0 {
            return invalid(format!("zip member ends {} bytes early", self.left));
        }
        if n == 0 && self.crc.sum() != self.want_crc {
            return invalid("zip member has a wrong checksum".to_owned());
        }
        Ok(n)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use super::*;

    /// Writes an archive, as an independent description of the format: one (name, data, deflate) a member.
    pub(crate) fn build(members: &[(&str, &[u8], bool)]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, data, deflate) in members {
            let mut crc = Crc::new();
            crc.update(data);
            let packed = if *deflate {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            } else {
                data.to_vec()
            };
            let mut common = vec![20, 0, 0, 0, if *deflate { 8 } else { 0 }, 0, 0, 0, 0, 0];
            common.extend(crc.sum().to_le_bytes());
            common.extend(u32::try_from(packed.len()).unwrap().to_le_bytes());
            common.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
            common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
            common.extend([0, 0]);
            let at = u32::try_from(out.len()).unwrap();
            out.extend(b"PK\x03\x04");
            out.extend(&common);
            out.extend(name.as_bytes());
            out.extend(&packed);
            directory.extend(b"PK\x01\x02\x14\x00");
            directory.extend(&common);
            directory.extend([0_u8; 10]);
            directory.extend(at.to_le_bytes());
            directory.extend(name.as_bytes());
        }
        let (at, n) = (u32::try_from(out.len()).unwrap(), u16::try_from(members.len()).unwrap());
        let size = u32::try_from(directory.len()).unwrap();
        out.extend(directory);
        out.extend(b"PK\x05\x06\0\0\0\0");
        out.extend([n.to_le_bytes(), n.to_le_bytes()].concat());
        out.extend([size.to_le_bytes(), at.to_le_bytes()].concat());
        out.extend([0, 0]);
        out
    }

    fn open(bytes: &[u8]) -> (tempfile::TempDir, Result<Archive>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.zip");
        std::fs::write(&path, bytes).unwrap();
        let archive = Archive::open(&path);
        (dir, archive)
    }

    fn read(archive: &Archive, name: &str) -> io::Result<Vec<u8>> {
        let mut data = Vec::new();
        let mut reader = archive.read(archive.named(name).unwrap()).map_err(io::Error::other)?;
        reader.read_to_end(&mut data)?;
        Ok(data)
    }

    #[test]
    fn members_come_out_as_they_went_in() {
        let long: Vec<u8> = (0..300_000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let bytes = build(&[("a/x", b"hello", false), ("../../evil", &long, true), ("empty", b"", true)]);
        let (_dir, archive) = open(&bytes);
        let archive = archive.unwrap();
        assert_eq!(read(&archive, "a/x").unwrap(), b"hello");
        assert_eq!(read(&archive, "../../evil").unwrap(), long);
        assert_eq!(read(&archive, "empty").unwrap(), b"");
        assert_eq!(archive.largest().unwrap().name, "../../evil");
    }

    #[test]
    fn a_wheel_written_by_python_is_read() {
        // Oracle: zipfile of the Python standard library, `ZipFile.writestr('d/m.txt', b'zip' * 5)`, deflated.
        let bytes = crate::tests_support::unhex(include_str!("../tests/data/python_zip.hex"));
        let (_dir, archive) = open(&bytes);
        assert_eq!(read(&archive.unwrap(), "d/m.txt").unwrap(), b"zip".repeat(5));
    }

    #[test]
    fn lies_are_found() {
        let good = build(&[("m", &[7; 1000], true)]);
        let patch = |at: usize, value: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            bytes
        };
        let directory = good.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
        let end = good.windows(4).position(|w| w == b"PK\x05\x06").unwrap();
        for (what, bytes, message) in [
            ("size too small", patch(directory + 24, &999_u32.to_le_bytes()), "longer than"),
            ("size huge", patch(directory + 24, &0xFFFF_FFF0_u32.to_le_bytes()), "early"),
            ("checksum", patch(directory + 16, &1_u32.to_le_bytes()), "checksum"),
            ("packed size huge", patch(directory + 20, &0xFFFF_FFF0_u32.to_le_bytes()), "outside"),
            ("method", patch(directory + 10, &99_u16.to_le_bytes()), "method 99"),
            ("header offset", patch(directory + 42, &3_u32.to_le_bytes()), "local header"),
            ("header far away", patch(directory + 42, &0xFFFF_FFF0_u32.to_le_bytes()), "fill whole buffer"),
        ] {
            let (_dir, archive) = open(&bytes);
            let error = read(&archive.unwrap(), "m").unwrap_err().to_string();
            assert!(error.contains(message), "{what}: {error}");
        }
        for (what, bytes, message) in [
            ("directory size", patch(end + 12, &0xFFFF_FFF0_u32.to_le_bytes()), "outside"),
            ("directory offset", patch(end + 16, &0x7FFF_FFFF_u32.to_le_bytes()), "outside"),
            ("too many members", patch(end + 10, &9_u16.to_le_bytes()), "damaged"),
            ("zip64", patch(end + 10, &u16::MAX.to_le_bytes()), "zip64"),
            ("name length", patch(directory + 28, &u16::MAX.to_le_bytes()), "damaged"),
            ("encrypted", patch(directory + 8, &1_u16.to_le_bytes()), "damaged"),
            ("cut off", good[..good.len() - 8].to_vec(), "cut off"),
            ("empty", Vec::new(), "no end record"),
        ] {
            let error = open(&bytes).1.unwrap_err().to_string();
            assert!(error.contains(message), "{what}: {error}");
        }
    }

    #[test]
    fn every_prefix_and_every_flipped_byte_is_survived() {
        let good = build(&[("m", &[7; 64], true), ("n", b"stored", false)]);
        let attempts =
            (0..good.len()).map(|cut| good[..cut].to_vec()).chain((0..good.len()).flat_map(|at| {
                [0x00, 0xFF, 0x80].map(|value| {
                    let mut bytes = good.clone();
                    bytes[at] = value;
                    bytes
                })
            }));
        for bytes in attempts {
            if let Ok(archive) = open(&bytes).1 {
                for member in &archive.members {
                    if let Ok(reader) = archive.read(member) {
                        let _ = io::copy(&mut reader.take(1 << 20), &mut io::sink());
                    }
                }
            }
        }
    }

    #[test]
    fn a_member_inside_joined_volumes_is_found() {
        let data = vec![9_u8; 5000];
        let mut bytes = vec![1_u8; 33];
        bytes.extend(build(&[("m", &data, true)]));
        let mut out = Vec::new();
        member_in_stream(&bytes[..], 33).unwrap().read_to_end(&mut out).unwrap();
        assert_eq!(out, data);
        assert!(member_in_stream(&bytes[..], 32).is_err());
        assert!(member_in_stream(&bytes[..], 1 << 40).is_err());
    }
}
