//! Measures the cases: some at the same time, each within a deadline, the first question asked once beforehand without counting.
//!
//! Ctrl-C takes no more cases and waits for those in flight; a second one waits for nothing. A key that is refused and a server that is
//! not there end the run as well. What is measured until then is kept.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::decider::Decider;
use super::receipt::{INTERRUPTED, WarmUp};
use super::record::{Record, milliseconds};
use super::suite::{Label, Suite};
use crate::error::Error;
use crate::hopeless::ends_run;
use crate::signals::Signals;

/// A run that is ready to start.
#[derive(Debug)]
pub struct Run<'s, S: Suite, D> {
    pub suite: &'s S,
    pub decider: D,
    pub cases: Vec<(Label, S::Plan)>,
    /// Cases at the same time.
    pub workers: usize,
    /// Longest time of one case, however many requests it makes.
    pub deadline: Duration,
}

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    /// In the order of the dataset; after a stop only those that were measured.
    pub records: Vec<Record>,
    /// Cases that were to be measured.
    pub planned: usize,
    pub elapsed: Duration,
    pub warm_up: Option<WarmUp>,
    /// Why not all of them were.
    pub stop: Option<Stop>,
    pub first_error: Option<Error>,
}

#[derive(Debug)]
pub enum Stop {
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// Every further case would fail in the same way.
    Hopeless(Error),
}

impl Stop {
    /// For a receipt.
    pub fn reason(&self) -> String {
        match self {
            Self::Interrupted => INTERRUPTED.to_owned(),
            Self::Hopeless(error) => error.headline(),
        }
    }
}

impl<S: Suite, D: Decider> Run<'_, S, D> {
    pub async fn run(self) -> Result<Ran, Error> {
        let Self { suite, decider, cases, workers, deadline } = self;
        let mut signals =
            Signals::new().map_err(|cause| Error::System { what: "the handler of signals", cause })?;
        let warm_up = tokio::select! {
            warm_up = warm_up(suite, &decider, &cases, deadline) => warm_up,
            () = signals.next() => {
                return Ok(Ran {
                    records: Vec::new(),
                    planned: cases.len(),
                    elapsed: Duration::ZERO,
                    warm_up: None,
                    stop: Some(Stop::Interrupted),
                    first_error: None,
                });
            }
        };
        let bar = bar(cases.len());
        let (mut flying, mut next) = (FuturesUnordered::new(), cases.iter().enumerate());
        let mut done: Vec<(usize, Record)> = Vec::new();
        let (mut stop, mut first_error) = (None, None);
        let start = Instant::now();
        loop {
            while stop.is_none() && flying.len() < workers.max(1) {
                let Some((index, (label, plan))) = next.next() else { break };
                let decider = &decider;
                flying.push(async move { (index, one(suite, decider, label, plan, deadline).await) });
            }
            tokio::select! {
                finished = flying.next() => {
                    let Some((index, (record, error))) = finished else { break };
                    done.push((index, record));
                    bar.inc(1);
                    if let Some(error) = error {
                        let failed = done.iter().filter(|(_, record)| record.error.is_some()).count();
                        if stop.is_none() && ends_run(&error, (done.len() - failed) as u64, failed as u64) {
                            stop = Some(Stop::Hopeless(error));
                        } else {
                            first_error.get_or_insert(error);
                        }
                    }
                }
                () = signals.next() => {
                    if matches!(stop, Some(Stop::Interrupted)) {
                        break;
                    }
                    stop = Some(Stop::Interrupted);
                }
            }
        }
        bar.finish_and_clear();
        let elapsed = start.elapsed();
        done.sort_by_key(|(index, _)| *index);
        let records: Vec<Record> = done.into_iter().map(|(_, record)| record).collect();
        // What was in flight when the run was to stop may have been all that was left.
        if records.len() == cases.len()
            && let Some(Stop::Hopeless(error)) = stop.take()
        {
            first_error.get_or_insert(error);
        }
        Ok(Ran { records, planned: cases.len(), elapsed, warm_up, stop, first_error })
    }
}

/// A cold server must not spoil the first case. If it fails, the cases will say why.
async fn warm_up<S: Suite, D: Decider>(
    suite: &S,
    decider: &D,
    cases: &[(Label, S::Plan)],
    deadline: Duration,
) -> Option<WarmUp> {
    let sheet = suite.warm_up(&cases.first()?.1)?;
    let start = Instant::now();
    let asked = tokio::time::timeout(deadline, decider.decide(&sheet.schema, &sheet.state)).await;
    let error = match asked {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.headline()),
        Err(_) => Some(late(deadline).headline()),
    };
    Some(WarmUp { decisions: 1, counted: false, wall_time_ms: milliseconds(start.elapsed()), error })
}

async fn one<S: Suite, D: Decider>(
    suite: &S,
    decider: &D,
    label: &Label,
    plan: &S::Plan,
    deadline: Duration,
) -> (Record, Option<Error>) {
    let mut record = Record::new(label);
    let measured = tokio::time::timeout(deadline, suite.measure(plan, decider, &mut record)).await;
    match measured.unwrap_or_else(|_| Err(late(deadline))) {
        Ok(()) => (record, None),
        Err(error) => {
            record.failed(&error);
            (record, Some(error))
        }
    }
}

fn late(deadline: Duration) -> Error {
    Error::CaseTooSlow { seconds: deadline.as_secs_f64() }
}

/// On stderr, if that is a terminal.
fn bar(cases: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(cases as u64), ProgressDrawTarget::stderr_with_hz(5));
    // The form is valid; the plain one is what is left.
    bar.set_style(
        ProgressStyle::with_template("{wide_bar} {pos}/{len} cases, ETA {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::super::dataset::BuiltIn;
    use super::super::decider::fake::Fake;
    use super::super::sheet::{Sheet, Templates};
    use super::*;
    use crate::state::State;

    /// One question; the right answer is yes.
    struct Plain;

    impl Suite for Plain {
        type Row = String;
        type Plan = Sheet;
        const NAME: &'static str = "plain";

        fn built_in(&self) -> BuiltIn {
            BuiltIn { path: "none", text: "" }
        }

        fn label(&self, row: &String) -> Label {
            Label { id: row.clone(), ..Label::default() }
        }

        fn plan(&self, row: String, _: &mut Templates) -> Result<Sheet, Error> {
            let schema =
                decision::Schema::from_json(r#"{"questions": [{"id": "q", "type": "boolean"}]}"#).unwrap();
            let expected = [("q".to_owned(), "yes".to_owned())].into_iter().collect();
            Ok(Sheet { template: None, schema, state: State { text: row, images: Vec::new() }, expected })
        }

        fn warm_up<'p>(&self, plan: &'p Sheet) -> Option<&'p Sheet> {
            Some(plan)
        }

        async fn measure<D: Decider>(
            &self,
            plan: &Sheet,
            decider: &D,
            record: &mut Record,
        ) -> Result<(), Error> {
            if plan.state.text == "slow" {
                std::future::pending::<()>().await;
            }
            plan.ask(decider, record).await?;
            record.accurate = record.all_correct(plan);
            Ok(())
        }

        fn figures(&self, _: &[Record]) -> Map<String, Value> {
            Map::new()
        }
    }

    async fn run(rows: &[&str], workers: usize) -> Ran {
        let mut templates = Templates::default();
        let cases = rows.iter().map(|row| {
            let row = (*row).to_owned();
            (Plain.label(&row), Plain.plan(row, &mut templates).unwrap())
        });
        let decider = Fake(|_, state| match state {
            "down" => Err("nobody there".to_owned()),
            "no" => Ok(json!({"q": {"type": "boolean", "noul": 0.2}})),
            _ => Ok(json!({"q": {"type": "boolean", "noul": 0.9}})),
        });
        let deadline = Duration::from_secs(60);
        Run { suite: &Plain, decider, cases: cases.collect(), workers, deadline }.run().await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn every_case_has_a_record_in_the_order_of_the_dataset_also_the_slow_and_the_broken() {
        for workers in [1, 3] {
            let ran = run(&["yes", "slow", "no", "down", "last"], workers).await;
            let ids: Vec<&str> = ran.records.iter().map(|record| record.id.as_str()).collect();
            assert_eq!(ids, ["yes", "slow", "no", "down", "last"]);
            let right: Vec<bool> = ran.records.iter().map(|record| record.accurate).collect();
            assert_eq!(right, [true, false, false, false, true]);
            assert!(ran.records[1].error.as_ref().unwrap().contains("--case-timeout"));
            assert_eq!((ran.records[1].wall_time_ms, ran.records[2].wall_time_ms), (None, Some(5.0)));
            assert_eq!((ran.planned, ran.stop.is_none(), ran.first_error.is_some()), (5, true, true));
            let warm_up = ran.warm_up.unwrap();
            assert_eq!((warm_up.decisions, warm_up.counted, warm_up.error), (1, false, None));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_ends_early_says_how_much_was_planned_and_why_it_ended() {
        let rows = vec!["down"; 30];
        let ran = run(&rows, 1).await;
        // `Row` is no error of the network: every case is tried.
        assert_eq!((ran.records.len(), ran.planned, ran.stop.is_none()), (30, 30, true));
        let ran = run(&vec!["slow"; 30], 1).await;
        assert_eq!((ran.records.len(), ran.planned), (20, 30));
        assert!(ran.stop.unwrap().reason().contains("not done within"), "the reason is the error");
        // Twenty of twenty: nothing is missing.
        let ran = run(&vec!["slow"; 20], 1).await;
        assert_eq!((ran.records.len(), ran.stop.is_none(), ran.first_error.is_some()), (20, true, true));
    }

    #[tokio::test]
    async fn a_warm_up_that_fails_is_told_and_ends_nothing() {
        let ran = run(&["down", "yes"], 1).await;
        assert_eq!(ran.records.len(), 2);
        assert!(ran.warm_up.unwrap().error.unwrap().contains("nobody there"));
        assert!(run(&[], 1).await.records.is_empty());
    }
}
