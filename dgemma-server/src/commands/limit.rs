//! How much memory there is where a model is to be: of the machine or the container, of a GPU, of a Mac's shared memory.
//!
//! One [`Limit`] for each device of a model; `memory.rs` compares the plan with them.

use std::fmt;

use diffusion_gemma::{DevicePlan, Gib};

use crate::device::{Choice, gpu};

/// Share of the memory that stays free: for the system, and for what no plan knows.
const FREE_SHARE: f64 = 0.1;

/// Memory that a plan may take of a device.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    device: Choice,
    /// The bytes and what they are; an error where they are not known, and why.
    there: Result<(u64, String), String>,
}

impl Limit {
    /// `memory_gib`: what to assume of every device instead of asking the system.
    pub(super) fn of(device: Choice, memory_gib: Option<f64>) -> Self {
        let there = match (memory_gib, device.resolved()) {
            (Some(gib), _) => Ok(((gib * f64::from(1 << 30)) as u64, "by --memory-gib".to_owned())),
            (None, Choice::Cuda(number)) => gpu::of_number(number)
                .map(|gpu| (gpu.free_mib << 20, format!("free on cuda:{number}, {}", gpu.name))),
            (None, Choice::Metal) => of_metal(),
            (None, Choice::Cpu | Choice::Auto) => of_host(),
        };
        Self { device, there }
    }

    /// Whether a part of the plan fits; where nothing is known it does.
    pub(super) fn holds(&self, part: &DevicePlan) -> bool {
        self.there.as_ref().map_or(true, |(bytes, _)| part.total() <= usable(*bytes))
    }

    /// Bytes that the part leaves of what it may take; `None` where that is not known.
    pub(super) fn headroom(&self, part: &DevicePlan) -> Option<u64> {
        self.there.as_ref().ok().map(|(bytes, _)| usable(*bytes).saturating_sub(part.total()))
    }
}

fn usable(bytes: u64) -> u64 {
    (bytes as f64 * (1.0 - FREE_SHARE)) as u64
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.there {
            Ok((bytes, what)) => {
                let (all, free, usable) = (Gib(*bytes), 100.0 * FREE_SHARE, Gib(usable(*bytes)));
                write!(out, "{all} {what}, {free:.0} % of which stay free: {usable}")
            }
            Err(reason) => write!(out, "unknown memory of {}, which is not compared: {reason}", self.device),
        }
    }
}

/// What the system says is available, or what a container may take if that is less.
#[cfg(target_os = "linux")]
fn of_host() -> Result<(u64, String), String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let system = read("/proc/meminfo")
        .lines()
        .find_map(|line| number(line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?))
        .map(|kib| kib * 1024);
    let container = of_container(std::path::Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"));
    match (system, container) {
        (system, Some(bytes)) if system.is_none_or(|system| bytes < system) => {
            Ok((bytes, "available to this container".into()))
        }
        (Some(bytes), _) => Ok((bytes, "available on this machine".into())),
        (None, _) => Err("/proc/meminfo does not say it".into()),
    }
}

/// All of the machine: macOS gives back what caches take.
#[cfg(not(target_os = "linux"))]
fn of_host() -> Result<(u64, String), String> {
    sysctl("hw.memsize").map(|bytes| (bytes, "in this machine".into())).ok_or("sysctl does not say it".into())
}

/// The part of a Mac's memory that a GPU may hold: `iogpu.wired_limit_mb` where somebody has set it, else three quarters.
#[cfg(not(target_os = "linux"))]
fn of_metal() -> Result<(u64, String), String> {
    if let Some(mib) = sysctl("iogpu.wired_limit_mb").filter(|mib| *mib > 0) {
        return Ok((mib << 20, "for the GPU by iogpu.wired_limit_mb".into()));
    }
    let (bytes, _) = of_host()?;
    Ok((
        bytes / 4 * 3,
        "for the GPU, three quarters of this machine's (iogpu.wired_limit_mb raises it)".into(),
    ))
}

#[cfg(target_os = "linux")]
fn of_metal() -> Result<(u64, String), String> {
    Err("there is no Metal on Linux".into())
}

#[cfg(not(target_os = "linux"))]
fn sysctl(name: &str) -> Option<u64> {
    let output = std::process::Command::new("sysctl").args(["-n", name]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

#[cfg(target_os = "linux")]
fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Names of the files of a control group, by the version of the hierarchy.
#[cfg(target_os = "linux")]
struct Names {
    most: &'static str,
    used: &'static str,
    /// Lines of `memory.stat` with the pages of files, which are dropped before anybody has to go without.
    cached: [&'static str; 2],
}

/// The least that this process may still take of the groups it is in; `None` where none has a limit. `root`: where the groups
/// are mounted; `own`: what /proc/self/cgroup says.
#[cfg(target_os = "linux")]
fn of_container(root: &std::path::Path, own: &str) -> Option<u64> {
    const V2: Names =
        Names { most: "memory.max", used: "memory.current", cached: ["inactive_file", "active_file"] };
    const V1: Names = Names {
        most: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        cached: ["total_inactive_file", "total_active_file"],
    };
    let room = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, names) = match controllers {
            "" => (root.to_owned(), &V2),
            _ if controllers.split(',').any(|one| one == "memory") => (root.join("memory"), &V1),
            _ => return None,
        };
        // A container may see the path that its group has outside: then only the root is there.
        let groups = std::path::Path::new(path.trim_start_matches('/')).ancestors();
        groups.filter_map(|group| of_group(&root.join(group), names)).min()
    };
    own.lines().filter_map(room).min()
}

#[cfg(target_os = "linux")]
fn of_group(dir: &std::path::Path, names: &Names) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    let (most, used) = (number(&read(names.most))?, number(&read(names.used))?);
    let stat = read("memory.stat");
    let cached = names
        .cached
        .iter()
        .filter_map(|name| stat.lines().find_map(|line| number(line.strip_prefix(name)?.strip_prefix(' ')?)));
    Some(most.saturating_sub(used.saturating_sub(cached.sum())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn pages_of_files_are_no_memory_that_a_container_lacks() {
        let root = tempfile::tempdir().unwrap();
        let put = |dir: &str, files: &[(&str, &str)]| {
            let dir = root.path().join(dir);
            std::fs::create_dir_all(&dir).unwrap();
            files.iter().for_each(|(name, text)| std::fs::write(dir.join(name), text).unwrap());
        };
        let stat = "anon 900\nfile 7100\ninactive_file 4000\nactive_file 3000\nworkingset_refault_file 5\n";
        // After a download of 7000 bytes: the limit is 10000, and nearly all of it is in use, as it seems.
        put("box", &[("memory.max", "10000\n"), ("memory.current", "8000\n"), ("memory.stat", stat)]);
        assert_eq!(of_container(root.path(), "0::/box\n"), Some(9000));
        // An outer group has less room than the inner one says.
        put("box/in", &[("memory.max", "50000"), ("memory.current", "10"), ("memory.stat", "")]);
        assert_eq!(of_container(root.path(), "0::/box/in\n"), Some(9000));
        // No limit, and a path of outside that is not there.
        put("free", &[("memory.max", "max\n"), ("memory.current", "8000\n"), ("memory.stat", stat)]);
        assert_eq!(of_container(root.path(), "0::/free\n"), None);
        put("", &[("memory.max", "300"), ("memory.current", "100"), ("memory.stat", "inactive_file 50\n")]);
        assert_eq!(of_container(root.path(), "0::/outside/of/here\n"), Some(250));

        let stat = "inactive_file 1\ntotal_inactive_file 4000\ntotal_active_file 3000\n";
        let files =
            [("memory.limit_in_bytes", "10000"), ("memory.usage_in_bytes", "8000"), ("memory.stat", stat)];
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("memory/old")).unwrap();
        for (name, text) in files {
            std::fs::write(root.path().join("memory/old").join(name), text).unwrap();
        }
        let own = "12:cpu,cpuacct:/old\n5:memory:/old\n1:name=systemd:/old\n";
        assert_eq!(of_container(root.path(), own), Some(9000));
    }

    #[test]
    fn a_part_is_compared_with_its_own_device_and_what_is_unknown_with_nothing() {
        let part = DevicePlan { weights: 95 << 20, ..DevicePlan::default() };
        let limit = |there| Limit { device: Choice::Cuda(1), there };
        assert!(limit(Ok((106 << 20, "free".into()))).holds(&part));
        assert!(!limit(Ok((105 << 20, "free".into()))).holds(&part), "a tenth stays free");
        let unknown = limit(Err("nvidia-smi lists no GPU".into()));
        assert!(unknown.holds(&part));
        let said = unknown.to_string();
        assert!(
            said.contains("cuda:1") && said.contains("nvidia-smi") && said.contains("not compared"),
            "{said}"
        );
    }
}
