//! `dgemma-server ask`: loads a model, makes one reply on the terminal, says how long it took. A check that all of it works.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use diffusion_gemma::{Generation, GenerationConfig, Message, Noise, generate};

use super::memory::Concurrency;
use super::remark;
use crate::chat::conversation::{self, Conversation};
use crate::chat::parser::{Parser, Piece};
use crate::cli::{Arguments, Question};
use crate::engine::diffusion::{self, DiffusionEngine};
use crate::error::Error;
use crate::read::Text;

/// Writes the reply to stdout as its blocks are done, and the figures to stderr.
pub fn run(arguments: &Arguments, dir: PathBuf, question: &Question) -> Result<(), Error> {
    let options = arguments.open_options(dir);
    let text = Text::from_dir(&options.dir)?;
    super::memory::check(&options, arguments.workload(Concurrency::Full(1)))?;
    let started = Instant::now();
    let model = DiffusionEngine::load(&options, &mut super::tenths("loaded"))?;
    remark(format_args!("loaded in {:.2} s", started.elapsed().as_secs_f64()));
    let context_tokens = diffusion::context_tokens(&options, model.config())?;
    let conversation = Conversation {
        messages: vec![Message::text("user", question.prompt.as_str())],
        thinking: question.think,
        ..Conversation::default()
    };
    let prompt = conversation::render(&text, &conversation, context_tokens, &|| true)?.ids;
    let canvas_tokens = model.config().canvas_length;
    let room = context_tokens.saturating_sub(prompt.len()) / canvas_tokens * canvas_tokens;
    if room == 0 {
        return Err(Error::NoRoom { prompt_tokens: prompt.len(), canvas_tokens, context_tokens });
    }
    let max_new_tokens = question.max_new_tokens.min(room);
    let config = GenerationConfig { max_new_tokens, ..GenerationConfig::from_dir(&options.dir)? };
    let mut generation = Generation::new(model.config(), config, Noise::seeded(question.seed))?;
    let (mut parser, mut written, begun) = (Parser::new(false), Ok(()), Instant::now());
    let mut first_ms = None;
    generate(&model, &prompt, &mut generation, |block| {
        first_ms.get_or_insert_with(|| begun.elapsed().as_millis());
        let pieces: Vec<Piece> = block.ids.iter().flat_map(|id| parser.push(&text, *id)).collect();
        if written.is_ok() {
            written = write(&pieces);
        }
    })?;
    written
        .and_then(|()| write(&parser.finish()))
        .and_then(|()| writeln!(std::io::stdout()))
        .map_err(|source| Error::io("cannot print the reply", source))?;
    let (stats, seconds) = (generation.stats(), begun.elapsed().as_secs_f64());
    remark(format_args!(
        "{} prompt tokens, first block after {} ms; {} tokens in {seconds:.2} s ({:.1} a second), {} blocks, {} steps, seed {}",
        prompt.len(),
        first_ms.unwrap_or_default(),
        stats.tokens,
        stats.tokens as f64 / seconds,
        stats.blocks,
        stats.steps,
        question.seed
    ));
    Ok(())
}

/// Thoughts go to stderr, the answer to stdout.
fn write(pieces: &[Piece]) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    for piece in pieces {
        match piece {
            Piece::Content(text) => out.write_all(text.as_bytes())?,
            Piece::Reasoning(text) => std::io::stderr().write_all(text.as_bytes())?,
            // Without tools a call is text, which the parser gives as content.
            Piece::Call(_) => {}
        }
    }
    out.flush()
}
