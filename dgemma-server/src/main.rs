//! Command line, log and signals of `dgemma-server`; everything else is in the library. Read `serve` next.

mod signals;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use dgemma_server::cli::{Arguments, Command};
use dgemma_server::commands::memory::{Concurrency, Workload};
use dgemma_server::engine::diffusion::{DiffusionEngine, OpenOptions};
use dgemma_server::http::listen;
use dgemma_server::read::Text;
use dgemma_server::{Error, Parts, bench, commands, download, log, model_dir, serve, threads};
use diffusion_gemma::DType;

/// A pass takes and returns megabytes again and again. This allocator keeps them, and gives back what is not needed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long the rest of the log may take to be written at the end.
const LOG_LIMIT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let arguments = Arguments::of_command_line();
    let log = match log::start(arguments.log_format, arguments.log_content) {
        Ok(log) => log,
        Err(error) => {
            // A log that nobody reads any more is no reason to fail differently.
            let _ = writeln!(std::io::stderr(), "error: cannot start the log: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (last_line, code) = match start(&arguments) {
        Ok(()) => (String::new(), ExitCode::SUCCESS),
        Err(error) => (format!("error: {error}\n"), ExitCode::FAILURE),
    };
    log.finish(&last_line, LOG_LIMIT);
    code
}

fn start(arguments: &Arguments) -> Result<(), Error> {
    if let Some(wanted) = arguments.model.threads {
        threads::apply(wanted).map_err(|source| Error::io("cannot set the number of threads", source))?;
    }
    let runtime =
        tokio::runtime::Runtime::new().map_err(|source| Error::io("cannot start the runtime", source))?;
    let result = runtime.block_on(run(arguments));
    // What still runs, a load or a long tokenisation, must not hold up the exit.
    runtime.shutdown_background();
    result
}

async fn run(arguments: &Arguments) -> Result<(), Error> {
    if let Some(Command::Download { repo, revision, jobs, out }) = &arguments.command {
        return fetch(repo, revision, *jobs, out.as_deref()).await;
    }
    if let Some(done) = commands::run(arguments) {
        return done;
    }
    let dir = arguments.checkpoint()?;
    let options = arguments.open_options(dir.clone());
    // A bench decides one thing at a time.
    let one = arguments.workload(Concurrency::Full(1));
    let one = move |options: &OpenOptions| open(options, one, &mut |_, _| ());
    if let Some(Command::Bench { quality: Some(file), .. }) = &arguments.command {
        let items = bench::quality::items(file)?;
        let plain = OpenOptions { dtype: DType::F32, quant: None, ..options.clone() };
        let plain = bench::quality::answers(one(&plain)?, &items).await?;
        let chosen = bench::quality::answers(one(&options)?, &items).await?;
        let quality = bench::quality::Quality::of(&plain, &chosen);
        return write!(std::io::stdout(), "{quality}")
            .map_err(|source| Error::io("cannot print the figures", source));
    }
    if let Some(Command::Bench { runs, .. }) = arguments.command {
        let open = |prefix_cache_bytes| one(&OpenOptions { prefix_cache_bytes, ..options.clone() });
        let report = bench::run(runs, options.prefix_cache_bytes, open).await?;
        return write!(std::io::stdout(), "{report}")
            .map_err(|source| Error::io("cannot print the figures", source));
    }
    let serving = arguments.options(model_dir::name(&dir))?;
    let wanted = arguments.serving.addr;
    let listener =
        listen::bind(wanted).map_err(|source| Error::io(&format!("cannot listen on {wanted}"), source))?;
    let address = listener.local_addr().map_err(|source| Error::io("cannot read the address", source))?;
    if let Some(warning) = listen::warning(address, &serving.keys) {
        tracing::warn!("{warning}");
    }
    tracing::info!("listening on http://{address}");
    let served = arguments.workload(Concurrency::Served(arguments.model.active_tokens));
    let load = move |readiness: &dgemma_server::api::readiness::Readiness| {
        open(&options, served, &mut |loaded, total| readiness.report_bytes(loaded, total))
    };
    serve(listener, serving, load, signals::stop()).await
}

async fn fetch(repo: &str, revision: &str, jobs: usize, out: Option<&Path>) -> Result<(), Error> {
    let out = out.map_or_else(|| download::default_folder(repo), Path::to_owned);
    // A second call finds the first one's provider: nothing to do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let summary = download::run(&download::Options {
        repo: repo.to_owned(),
        revision: revision.to_owned(),
        jobs,
        chunk_bytes: download::CHUNK_BYTES,
        out: out.clone(),
        access: download::Access::of_environment(),
    })
    .await?;
    writeln!(std::io::stdout(), "{}: {summary}", out.display())
        .map_err(|source| Error::io("cannot print what was fetched", source))
}

fn open(
    options: &OpenOptions,
    workload: Workload,
    report: &mut dyn FnMut(u64, u64),
) -> Result<Parts<DiffusionEngine>, Error> {
    let text = Text::from_dir(&options.dir)?;
    let active_tokens = commands::memory::check(options, workload)?;
    let options = OpenOptions { active_tokens, ..options.clone() };
    Ok(Parts { engine: DiffusionEngine::open(&options, report)?, text })
}
