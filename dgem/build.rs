//! Puts the git revision and the target into the binary, for `--version` and for receipts.
//!
//! A revision ends in `-dirty` when what the program is built from differs from it. A build without a repository (a container, a
//! source archive) may set DGEM_GIT_REVISION instead.

use std::process::Command;

/// What the program is built from, as seen from here.
const SOURCES: [&str; 12] = [
    "src",
    "build.rs",
    "Cargo.toml",
    "../decision/src",
    "../templates",
    "../benchmarks/bench_suite.jsonl",
    "../benchmarks/calibration_suite.jsonl",
    "../benchmarks/permutation.jsonl",
    "../benchmarks/ecotone",
    "../benchmarks/intents",
    "../Cargo.toml",
    "../Cargo.lock",
];

fn main() {
    println!("cargo:rerun-if-env-changed=DGEM_GIT_REVISION");
    let revision = std::env::var("DGEM_GIT_REVISION").ok().filter(|text| !text.is_empty()).or_else(revision);
    println!("cargo:rustc-env=GIT_REVISION={}", revision.as_deref().unwrap_or("unknown"));
    println!("cargo:rustc-env=BUILD_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}

fn revision() -> Option<String> {
    println!("cargo:rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
    }
    let revision = git(&["rev-parse", "--short=12", "HEAD"])?;
    let status = ["--no-optional-locks", "status", "--porcelain", "--"];
    let changed = git(&[&status[..], &SOURCES[..]].concat())?;
    Some(if changed.is_empty() { revision } else { revision + "-dirty" })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
