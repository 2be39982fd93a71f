//! What the flags say about the reading, put in place of what the template says.
//!
//! `commands::decide` and `commands::batch` read the flags once, before anything else, and apply them to every schema.

use decision::{Layout, Samples, Schema};

use crate::cli::ReadFlags;
use crate::error::Error;
use crate::template::client_limits;

/// The values that were given.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    samples: Option<Samples>,
    layout: Option<Layout>,
    think: Option<u32>,
    seed: Option<u64>,
}

impl Overrides {
    /// Errors: a value that no schema may have.
    pub fn new(flags: &ReadFlags) -> Result<Self, Error> {
        if flags.permute == Some(0) {
            return Err(Error::BadPermute);
        }
        Ok(Self {
            samples: flags.samples.as_deref().map(samples).transpose()?,
            layout: flags.layout.as_deref().map(layout).transpose()?,
            think: flags.think,
            seed: flags.seed,
        })
    }

    pub fn apply(&self, schema: &mut Schema) {
        if let Some(samples) = self.samples {
            schema.samples = samples;
        }
        if let Some(layout) = self.layout {
            schema.layout = layout;
        }
        if let Some(tokens) = self.think {
            schema.think = tokens;
        }
        if self.seed.is_some() {
            schema.seed = self.seed;
        }
    }
}

fn layout(text: &str) -> Result<Layout, Error> {
    [Layout::SchemaFirst, Layout::DocumentFirst]
        .into_iter()
        .find(|layout| layout.as_str() == text.replace('-', "_"))
        .ok_or_else(|| Error::BadLayout { value: text.to_owned() })
}

fn samples(text: &str) -> Result<Samples, Error> {
    let most = client_limits().max_reads;
    match text.trim() {
        "auto" => Ok(Samples::Auto),
        number => number
            .parse()
            .ok()
            .filter(|count| (1..=most).contains(count))
            .map(Samples::Fixed)
            .ok_or_else(|| Error::BadSamples { value: text.to_owned(), most }),
    }
}
