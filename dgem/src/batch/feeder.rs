//! Turns rows into requests, ahead of the network, on a thread of its own.
//!
//! Several rows are rendered together, because a template renders on a thread of its own each time. What waits to be sent is
//! bounded, so that memory does not grow with the input.

use std::collections::HashSet;
use std::io;
use std::thread;
use std::time::Duration;

use decision::{Schema, closest};
use serde_json::{Map, Value};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::Shard;
use super::rows::{Content, Row, Rows};
use crate::error::Error;
use crate::foreign::visible;
use crate::guard;
use crate::image::Image;
use crate::overrides::Overrides;
use crate::state::State;
use crate::template::{Request, Template};
use crate::variables::Variables;

/// The column with pictures of a row: one, or a list of them. For a template that reads a variable of this name it is that.
const IMAGE: &str = "image";

/// Rows rendered together, and bytes of them.
const CHUNK_ROWS: usize = 128;
const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks that may wait.
const WAITING: usize = 2;

/// One row, ready to be sent.
#[derive(Debug)]
pub(super) struct Job {
    /// Position in the output when the order is kept, from 0 without gaps.
    pub(super) place: u64,
    pub(super) id: String,
    /// What to send, or why it cannot be.
    pub(super) request: Result<(Schema, State), String>,
    /// Question id → right answer.
    pub(super) expected: Map<String, Value>,
}

/// Everything that is needed to turn rows into jobs.
#[derive(Debug)]
pub struct Feeder {
    pub rows: Rows,
    pub template: Template,
    /// Values for names that a row does not have.
    pub variables: Variables,
    /// What the flags say about the reading.
    pub overrides: Overrides,
    /// In front of those of a row.
    pub images: Vec<Image>,
    /// No picture of a row takes longer to draw.
    pub timeout: Duration,
    pub shard: Shard,
    /// Keys of ids (`sink::key`) that need no answer any more.
    pub done: HashSet<u64>,
}

/// The next jobs, and what is to be told about their rows.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) jobs: Vec<Job>,
    pub(super) warnings: Vec<String>,
    /// The input ends here.
    pub(super) last: bool,
}

/// A row of this shard that is not done.
struct Open {
    id: String,
    content: Result<Content, String>,
    images: Vec<Image>,
}

/// Names that the template does not use and that are told; rows may have any number of them.
const TOLD_NAMES: usize = 8;

struct Reader {
    feeder: Feeder,
    seen: HashSet<u64>,
    place: u64,
    /// Names that the template uses.
    known: HashSet<String>,
    /// Names that it does not use, as far as they are told.
    told: HashSet<String>,
    told_of_images: bool,
    /// Questions that rows expect an answer to and the template does not ask, as far as they are told.
    told_questions: HashSet<String>,
}

impl Feeder {
    /// Starts the thread. The receiver gives chunks until the last one, or until the input fails.
    pub(super) fn start(
        self,
        key: impl Fn(&str) -> u64 + Send + 'static,
    ) -> Result<Receiver<Result<Chunk, Error>>, Error> {
        let (sender, receiver) = channel(WAITING);
        let known = self.template.known().into_iter().map(str::to_owned).collect();
        let state = Reader {
            feeder: self,
            seen: HashSet::new(),
            place: 0,
            known,
            told: HashSet::new(),
            told_of_images: false,
            told_questions: HashSet::new(),
        };
        thread::Builder::new()
            .name("rows".to_owned())
            .spawn(move || {
                if let Err(cause) = guard::without_panic(|| state.run(&sender, key)) {
                    let reason = format!("the thread that reads them has a fault ({cause})");
                    let _ = sender.blocking_send(Err(Error::BatchRead { cause: io::Error::other(reason) }));
                }
            })
            .map_err(|cause| Error::System { what: "the thread that reads the rows", cause })?;
        Ok(receiver)
    }
}

impl Reader {
    fn run(mut self, sender: &Sender<Result<Chunk, Error>>, key: impl Fn(&str) -> u64) {
        loop {
            let chunk = self.chunk(&key);
            let ended = chunk.as_ref().map_or(true, |chunk| chunk.last);
            // Nobody listens any more when the run was stopped.
            if sender.blocking_send(chunk).is_err() || ended {
                return;
            }
        }
    }

    /// The next rows of this shard that are not done, rendered.
    fn chunk(&mut self, key: &impl Fn(&str) -> u64) -> Result<Chunk, Error> {
        let (mut rows, mut bytes, mut last) = (Vec::new(), 0, false);
        while rows.len() < CHUNK_ROWS && bytes < CHUNK_BYTES && !last {
            match self.feeder.rows.next().map_err(|cause| Error::BatchRead { cause })? {
                Some(row) => {
                    if let Some((row, weight)) = self.take(row, key) {
                        rows.push(row);
                        bytes += weight;
                    }
                }
                None => last = true,
            }
        }
        let (jobs, warnings) = self.render(rows);
        Ok(Chunk { jobs, warnings, last })
    }

    /// The row with its bytes, unless it is another shard's or done. An id that is there twice is told in every run, whatever is
    /// done: its second row gets a name of its own, lest it hides the first one's answers.
    fn take(&mut self, row: Row, key: &impl Fn(&str) -> u64) -> Option<(Open, u64)> {
        let Row { number, mut id, mut content } = row;
        let key = key(&id);
        let again = !self.seen.insert(key);
        if !self.feeder.shard.takes(number) || (!again && self.feeder.done.contains(&key)) {
            return None;
        }
        if again {
            content = Err(format!("an earlier row has the id `{id}` too"));
            id = format!("{id} (row {})", number + 1);
        }
        let (mut images, mut weight) = (Vec::new(), 0);
        let content = content.and_then(|mut content| {
            images = self.images(&mut content.variables)?;
            let variables = Variables::from_map(content.variables).or_else(self.feeder.variables.as_map());
            weight =
                variables.weight_bytes() + images.iter().map(|image| image.url.len() as u64).sum::<u64>();
            content.variables = variables.into_map();
            Ok(content)
        });
        Some((Open { id, content, images }, weight))
    }

    /// The pictures of all rows, and those that this one names.
    fn images(&self, columns: &mut Map<String, Value>) -> Result<Vec<Image>, String> {
        let named = if self.known.contains(IMAGE) { None } else { columns.shift_remove(IMAGE) };
        let names: Vec<String> = match named {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(name)) if name.trim().is_empty() => Vec::new(),
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
                names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            Some(_) => {
                return Err(
                    "its `image` is neither a file, a data URI or a URL nor a list of them".to_owned()
                );
            }
        };
        let own = Image::load_all(&names, self.feeder.timeout).map_err(|error| error.to_string())?;
        Ok(self.feeder.images.iter().cloned().chain(own).collect())
    }

    fn render(&mut self, rows: Vec<Open>) -> (Vec<Job>, Vec<String>) {
        let (mut variables, mut warnings, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
        let mut open = Vec::new();
        for Open { id, content, images } in rows {
            let (expected, names) = match content {
                Ok(Content { variables: values, expected }) => {
                    let values = Variables::from_map(values);
                    let unknown = self.new_names(&values);
                    variables.push((values, !images.is_empty()));
                    (expected, Ok(unknown))
                }
                Err(reason) => (Map::new(), Err(reason)),
            };
            open.push((id, expected, images, names));
        }
        let mut requests = self.feeder.template.requests(variables).into_iter();
        for (id, expected, images, names) in open {
            let request = names.and_then(|unknown| {
                // As many requests as rows without a reason.
                let missing = || Err(Error::BatchRead { cause: io::ErrorKind::UnexpectedEof.into() });
                let request = requests.next().unwrap_or_else(missing).map_err(|error| error.to_string())?;
                if !request.state_holds_variables {
                    unknown.into_iter().for_each(|name| self.tell(name, &mut warnings));
                }
                if images.is_empty() && self.feeder.template.metadata().image {
                    self.tell_of_images(&mut warnings);
                }
                let Request { mut schema, state, .. } = request;
                self.feeder.overrides.apply(&mut schema);
                expected.keys().for_each(|id| self.tell_of_question(id, &schema, &mut warnings));
                Ok((schema, State { text: state, images }))
            });
            jobs.push(Job { place: self.place, id, request, expected });
            self.place += 1;
        }
        (jobs, warnings)
    }

    fn tell_of_images(&mut self, warnings: &mut Vec<String>) {
        if !std::mem::replace(&mut self.told_of_images, true) {
            let path = self.feeder.template.path().display();
            warnings.push(format!(
                "{path} expects an image, and a row has none (a column `{IMAGE}`, or -I for all rows)"
            ));
        }
    }

    /// A misspelt question would be known only at the end, from a report without it.
    fn tell_of_question(&mut self, id: &str, schema: &Schema, warnings: &mut Vec<String>) {
        let mut asked = schema.questions.iter().map(|question| question.id.as_str());
        if self.told_questions.len() >= TOLD_NAMES || asked.clone().any(|known| known == id) {
            return;
        }
        if self.told_questions.insert(id.to_owned()) {
            let path = self.feeder.template.path().display();
            let meant = match closest(id, asked.clone()) {
                Some(meant) => format!("did you mean `expected_{meant}`?"),
                None => format!("it asks {}", asked.by_ref().collect::<Vec<_>>().join(", ")),
            };
            let id = visible(id);
            warnings.push(format!("rows have `expected_{id}`, and {path} has no question `{id}`; {meant}"));
        }
    }

    /// Names in a row that the template does not use and that are not told yet.
    fn new_names(&self, values: &Variables) -> Vec<String> {
        let new = |name: &&str| !self.known.contains(*name) && !self.told.contains(*name);
        values.names().filter(new).map(str::to_owned).collect()
    }

    /// A misspelt column would silently leave a default in place.
    fn tell(&mut self, name: String, warnings: &mut Vec<String>) {
        if self.told.len() < TOLD_NAMES && !self.told.contains(&name) {
            warnings.push(self.feeder.template.does_not_use(&name));
            self.told.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fault_of_the_thread_that_reads_is_an_error_and_not_the_end_of_the_input() {
        let folder = tempfile::tempdir().unwrap();
        let (rows, policy) = (folder.path().join("a.jsonl"), folder.path().join("p.json.tmpl"));
        std::fs::write(&rows, "{\"id\": 1}\n").unwrap();
        std::fs::write(
            &policy,
            r#"{"schema": {"questions": [{"id": "q", "type": "boolean"}]}, "state": "x"}"#,
        )
        .unwrap();
        let feeder = Feeder {
            rows: Rows::open(&rows, None).unwrap(),
            template: Template::load(&policy).unwrap(),
            variables: Variables::default(),
            overrides: Overrides::default(),
            images: Vec::new(),
            timeout: Duration::from_secs(1),
            shard: Shard { index: 0, count: 1 },
            done: HashSet::new(),
        };
        let mut chunks = feeder.start(|_| panic!("on purpose")).unwrap();
        let error = chunks.recv().await.unwrap().unwrap_err().to_string();
        assert!(error.contains("broke off") && error.contains("on purpose"), "{error}");
    }
}
