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
    assert!(error.contains("config.json") && error.contains("fetches what is damaged"), "{error}");
}

#[test]
fn a_file_that_a_download_had_and_that_is_gone_is_no_interrupted_download() {
    let dir = tempfile::tempdir().unwrap();
    let pack = packed(dir.path());
    let mark = |files: serde_json::Value| {
        let marker = serde_json::json!({"repo": "a/b", "commit": "c", "files": files});
        std::fs::write(format!("{pack}/.dgemma-download.json"), marker.to_string()).unwrap();
    };
    mark(serde_json::json!({"part.bin": {"bytes": 1, "sha256": "00"}}));
    let error = fails(&["verify", "-m", &pack]);
    assert!(error.contains("part.bin") && error.contains("not there any more"), "{error}");
    assert!(error.contains("fetches what is missing") && !error.contains("cannot download"), "{error}");
    // A list that looks into other folders is none of ours.
    for name in ["../secret", "/etc/hostname", "a//b", ".hidden"] {
        mark(serde_json::json!({name: {"bytes": 1, "sha256": "00"}}));
        let error = fails(&["verify", "-m", &pack]);
        assert!(error.contains("it names a file") && error.contains(name), "{error}");
    }
    std::fs::write(format!("{pack}/.dgemma-download.json"), "{").unwrap();
    let error = fails(&["verify", "-m", &pack]);
    assert!(error.contains("no list of a download") && error.contains("delete it"), "{error}");
}

#[test]
fn a_plan_says_what_fits_and_which_flags_help() {
    let (plan, _) = succeeds(&["plan", "-m", &demo(), "--memory-gib", "8", "--ctx", "4096", "--batch", "2"]);
    for part in [
        "weights",
        "keys and values",
        "2 × 4096 tokens",
        "prefix cache",
        "workspace",
        "together",
        "headroom",
        "it fits",
    ] {
        assert!(plan.contains(part), "{plan}");
    }
    let (plan, _) = succeeds(&["plan", "--published", "q4", "--ctx", "32768", "--memory-gib", "32"]);
    assert!(plan.contains("experts 13.29 GiB"), "{plan}");
    let error = fails(&["plan", "--published", "bf16", "--ctx", "32768", "--memory-gib", "44"]);
    assert!(error.contains("--quant q8_0") && error.contains("44.00 GiB by --memory-gib"), "{error}");
    let error = fails(&["plan", "--published", "q4", "--ctx", "262144", "--memory-gib", "32"]);
    assert!(error.contains("--ctx") && error.contains("and fits"), "{error}");
    // What the server would let run: fewer tokens at a time where that is what fits, and advice where a number was asked for.
    let (open, _) = succeeds(&["plan", "--published", "q4", "--ctx", "16384", "--memory-gib", "40"]);
    assert!(open.contains("of at most 64 sequences") && open.contains("it fits"), "{open}");
    assert!(!open.contains("--active-tokens"), "{open}");
    let (less, _) =
        succeeds(&["plan", "--published", "q4", "--dtype", "bf16", "--ctx", "16384", "--memory-gib", "27"]);
    assert!(less.contains("16384 do not fit (--active-tokens)") && less.contains("it fits"), "{less}");
    let asked = ["--active-tokens", "65536", "--ctx", "16384", "--memory-gib", "29"];
    let error = fails(&[&["plan", "--published", "q4"][..], &asked[..]].concat());
    assert!(error.contains(" --active-tokens ") && error.contains("and fits"), "{error}");
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
fn every_device_of_a_map_is_planned_by_itself() {
    let map = "cuda:0=0-9,cuda:1=10-29";
    let plan = ["plan", "--published", "bf16", "--dtype", "bf16", "--device-map", map, "--batch", "1"];
    let (split, _) = succeeds(&[&plan[..], &["--memory-gib", "60"]].concat());
    let lines: Vec<&str> = split.lines().filter(|line| line.starts_with("cuda:")).collect();
    assert!(lines.len() == 2 && lines[0].starts_with("cuda:0") && lines[1].starts_with("cuda:1"), "{split}");
    // Together they would hold it; the second has two thirds of the layers.
    let error = fails(&[&plan[..], &["--memory-gib", "33"]].concat());
    assert!(error.contains("33.00 GiB by --memory-gib"), "{error}");
    // A GPU that nobody can be asked about is not compared with the memory of this machine.
    let unknown = ["plan", "--published", "bf16", "--device", "cuda:7", "--batch", "1"];
    let (plan, _) = succeeds(&unknown);
    assert!(plan.contains("unknown memory of cuda:7") && plan.contains("not compared"), "{plan}");
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
fn a_device_map_is_taken_and_a_wrong_one_refused() {
    let (table, _) = succeeds(&["bench", "-m", &demo(), "--runs", "1", "--device-map", "cpu=0-1,cpu=2-4"]);
    assert!(table.contains("the same answers"), "{table}");
    let error = fails(&["bench", "-m", &demo(), "--runs", "1", "--device-map", "cpu=0-1"]);
    assert!(error.contains("from 2 on are nowhere") && error.contains("0 to 4"), "{error}");
}
