//! Hosts `DiffusionGemma` behind an OpenAI-compatible HTTP API with typed decisions.

pub mod engine;
