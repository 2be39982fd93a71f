//! The options of serving: where to listen, whom to serve, how much at a time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::HeaderValue;
use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::at_least_one;
use crate::Options;
use crate::error::Error;
use crate::http::keys::{self, Keys};
use crate::scheduler::policy::Budget;

/// What only a server needs.
#[derive(Debug, Clone, Args)]
pub struct ServingArguments {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = address, env = "DGEMMA_ADDR")]
    pub addr: SocketAddr,

    /// Places in the queue, one per canvas; a request that finds too few free is refused with 429
    #[arg(long, value_name = "PLACES", default_value_t = 2048, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000), env = "DGEMMA_QUEUE")]
    pub queue: usize,

    /// Seconds a request may wait in the queue before it is refused with 503
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..), env = "DGEMMA_QUEUE_WAIT_SECONDS")]
    pub queue_wait_seconds: u32,

    /// Most rows (prompt tokens and canvas rows) of one forward pass
    #[arg(long, value_name = "ROWS", default_value_t = Budget::default().pass_rows, value_parser = at_least_one(), env = "DGEMMA_PASS_ROWS")]
    pub pass_rows: usize,

    /// Largest request body, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024), env = "DGEMMA_BODY_LIMIT_MIB")]
    pub body_limit_mib: usize,

    /// Seconds a client may take to send the head of a request, and as long again for its body; then it is refused with 408
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..), env = "DGEMMA_RECEIVE_SECONDS")]
    pub receive_seconds: u32,

    /// Seconds that running requests get after the signal to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 8, env = "DGEMMA_DRAIN_SECONDS")]
    pub drain_seconds: u32,

    /// File with API keys, one a line; further keys come from DGEMMA_API_KEYS, separated by commas [default: no key is asked for]
    #[arg(long, value_name = "FILE", env = "DGEMMA_API_KEY_FILE")]
    pub api_key_file: Option<PathBuf>,

    /// Origin of web pages that may use this server, such as https://example.org; may be repeated [default: none]
    #[arg(long, value_name = "ORIGIN", value_parser = origin, value_delimiter = ',', env = "DGEMMA_CORS_ORIGIN")]
    pub cors_origin: Vec<HeaderValue>,

    /// Name under which a proxy on this machine may ask a server without keys, such as model.example.org; may be repeated [default:
    /// localhost and addresses]
    #[arg(long, value_name = "NAME", value_parser = host, value_delimiter = ',', env = "DGEMMA_ALLOW_HOST")]
    pub allow_host: Vec<String>,
}

impl ServingArguments {
    /// What `serve` needs to know, for a model of that name.
    pub fn options(&self, model: String, log_content: bool) -> Result<Options, Error> {
        let default = Budget::default();
        Ok(Options {
            model,
            queue_places: self.queue,
            body_limit_bytes: self.body_limit_mib << 20,
            budget: Budget {
                pass_rows: self.pass_rows,
                chunk_rows: default.chunk_rows.min(self.pass_rows),
                ..default
            },
            receive_limit: Duration::from_secs(self.receive_seconds.into()),
            drain: Duration::from_secs(self.drain_seconds.into()),
            queue_wait: Duration::from_secs(self.queue_wait_seconds.into()),
            keys: Keys::load(self.api_key_file.as_deref(), std::env::var_os(keys::VARIABLE))?,
            cors_origins: self.cors_origin.clone(),
            hosts: self.allow_host.clone(),
            log_content,
        })
    }
}

/// An address with a port. A name would have to be looked up, and might mean several.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address is a number and a port, as in 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for every interface".into()
    })
}

/// An origin as a browser sends it: scheme, host and port, nothing after.
fn origin(text: &str) -> Result<HeaderValue, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if host.is_none_or(|host| host.is_empty() || host.contains(['/', '*', '?', '#', '@'])) {
        return Err(
            "an origin is http:// or https://, a host and perhaps a port, as in https://example.org:8443"
                .into(),
        );
    }
    text.parse().map_err(|_| "it has a character that no header can carry".into())
}

/// The name of a host, without a port.
fn host(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        return Err("a name is one host without scheme, port or path, as in model.example.org".into());
    }
    Ok(text.to_owned())
}
