//! The subcommands about weights, through the program itself: convert, look at, check, plan, ask, and serve what was made.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::demo_model;

fn run(arguments: &[&str]) -> (Output, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dgemma-server"));
    for variable in
        ["DGEMMA_MODEL", "DGEMMA_QUANT", "DGEMMA_CTX", "DGEMMA_DEVICE", "RUST_LOG", "RAYON_NUM_THREADS"]
    {
        command.env_remove(variable);
    }
    let output = command.args(arguments).output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8(output.stdout.clone()), String::from_utf8(output.stderr.clone()));
    (output, stdout.unwrap(), stderr.unwrap())
}

fn demo() -> String {
    demo_model().to_str().unwrap().to_owned()
}

fn succeeds(arguments: &[&str]) -> (String, String) {
    let (output, stdout, stderr) = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    (stdout, stderr)
}

/// The `error:` line of a run that must fail.
fn fails(arguments: &[&str]) -> String {
    let (output, _, stderr) = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
    let error = stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{stderr}"));
    assert!(error.contains("hint:"), "{error}");
    error.to_owned()
}

fn packed(dir: &Path) -> String {
    let pack = dir.join("pack").to_str().unwrap().to_owned();
    let (table, progress) = succeeds(&["quantize", "-m", &demo(), "-o", &pack, "--profile", "q4"]);
    assert!(
        table.contains("experts") && table.contains("q4_block") && table.contains("rel. error"),
        "{table}"
    );
    assert!(progress.contains("written 100 %") && progress.contains("holds the pack"), "{progress}");
    pack
}

#[test]
fn a_pack_is_made_looked_at_checked_and_asked() {
    let dir = tempfile::tempdir().unwrap();
    let pack = packed(dir.path());
    let (table, _) = succeeds(&["inspect", "-m", &pack]);
    assert!(table.starts_with(".dgq pack, profile q4, version 1") && table.contains("q8_row"), "{table}");
    let (list, _) = succeeds(&["inspect", "--tensors", "-m", &pack]);
    assert!(list.lines().any(|line| line == "model.decoder.norm.weight\tbf16\t[128]\t256"), "{list}");
    let (checks, _) = succeeds(&["verify", "-m", &pack]);
    assert!(checks.contains("all finite") && checks.contains("no digests"), "{checks}");
    // By the name of a file of the pack, and with the prompt's own template.
    let manifest = format!("{pack}/model.dgq.json");
    let (_, figures) =
        succeeds(&["ask", "-m", &manifest, "-p", "Hello", "--max-new-tokens", "4", "--threads", "1"]);
    for part in ["loaded 90 %", "prompt tokens", "tokens in", "seed 42"] {
        assert!(figures.contains(part), "{figures}");
    }
    let error = fails(&["quantize", "-m", &demo(), "-o", &pack]);
    assert!(error.contains("holds a pack already"), "{error}");
}

#[test]
fn a_damaged_file_of_a_download_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let pack = packed(dir.path());
    let config = std::fs::metadata(format!("{pack}/config.json")).unwrap().len();
    let marker = serde_json::json!({"repo": "a/b", "commit": "c", "files": {"config.json": {"bytes": config, "sha256": "00"}}});
    std::fs::write(format!("{pack}/.dgemma-download.json"), marker.to_string()).unwrap();
    let error = fails(&["verify", "-m", &pack]);
    assert!(error.contains("config.json") && error.contains("download again"), "{error}");
}

#[test]
fn a_plan_says_what_fits_and_which_flags_help() {
    let (plan, _) = succeeds(&["plan", "-m", &demo(), "--memory-gib", "8", "--ctx", "4096", "--batch", "2"]);
    for part in
        ["weights", "keys and values", "2 × 4096 tokens", "prefix cache", "workspace", "together", "it fits"]
    {
        assert!(plan.contains(part), "{plan}");
    }
    let (plan, _) = succeeds(&["plan", "--published", "q4", "--ctx", "32768", "--memory-gib", "32"]);
    assert!(plan.contains("experts 13.29 GiB"), "{plan}");
    let error = fails(&["plan", "--published", "bf16", "--ctx", "32768", "--memory-gib", "44"]);
    assert!(error.contains("--quant q8_0") && error.contains("44.00 GiB by --memory-gib"), "{error}");
    let error = fails(&["plan", "--published", "q4", "--ctx", "262144", "--memory-gib", "32"]);
    assert!(error.contains("--ctx") && error.contains("and fits"), "{error}");
    let error = fails(&["plan", "--published", "bf16", "--memory-gib", "4"]);
    assert!(error.contains("no flag makes it fit"), "{error}");
}

#[test]
fn a_server_that_would_not_fit_does_not_load() {
    let error = fails(&["--addr", "127.0.0.1:0", "-m", &demo(), "--memory-gib", "0.01"]);
    assert!(error.contains("the plan takes") && error.contains("0.01 GiB by --memory-gib"), "{error}");
}

#[cfg(not(any(feature = "cuda", feature = "metal")))]
#[test]
fn a_device_that_this_build_has_not_is_refused() {
    for device in ["cuda", "cuda:1", "metal"] {
        let error = fails(&["bench", "-m", &demo(), "--runs", "1", "--device", device]);
        assert!(error.contains("this build has no") && error.contains("--features"), "{error}");
    }
}

#[test]
fn a_model_split_over_two_devices_answers_as_a_whole_one() {
    let (table, _) = succeeds(&["bench", "-m", &demo(), "--runs", "1", "--device-map", "cpu=0-1,cpu=2-4"]);
    assert!(table.contains("the same answers"), "{table}");
    let error = fails(&["bench", "-m", &demo(), "--runs", "1", "--device-map", "cpu=0-1"]);
    assert!(error.contains("from 2 on are nowhere") && error.contains("0 to 4"), "{error}");
}
