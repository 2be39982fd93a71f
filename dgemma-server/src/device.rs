//! Where the model computes: `--device` and `--device-map`, and what is said about it at start.
//!
//! A build is for the CPU alone, or also for CUDA or Metal (cargo features of that name). What could not be tested without such a
//! device is listed in docs/devices.md. Called by `engine::diffusion`.

use std::fmt;
use std::ops::RangeInclusive;
use std::process::Command;
use std::str::FromStr;

use diffusion_gemma::Device;

use crate::error::Error;

/// What `--device` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The first GPU that this build can use, else the CPU.
    #[default]
    Auto,
    Cpu,
    Metal,
    /// By number.
    Cuda(usize),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok();
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "metal" => Ok(Self::Metal),
            "cuda" => Ok(Self::Cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(number)
                .map(Self::Cuda)
                .ok_or_else(|| "a device is auto, cpu, metal, cuda or cuda:N".to_owned()),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => out.write_str("auto"),
            Self::Cpu => out.write_str("cpu"),
            Self::Metal => out.write_str("metal"),
            Self::Cuda(number) => write!(out, "cuda:{number}"),
        }
    }
}

impl Choice {
    /// What `auto` means in this build on this machine.
    #[must_use]
    pub fn resolved(self) -> Self {
        match self {
            Self::Auto if cfg!(feature = "cuda") && !gpus().is_empty() => Self::Cuda(0),
            Self::Auto if cfg!(feature = "metal") => Self::Metal,
            Self::Auto => Self::Cpu,
            other => other,
        }
    }

    /// The device itself.
    pub fn open(self) -> Result<Device, Error> {
        let missing = |feature: &str| Error::Setup {
            what: self.to_string(),
            reason: format!("this build has no {feature}"),
            hint: format!("build with `cargo build --release --features {feature}`, or use --device cpu"),
        };
        let failed = |error: &dyn fmt::Display| Error::Setup {
            what: self.to_string(),
            reason: error.to_string(),
            hint: "see that the driver works and the number is one of the machine's, or use --device cpu"
                .into(),
        };
        match self.resolved() {
            Self::Cuda(_) if !cfg!(feature = "cuda") => Err(missing("cuda")),
            Self::Metal if !cfg!(feature = "metal") => Err(missing("metal")),
            Self::Cuda(number) => {
                self.check(&gpus(), number)?;
                Device::new_cuda(number).map_err(|error| failed(&error))
            }
            Self::Metal => Device::new_metal(0).map_err(|error| failed(&error)),
            Self::Cpu | Self::Auto => Ok(Device::Cpu),
        }
    }

    /// Refuses a GPU that this build has no code for. A machine that cannot be asked is left to the driver.
    fn check(self, gpus: &[Gpu], number: usize) -> Result<(), Error> {
        let (Some(built), Some(gpu)) = (BUILT_FOR.and_then(|cap| cap.parse().ok()), gpus.get(number)) else {
            return Ok(());
        };
        if runs_on(built, gpu.capability) {
            return Ok(());
        }
        Err(Error::Setup {
            what: self.to_string(),
            reason: format!(
                "this build is for compute capability {built}, and the {} has {}",
                gpu.name, gpu.capability
            ),
            hint: format!("build with CUDA_COMPUTE_CAP={}, or take the image for it", gpu.capability),
        })
    }

    /// One line for people: the device, and of a GPU what it is and how much of it is free.
    #[must_use]
    pub fn describe(self) -> String {
        match self.resolved() {
            Self::Cuda(number) => gpus().get(number).map_or_else(
                || format!("cuda:{number}"),
                |gpu| {
                    let built = BUILT_FOR.map_or(String::new(), |cap| format!(" (this build: {cap})"));
                    format!(
                        "cuda:{number}, {}, compute capability {}{built}, driver {}, {} MiB of {} free",
                        gpu.name, gpu.capability, gpu.driver, gpu.free_mib, gpu.total_mib
                    )
                },
            ),
            other => other.to_string(),
        }
    }
}

/// Compute capability that the kernels of this build are for, as `89`; set while building for CUDA.
const BUILT_FOR: Option<&str> = option_env!("CUDA_COMPUTE_CAP");

/// Code for a capability runs on the later ones of the same generation.
fn runs_on(built: u32, found: u32) -> bool {
    match built {
        80 => (80..=89).contains(&found),
        120 => (120..=121).contains(&found),
        other => other == found,
    }
}

/// A GPU as its driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Gpu {
    name: String,
    /// `89` for 8.9.
    capability: u32,
    driver: String,
    free_mib: u64,
    total_mib: u64,
}

/// Those of this machine; none where there is no driver.
fn gpus() -> Vec<Gpu> {
    let query = "--query-gpu=name,compute_cap,driver_version,memory.free,memory.total";
    let asked = Command::new("nvidia-smi").args([query, "--format=csv,noheader,nounits"]).output();
    asked.map_or_else(|_| Vec::new(), |output| read(&String::from_utf8_lossy(&output.stdout)))
}

fn read(csv: &str) -> Vec<Gpu> {
    let gpu = |line: &str| {
        let fields: Vec<&str> = line.split(", ").map(str::trim).collect();
        let &[name, capability, driver, free, total] = fields.as_slice() else { return None };
        Some(Gpu {
            name: name.to_owned(),
            capability: capability.replace('.', "").parse().ok()?,
            driver: driver.to_owned(),
            free_mib: free.parse().ok()?,
            total_mib: total.parse().ok()?,
        })
    };
    csv.lines().filter_map(gpu).collect()
}

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

impl Map {
    /// The device of every layer of a model; empty where there is no map.
    pub fn open(&self, layers: usize) -> Result<Vec<Device>, Error> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let refuse = |reason: String| Error::Setup {
            what: "the device map".into(),
            reason,
            hint: format!("name every layer from 0 to {} once, in order", layers.saturating_sub(1)),
        };
        let kind = |choice: &Choice| std::mem::discriminant(&choice.resolved());
        if let Some((other, _)) = self.0.iter().find(|(choice, _)| kind(choice) != kind(&self.0[0].0)) {
            return Err(refuse(format!("{other} is of another kind than {}", self.0[0].0)));
        }
        let mut devices = Vec::with_capacity(layers);
        for (choice, range) in &self.0 {
            if *range.start() != devices.len() || range.is_empty() || *range.end() >= layers {
                return Err(refuse(format!(
                    "{choice}={}-{} does not go on at layer {} of {layers}",
                    range.start(),
                    range.end(),
                    devices.len()
                )));
            }
            devices.resize(range.end() + 1, choice.open()?);
        }
        if devices.len() < layers {
            return Err(refuse(format!("layers from {} on are nowhere", devices.len())));
        }
        Ok(devices)
    }

    /// Where the embedding and the head are: with the first layer.
    #[must_use]
    pub fn first(&self) -> Option<Choice> {
        self.0.first().map(|(choice, _)| *choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_as_they_are_written() {
        for text in ["auto", "cpu", "metal", "cuda:0", "cuda:3"] {
            assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(Choice::Cuda(0)));
        for wrong in ["gpu", "cuda:", "cuda:x", "CPU", ""] {
            assert!(wrong.parse::<Choice>().unwrap_err().contains("cuda:N"), "{wrong}");
        }
    }

    #[cfg(not(any(feature = "cuda", feature = "metal")))]
    #[test]
    fn a_device_that_the_build_cannot_use_is_refused_with_the_build_that_can() {
        assert_eq!(Choice::Auto.resolved(), Choice::Cpu);
        for (device, feature) in [(Choice::Cuda(1), "cuda"), (Choice::Metal, "metal")] {
            let error = device.open().unwrap_err().to_string();
            assert!(
                error.contains(&format!("--features {feature}")) && error.contains("--device cpu"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_gpu_of_another_generation_is_refused_in_a_sentence() {
        let runs = [(80, 80), (80, 86), (80, 89), (89, 89), (90, 90), (120, 121)];
        let fails = [(80, 90), (89, 80), (89, 90), (90, 120), (120, 90)];
        assert!(runs.iter().all(|(built, found)| runs_on(*built, *found)));
        assert!(!fails.iter().any(|(built, found)| runs_on(*built, *found)));
    }

    #[test]
    fn what_the_driver_says_is_read() {
        let csv =
            "NVIDIA L4, 8.9, 535.183.06, 22478, 23034\nNVIDIA A100-SXM4-40GB, 8.0, 580.65, 40000, 40960\n";
        let gpus = read(csv);
        assert_eq!(gpus.len(), 2);
        assert_eq!((gpus[0].capability, gpus[0].free_mib, gpus[1].capability), (89, 22478, 80));
        assert_eq!(read("NVIDIA-SMI has failed because it couldn't communicate with the driver\n"), []);
    }

    #[test]
    fn a_map_names_every_layer_once() {
        let map = |text: &str| text.parse::<Map>().unwrap();
        assert_eq!(map("cpu=0-3,cpu=4-4").open(5).unwrap().len(), 5);
        assert_eq!(map("cpu=0-3,cpu=4").open(5).unwrap().len(), 5);
        assert!(Map::default().open(5).unwrap().is_empty());
        for (text, word) in [
            ("cpu=0-3", "from 4 on"),
            ("cpu=1-4", "layer 0"),
            ("cpu=0-2,cpu=2-4", "layer 3"),
            ("cpu=0-5", "of 5"),
            ("cpu=0-2,cpu=4-3", "layer 3"),
            ("cpu=0-2,cuda:0=3-4", "another kind"),
        ] {
            let error = map(text).open(5).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("0 to 4"), "{text}: {error}");
        }
        for wrong in ["cpu", "cpu=", "cpu=a-b", "gpu=0-1", ""] {
            assert!(wrong.parse::<Map>().unwrap_err().contains("as in"), "{wrong}");
        }
    }
}
