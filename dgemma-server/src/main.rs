//! Command line, log, signals; everything else is in the library.
fn main() {}
