//! The revision that both programs, and every receipt, name: it says so when what they are built from differs from it. The build
//! scripts run here in a repository of the test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn a_revision_with_changes_is_marked() {
    let scratch = tempfile::tempdir().unwrap();
    let repository = scratch.path().join("repository");
    let files = ["dgem/src/a.rs", "dgemma-server/src/a.rs", "decision/src/a.rs", "docs/a.md", "Cargo.lock"];
    files.iter().for_each(|file| write(&repository.join(file), "one\n"));
    git(&repository, &["init", "-q"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "-q", "-m", "one"]);
    let head = git(&repository, &["rev-parse", "--short=12", "HEAD"]);

    for program in ["dgem", "dgemma-server"] {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(program).join("build.rs");
        let build = scratch.path().join(format!("build-{program}"));
        let compiled =
            Command::new("rustc").args(["--edition", "2024", "-o"]).arg(&build).arg(script).status();
        assert!(compiled.unwrap().success());
        let revision = |given: &str| {
            let output = Command::new(&build)
                .current_dir(repository.join(program))
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("DGEM_GIT_REVISION", given)
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("cargo:rustc-env=GIT_REVISION="));
            line.unwrap().to_owned()
        };
        let dirty = format!("{head}-dirty");
        assert_eq!(revision(""), head);
        // Neither documents nor receipts are part of a program.
        write(&repository.join("docs/a.md"), "two\n");
        write(&repository.join("benchmarks/runs/r.json"), "{}\n");
        assert_eq!(revision(""), head);
        for file in [&format!("{program}/src/a.rs"), "decision/src/a.rs", "Cargo.lock"] {
            write(&repository.join(file), "two\n");
            assert_eq!(revision(""), dirty, "{program}: {file}");
            write(&repository.join(file), "one\n");
            assert_eq!(revision(""), head, "{program}: {file}");
        }
        let new = repository.join(program).join("src/new.rs");
        write(&new, "");
        assert_eq!(revision(""), dirty);
        fs::remove_file(new).unwrap();
        assert_eq!(revision("told"), "told");
    }
}
