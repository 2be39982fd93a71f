//! decision
