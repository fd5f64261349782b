//! Opens a sharded model through its `model.safetensors.index.json`.
//!
//! Invariants: a shard is a plain file name, so the index cannot point outside its folder; index and shards list the
//! same tensors, each in the same shard.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Component, Path},
};

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::{
    SafeTensors,
    header::{self, HEADER_BYTES_MAX, Strings},
};
use crate::{Bytes, Error, Result, file::mapped};

pub(super) fn open(path: &Path) -> Result<SafeTensors> {
    let json = mapped::map(path)?;
    if json.len() > HEADER_BYTES_MAX {
        return Err(Error::file(
            path,
            format!("{} bytes, above the limit of {HEADER_BYTES_MAX}", json.len()),
        ));
    }
    let Index(weight_map) = serde_json::from_slice(&json)
        .map_err(|e| Error::file(path, format!("the index is malformed: {e}")))?;
    let names: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
    if let Some(bad) = names.iter().find(|name| !is_plain(name)) {
        return Err(Error::file(
            path,
            format!("the shard name {bad:?} is not a plain .safetensors file name"),
        ));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut shards: Vec<(Bytes, header::Header)> = Vec::with_capacity(names.len());
    for (i, name) in names.iter().enumerate() {
        let shard = folder.join(name);
        let bytes = mapped::map(&shard)?;
        let header = header::parse(&shard, &bytes, bytes.len(), i)?;
        shards.push((bytes, header));
    }
    check(path, &weight_map, &names, &shards)?;
    SafeTensors::join(path, shards)
}

/// Whether a name is one component that means the same on every system.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let single =
        matches!(components.next(), Some(Component::Normal(c)) if c == name) && components.next().is_none();
    single && name.ends_with(".safetensors") && !name.contains(['/', '\\', ':', '\0'])
}

fn check(
    path: &Path,
    weight_map: &BTreeMap<String, String>,
    names: &BTreeSet<&str>,
    shards: &[(Bytes, header::Header)],
) -> Result<()> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for (shard, (_, header)) in names.iter().zip(shards) {
        let supported = header.tensors.iter().map(|t| &t.name);
        for tensor in supported.chain(header.unsupported.iter().map(|t| &t.name)) {
            found.insert(tensor);
            match weight_map.get(tensor) {
                Some(listed) if listed == shard => {}
                Some(listed) => {
                    let what = format!("tensor {tensor:?} is listed in {listed:?} but lies in {shard:?}");
                    return Err(Error::file(path, what));
                }
                None => {
                    return Err(Error::file(path, format!("tensor {tensor:?} of {shard:?} is not listed")));
                }
            }
        }
    }
    // What was found lies where it is listed, so a listed tensor that was not found is nowhere.
    match weight_map.iter().find(|(tensor, _)| !found.contains(tensor.as_str())) {
        None => Ok(()),
        Some((tensor, shard)) => {
            let what = format!("tensor {tensor:?} is listed in {shard:?} but is not there");
            Err(Error::file(path, what))
        }
    }
}

/// The `weight_map`.
struct Index(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(IndexVisitor)
    }
}

struct IndexVisitor;

impl<'de> Visitor<'de> for IndexVisitor {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a weight_map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Index, A::Error> {
        let mut weight_map = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != "weight_map" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let Strings(found) = map.next_value()?;
            if weight_map.replace(found).is_some() {
                return Err(A::Error::custom("weight_map is there more than once"));
            }
        }
        weight_map.map(Index).ok_or_else(|| A::Error::custom("weight_map is missing"))
    }
}
