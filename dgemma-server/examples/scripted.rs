//! The server with scripted replies instead of a model, so that clients of other people can be tested with calls and thoughts.
//!
//! Takes the flags `--model DIR` (its tokenizer and chat template are used) and `--addr`, and reads the replies from the JSON list in
//! `DGEMMA_SCRIPT`: the seed of a request is the number of its reply. Markers in a reply are control tokens. Started by
//! `scripts/openai_client.py` and `scripts/ai_sdk.sh`.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use dgemma_server::engine::fake::Fake;
use dgemma_server::http::keys::Keys;
use dgemma_server::read::Text;
use dgemma_server::scheduler::policy::Budget;
use dgemma_server::{Options, Parts, serve};

const MARKERS: [&str; 5] = ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>"];
/// Ids of a block: few, so that everything is cut somewhere.
const BLOCK: usize = 5;

fn ids(text: &Text, script: &str) -> Result<Vec<u32>, Box<dyn Error>> {
    let (mut ids, mut rest) = (Vec::new(), script);
    loop {
        let next = MARKERS.iter().filter_map(|marker| rest.find(marker).map(|at| (at, *marker))).min();
        let (at, marker) = next.unwrap_or((rest.len(), ""));
        ids.extend(text.tokenizer.encode_plain(&rest[..at])?);
        if marker.is_empty() {
            return Ok(ids);
        }
        ids.extend(text.tokenizer.token_id(marker));
        rest = &rest[at + marker.len()..];
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (mut model, mut addr) = (PathBuf::new(), "127.0.0.1:0".to_owned());
    while let (Some(flag), Some(value)) = (arguments.next(), arguments.next()) {
        match flag.as_str() {
            "--model" => model = value.into(),
            "--addr" => addr = value,
            other => return Err(format!("unknown flag {other}").into()),
        }
    }
    let text = Text::from_dir(&model)?;
    let scripts: Vec<String> = serde_json::from_str(&std::env::var("DGEMMA_SCRIPT")?)?;
    let replies = scripts.iter().map(|script| ids(&text, script)).collect::<Result<Vec<_>, _>>()?;
    let engine = Fake::new(32768, 256, text.tokenizer.vocab_size())
        .with_delay(Duration::from_millis(20))
        .with_replies(move |seed| {
            let reply = replies.get(seed as usize % replies.len().max(1));
            reply.map_or_else(Vec::new, |ids| ids.chunks(BLOCK).map(<[u32]>::to_vec).collect())
        });
    let listener = tokio::net::TcpListener::bind(addr).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    let options = Options {
        model: "scripted".into(),
        queue_places: 256,
        queue_wait: Duration::from_secs(30),
        body_limit_bytes: 8 << 20,
        receive_limit: Duration::from_secs(60),
        budget: Budget::default(),
        drain: Duration::from_secs(1),
        keys: Keys::default(),
        cors_origins: Vec::new(),
        hosts: Vec::new(),
        log_content: false,
    };
    let stop = async {
        // Without signals the process is simply ended.
        let _ = tokio::signal::ctrl_c().await;
    };
    serve(listener, options, |_| Ok(Parts { engine, text }), stop).await?;
    Ok(())
}
