//! `dgem batch`: gives the parts of `batch` their settings, and says on stderr how it ended.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use tokio::task::LocalSet;

use super::{connect, note, warn};
use crate::asking::Server;
use crate::batch::{Ended, Feeder, Progress, Rows, Run, Shard, Sink, Stop};
use crate::cascade::Cascade;
use crate::cli::{BatchArgs, CascadeMode, ConnectionFlags};
use crate::client::Client;
use crate::deciding::Decider;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::image::Image;
use crate::output::{counted, width_of};
use crate::overrides::Overrides;
use crate::settings::{Settings, shown_url};
use crate::temper::Calibration;
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
    let timeout = settings.timeout;
    let overrides = Overrides::new(&args.read)?;
    let template = Catalogue::new(&args.catalogue, environment).load(&args.template)?;
    let calibration = args
        .calibration
        .as_ref()
        .map(|path| Calibration::load_for(path, &template).map(|calibration| (path.clone(), calibration)));
    let calibration = calibration.transpose()?;
    let variables = Variables::gather(&args.variables)?;
    let images = Image::load_all(&args.images, timeout)?;
    let pictures = !images.is_empty() || template.metadata().image;
    let cascade = Cascade::new(&args.cascade, pictures, environment)?;
    let shard = Shard::resolve(args.shard.as_deref(), environment)?;
    let output = with_shard(&args.output, shard);
    if same_file(&args.input, &output) {
        let hint = "name another file with -o";
        return Err(Error::BatchOutput { path: output, reason: "it is the input too".to_owned(), hint });
    }
    let rows = Rows::open(&args.input, args.input_format)?;
    let (sink, done) = Sink::open(&output, args.resume, args.keep_order)?;
    let client = connect::ready(Client::new(settings)?).await?;
    if args.resume && !done.keys.is_empty() {
        let (rows, are) = match done.keys.len() {
            1 => ("1 row".to_owned(), "is"),
            count => (format!("{count} rows"), "are"),
        };
        note(&format!("{rows} {are} done in {} already", output.display()));
    }
    let progress = Progress::new(&rows);
    let server = Arc::new(Server::new(client, args.read.api));
    let batch = Run {
        decider: Decider { server, orders: args.read.permute, cascade },
        feeder: Feeder { rows, template, variables, overrides, images, timeout, shard, done: done.keys },
        calibration,
        sink,
        progress,
        report: done.report,
        jobs: args.jobs,
        max_errors: args.max_errors,
    };
    let ended = LocalSet::new().run_until(batch.run()).await?;
    end(&args, connection, ended)
}

/// Says on stderr how it went.
fn end(args: &BatchArgs, connection: &ConnectionFlags, ended: Ended) -> Result<Exit, Error> {
    let Ended { tally, reasons, report, stop } = ended;
    let broken = matches!(stop, Some(Stop::Broken(_)));
    if tally.rows() > 0 || !broken {
        note(&tally.to_string());
    }
    if !reasons.is_empty() {
        note(&reasons.to_string());
    }
    let report = report.within(width_of(&io::stderr()));
    if !report.is_empty() && (tally.rows() > 0 || !broken) {
        note(&format!("\n{report}\n"));
    }
    let failed = tally.errors > 0;
    if failed || (stop.is_some() && !broken) {
        note(&format!("to go on: {}", resume_command(args, connection)));
    }
    match stop {
        Some(Stop::Interrupted) => Ok(Exit::Interrupted),
        Some(Stop::Hopeless(error) | Stop::Broken(error)) => Err(error),
        Some(Stop::TooManyErrors { most, error }) => {
            let rows = counted(tally.errors, "row");
            warn(&format!(
                "stopped after {rows} that failed, those in flight included (--max-errors {most})"
            ));
            error.map_or(Ok(Exit::Partial), Err)
        }
        None if tally.rows() == 0 && !args.resume => {
            warn(&format!("there are no rows for this run in {}", args.input.display()));
            Ok(Exit::Done)
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

/// The same run again, for the rows that are not done. Flags that hold a secret are not shown.
fn resume_command(args: &BatchArgs, connection: &ConnectionFlags) -> String {
    if args.output.as_os_str() == "-" || args.input.as_os_str() == "-" {
        return "the same command with files for -i and -o, and with --resume".to_owned();
    }
    let mut words = vec!["dgem".to_owned(), "batch".to_owned()];
    let mut add = |flag: &str, value: &str| words.extend([flag.to_owned(), quoted(value)]);
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    let auth = &connection.auth;
    let named = [
        ("-u", connection.url.as_deref().map(shown_url)),
        ("-m", connection.model.clone()),
        ("--timeout", connection.timeout.clone()),
        ("--connect-timeout", connection.connect_timeout.clone()),
        ("--retries", connection.retries.clone()),
        ("--wait-ready", connection.wait_ready.clone()),
        ("--cacert", connection.cacert.clone()),
        ("--config", path(&connection.config)),
        ("--token-file", auth.token_file.clone()),
        ("--audience", auth.audience.clone()),
        ("--impersonate-service-account", auth.impersonate_service_account.clone()),
    ];
    named
        .iter()
        .filter_map(|(flag, value)| Some((flag, value.as_ref()?)))
        .for_each(|(flag, value)| add(flag, value));
    add("-t", &args.template.to_string_lossy());
    if let Some(folder) = &args.catalogue.templates {
        add("--templates", &folder.to_string_lossy());
    }
    if let Some(data) = &args.variables.data {
        add("-d", data);
    }
    args.variables.var.iter().for_each(|pair| add("-v", pair));
    add("-i", &args.input.to_string_lossy());
    if let Some(format) = args.input_format.and_then(name) {
        add("--input-format", &format);
    }
    if let Some(shard) = &args.shard {
        add("--shard", shard);
    }
    add("-j", &args.jobs.to_string());
    if let Some(most) = args.max_errors {
        add("--max-errors", &most.to_string());
    }
    args.images.iter().for_each(|image| add("-I", image));
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let (read, cascade) = (&args.read, &args.cascade);
    let off = cascade.cascade == CascadeMode::Off;
    let optional = [
        ("--samples", read.samples.clone()),
        ("--layout", read.layout.clone()),
        ("--think", number(read.think.map(u64::from))),
        ("--seed", number(read.seed)),
        ("--permute", number(read.permute.map(|orders| orders as u64))),
        ("--api", read.api.and_then(name)),
        ("--calibration", args.calibration.as_ref().map(|path| path.to_string_lossy().into_owned())),
        ("--cascade", Some(cascade.cascade).filter(|_| !off).and_then(name)),
        ("--cascade-threshold", cascade.cascade_threshold.clone()),
        ("--cascade-via", cascade.cascade_via.and_then(name)),
        ("--cascade-url", cascade.cascade_url.as_deref().map(shown_url)),
        ("--cascade-model", cascade.cascade_model.clone()),
        ("--cascade-project", cascade.cascade_project.clone()),
        ("--cascade-prior", Some(cascade.cascade_prior).filter(|_| !off).and_then(name)),
        ("--cascade-timeout", cascade.cascade_timeout.clone()),
    ];
    optional
        .iter()
        .filter_map(|(flag, value)| Some((flag, value.as_ref()?)))
        .for_each(|(flag, value)| add(flag, value));
    add("-o", &args.output.to_string_lossy());
    // Its value is optional, and so stands behind an equals sign.
    words.extend(auth.gcp_auth.as_ref().map(|kind| quoted(&format!("--gcp-auth={kind}"))));
    if args.keep_order {
        words.push("--keep-order".to_owned());
    }
    words.push("--resume".to_owned());
    let in_url = connection.url.as_ref().is_some_and(|url| shown_url(url) != *url);
    let hidden = in_url || auth.token.is_some() || auth.token_command.is_some();
    words.join(" ") + if hidden { "  # and your token" } else { "" }
}

/// The spelling on the command line.
fn name<T: ValueEnum + Copy>(value: T) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_owned())
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
            #[command(flatten)]
            connection: ConnectionFlags,
        }
        let flags = "-u http://b/v1 -m n --timeout 5 --connect-timeout 2 --retries 1 --wait-ready 1m --cacert c.pem --config e.toml --token-file f --audience g --impersonate-service-account h -t p -d d.json -v a=b -i rows.txt --input-format csv --shard 0/2 -j 4 --max-errors 9 -I a.png --samples 4 --layout schema_first --think 8 --seed 7 --permute 3 --api chat --calibration c.json --cascade entropy --cascade-threshold 16% --cascade-via openai --cascade-url http://a/v1 --cascade-model m --cascade-prior full --cascade-timeout 9 -o o.jsonl --keep-order";
        let line = <Line as clap::Parser>::parse_from(["batch"].into_iter().chain(flags.split(' ')));
        assert_eq!(resume_command(&line.args, &line.connection), format!("dgem batch {flags} --resume"));
        let secret = [
            "batch",
            "-t",
            "p",
            "-i",
            "a",
            "-o",
            "b",
            "-k",
            "secret",
            "-u",
            "http://u:secret@b/v1",
            "--gcp-auth",
        ];
        let line = <Line as clap::Parser>::parse_from(secret);
        let shown = resume_command(&line.args, &line.connection);
        assert!(
            shown.ends_with("--gcp-auth=host --resume  # and your token") && !shown.contains("secret"),
            "{shown}"
        );
    }

    #[test]
    fn the_shard_goes_into_the_name() {
        let shard = Shard { index: 3, count: 8 };
        assert_eq!(with_shard(Path::new("out-{shard}.jsonl"), shard), Path::new("out-3.jsonl"));
        assert_eq!(with_shard(Path::new("out.jsonl"), shard), Path::new("out.jsonl"));
    }
}
