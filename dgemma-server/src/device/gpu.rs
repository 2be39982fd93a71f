//! The NVIDIA GPUs of this machine as `nvidia-smi` lists them, and which of them CUDA means by a number.
//!
//! The two need not count alike: CUDA leaves out what `CUDA_VISIBLE_DEVICES` hides and puts the fastest first, `nvidia-smi` goes by
//! slots. Where that makes a number ambiguous nothing is said about a GPU rather than something wrong. Used by `mod.rs` and by the
//! memory plan.

use std::process::Command;
use std::sync::OnceLock;

/// Compute capability that the kernels of this build are for, as `89`; set while building for CUDA.
pub(super) const BUILT_FOR: Option<&str> = option_env!("CUDA_COMPUTE_CAP");

/// A GPU as its driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub name: String,
    /// `89` for 8.9.
    pub capability: u32,
    pub driver: String,
    pub free_mib: u64,
    pub total_mib: u64,
}

/// Those of this machine, asked once; none where there is no driver.
pub(super) fn list() -> &'static [Gpu] {
    static LIST: OnceLock<Vec<Gpu>> = OnceLock::new();
    LIST.get_or_init(|| {
        let query = "--query-gpu=name,compute_cap,driver_version,memory.free,memory.total";
        let asked = Command::new("nvidia-smi").args([query, "--format=csv,noheader,nounits"]).output();
        asked.map_or_else(|_| Vec::new(), |output| read(&String::from_utf8_lossy(&output.stdout)))
    })
}

/// The one that CUDA calls by this number, or why that cannot be said.
pub fn of_number(number: usize) -> Result<&'static Gpu, String> {
    let variable = |name| std::env::var(name).ok();
    pick(
        list(),
        number,
        variable("CUDA_VISIBLE_DEVICES").as_deref(),
        variable("CUDA_DEVICE_ORDER").as_deref(),
    )
}

fn pick<'a>(
    gpus: &'a [Gpu],
    number: usize,
    visible: Option<&str>,
    order: Option<&str>,
) -> Result<&'a Gpu, String> {
    let Some(first) = gpus.first() else { return Err("nvidia-smi lists no GPU".into()) };
    if gpus.len() > 1 && visible.is_some() {
        return Err("CUDA_VISIBLE_DEVICES gives the GPUs other numbers than nvidia-smi".into());
    }
    if order != Some("PCI_BUS_ID") && gpus.iter().any(|gpu| gpu.name != first.name) {
        return Err(
            "GPUs of several kinds are numbered by speed, and by nvidia-smi by their slots; CUDA_DEVICE_ORDER=PCI_BUS_ID makes \
             both the same"
                .into(),
        );
    }
    gpus.get(number).ok_or_else(|| format!("nvidia-smi lists {} GPUs, counted from 0", gpus.len()))
}

/// Code for a capability runs on the same and later ones of its generation.
pub(super) fn runs_on(built: u32, found: u32) -> bool {
    built / 10 == found / 10 && built <= found
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

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_KINDS: &str =
        "NVIDIA L4, 8.9, 535.183.06, 22478, 23034\nNVIDIA A100-SXM4-40GB, 8.0, 580.65, 40000, 40960\n";

    #[test]
    fn what_the_driver_says_is_read() {
        let gpus = read(TWO_KINDS);
        assert_eq!(gpus.len(), 2);
        assert_eq!((gpus[0].capability, gpus[0].free_mib, gpus[1].capability), (89, 22478, 80));
        assert_eq!(read("NVIDIA-SMI has failed because it couldn't communicate with the driver\n"), []);
    }

    #[test]
    fn a_gpu_runs_code_for_its_own_generation_that_is_no_newer_than_itself() {
        let runs = [(80, 80), (80, 86), (80, 89), (86, 89), (89, 89), (90, 90), (100, 103), (120, 121)];
        let fails = [(80, 90), (89, 80), (89, 86), (89, 90), (90, 120), (120, 90), (121, 120), (90, 100)];
        assert!(runs.iter().all(|(built, found)| runs_on(*built, *found)));
        assert!(!fails.iter().any(|(built, found)| runs_on(*built, *found)));
    }

    #[test]
    fn a_number_that_may_mean_several_gpus_means_none() {
        let (mixed, alike) = (read(TWO_KINDS), read(TWO_KINDS.lines().next().unwrap()));
        let twins = [alike[0].clone(), alike[0].clone()];
        let order = Some("PCI_BUS_ID");
        // Fastest first for CUDA: its number 0 is the A100.
        assert!(pick(&mixed, 0, None, None).unwrap_err().contains("CUDA_DEVICE_ORDER"));
        assert_eq!(pick(&mixed, 1, None, order).unwrap().capability, 80);
        assert!(pick(&mixed, 0, Some("1"), order).unwrap_err().contains("CUDA_VISIBLE_DEVICES"));
        assert!(pick(&twins, 0, Some("1,0"), None).unwrap_err().contains("CUDA_VISIBLE_DEVICES"));
        assert_eq!(pick(&twins, 1, None, None), Ok(&twins[1]));
        assert_eq!(pick(&alike, 0, Some("0"), None), Ok(&alike[0]));
        assert!(pick(&alike, 1, None, None).unwrap_err().contains("1 GPUs"));
        assert!(pick(&[], 0, None, None).unwrap_err().contains("nvidia-smi"));
    }
}
