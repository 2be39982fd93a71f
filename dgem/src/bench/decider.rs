//! Who decides: a server over HTTP, or a fake in tests.

use std::future::Future;
use std::time::Duration;

use decision::Schema;

use crate::ask::{Prompt, ROUTE, Wanted};
use crate::asking::Answered;
use crate::client::{Completion, excerpt};
use crate::deciding;
use crate::error::Error;
use crate::state::State;

/// Something that answers questions.
pub trait Decider {
    /// One decision.
    fn decide<'a>(
        &self,
        schema: &'a Schema,
        state: &State,
    ) -> impl Future<Output = Result<Answered<'a>, Error>>;

    /// A reply in words, for comparison.
    fn write(&self, prompt: &str, max_tokens: u32) -> impl Future<Output = Result<Written, Error>>;
}

/// A reply in words.
#[derive(Debug, Default)]
pub struct Written {
    pub text: String,
    pub model: Option<String>,
    /// As the server counts them.
    pub tokens: Option<u64>,
    pub wall: Duration,
    pub retries: u32,
}

/// The server of the settings.
#[derive(Debug)]
pub struct Server(pub deciding::Decider);

impl Decider for Server {
    /// As `dgem decide` does it: wide choices in brackets, in as many orders as asked for.
    async fn decide<'a>(&self, schema: &'a Schema, state: &State) -> Result<Answered<'a>, Error> {
        Ok(self.0.decide(schema, state.clone()).await?.answered)
    }

    async fn write(&self, prompt: &str, max_tokens: u32) -> Result<Written, Error> {
        let client = self.0.server.client();
        let prompt = Prompt { system: None, state: State { text: prompt.to_owned(), images: Vec::new() } };
        let wanted = Wanted { max_tokens: Some(max_tokens), ..Wanted::default() };
        let sent = client.post(ROUTE, prompt.body(client.settings().model.as_deref(), wanted)).await?;
        let completion = Completion::parse(&sent.body).map_err(|cause| Error::NoCompletion {
            url: sent.url,
            reason: cause.to_string(),
            excerpt: excerpt(&String::from_utf8_lossy(&sent.body)),
        })?;
        Ok(Written {
            text: completion.text.unwrap_or_default(),
            model: completion.model,
            tokens: completion.completion_tokens,
            wall: sent.wall,
            retries: sent.tally.retries,
        })
    }
}

/// Answers as a function says, at once.
#[cfg(test)]
pub(crate) mod fake {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::{Decided, Reply, Tally};
    use crate::verdict::Verdict;

    /// The answers to a schema about a state, or the message of a failure.
    pub(crate) type Rule = fn(&Schema, &str) -> Result<Value, String>;

    pub(crate) struct Fake(pub(crate) Rule);

    impl Decider for Fake {
        async fn decide<'a>(&self, schema: &'a Schema, state: &State) -> Result<Answered<'a>, Error> {
            let answers = (self.0)(schema, &state.text).map_err(|reason| Error::Row { reason })?;
            let map = answers.as_object().cloned().unwrap_or_default();
            let timing = json!({"timing": {"denoise_ms": 3.0, "prefill_ms": 1.0}, "samples": {"n": 1}});
            let reply = Reply::new(map, timing, Some("fake".to_owned()), None);
            let verdict = Verdict::new(schema, &reply);
            let decided = Decided {
                reply,
                wall: Duration::from_millis(5),
                url: String::new(),
                tally: Tally { attempts: 1, ..Tally::default() },
            };
            Ok(Answered { decided, verdict })
        }

        async fn write(&self, prompt: &str, _max_tokens: u32) -> Result<Written, Error> {
            let said = (self.0)(&Schema::default(), prompt).map_err(|reason| Error::Row { reason })?;
            let wall = Duration::from_millis(50);
            Ok(Written { text: said.to_string(), tokens: Some(10), wall, ..Written::default() })
        }
    }
}
