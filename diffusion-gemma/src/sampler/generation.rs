//! The state of one reply: canvas after canvas until a stop token, the end of the budget, or the last retry.
//!
//! Holds no model and no keys and values. The caller puts [`Generation::commit`] and [`Generation::canvas`] into its next pass
//! and hands the hidden states to [`Model::advance`](crate::Model::advance); all randomness is drawn from the reply's own noise.

use super::canvas::{Canvas, End};
use super::config::GenerationConfig;
use super::noise::Noise;
use crate::config::Config;
use crate::cpu::{RowDemand, RowReading};
use crate::error::Result;
use crate::forward::CanvasRows;
use candle_core::Tensor;

/// Further tries of a first block that came out empty.
const EMPTY_RETRIES: usize = 3;

/// Says of the first block's ids whether a reader would see nothing.
type Blank = Box<dyn Fn(&[u32]) -> bool + Send>;

/// One reply being made.
pub struct Generation {
    config: GenerationConfig,
    vocab_size: usize,
    /// Rows of an ordinary canvas.
    canvas_length: usize,
    noise: Noise,
    blank: Option<Blank>,
    /// Tokens that may still be given out.
    left: usize,
    /// Ids of the last block, as long as no pass has encoded them.
    commit: Vec<u32>,
    canvas: Canvas,
    /// 0, 1, … of the canvas: all of them are read.
    rows: Vec<usize>,
    finish: Option<Finish>,
    stats: GenerationStats,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// At this stop id, which is not given out.
    Stop(u32),
    /// The budget of tokens is used up.
    Length,
}

/// What a step has led to.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// Another pass is needed; [`Generation::draft`] shows what the canvas says so far.
    Denoising,
    /// The first block was empty and is tried again; nothing is given out.
    Retrying,
    /// A block is done.
    Committed(Block),
}

/// A finished block.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// What it adds to the reply: no stop id, nothing after one, nothing beyond the budget. May be empty.
    pub ids: Vec<u32>,
    /// Set on the last block.
    pub finish: Option<Finish>,
    /// Denoise steps it took.
    pub steps: usize,
    /// Whether it settled before its steps ran out. A block that did not may be nonsense, and the next one builds on it.
    pub converged: bool,
    /// Mean entropy of its slots in the last step, in nats.
    pub mean_entropy_nats: f32,
}

/// Counts of a reply so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GenerationStats {
    /// Tokens given out.
    pub tokens: usize,
    /// Passes over a canvas, those of blocks that were thrown away included.
    pub steps: usize,
    /// Blocks committed.
    pub blocks: usize,
    /// Committed blocks that ran out of steps.
    pub unconverged_blocks: usize,
    /// Empty first blocks thrown away.
    pub retries: usize,
}

impl GenerationStats {
    /// Tokens per canvas pass.
    pub fn tokens_per_forward(&self) -> f64 {
        self.tokens as f64 / self.steps.max(1) as f64
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation")
            .field("left", &self.left)
            .field("finish", &self.finish)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Generation {
    /// A reply of at most `config.max_new_tokens` tokens.
    pub fn new(model: &Config, config: GenerationConfig, mut noise: Noise) -> Result<Self> {
        config.check()?;
        let (rows, vocab) = (model.canvas_length, model.vocab_size);
        Ok(Self {
            canvas: Canvas::new(rows, vocab, &config, &mut noise)?,
            left: config.max_new_tokens,
            vocab_size: vocab,
            canvas_length: rows,
            rows: (0..rows).collect(),
            config,
            noise,
            blank: None,
            commit: Vec::new(),
            finish: None,
            stats: GenerationStats::default(),
        })
    }

    /// Judges the first block by `blank`, which gets its ids, instead of by their number: a block that it calls empty is thrown
    /// away and tried again on a narrower canvas, three times at most. Without it, no id but padding before a stop is empty.
    #[must_use]
    pub fn with_blank(mut self, blank: impl Fn(&[u32]) -> bool + Send + 'static) -> Self {
        self.blank = Some(Box::new(blank));
        self
    }

    /// Tokens that the next pass must encode after what is encoded already: the block before, or nothing.
    pub fn commit(&self) -> &[u32] {
        &self.commit
    }

    /// The canvas of the next pass, over the prompt and every committed block; `None` once the reply has ended.
    pub fn canvas(&self) -> Option<CanvasRows<'_>> {
        self.finish.is_none().then(|| CanvasRows {
            suffix: &[],
            ids: &self.canvas.ids,
            read: &self.rows[..self.canvas.ids.len()],
            previous: self.canvas.signal.as_ref(),
        })
    }

    /// The most probable ids of the current canvas as of its last step, and which of its slots that step accepted.
    pub fn draft(&self) -> (&[u32], &[bool]) {
        (&self.canvas.draft, &self.canvas.accepted)
    }

    /// Mean entropy of the current canvas in its last step, in nats.
    pub fn mean_entropy_nats(&self) -> f32 {
        self.canvas.mean_entropy_nats
    }

    /// Why the reply ended, once it has.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// Counts so far.
    pub fn stats(&self) -> GenerationStats {
        self.stats
    }

    pub(super) fn demands(&self) -> Vec<RowDemand> {
        self.canvas.demands(&self.config)
    }

    /// Whether the next step has to leave a signal.
    pub(super) fn needs_signal(&self) -> bool {
        self.canvas.continues()
    }

    /// Takes a step: what the pass said of every row of the canvas, and the signal for the next one.
    pub(super) fn step(&mut self, readings: &[RowReading], signal: Option<Tensor>) -> Result<Progress> {
        self.commit.clear();
        self.stats.steps += 1;
        let end = self.canvas.step(readings, signal, self.vocab_size, &self.config, &mut self.noise)?;
        match end {
            None => Ok(Progress::Denoising),
            Some(end) => self.end_block(end),
        }
    }

    fn end_block(&mut self, end: End) -> Result<Progress> {
        let committed = self.canvas.draft.clone();
        let stop = committed.iter().position(|id| self.config.eos_token_ids.contains(id));
        let spoken = &committed[..stop.unwrap_or(committed.len())];
        let first = self.stats.blocks == 0;
        if first && self.stats.retries < EMPTY_RETRIES && self.is_blank(spoken) {
            self.stats.retries += 1;
            // Narrow canvases come out empty far less often: half the width, then a quarter.
            let rows = self.canvas_length >> self.stats.retries.min(2);
            self.restart(rows.max(1))?;
            return Ok(Progress::Retrying);
        }
        let ids = spoken[..spoken.len().min(self.left)].to_vec();
        let finish = match stop {
            Some(at) if at <= self.left => Some(Finish::Stop(committed[at])),
            _ if spoken.len() >= self.left => Some(Finish::Length),
            _ => None,
        };
        let block = Block {
            finish,
            steps: self.canvas.steps,
            converged: end == End::Settled,
            mean_entropy_nats: self.canvas.mean_entropy_nats,
            ids,
        };
        self.left -= block.ids.len();
        self.finish = finish;
        self.stats.blocks += 1;
        self.stats.unconverged_blocks += usize::from(!block.converged);
        self.stats.tokens += block.ids.len();
        if finish.is_none() {
            self.restart(self.canvas_length)?;
            self.commit = committed;
        }
        Ok(Progress::Committed(block))
    }

    fn is_blank(&self, ids: &[u32]) -> bool {
        match &self.blank {
            Some(blank) => blank(ids),
            None => ids.iter().all(|id| *id == self.config.pad_token_id),
        }
    }

    fn restart(&mut self, rows: usize) -> Result<()> {
        self.canvas = Canvas::new(rows, self.vocab_size, &self.config, &mut self.noise)?;
        Ok(())
    }
}

impl Config {
    /// Most tokens that a reply after `prompt_tokens` can have: whole canvases must fit into the positions.
    pub fn longest_reply(&self, prompt_tokens: usize) -> usize {
        let free = self.max_position_embeddings.saturating_sub(prompt_tokens);
        free / self.canvas_length * self.canvas_length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A canvas of 32 and a vocabulary of 1024.
    fn model() -> Config {
        Config::from_dir(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/tiny-text")))
            .unwrap()
    }

    /// Blocks whose every step says `ids`, padded to the canvas with the last of them.
    fn run(config: GenerationConfig, says: &[&[u32]]) -> (Vec<Block>, GenerationStats) {
        let mut generation = Generation::new(&model(), config, Noise::seeded(1)).unwrap();
        let (mut blocks, mut says) = (Vec::new(), says.iter());
        while let Some(canvas) = generation.canvas() {
            let rows = canvas.ids.len();
            let ids = says.next().unwrap();
            let reading = |slot: usize| RowReading {
                argmax: *ids.get(slot).or(ids.last()).unwrap(),
                sampled: 9,
                entropy_nats: 0.0,
                total: 1.0,
            };
            let readings: Vec<RowReading> = (0..rows).map(reading).collect();
            if let Progress::Committed(block) = generation.step(&readings, None).unwrap() {
                blocks.push(block);
            }
        }
        (blocks, generation.stats())
    }

    fn one_step() -> GenerationConfig {
        GenerationConfig { max_denoising_steps: 1, ..GenerationConfig::default() }
    }

    #[test]
    fn each_published_stop_id_ends_a_reply() {
        for stop in [1, 106, 50] {
            let (blocks, stats) = run(one_step(), &[&[7], &[7, 8, stop, 1, 7]]);
            assert_eq!((&blocks[1].ids[..], blocks[1].finish), (&[7, 8][..], Some(Finish::Stop(stop))));
            assert_eq!((stats.tokens, stats.blocks, stats.retries), (34, 2, 0));
        }
        let (blocks, _) = run(GenerationConfig { max_new_tokens: 40, ..one_step() }, &[&[107], &[108]]);
        assert_eq!((blocks[1].ids.len(), blocks[1].finish), (8, Some(Finish::Length)));
    }

    #[test]
    fn a_later_block_may_be_empty_and_a_first_one_of_padding_is_tried_again() {
        let (blocks, stats) = run(one_step(), &[&[0], &[0, 0, 1], &[1], &[7], &[106]]);
        assert_eq!(blocks.iter().map(|b| b.ids.len()).collect::<Vec<_>>(), [8, 0]);
        assert_eq!((stats.retries, stats.steps, stats.blocks), (3, 5, 2));
        assert_eq!(blocks[1].finish, Some(Finish::Stop(106)));
    }
}
