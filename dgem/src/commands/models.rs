//! `dgem models`: the models of a server and, where it says so, what it decides at most.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::connect;
use crate::cli::{ConnectionFlags, ModelsArgs};
use crate::client::Client;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::clipped;
use crate::output::{text_table, width_of};

/// Characters of a name that are shown.
const NAME_CHARS: usize = 120;

#[derive(Debug, Deserialize)]
struct List {
    data: Vec<Model>,
}

/// One model. Most servers know only its name.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Model {
    pub(super) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limits: Option<Value>,
}

pub(super) async fn run(
    args: &ModelsArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let client = connect::client(connection, environment).await?;
    let models = list(&client).await?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&models).unwrap_or_default())?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = models.iter().map(row).collect();
    let header = ["MODEL", "QUESTIONS", "ANSWERS", "CONTEXT"];
    writeln!(out, "{}", text_table(&header, &[24, 9, 9, 9], &rows, width_of(&io::stdout())))?;
    Ok(Exit::Done)
}

/// Asks the server.
pub(super) async fn list(client: &Client) -> Result<Vec<Model>, Error> {
    let sent = client.get("/models").await?;
    let list: List = serde_json::from_slice(&sent.body).map_err(|cause| Error::NoModels {
        url: sent.url,
        reason: cause.to_string(),
        excerpt: clipped(&String::from_utf8_lossy(&sent.body), NAME_CHARS),
    })?;
    Ok(list.data)
}

fn row(model: &Model) -> Vec<String> {
    let limit = |name: &str| {
        let number = model.limits.as_ref().and_then(|limits| limits.get(name)?.as_u64());
        number.map_or("-".to_owned(), |number| number.to_string())
    };
    vec![clipped(&model.id, NAME_CHARS), limit("questions"), limit("alternatives"), limit("context_tokens")]
}
