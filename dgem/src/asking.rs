//! Puts one schema to one server, in the form that the server speaks, and reads its answers against the schema.
//!
//! `deciding` calls [`Asker::ask`] through `brackets` and `permute`, which turn one decision into several of these.
//! The forms: `client` (chat), `systemone`, and `fallback` for servers that make no decisions.

use std::sync::{Arc, Mutex};

use decision::Schema;
use serde::Deserialize;
use tokio::sync::OnceCell;

use crate::cli::Api;
use crate::client::{Client, Decided, Reply, Sent};
use crate::error::Error;
use crate::state::State;
use crate::verdict::Verdict;
use crate::{fallback, systemone};

/// One server, and what is found out about it on the way.
#[derive(Debug)]
pub struct Server {
    client: Client,
    /// `None` until it is known which form the server understands.
    api: Mutex<Option<Api>>,
    /// What the server says about its models, asked for when it is needed.
    models: OnceCell<Vec<Model>>,
}

/// One state before one server.
#[derive(Debug)]
pub struct Asker {
    server: Arc<Server>,
    state: State,
}

#[derive(Debug, Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Clone, Debug, Deserialize)]
struct Model {
    id: String,
    limits: Option<Limits>,
}

#[derive(Clone, Debug, Deserialize)]
struct Limits {
    alternatives: Option<usize>,
}

/// A decision and what became of each question.
#[derive(Debug)]
pub struct Answered<'a> {
    pub decided: Decided,
    pub verdict: Verdict<'a>,
}

impl Server {
    /// `api`: the form, where it is known.
    pub fn new(client: Client, api: Option<Api>) -> Self {
        Self { client, api: Mutex::new(api), models: OnceCell::new() }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The form in use; `None` until a server has shown that it makes decisions.
    pub fn api(&self) -> Option<Api> {
        // Nothing panics while it holds the lock; a poisoned one still has a value.
        *self.api.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Most alternatives of one question, when the server says so.
    pub async fn most_alternatives(&self) -> Option<usize> {
        let wanted = self.client.settings().model.as_deref();
        let models = self.models().await;
        let model = models.iter().find(|model| Some(model.id.as_str()) == wanted).or(models.first())?;
        model.limits.as_ref()?.alternatives.filter(|most| *most >= 2)
    }

    /// Whether the server says what it decides at most: only those that make decisions do.
    pub(crate) async fn makes_decisions(&self) -> bool {
        self.models().await.iter().any(|model| model.limits.is_some())
    }

    /// Empty when the server does not list its models.
    async fn models(&self) -> &[Model] {
        let list = async || {
            let sent = self.client.get("/models").await.ok()?;
            serde_json::from_slice::<Models>(&sent.body).ok().map(|models| models.data)
        };
        self.models.get_or_init(async || list().await.unwrap_or_default()).await
    }

    fn settle(&self, api: Api) {
        *self.api.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(api);
    }
}

impl Asker {
    pub fn new(server: Arc<Server>, state: State) -> Self {
        Self { server, state }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// One request, or two where the server turns out to make no decisions.
    pub async fn ask<'a>(&self, schema: &'a Schema) -> Result<Answered<'a>, Error> {
        let decided = match self.server.api() {
            Some(Api::Systemone) => self.systemone(schema).await?,
            Some(Api::Openai) => self.openai(schema).await?,
            Some(Api::Chat) => self.chat(schema).await?,
            None => match self.chat(schema).await {
                Ok(decided) => {
                    self.server.settle(Api::Chat);
                    decided
                }
                Err(refusal @ Error::NoDecision { .. }) => self.instead(schema, refusal).await?,
                Err(error) => return Err(error),
            },
        };
        let verdict = Verdict::new(schema, &decided.reply);
        Ok(Answered { decided, verdict })
    }

    /// The server answered, but made no decision. If it cannot be asked in the other way either, the first error tells more.
    async fn instead(&self, schema: &Schema, refusal: Error) -> Result<Decided, Error> {
        match self.openai(schema).await {
            Ok(decided) => {
                self.server.settle(Api::Openai);
                Ok(decided)
            }
            Err(Error::NoDecision { .. } | Error::Status { .. }) => Err(refusal),
            Err(error) => Err(error),
        }
    }

    async fn chat(&self, schema: &Schema) -> Result<Decided, Error> {
        self.server.client.decide_about(schema, &self.state).await
    }

    async fn systemone(&self, schema: &Schema) -> Result<Decided, Error> {
        let body = systemone::body(self.server.client.settings().model.as_deref(), schema, &self.state);
        let sent = self.server.client.post(systemone::ROUTE, body).await?;
        let reply = systemone::reply(schema, &sent.body, &sent.url)?;
        Ok(decided(sent, reply))
    }

    async fn openai(&self, schema: &Schema) -> Result<Decided, Error> {
        // Most of these servers want a model; the first they list is the one they have.
        let model = match self.server.client.settings().model.as_deref() {
            Some(model) => Some(model),
            None => self.server.models().await.first().map(|model| model.id.as_str()),
        };
        let body = fallback::body(model, schema, &self.state);
        let sent = self.server.client.post(fallback::ROUTE, body).await?;
        let reply = fallback::reply(schema, &sent.body, &sent.url)?;
        Ok(decided(sent, reply))
    }
}

fn decided(sent: Sent, reply: Reply) -> Decided {
    Decided { reply, wall: sent.wall, url: sent.url, tally: sent.tally }
}
