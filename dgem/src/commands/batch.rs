//! `dgem batch`: gives the parts of `batch` their settings, and says on stderr how it ended.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use tokio::task::LocalSet;

use super::{connect, note, warn};
use crate::batch::{Ended, Feeder, Progress, Rows, Run, Shard, Sink, Stop};
use crate::cli::{BatchArgs, ConnectionFlags};
use crate::client::Client;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::settings::Settings;
use crate::template::Catalogue;
use crate::variables::Variables;

/// Further tries of a request when the settings say nothing: a run of hours should survive a busy minute.
const RETRIES: u32 = 3;

pub(super) async fn run(
    args: BatchArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let mut settings = Settings::resolve(connection, environment)?;
    settings.retries.get_or_insert(RETRIES);
    let client = connect::ready(Client::new(settings)?).await?;
    let template = Catalogue::new(&args.catalogue, environment).load(&args.template)?;
    let variables = Variables::gather(&args.variables)?;
    let shard = Shard::resolve(args.shard.as_deref(), environment)?;
    let output = with_shard(&args.output, shard);
    if same_file(&args.input, &output) {
        let hint = "name another file with -o";
        return Err(Error::BatchOutput { path: output, reason: "it is the input too".to_owned(), hint });
    }
    let rows = Rows::open(&args.input, args.input_format)?;
    let (sink, done) = Sink::open(&output, args.resume, args.keep_order)?;
    if args.resume && !done.keys.is_empty() {
        note(&format!("{} rows are done in {} already", done.keys.len(), output.display()));
    }
    let progress = Progress::new(&rows);
    let feeder = Feeder { rows, template, variables, shard, done: done.keys };
    let batch = Run {
        client,
        feeder,
        sink,
        progress,
        report: done.report,
        jobs: args.jobs,
        max_errors: args.max_errors,
    };
    let Ended { tally, report, stop } = LocalSet::new().run_until(batch.run()).await?;

    note(&tally.to_string());
    if !report.is_empty() {
        note(&format!("\n{report}\n"));
    }
    let failed = tally.errors > 0;
    if stop.is_some() || failed {
        note(&format!("to go on: {}", resume_command(&args)));
    }
    match stop {
        Some(Stop::Interrupted) => Ok(Exit::Interrupted),
        Some(Stop::Hopeless(error)) => Err(error),
        Some(Stop::TooManyErrors) => {
            warn(&format!("stopped after {} rows that failed (--max-errors)", tally.errors));
            Ok(Exit::Partial)
        }
        None if failed => Ok(Exit::Partial),
        None => Ok(Exit::Done),
    }
}

/// The number of the shard where the name asks for it.
fn with_shard(output: &Path, shard: Shard) -> PathBuf {
    match output.to_str() {
        Some(text) => text.replace("{shard}", &shard.index.to_string()).into(),
        None => output.to_owned(),
    }
}

fn same_file(input: &Path, output: &Path) -> bool {
    match (input.canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) => input.is_file() && input == output,
        _ => false,
    }
}

/// The same run again, for the rows that are not done. Made of the flags of this command only: those of the connection may hold
/// secrets.
fn resume_command(args: &BatchArgs) -> String {
    if args.output.as_os_str() == "-" || args.input.as_os_str() == "-" {
        return "the same command with files for -i and -o, and with --resume".to_owned();
    }
    let mut words = vec!["dgem".to_owned(), "batch".to_owned()];
    let mut add = |flag: &str, value: &str| words.extend([flag.to_owned(), quoted(value)]);
    add("-t", &args.template.to_string_lossy());
    if let Some(folder) = &args.catalogue.templates {
        add("--templates", &folder.to_string_lossy());
    }
    if let Some(data) = &args.variables.data {
        add("-d", data);
    }
    args.variables.var.iter().for_each(|pair| add("-v", pair));
    add("-i", &args.input.to_string_lossy());
    if let Some(format) = args.input_format.and_then(|format| format.to_possible_value()) {
        add("--input-format", format.get_name());
    }
    if let Some(shard) = &args.shard {
        add("--shard", shard);
    }
    add("-j", &args.jobs.to_string());
    if let Some(most) = args.max_errors {
        add("--max-errors", &most.to_string());
    }
    add("-o", &args.output.to_string_lossy());
    if args.keep_order {
        words.push("--keep-order".to_owned());
    }
    words.push("--resume".to_owned());
    words.join(" ") + "  (and your connection flags)"
}

/// As a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for (word, shell) in [
            ("a/b.json", "a/b.json"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
            ("{shard}", "'{shard}'"),
        ] {
            assert_eq!(quoted(word), shell);
        }
    }

    #[test]
    fn the_command_that_goes_on_has_every_flag_of_the_first() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: BatchArgs,
        }
        let flags = "-t p -d d.json -v a=b -i rows.txt --input-format csv --shard 0/2 -j 4 --max-errors 9 -o o.jsonl --keep-order";
        let line = <Line as clap::Parser>::parse_from(["batch"].into_iter().chain(flags.split(' ')));
        assert_eq!(
            resume_command(&line.args),
            format!("dgem batch {flags} --resume  (and your connection flags)")
        );
    }

    #[test]
    fn the_shard_goes_into_the_name() {
        let shard = Shard { index: 3, count: 8 };
        assert_eq!(with_shard(Path::new("out-{shard}.jsonl"), shard), Path::new("out-3.jsonl"));
        assert_eq!(with_shard(Path::new("out.jsonl"), shard), Path::new("out.jsonl"));
    }
}
