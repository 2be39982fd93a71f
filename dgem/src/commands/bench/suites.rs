//! From the flags of each benchmark to its suite.

use super::run;
use crate::bench::Filter;
use crate::bench::triage::Triage;
use crate::cli::{BenchArgs, ConnectionFlags};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;

pub(in super::super) async fn bench(
    args: BenchArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let filter = Filter { category: args.category, tier: args.tier, ..Filter::default() };
    run(Triage { mode: args.mode }, args.dataset.as_deref(), filter, &args.run, connection, environment).await
}
