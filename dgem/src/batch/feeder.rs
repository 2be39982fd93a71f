//! Turns rows into requests, ahead of the network, on a thread of its own.
//!
//! Several rows are rendered together, because the sandbox of the template takes a thread each time. What waits to be sent is
//! bounded, so that memory does not grow with the input.

use std::collections::HashSet;
use std::thread;

use serde_json::{Map, Value};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::Shard;
use super::rows::{Content, Row, Rows};
use crate::error::Error;
use crate::template::{Request, Template};
use crate::variables::Variables;

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
    pub(super) request: Result<Request, String>,
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
    pub shard: Shard,
    /// Keys of ids (`sink::key`) that need no answer any more.
    pub done: HashSet<u64>,
}

/// The next jobs, and what is to be told about their rows.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) jobs: Vec<Job>,
    pub(super) warnings: Vec<String>,
}

/// Names that the template does not use and that are told; rows may have any number of them.
const TOLD_NAMES: usize = 8;

struct State {
    feeder: Feeder,
    seen: HashSet<u64>,
    place: u64,
    /// Names that the template uses.
    known: HashSet<String>,
    /// Names that it does not use, as far as they are told.
    told: HashSet<String>,
}

impl Feeder {
    /// Starts the thread. The receiver gives chunks until the input ends or fails.
    pub(super) fn start(
        self,
        key: impl Fn(&str) -> u64 + Send + 'static,
    ) -> Result<Receiver<Result<Chunk, Error>>, Error> {
        let (sender, receiver) = channel(WAITING);
        let known = self.template.known().into_iter().map(str::to_owned).collect();
        let state = State { feeder: self, seen: HashSet::new(), place: 0, known, told: HashSet::new() };
        thread::Builder::new()
            .name("rows".to_owned())
            .spawn(move || state.run(&sender, key))
            .map_err(|cause| Error::System { what: "the thread that reads the rows", cause })?;
        Ok(receiver)
    }
}

impl State {
    fn run(mut self, sender: &Sender<Result<Chunk, Error>>, key: impl Fn(&str) -> u64) {
        loop {
            let (chunk, ended) = self.chunk(&key);
            // Nobody listens any more when the run was stopped.
            if sender.blocking_send(chunk).is_err() || ended {
                return;
            }
        }
    }

    /// The next rows of this shard that are not done, rendered.
    fn chunk(&mut self, key: &impl Fn(&str) -> u64) -> (Result<Chunk, Error>, bool) {
        let (mut rows, mut bytes, mut ended) = (Vec::new(), 0, false);
        while rows.len() < CHUNK_ROWS && bytes < CHUNK_BYTES {
            match self.feeder.rows.next() {
                Ok(Some(row)) => {
                    if let Some((row, weight)) = self.take(row, key) {
                        rows.push(row);
                        bytes += weight;
                    }
                }
                Ok(None) => {
                    ended = true;
                    break;
                }
                Err(cause) => return (Err(Error::BatchRead { cause }), true),
            }
        }
        (Ok(self.render(rows)), ended)
    }

    /// The row with its bytes, unless it is another shard's or done.
    fn take(&mut self, mut row: Row, key: &impl Fn(&str) -> u64) -> Option<(Row, u64)> {
        if !self.feeder.shard.takes(row.number) {
            return None;
        }
        let id = key(&row.id);
        if self.feeder.done.contains(&id) {
            return None;
        }
        if !self.seen.insert(id) {
            row.content = Err(format!("an earlier row has the id `{}` too", row.id));
        }
        let weight = match &mut row.content {
            Ok(content) => {
                let variables = Variables::from_map(std::mem::take(&mut content.variables))
                    .or_else(self.feeder.variables.as_map());
                let weight = variables.weight_bytes();
                content.variables = variables.into_map();
                weight
            }
            Err(_) => 0,
        };
        Some((row, weight))
    }

    fn render(&mut self, rows: Vec<Row>) -> Chunk {
        let mut variables = Vec::new();
        let mut warnings = Vec::new();
        let mut open = Vec::new();
        for row in rows {
            let (expected, reason) = match row.content {
                Ok(Content { variables: values, expected }) => {
                    let values = Variables::from_map(values);
                    let unknown = self.new_names(&values);
                    variables.push(values);
                    (expected, Ok(unknown))
                }
                Err(reason) => (Map::new(), Err(reason)),
            };
            open.push((row.id, expected, reason));
        }
        let mut requests = self.feeder.template.requests_with_state(variables).into_iter();
        let mut jobs = Vec::new();
        for (id, expected, unknown) in open {
            let request = match unknown {
                Err(reason) => Err(reason),
                // As many requests as rows without a reason.
                Ok(unknown) => {
                    let missing =
                        || Err(Error::BatchRead { cause: std::io::ErrorKind::UnexpectedEof.into() });
                    let request = requests.next().unwrap_or_else(missing);
                    if request.as_ref().is_ok_and(|request| !request.state_holds_variables) {
                        unknown.into_iter().for_each(|name| self.tell(name, &mut warnings));
                    }
                    request.map_err(|error| error.to_string())
                }
            };
            jobs.push(Job { place: self.place, id, request, expected });
            self.place += 1;
        }
        Chunk { jobs, warnings }
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
