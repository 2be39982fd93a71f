//! Which build this is. Shown by `--version` and `/health`.

/// Version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit it was built from, or `unknown`.
pub const GIT_REVISION: &str = env!("GIT_REVISION");
/// Both, for `--version`.
pub const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (git ", env!("GIT_REVISION"), ")");
