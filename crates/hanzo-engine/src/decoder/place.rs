//! Where the parts of a decoder are: a place is an index into a list of devices.
//!
//! The forward pass knows places alone. How people say it (`-ngl` in llama.cpp, `--device-map` in mistral.rs) becomes a
//! [`Placement`] here.

use std::{fmt, str::FromStr};

use hanzo_ml::Device;

use crate::{Error, Result};

/// Entries of a device map at most.
const N_STRETCHES_MAX: usize = 64;

/// Which of several devices has each part of a decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The place of the embedding table.
    pub embedding: usize,
    /// The place of each layer and of its cache.
    pub layers: Vec<usize>,
    /// The place of the last norm and the output matrix.
    pub head: usize,
}

impl Placement {
    /// Everything on the first device.
    pub fn single(n_layers: usize) -> Self {
        Self { embedding: 0, layers: vec![0; n_layers], head: 0 }
    }

    /// The last `n` layers on the first device, all else on the second. One more than there are takes the output matrix
    /// and the embedding too: everything is on the first device then.
    pub fn last(n: usize, n_layers: usize) -> Self {
        match n_layers.checked_sub(n) {
            Some(n_before) => {
                let layers = (0..n_layers).map(|l| usize::from(l < n_before)).collect();
                Self { embedding: 1, layers, head: 1 }
            }
            None => Self::single(n_layers),
        }
    }

    /// Layers at a place.
    pub fn n_layers_at(&self, place: usize) -> usize {
        self.layers.iter().filter(|&&at| at == place).count()
    }

    /// Whether a place has any part.
    pub fn uses(&self, place: usize) -> bool {
        self.embedding == place || self.head == place || self.layers.contains(&place)
    }

    /// Checks it against a decoder and its devices.
    ///
    /// # Errors
    /// Another number of layers, or a place without a device.
    pub fn check(&self, n_layers: usize, n_devices: usize) -> Result<()> {
        if self.layers.len() != n_layers {
            let n = self.layers.len();
            return Err(Error::request(format!("places for {n} layers of a model that has {n_layers}")));
        }
        let places = [self.embedding, self.head].into_iter().chain(self.layers.iter().copied());
        match places.max().filter(|&place| place >= n_devices) {
            Some(place) => Err(Error::request(format!("place {place} of {n_devices} devices"))),
            None => Ok(()),
        }
    }
}

/// How a model is spread over devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// On a GPU as many layers as its memory holds, all where that is not known; the rest on the CPU.
    #[default]
    Auto,
    /// Everything on the device.
    All,
    /// So many of the last layers on the device, the rest on the CPU; one more than the model has is everything.
    Last(usize),
    /// Stretches of layers.
    Map(DeviceMap),
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "all" | "-1" => Ok(Self::All),
            _ => text.parse().map(Self::Last).map_err(|_| {
                Error::request(format!("n-gpu-layers `{text}` is neither a number of layers, all nor auto"))
            }),
        }
    }
}

/// Stretches of layers in order, such as `cuda:0:20;cuda:1:10;cpu`. The embedding is with the first layer, the output matrix
/// with the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMap {
    stretches: Vec<Stretch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    device: Named,
    /// `None` is all that are left.
    n_layers: Option<usize>,
}

/// A device as a map names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Whole(Device),
    /// Of the API that `--device` names.
    Number(usize),
}

impl DeviceMap {
    /// The devices, each once, and which of them has what. `device` says whose numbers the map's numbers are; layers that the
    /// map leaves out are on the CPU.
    ///
    /// # Errors
    /// More layers than there are; a number without a GPU whose number it could be.
    pub fn place(&self, device: Device, n_layers: usize) -> Result<(Vec<Device>, Placement)> {
        let error = |what: String| Err(Error::request(format!("device-map `{self}`: {what}")));
        let rest = Stretch { device: Named::Whole(Device::Cpu), n_layers: None };
        let (mut devices, mut layers) = (Vec::new(), Vec::with_capacity(n_layers));
        for stretch in self.stretches.iter().chain([&rest]) {
            let left = n_layers - layers.len();
            let n = stretch.n_layers.unwrap_or(left);
            if n > left {
                let wanted: usize = self.stretches.iter().filter_map(|s| s.n_layers).sum();
                return error(format!("{wanted} layers of a model that has {n_layers}"));
            }
            if n == 0 {
                continue;
            }
            let named = match stretch.device {
                Named::Whole(device) => device,
                Named::Number(number) => match device.sibling(number) {
                    Some(device) => device,
                    None => return error(format!("{number} is the number of a GPU, but device is {device}")),
                },
            };
            let known = devices.iter().position(|&d| d == named);
            let place = known.unwrap_or_else(|| {
                devices.push(named);
                devices.len() - 1
            });
            layers.extend(std::iter::repeat_n(place, n));
        }
        let (embedding, head) = (layers.first().copied(), layers.last().copied());
        let placement = Placement { embedding: embedding.unwrap_or(0), head: head.unwrap_or(0), layers };
        Ok((devices, placement))
    }
}

impl FromStr for DeviceMap {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let error = |what: String| Error::request(format!("device-map `{text}`: {what}"));
        let entries: Vec<&str> = text.split(';').map(str::trim).collect();
        if entries.len() > N_STRETCHES_MAX {
            return Err(error(format!("{} entries are more than {N_STRETCHES_MAX}", entries.len())));
        }
        let stretches = entries.iter().map(|entry| stretch(entry).map_err(error));
        let stretches = stretches.collect::<Result<Vec<_>>>()?;
        if let Some(i) = stretches.iter().position(|s| s.n_layers.is_none()).filter(|i| i + 1 < entries.len())
        {
            return Err(error(format!("`{}` takes all layers that are left; only the last may", entries[i])));
        }
        let sum = stretches.iter().try_fold(0usize, |n, s| n.checked_add(s.n_layers.unwrap_or(0)));
        sum.map_or_else(|| Err(error("too many layers".to_owned())), |_| Ok(Self { stretches }))
    }
}

/// `DEVICE` or `DEVICE:LAYERS`, where a device is a number, `cpu`, or an API with a number.
fn stretch(entry: &str) -> std::result::Result<Stretch, String> {
    let wrong = || format!("`{entry}` is not DEVICE or DEVICE:LAYERS, such as 0:20, cuda:1:20, cpu:4 or cpu");
    let (first, rest) = entry.split_once(':').map_or((entry, None), |(first, rest)| (first, Some(rest)));
    let (device, count) = if first == "cpu" {
        (Named::Whole(Device::Cpu), rest)
    } else if let Ok(number) = first.parse() {
        (Named::Number(number), rest)
    } else {
        let (number, count) = match rest {
            Some(rest) => rest.split_once(':').map_or((rest, None), |(number, count)| (number, Some(count))),
            None => ("0", None),
        };
        (Named::Whole(format!("{first}:{number}").parse().map_err(|_| wrong())?), count)
    };
    let n_layers = count.map(|count| count.parse().ok().filter(|&n| n > 0).ok_or_else(wrong)).transpose()?;
    Ok(Stretch { device, n_layers })
}

impl fmt::Display for DeviceMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Stretch { device, n_layers }) in self.stretches.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ";" })?;
            match device {
                Named::Whole(device) => write!(f, "{device}")?,
                Named::Number(number) => write!(f, "{number}")?,
            }
            n_layers.map_or(Ok(()), |n| write!(f, ":{n}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> DeviceMap {
        text.parse().unwrap()
    }

    fn device(text: &str) -> Device {
        text.parse().unwrap()
    }

    #[test]
    fn layers_count_from_the_end() {
        assert_eq!(Placement::last(0, 3).layers, [1, 1, 1]);
        let two = Placement::last(2, 3);
        assert_eq!((two.embedding, two.head, two.layers.as_slice()), (1, 1, &[1, 0, 0][..]));
        let three = Placement::last(3, 3);
        assert_eq!((three.embedding, three.head, three.layers.as_slice()), (1, 1, &[0, 0, 0][..]));
        for everything in [4, 99, usize::MAX] {
            assert_eq!(Placement::last(everything, 3), Placement::single(3));
        }
        assert_eq!((two.n_layers_at(0), two.n_layers_at(1), two.n_layers_at(2)), (2, 1, 0));
        assert!(three.uses(1) && !Placement::single(3).uses(1));
    }

    #[test]
    fn a_placement_fits_its_decoder() {
        let placement = Placement::last(2, 3);
        placement.check(3, 2).unwrap();
        assert!(placement.check(4, 2).unwrap_err().to_string().contains("3 layers of a model that has 4"));
        assert!(placement.check(3, 1).unwrap_err().to_string().contains("place 1 of 1 devices"));
    }

    #[test]
    fn words_for_a_number_of_layers() {
        let split = |text: &str| text.parse::<Split>();
        assert_eq!(split("auto").unwrap(), Split::Auto);
        assert_eq!((split("all").unwrap(), split("-1").unwrap()), (Split::All, Split::All));
        assert_eq!(split("20").unwrap(), Split::Last(20));
        for bad in ["", "-2", "x", "1.5", "99999999999999999999"] {
            assert!(split(bad).unwrap_err().to_string().contains("n-gpu-layers"), "{bad}");
        }
    }

    #[test]
    fn maps_are_read_and_written() {
        for text in
            ["cuda:0:20;cpu", "0:20;cpu", "0:3;1:4", "cpu", "cuda:0:18;cuda:1", "vulkan:1", "cpu:1;rocm:0:2"]
        {
            assert_eq!(map(text).to_string(), text);
        }
        assert_eq!(map(" 0:20 ; cpu ").to_string(), "0:20;cpu");
        assert_eq!(map("cuda").to_string(), "cuda:0");
        for (bad, why) in [
            ("", "is not DEVICE"),
            ("0:20;", "is not DEVICE"),
            ("0:x", "is not DEVICE"),
            ("0:0;cpu", "is not DEVICE"),
            ("gpu:0:4", "is not DEVICE"),
            ("cuda:0:4:5", "is not DEVICE"),
            ("cpu:-1", "is not DEVICE"),
            ("cpu;0:4", "only the last may"),
            ("0:18446744073709551615;1:18446744073709551615", "too many"),
        ] {
            let error = bad.parse::<DeviceMap>().unwrap_err().to_string();
            assert!(error.contains("device-map") && error.contains(why), "{bad}: {error}");
        }
        assert!(";".repeat(100).parse::<DeviceMap>().unwrap_err().to_string().contains("101 entries"));
    }

    #[test]
    fn maps_place_every_layer() {
        let (devices, placement) = map("0:2;1:1").place(device("cuda:0"), 5).unwrap();
        assert_eq!(devices, [device("cuda:0"), device("cuda:1"), Device::Cpu]);
        assert_eq!(placement, Placement { embedding: 0, layers: vec![0, 0, 1, 2, 2], head: 2 });
        // A device that comes again is the same place; one without layers has none.
        let (devices, placement) = map("cpu:1;vulkan:0:2;cpu:1;rocm").place(Device::Cpu, 4).unwrap();
        assert_eq!((devices.len(), placement.layers), (2, vec![0, 1, 1, 0]));
        let error = |text: &str, of| map(text).place(of, 4).unwrap_err().to_string();
        assert!(error("0:3;cpu:2", device("cuda:0")).contains("`0:3;cpu:2`: 5 layers of a model that has 4"));
        assert!(error("1:2;cpu", Device::Cpu).contains("1 is the number of a GPU, but device is cpu"));
    }
}
