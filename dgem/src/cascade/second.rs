//! The second model: where it is, how it is asked, and whether what it says is an answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use decision::{Answer, Question, Schema};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::prompt::{self, Prior};
use super::{decided, gemini, openai};
use crate::asking::Server;
use crate::cli::{Api, CascadeFlags, CascadeVia};
use crate::client::{Client, no_decision};
use crate::env::{self, Environment};
use crate::error::Error;
use crate::foreign::clipped;
use crate::settings::{Credential, Endpoint, Origin, Settings, Token, parse_duration};
use crate::state::State;
use crate::verdict::Verdict;

const TIMEOUT: Duration = Duration::from_secs(25);
const TIMEOUT_WITH_IMAGES: Duration = Duration::from_secs(90);
/// Tries after the first: a second model is remote and often busy.
const RETRIES: u32 = 2;
/// Characters of a foreign text that a message repeats.
const SHOWN_CHARS: usize = 60;

#[derive(Debug)]
pub(super) struct Second {
    via: CascadeVia,
    server: Arc<Server>,
    model: Option<String>,
    route: String,
    /// It has turned out to be a server that makes decisions, and is asked for one.
    decides: AtomicBool,
}

/// What the second model said about one question.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Said {
    pub(super) decision: String,
    /// 0…1, as stated.
    pub(super) confidence: f64,
    pub(super) explanation: Option<String>,
}

/// One answer of the second model.
#[derive(Clone, Debug)]
pub(super) enum Given {
    Said(Said),
    /// Read from the model's own logits, with the label mass of its slot.
    Read(Box<Answer>, Option<f64>),
}

/// The reply: question id → what was given, or why it does not count.
pub(super) struct SecondReply {
    pub(super) model: Option<String>,
    pub(super) answers: HashMap<String, Result<Given, String>>,
}

/// What the second model is asked about.
pub(super) struct Doubt<'a> {
    pub(super) schema: &'a Schema,
    pub(super) questions: &'a [&'a Question],
    /// The first model's.
    pub(super) verdict: &'a Verdict<'a>,
    pub(super) prior: Prior,
    pub(super) state: &'a State,
}

impl Second {
    pub(super) fn new(flags: &CascadeFlags, images: bool, environment: &Environment) -> Result<Self, Error> {
        let pick =
            |flag: &Option<String>, name| flag.clone().or_else(|| environment.get(name).map(str::to_owned));
        let refuse = |reason: &str| Error::BadCascade { reason: reason.to_owned() };
        let url = pick(&flags.cascade_url, env::CASCADE_URL);
        let key = environment.get(env::GEMINI_API_KEY);
        let project = pick(&flags.cascade_project, env::GOOGLE_CLOUD_PROJECT);
        let via = match (flags.cascade_via, &url, key, &project) {
            (Some(via), ..) => via,
            (None, Some(_), ..) => CascadeVia::Openai,
            (None, None, Some(_), _) => CascadeVia::Gemini,
            (None, None, None, Some(_)) => CascadeVia::Vertex,
            (None, None, None, None) => return Err(refuse("there is no second model")),
        };
        let model = pick(&flags.cascade_model, env::CASCADE_MODEL);
        let google = || safe(model.as_deref().unwrap_or(gemini::MODEL), "the model");
        let (base, route, model) = match via {
            CascadeVia::Openai => {
                (url.ok_or_else(|| refuse("its URL is missing"))?, openai::ROUTE.to_owned(), model.clone())
            }
            CascadeVia::Gemini => {
                let model = google()?;
                (url.unwrap_or(gemini::API_URL.to_owned()), gemini::api_route(&model), Some(model))
            }
            CascadeVia::Vertex => {
                let model = google()?;
                let project = safe(&project.ok_or_else(|| refuse("Vertex needs a project"))?, "the project")?;
                (
                    url.unwrap_or(gemini::VERTEX_URL.to_owned()),
                    gemini::vertex_route(&project, &model),
                    Some(model),
                )
            }
        };
        let timeout = match &flags.cascade_timeout {
            Some(text) => parse_duration(text)?,
            None if images => TIMEOUT_WITH_IMAGES,
            None => TIMEOUT,
        };
        let endpoint = Endpoint::parse(&base)?;
        let credential = match environment.get(env::CASCADE_TOKEN) {
            Some(text) if via != CascadeVia::Gemini => {
                let token = Token::parse(text, env::CASCADE_TOKEN)?;
                Credential::Given(token, Origin::Variable(env::CASCADE_TOKEN))
            }
            None if via == CascadeVia::Vertex => Credential::by_host(&endpoint),
            _ => Credential::None,
        };
        let carries_a_secret = via == CascadeVia::Gemini || !matches!(credential, Credential::None);
        if carries_a_secret && !endpoint.may_carry_a_token() {
            return Err(Error::TokenInTheClear { url: endpoint.to_string() });
        }
        let settings =
            Settings::elsewhere(endpoint, model.clone(), timeout, RETRIES, credential, environment);
        let client = match via {
            CascadeVia::Gemini => {
                let key = key.ok_or_else(|| refuse("the Gemini API needs a key in GEMINI_API_KEY"))?;
                Client::with_key(settings, gemini::KEY_HEADER, key)?
            }
            CascadeVia::Openai | CascadeVia::Vertex => Client::new(settings)?,
        };
        let server = Arc::new(Server::new(client, Some(Api::Chat)));
        Ok(Self { via, server, model, route, decides: AtomicBool::new(false) })
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// One request for all these questions. A server that makes decisions writes no JSON of other shapes; it is asked for a decision
    /// instead, as the first model is.
    pub(super) async fn ask(&self, doubt: &Doubt<'_>) -> Result<SecondReply, Error> {
        if self.decides.load(Ordering::Relaxed) {
            return decided::ask(&self.server, doubt).await;
        }
        match self.ask_in_words(doubt).await {
            Err(refusal)
                if refusal.status() == Some(400)
                    && self.via == CascadeVia::Openai
                    && self.server.makes_decisions().await =>
            {
                self.decides.store(true, Ordering::Relaxed);
                decided::ask(&self.server, doubt).await
            }
            asked => asked,
        }
    }

    async fn ask_in_words(&self, doubt: &Doubt<'_>) -> Result<SecondReply, Error> {
        let Doubt { schema, questions, verdict, prior, state } = *doubt;
        let text = prompt::text(schema, questions, verdict, prior, &state.text);
        let body = match self.via {
            CascadeVia::Openai => openai::body(self.model(), &text, questions, state),
            CascadeVia::Gemini | CascadeVia::Vertex => {
                gemini::body(&text, questions, state).map_err(|reason| Error::BadCascade { reason })?
            }
        };
        let client = self.server.client();
        let sent = client.post(&self.route, body).await?;
        let written = match self.via {
            CascadeVia::Openai => openai::written(&sent.body),
            CascadeVia::Gemini | CascadeVia::Vertex => gemini::written(&sent.body),
        };
        let refuse = |reason: &str| {
            let said = client.without_key(&String::from_utf8_lossy(&sent.body));
            no_decision(&sent.url, reason, &said)
        };
        let (text, model) = written.ok_or_else(|| refuse("it holds no text"))?;
        let said = object(&text).ok_or_else(|| refuse("its text is no JSON object"))?;
        let answers = questions
            .iter()
            .map(|question| (question.id.clone(), read(question, said.get(&question.id)).map(Given::Said)))
            .collect();
        Ok(SecondReply { model, answers })
    }
}

/// Goes into the path of a URL as it is.
fn safe(text: &str, what: &str) -> Result<String, Error> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if text.is_empty() || !text.chars().all(allowed) {
        let reason = format!("{what} `{text}` holds characters that no such name has");
        return Err(Error::BadCascade { reason });
    }
    Ok(text.to_owned())
}

/// The first JSON object in the text: some models put fences or words around it.
fn object(text: &str) -> Option<Map<String, Value>> {
    let start = text.find('{')?;
    Map::deserialize(&mut serde_json::Deserializer::from_str(&text[start..])).ok()
}

fn read(question: &Question, said: Option<&Value>) -> Result<Said, String> {
    let said = said.ok_or("no answer came")?;
    let decision = said.get("decision").and_then(Value::as_str).ok_or("its answer has no decision")?;
    if !question.answer_names().contains(&decision) {
        return Err(format!("`{}` is none of the allowed answers", clipped(decision, SHOWN_CHARS)));
    }
    let confidence = said.get("confidence").and_then(Value::as_f64);
    let confidence = confidence
        .filter(|value| (0.0..=1.0).contains(value))
        .ok_or("its answer has no confidence between 0 and 1")?;
    let explanation = said.get("explanation").and_then(Value::as_str).map(str::to_owned);
    Ok(Said { decision: decision.to_owned(), confidence, explanation })
}
