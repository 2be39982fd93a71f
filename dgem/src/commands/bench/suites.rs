//! From the flags of each benchmark to its suite.

use std::collections::HashMap;
use std::path::Path;

use super::super::warn;
use super::run;
use crate::bench::ecotone::{Ecotone, Sidecar};
use crate::bench::epistemic::{Epistemic, Second};
use crate::bench::intents::Intents;
use crate::bench::permutation::Permutation;
use crate::bench::public_sets;
use crate::bench::triage::Triage;
use crate::bench::{Filter, Receipt, Suite};
use crate::cascade::{Cascade, Threshold};
use crate::cli::{
    BenchArgs, BenchCalibrationArgs, BenchEcotoneArgs, BenchIntentsArgs, BenchPermutationArgs, CascadeMode,
    ConnectionFlags,
};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::share;

pub(in super::super) async fn bench(
    args: BenchArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let filter = Filter { category: args.category, tier: args.tier, ..Filter::default() };
    run(Triage { mode: args.mode }, args.dataset.as_deref(), filter, &args.run, connection, environment).await
}

pub(in super::super) async fn calibration(
    args: BenchCalibrationArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let mut cascade = args.cascade;
    if args.cascade_from.is_some() && cascade.cascade == CascadeMode::Off {
        cascade.cascade = CascadeMode::Entropy;
    }
    let second = match args.cascade_self_think {
        Some(tokens) => Some(Second::Thinking {
            tokens,
            threshold: Threshold::parse(cascade.cascade_threshold.as_deref())?,
            prior: cascade.cascade_prior,
        }),
        None => Cascade::new(&cascade, false, environment)?.map(|cascade| Second::Other(Box::new(cascade))),
    };
    if second.is_some() && args.run.from_receipt.is_some() {
        let reason =
            "--from-receipt asks nobody; --cascade-from RECEIPT asks the second model alone".to_owned();
        return Err(Error::BadCascade { reason });
    }
    let first = match args.cascade_from.as_deref() {
        None | Some("live") => HashMap::new(),
        Some(path) => {
            let receipt = Receipt::load_for(Path::new(path), Epistemic::NAME)?;
            receipt.cases.into_iter().map(|case| (case.id.clone(), case)).collect()
        }
    };
    let filter = Filter { category: args.category, tier: args.tier, ..Filter::default() };
    let suite = Epistemic { second, first };
    run(suite, args.dataset.as_deref(), filter, &args.run, connection, environment).await
}

pub(in super::super) async fn ecotone(
    args: BenchEcotoneArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let sidecar = if args.run.from_receipt.is_some() {
        Err("the receipt has no figures of it".to_owned())
    } else {
        Sidecar::connect(&args.ecotone_addr).await
    };
    if let (Err(reason), None) = (&sidecar, &args.run.from_receipt) {
        warn(&format!("ecotone is not measured: {reason}"));
    }
    let filter = Filter { category: args.category, ..Filter::default() };
    let suite = Ecotone { address: args.ecotone_addr, sidecar };
    run(suite, args.corpus.as_deref(), filter, &args.run, connection, environment).await
}

pub(in super::super) async fn intents(
    args: BenchIntentsArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let suite = Intents {
        set: args.dataset,
        tie_break: args.tie_break,
        threshold_nats: args.entropy_threshold,
        finalists: usize::from(args.tie_break_top),
    };
    let corpus = if args.full && args.run.from_receipt.is_none() {
        Some(public_sets::full(args.dataset, &args.mirror, environment).await?)
    } else {
        args.corpus
    };
    let filter = Filter { category: args.category, ..Filter::default() };
    run(suite, corpus.as_deref(), filter, &args.run, connection, environment).await
}

pub(in super::super) async fn permutation(
    args: BenchPermutationArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let suite = Permutation { gate: share::parse("--gate-threshold", &args.gate_threshold)? };
    let filter = Filter { category: args.category, ..Filter::default() };
    run(suite, args.dataset.as_deref(), filter, &args.run, connection, environment).await
}
