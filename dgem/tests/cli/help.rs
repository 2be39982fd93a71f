//! Help, version, completions and manual: a snapshot of every `--help`, and what surrounds them.

use std::fs;
use std::path::PathBuf;

use crate::support::{Server, dgem, shipped, stderr, stdout, support_reply};

/// Every command, as it is typed. Completions show whether one is missing here.
const COMMANDS: &[&str] = &[
    "",
    "ask",
    "auth",
    "auth check",
    "batch",
    "bench",
    "bench-calibration",
    "bench-ecotone",
    "bench-intents",
    "bench-permutation",
    "calibrate",
    "calibrate fit",
    "calibrate verify",
    "completions",
    "config",
    "config show",
    "decide",
    "doctor",
    "man",
    "models",
    "template",
    "template check",
    "template list",
    "template new",
    "template render",
    "template show",
];

fn help(command: &str, flag: &str) -> String {
    let output = dgem().args(command.split_whitespace()).arg(flag).env("COLUMNS", "100").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{command}: {}", stderr(&output));
    stdout(&output)
}

/// `DGEM_BLESS=1 cargo test -p dgem --test cli help` writes the snapshots anew.
#[test]
fn every_help_is_as_it_was() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cli/help");
    let bless = std::env::var_os("DGEM_BLESS").is_some();
    for command in COMMANDS {
        let name = format!("dgem {command}").trim().replace(' ', "-");
        let path = folder.join(format!("{name}.txt"));
        let text = help(command, "--help");
        if bless {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, text).unwrap();
        } else {
            let expected = fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(text, expected, "{}; DGEM_BLESS=1 writes it anew", path.display());
        }
    }
}

#[test]
fn every_command_has_a_snapshot_an_example_and_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    dgem().args(["man", "--dir"]).arg(folder.path()).assert().success();
    let mut pages: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap().trim_end_matches(".1").to_owned())
        .collect();
    pages.sort();
    let mut names: Vec<String> =
        COMMANDS.iter().map(|command| format!("dgem {command}").trim().replace(' ', "-")).collect();
    names.sort();
    assert_eq!(pages, names);
    for command in COMMANDS {
        let text = help(command, "--help");
        let holds_others = text.contains("\nCommands:\n");
        assert!(holds_others || text.contains("\nExample: dgem "), "{command}: {text}");
    }
}

#[test]
fn the_short_help_is_shorter_and_colourless_without_a_terminal() {
    for command in COMMANDS {
        let (short, long) = (help(command, "-h"), help(command, "--help"));
        assert!(short.len() < long.len(), "{command}");
        assert!(!short.contains('\u{1b}') && !long.contains('\u{1b}'));
    }
    assert!(!help("decide", "-h").contains("--token-command"));
}

#[test]
fn completions_are_made_for_every_shell_and_man_prints_a_page() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = dgem().args(["completions", shell]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("template") && stdout(&output).contains("wait-ready"), "{shell}");
    }
    let page = stdout(&dgem().arg("man").output().unwrap());
    assert!(page.starts_with(".ie") && page.contains(".TH dgem 1"), "{page}");
    let output = dgem().args(["man", "--dir", "/dev/null/x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/dev/null/x"), "{}", stderr(&output));
}

#[test]
fn the_long_version_names_revision_tls_and_target() {
    let short = stdout(&dgem().arg("-V").output().unwrap());
    assert_eq!(short, format!("dgem {}\n", env!("CARGO_PKG_VERSION")));
    let long = stdout(&dgem().arg("--version").output().unwrap());
    for part in [env!("CARGO_PKG_VERSION"), "(git ", "\nTLS: ", "\ntarget: "] {
        assert!(long.contains(part), "{part} not in {long}");
    }
}

#[test]
fn colour_follows_the_flag_then_the_variables() {
    let server = Server::deciding(&support_reply());
    let coloured = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = dgem();
        command.args(["decide", "-v", "ticket=x", "-u", &server.url, "-t"]);
        command.arg(shipped("support_triage.json.tmpl")).args(arguments).envs(variables.iter().copied());
        stdout(&command.output().unwrap()).contains('\u{1b}')
    };
    assert!(!coloured(&[], &[]), "no terminal");
    assert!(coloured(&["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(coloured(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!coloured(&["--color=never"], &[("CLICOLOR_FORCE", "1")]));
    assert!(coloured(&[], &[("DGEM_COLOR", "always")]));
}

#[test]
fn a_flag_of_the_server_is_recognised() {
    for flag in ["--ctx", "--threads", "--addr"] {
        let output = dgem().args([flag, "32768", "decide"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains(&format!("hint: {flag} is a flag of dgemma-server")),
            "{}",
            stderr(&output)
        );
    }
    let output = dgem().args(["decide", "--modle", "x"]).output().unwrap();
    assert!(stderr(&output).contains("--model"), "{}", stderr(&output));
}

#[test]
fn the_manual_has_the_text_of_options_that_the_short_help_hides() {
    let page = stdout(&dgem().arg("man").output().unwrap());
    for text in ["Longest wait for a connection", "Command that prints the bearer token", "When to colour"] {
        assert!(page.contains(text), "{text} not in {page}");
    }
}

#[test]
fn a_wrong_word_for_colour_is_refused_wherever_it_stands() {
    let output = dgem().args(["template", "list"]).env("DGEM_COLOR", "sometimes").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(message.contains("`sometimes`, set by DGEM_COLOR") && message.contains("never"), "{message}");
}
