//! Replies from beginning to end: the simplest caller of [`Generation`], for tests, benchmarks and one-shot commands. A server
//! drives generations itself, one pass at a time.

use super::generation::{Block, Generation, Progress};
use crate::error::{Error, Result};
use crate::forward::Segment;
use crate::kv::Prefix;
use crate::model::Model;

/// A reply to make.
#[derive(Debug)]
pub struct Reply<'a> {
    /// Ids of the rendered prompt.
    pub prompt: &'a [u32],
    /// Its state; finished afterwards.
    pub generation: &'a mut Generation,
}

/// Makes one reply. `on_block` gets every block as it is committed.
pub fn generate(
    model: &Model,
    prompt: &[u32],
    generation: &mut Generation,
    mut on_block: impl FnMut(&Block),
) -> Result<()> {
    generate_all(model, &mut [Reply { prompt, generation }], |_, block| on_block(block))
}

/// Makes several replies, one pass for all of them at a time; each leaves the batch when it ends. `on_block` gets the number
/// of the reply and its block.
pub fn generate_all(
    model: &Model,
    replies: &mut [Reply<'_>],
    mut on_block: impl FnMut(usize, &Block),
) -> Result<()> {
    for reply in replies.iter() {
        if reply.prompt.is_empty() || model.config().longest_reply(reply.prompt.len()) == 0 {
            return Err(Error::Input(format!(
                "a prompt of {} tokens; hint: it needs at least one, and room for a canvas of {} before position {}",
                reply.prompt.len(),
                model.config().canvas_length,
                model.config().max_position_embeddings
            )));
        }
    }
    let mut prefixes = vec![Prefix::new(); replies.len()];
    loop {
        let running: Vec<usize> =
            (0..replies.len()).filter(|n| replies[*n].generation.finish().is_none()).collect();
        if running.is_empty() {
            return Ok(());
        }
        let segments: Vec<Segment<'_>> = running
            .iter()
            .map(|n| {
                let (prefix, generation) = (&prefixes[*n], &replies[*n].generation);
                Segment {
                    prefix,
                    tokens: if prefix.tokens() == 0 { replies[*n].prompt } else { generation.commit() },
                    canvases: generation.canvas().into_iter().collect(),
                }
            })
            .collect();
        let outputs = model.forward(&segments)?;
        let mut hidden = Vec::with_capacity(outputs.len());
        for (n, output) in running.iter().zip(outputs) {
            prefixes[*n] = output.prefix;
            hidden.extend(output.hidden);
        }
        let mut steps: Vec<_> = replies
            .iter_mut()
            .map(|reply| &mut *reply.generation)
            .filter(|generation| generation.finish().is_none())
            .zip(&hidden)
            .collect();
        let progress = model.advance(&mut steps)?;
        for (n, progress) in running.into_iter().zip(progress) {
            if let Progress::Committed(block) = progress? {
                on_block(n, &block);
            }
        }
        fits(model, replies, &prefixes)?;
    }
}

/// Refuses a further canvas where the positions end.
fn fits(model: &Model, replies: &[Reply<'_>], prefixes: &[Prefix]) -> Result<()> {
    for (reply, prefix) in replies.iter().zip(prefixes) {
        let tokens = prefix.tokens() + reply.generation.commit().len();
        if reply.generation.finish().is_none() && model.config().longest_reply(tokens) == 0 {
            return Err(Error::Input(format!(
                "no room for a canvas of {} after {tokens} tokens, the positions end at {}; hint: lower max_new_tokens",
                model.config().canvas_length,
                model.config().max_position_embeddings
            )));
        }
    }
    Ok(())
}
