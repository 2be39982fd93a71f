//! Which layer is on which device: what `--device-map` says, and what follows from it for a model of so many layers.
//!
//! Used by the memory plan, which opens nothing, and by `engine::diffusion`, which opens every device once.

use std::ops::RangeInclusive;
use std::str::FromStr;

use diffusion_gemma::Device;

use super::Choice;
use crate::error::Error;

/// What `--device-map` says: which layers are where, as in `cuda:0=0-14,cuda:1=15-29`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Map(Vec<(Choice, RangeInclusive<usize>)>);

impl FromStr for Map {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| {
            let (device, layers) = part.split_once('=')?;
            let (first, last) = layers.split_once('-').unwrap_or((layers, layers));
            Some((device.parse::<Choice>().ok()?, first.parse().ok()?..=last.parse().ok()?))
        };
        let parts: Option<Vec<_>> = text.split(',').map(part).collect();
        parts.map(Self).ok_or_else(|| {
            "a device map names layers for each device, as in cuda:0=0-14,cuda:1=15-29".to_owned()
        })
    }
}

/// The devices of a model, each of them once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The first has embedding and head.
    pub devices: Vec<Choice>,
    /// Of each layer, the number of its device among these.
    pub layers: Vec<usize>,
}

impl Placement {
    /// All on `device`, or as the map says where it says something. Nothing is opened.
    pub fn new(device: Choice, map: &Map, layers: usize) -> Result<Self, Error> {
        let Map(parts) = map;
        if parts.is_empty() {
            return Ok(Self { devices: vec![device.resolved()], layers: vec![0; layers] });
        }
        let refuse = |reason: String| Error::Setup {
            what: "the device map".into(),
            reason,
            hint: format!("name every layer from 0 to {} once, in order", layers.saturating_sub(1)),
        };
        let kind = |choice: &Choice| std::mem::discriminant(&choice.resolved());
        if let Some((other, _)) = parts.iter().find(|(choice, _)| kind(choice) != kind(&parts[0].0)) {
            return Err(refuse(format!("{other} is of another kind than {}", parts[0].0)));
        }
        let mut placement = Self { devices: Vec::new(), layers: Vec::with_capacity(layers) };
        for (choice, range) in parts {
            let next = placement.layers.len();
            if *range.start() != next || range.is_empty() || *range.end() >= layers {
                let (first, last) = (range.start(), range.end());
                return Err(refuse(format!(
                    "{choice}={first}-{last} does not go on at layer {next} of {layers}"
                )));
            }
            let number = placement.number(choice.resolved());
            placement.layers.resize(range.end() + 1, number);
        }
        if placement.layers.len() < layers {
            return Err(refuse(format!("layers from {} on are nowhere", placement.layers.len())));
        }
        Ok(placement)
    }

    fn number(&mut self, device: Choice) -> usize {
        self.devices.iter().position(|known| *known == device).unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        })
    }

    /// Opens every device, once.
    pub fn open(&self) -> Result<Vec<Device>, Error> {
        self.devices.iter().map(|device| device.open()).collect()
    }

    /// Whether all of it is on the CPU.
    #[must_use]
    pub fn on_cpu(&self) -> bool {
        self.devices.iter().all(|device| *device == Choice::Cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(text: &str, layers: usize) -> Result<Placement, String> {
        Placement::new(Choice::Auto, &text.parse().unwrap(), layers).map_err(|error| error.to_string())
    }

    #[test]
    fn a_map_names_every_layer_once() {
        assert_eq!(placed("cpu=0-3,cpu=4-4", 5).unwrap().layers, [0; 5]);
        assert_eq!(placed("cpu=0-3,cpu=4", 5).unwrap().layers, [0; 5]);
        for (text, word) in [
            ("cpu=0-3", "from 4 on"),
            ("cpu=1-4", "layer 0"),
            ("cpu=0-2,cpu=2-4", "layer 3"),
            ("cpu=0-5", "of 5"),
            ("cpu=0-2,cpu=4-3", "layer 3"),
            ("cpu=0-2,cuda:0=3-4", "another kind"),
        ] {
            let error = placed(text, 5).unwrap_err();
            assert!(error.contains(word) && error.contains("0 to 4"), "{text}: {error}");
        }
        for wrong in ["cpu", "cpu=", "cpu=a-b", "gpu=0-1", ""] {
            assert!(wrong.parse::<Map>().unwrap_err().contains("as in"), "{wrong}");
        }
    }

    #[test]
    fn every_device_is_there_once_however_often_it_is_named() {
        let placement = placed("cuda:1=0-1,cuda:0=2,cuda:1=3-4", 5).unwrap();
        assert_eq!(placement.devices, [Choice::Cuda(1), Choice::Cuda(0)]);
        assert_eq!(placement.layers, [0, 0, 1, 0, 0]);
        assert!(!placement.on_cpu());
        let whole = Placement::new(Choice::Cpu, &Map::default(), 3).unwrap();
        assert_eq!((whole.devices.as_slice(), whole.layers.as_slice()), (&[Choice::Cpu][..], &[0, 0, 0][..]));
        assert_eq!(whole.open().unwrap().len(), 1);
    }
}
