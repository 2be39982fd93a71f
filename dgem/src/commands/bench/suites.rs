//! From the flags of each benchmark to its suite.

use std::path::Path;

use super::super::warn;
use super::run;
use crate::bench::ecotone::{Ecotone, Sidecar};
use crate::bench::epistemic::{Epistemic, First, Second};
use crate::bench::intents::Intents;
use crate::bench::permutation::{DEFAULT_GATE, GATE, Permutation};
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
        None | Some("live") => None,
        Some(path) => Some(First::load(Path::new(path))?),
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
    let (corpus, download) = if args.full {
        let (corpus, download) =
            public_sets::full(args.dataset, &args.mirror, args.sha256.as_deref(), environment).await?;
        (Some(corpus), Some(download))
    } else {
        (args.corpus, None)
    };
    let suite = Intents {
        set: args.dataset,
        tie_break: args.tie_break,
        threshold_nats: args.entropy_threshold,
        finalists: usize::from(args.tie_break_top),
        download,
    };
    let filter = Filter { category: args.category, ..Filter::default() };
    run(suite, corpus.as_deref(), filter, &args.run, connection, environment).await
}

/// What was typed, else that of the receipt, else 16 %.
fn gate(args: &BenchPermutationArgs) -> Result<f64, Error> {
    if let Some(text) = &args.gate_threshold {
        return share::parse("--gate-threshold", text);
    }
    let receipt = args.run.from_receipt.as_deref().map(|path| Receipt::load_for(path, Permutation::NAME));
    let measured = receipt.transpose()?.and_then(|receipt| receipt.origin.settings.get(GATE)?.as_f64());
    Ok(measured.unwrap_or(DEFAULT_GATE))
}

pub(in super::super) async fn permutation(
    args: BenchPermutationArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    if args.run.read.permute.is_some() {
        let reason = "it would average over the orders, and how they differ is what is measured";
        return Err(Error::FlagWithoutSense { flag: "--permute", command: Permutation::NAME, reason });
    }
    let suite = Permutation { gate: gate(&args)? };
    let filter = Filter { category: args.category, ..Filter::default() };
    run(suite, args.dataset.as_deref(), filter, &args.run, connection, environment).await
}
