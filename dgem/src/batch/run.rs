//! The loop: takes jobs from the feeder, keeps requests in flight, writes what comes back, and knows when to stop.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use indexmap::IndexSet;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::concurrency::Concurrency;
use super::feeder::Job;
use super::record::{Record, Status};
use super::{Feeder, Progress, Reasons, Report, Sink, Tally};
use crate::cli::Api;
use crate::deciding::{Decider, other_model};
use crate::error::Error;
use crate::fallback;
use crate::hopeless::ends_run;
use crate::manner::Manner;
use crate::signals::Signals;
use crate::temper::Calibration;

/// Between two looks at the disk and the bar.
const TICK: Duration = Duration::from_millis(200);
/// Lines that may wait for an earlier one before nothing new is started.
const MOST_WAITING: usize = 4_096;
/// Things about the server that are told.
const MOST_NOTICES: usize = 4;

/// One batch, ready to start.
#[derive(Debug)]
pub struct Run {
    pub decider: Decider,
    pub feeder: Feeder,
    /// With its file.
    pub calibration: Option<(PathBuf, Calibration)>,
    pub sink: Sink,
    pub progress: Progress,
    /// With what an earlier run has found.
    pub report: Report,
    pub jobs: u16,
    pub max_errors: Option<u64>,
}

/// What a batch came to.
#[derive(Debug)]
pub struct Ended {
    pub tally: Tally,
    pub reasons: Reasons,
    pub report: Report,
    /// Why it ended before the input did.
    pub stop: Option<Stop>,
}

#[derive(Debug)]
pub enum Stop {
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// As many rows failed as are allowed; the error of the last one where no row worked.
    TooManyErrors { most: u64, error: Option<Error> },
    /// Every further row would fail in the same way.
    Hopeless(Error),
    /// The input or the output broke.
    Broken(Error),
}

/// One row that came back.
struct Finished {
    place: u64,
    record: Record,
    wall: Option<Duration>,
    /// The server said so at least once.
    busy: bool,
    error: Option<Error>,
    /// The model that answered.
    model: Option<String>,
}

impl Run {
    /// Runs to the end of the input or to a reason to stop; requests in flight are always waited for, unless a second signal
    /// comes. Runs inside a `LocalSet`: all of it shares one thread. Errors: it could not be started.
    pub async fn run(self) -> Result<Ended, Error> {
        let Self { decider, feeder, calibration, mut sink, progress, mut report, jobs, max_errors } = self;
        let mut signals =
            Signals::new().map_err(|cause| Error::System { what: "the handler of signals", cause })?;
        let mut chunks = feeder.start(sink.key())?;
        let mut concurrency = Concurrency::new(jobs);
        let (mut tally, mut reasons) = (Tally::new(), Reasons::default());
        let decider = Arc::new(decider);
        let calibration = Arc::new(calibration);
        let wanted = decider.server.client().settings().model.as_deref();
        let plain_is_news = decider.server.api().is_none();
        // Each is told once.
        let (mut notices, mut told) = (IndexSet::new(), 0);
        let mut ready: VecDeque<Job> = VecDeque::new();
        let mut flying: JoinSet<Finished> = JoinSet::new();
        let mut stop = None;
        let mut ended = false;
        let mut broken = None;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let go_on = stop.is_none() && broken.is_none();
            while go_on && flying.len() < concurrency.limit() && sink.waiting() < MOST_WAITING {
                let Some(job) = ready.pop_front() else { break };
                let (decider, calibration) = (Arc::clone(&decider), Arc::clone(&calibration));
                flying.spawn_local(whole(job, |job| decide(decider, calibration, job)));
            }
            if flying.is_empty() && (!go_on || (ended && ready.is_empty())) {
                break;
            }
            tokio::select! {
                Some(finished) = flying.join_next(), if !flying.is_empty() => {
                    // Nothing aborts a task, and a panic has become a record.
                    let Ok(finished) = finished else { tally.add(false, None); continue };
                    concurrency.ended(finished.busy, Instant::now());
                    let ok = finished.record.status == Status::Ok;
                    tally.add(ok, finished.wall);
                    report.add(&finished.record);
                    if let Some(reason) = &finished.record.error {
                        reasons.add(reason);
                    }
                    notices.extend(finished.model.and_then(|model| other_model(wanted, Some(&model))));
                    if plain_is_news && decider.server.api() == Some(Api::Openai) {
                        notices.insert(fallback::WARNING.to_owned());
                    }
                    if broken.is_none() {
                        broken = sink.put(finished.place, finished.record.line()).err();
                    }
                    if stop.is_none() {
                        stop = reason(&tally, max_errors, finished.error);
                    }
                }
                chunk = chunks.recv(), if ready.is_empty() && !ended && go_on => match chunk {
                    Some(Ok(chunk)) => {
                        chunk.warnings.iter().for_each(|text| progress.warn(text));
                        ready.extend(chunk.jobs);
                        ended = chunk.last;
                    }
                    Some(Err(error)) => broken = Some(error),
                    // It always says which chunk is the last.
                    None => broken = Some(Error::BatchRead { cause: io::ErrorKind::UnexpectedEof.into() }),
                },
                () = signals.next() => {
                    if matches!(stop, Some(Stop::Interrupted)) {
                        break;
                    }
                    stop = Some(Stop::Interrupted);
                }
                _ = tick.tick() => {
                    tell(&progress, &notices, &mut told);
                    progress.show(&tally);
                    if broken.is_none() {
                        broken = sink.sync_when_due().err();
                    }
                }
            }
        }
        progress.clear();
        tell(&progress, &notices, &mut told);
        let broken = broken.or(sink.finish().err());
        Ok(Ended { tally, reasons, report, stop: broken.map(Stop::Broken).or(stop) })
    }
}

/// Tells those that are new, and no more than a few in all: what a server says of itself may change with every row.
fn tell(progress: &Progress, notices: &IndexSet<String>, told: &mut usize) {
    let most = notices.len().min(MOST_NOTICES);
    (*told..most).filter_map(|index| notices.get_index(index)).for_each(|text| progress.warn(text));
    *told = most;
}

/// Whether the last row is a reason to start no more.
fn reason(tally: &Tally, max_errors: Option<u64>, error: Option<Error>) -> Option<Stop> {
    let error = error?;
    if ends_run(&error, tally.ok, tally.errors) {
        return Some(Stop::Hopeless(error));
    }
    max_errors.filter(|most| tally.errors >= (*most).max(1)).map(|most| Stop::TooManyErrors {
        most,
        // Where nothing worked, the error of the last row says how the run ended.
        error: Some(error).filter(|_| tally.ok == 0),
    })
}

/// What comes of the job, also of one whose work panics: with a gap in its place a run that keeps the order would wait for ever.
async fn whole<F: Future<Output = Finished>>(job: Job, work: impl FnOnce(Job) -> F) -> Finished {
    let (place, id, expected) = (job.place, job.id.clone(), job.expected.clone());
    let mut work = pin!(work(job));
    let caught = poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.map_or_else(|_| Poll::Ready(None), |polled| polled.map(Some))
    });
    caught.await.unwrap_or_else(|| {
        // The panic itself is on stderr already.
        let reason = "a fault of this program stopped the row; its cause is on stderr".to_owned();
        let record = Record::failed(id, expected, reason.clone());
        Finished { place, record, wall: None, busy: false, error: Some(Error::Row { reason }), model: None }
    })
}

async fn decide(
    decider: Arc<Decider>,
    calibration: Arc<Option<(PathBuf, Calibration)>>,
    job: Job,
) -> Finished {
    let Job { place, id, request, expected } = job;
    let failed =
        |record, busy, error| Finished { place, record, wall: None, busy, error: Some(error), model: None };
    let (schema, state) = match request {
        Ok(request) => request,
        Err(reason) => {
            let error = Error::Row { reason: reason.clone() };
            return failed(Record::failed(id, expected, reason), false, error);
        }
    };
    let calibration = calibration.as_ref().as_ref();
    let fits = calibration
        .map_or(Ok(()), |(path, one)| one.fits_reading(path, &Manner::of(&schema, decider.orders)));
    if let Err(error) = fits {
        return failed(Record::failed(id, expected, error.to_string()), false, error);
    }
    let decided = decider.decide(&schema, state).await.and_then(|mut whole| {
        let apply = |(path, one): &(PathBuf, Calibration)| one.apply(path, &schema, &mut whole.answered);
        let applied = calibration.map(apply).transpose()?;
        Ok((whole, applied))
    });
    match decided {
        Ok((mut whole, applied)) => {
            let decided = &mut whole.answered.decided;
            let (wall, busy, model) = (decided.wall, decided.tally.busy > 0, decided.reply.model.take());
            let record = Record::answered(id, expected, &schema, whole, applied.as_ref());
            let error = record.error.clone().map(|reason| Error::Row { reason });
            Finished { place, record, wall: Some(wall), busy, error, model }
        }
        Err(error) => {
            let busy = matches!(error.status(), Some(429 | 503));
            failed(Record::failed(id, expected, error.to_string()), busy, error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_row_whose_work_panics_is_a_row_that_failed() {
        let job = |place| Job {
            place,
            id: format!("r{place}"),
            request: Err("no request".to_owned()),
            expected: serde_json::Map::new(),
        };
        let broken = whole(job(7), |_| async { panic!("on purpose") }).await;
        assert_eq!((broken.place, broken.record.id.as_str(), broken.record.status), (7, "r7", Status::Error));
        assert!(broken.record.error.is_some() && broken.error.is_some());
        let plain = whole(job(8), async |job| {
            tokio::task::yield_now().await;
            let record = Record::failed(job.id, job.expected, "as told".to_owned());
            Finished { place: job.place, record, wall: None, busy: true, error: None, model: None }
        });
        let plain = plain.await;
        assert_eq!((plain.place, plain.busy, plain.record.error.as_deref()), (8, true, Some("as told")));
    }
}
