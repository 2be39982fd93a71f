//! Where the model computes: `--device`, and what is said about a device at start.
//!
//! A build is for the CPU alone, or also for CUDA or Metal (cargo features of that name). What could not be tested without such a
//! device is listed in docs/devices.md. `placement` has the layers of `--device-map`, `gpu` what a driver says. Called by
//! `engine::diffusion` and by the memory plan.

pub mod gpu;
mod placement;

use std::fmt;
use std::str::FromStr;

use diffusion_gemma::Device;

pub use placement::{Map, Placement};

use crate::error::Error;
use gpu::{BUILT_FOR, Gpu};

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
            Self::Auto if cfg!(feature = "cuda") && !gpu::list().is_empty() => Self::Cuda(0),
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
                if let (Some(built), Ok(gpu)) = (built_for(), gpu::of_number(number)) {
                    self.check(built, gpu)?;
                }
                Device::new_cuda(number).map_err(|error| failed(&error))
            }
            Self::Metal => Device::new_metal(0).map_err(|error| failed(&error)),
            Self::Cpu | Self::Auto => Ok(Device::Cpu),
        }
    }

    /// Refuses a GPU that this build has no code for.
    fn check(self, built: u32, gpu: &Gpu) -> Result<(), Error> {
        if gpu::runs_on(built, gpu.capability) {
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
        let Self::Cuda(number) = self.resolved() else { return self.resolved().to_string() };
        match gpu::of_number(number) {
            Ok(gpu) => {
                let built = built_for().map_or(String::new(), |cap| format!(" (this build: {cap})"));
                format!(
                    "cuda:{number}, {}, compute capability {}{built}, driver {}, {} MiB of {} free",
                    gpu.name, gpu.capability, gpu.driver, gpu.free_mib, gpu.total_mib
                )
            }
            Err(reason) => format!("cuda:{number}; {reason}, so its capability and memory are not checked"),
        }
    }
}

fn built_for() -> Option<u32> {
    BUILT_FOR?.parse().ok()
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
        let gpu =
            Gpu { name: "NVIDIA L4".into(), capability: 89, driver: "580".into(), free_mib: 1, total_mib: 2 };
        assert!(Choice::Cuda(0).check(80, &gpu).is_ok());
        let error = Choice::Cuda(0).check(90, &gpu).unwrap_err().to_string();
        assert!(error.contains("the NVIDIA L4 has 89") && error.contains("CUDA_COMPUTE_CAP=89"), "{error}");
    }
}
