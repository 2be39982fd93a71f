//! Encoder state of finished prompts, for reuse by later ones: a bounded LRU keyed by token ids.
//!
//! Owned by the diffusion engine. Only [`PrefixCache::insert`] adds to it, and it is called for completed sequences
//! alone, so a cancelled or failed one leaves no trace. Where two prompts share a beginning, that beginning gets an
//! entry of its own: it is what later prompts will match, and it outlives the longer entries it was found in.

use diffusion_gemma::{Config, Error, Prefix};

/// The cache.
#[derive(Debug)]
pub struct PrefixCache {
    limit_bytes: usize,
    held_bytes: usize,
    /// Least recently used first.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    tokens: Vec<u32>,
    prefix: Prefix,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.prefix.bytes() + self.tokens.len() * size_of::<u32>()
    }
}

impl PrefixCache {
    /// At most `limit_bytes` of keys, values and token ids; 0 turns the cache off.
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, held_bytes: 0, entries: Vec::new() }
    }

    /// Bytes of keys, values and token ids that are kept now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The longest usable beginning of `prompt`.
    pub fn longest(&mut self, prompt: &[u32], config: &Config) -> Result<Option<Prefix>, Error> {
        let mut candidates: Vec<(usize, usize)> = self
            .entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (common(&entry.tokens, prompt), index))
            .filter(|(length, _)| *length > 0)
            .collect();
        // The longest match first; of equals the shortest entry, which is the shared beginning itself.
        candidates.sort_by_key(|(length, index)| (usize::MAX - length, self.entries[*index].tokens.len()));
        for (length, index) in candidates {
            if let Some(prefix) = self.entries[index].prefix.truncated(length, config)? {
                let entry = self.entries.remove(index);
                self.entries.push(entry);
                return Ok(Some(prefix));
            }
        }
        Ok(None)
    }

    /// Tokens of `prompt` that begin something the cache has seen, whether or not it can be continued from there: the
    /// sliding layers of a long entry have dropped the middle. Worth an entry of its own once it is encoded again.
    pub fn seen(&self, prompt: &[u32]) -> usize {
        self.entries.iter().map(|entry| common(&entry.tokens, prompt)).max().unwrap_or(0)
    }

    /// Keeps a finished sequence, and the beginning it shares with an earlier one.
    pub fn insert(&mut self, tokens: &[u32], prefix: &Prefix, config: &Config) -> Result<(), Error> {
        let shared = self.seen(tokens);
        if shared == tokens.len() && self.entries.iter().any(|entry| entry.tokens == tokens) {
            return Ok(());
        }
        self.add(tokens, prefix)?;
        let is_entry = |this: &Self| this.entries.iter().any(|entry| entry.tokens == tokens[..shared]);
        if shared > 0
            && shared < tokens.len()
            && !is_entry(self)
            && let Some(beginning) = prefix.truncated(shared, config)?
        {
            self.add(&tokens[..shared], &beginning)?;
        }
        Ok(())
    }

    fn add(&mut self, tokens: &[u32], prefix: &Prefix) -> Result<(), Error> {
        if prefix.bytes() + size_of_val(tokens) > self.limit_bytes {
            return Ok(());
        }
        let entry = Entry { tokens: tokens.to_vec(), prefix: prefix.detached()? };
        self.held_bytes += entry.bytes();
        self.entries.push(entry);
        while self.held_bytes > self.limit_bytes {
            self.held_bytes -= self.entries.remove(0).bytes();
        }
        Ok(())
    }
}

/// Length of the common beginning.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::path::PathBuf;

    use diffusion_gemma::{DType, LoadOptions, Model, Segment};

    use super::*;

    fn model() -> Model {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/tiny-text");
        Model::load(&dir, &LoadOptions::cpu(DType::F32)).unwrap()
    }

    /// A prompt of a schema's 20 tokens and a state's 8.
    fn prompt(schema: u32, state: u32) -> Vec<u32> {
        (0..20).map(|n| 100 * schema + n).chain((0..8).map(|n| 500 + 10 * state + n)).collect()
    }

    fn encode(model: &Model, tokens: &[u32]) -> Prefix {
        let prefix = Prefix::new();
        let segment = Segment { prefix: &prefix, tokens, canvases: vec![] };
        model.forward(&[segment]).unwrap().remove(0).prefix
    }

    /// Tokens that a request finds; it is finished afterwards.
    fn found(cache: &mut PrefixCache, model: &Model, tokens: &[u32]) -> usize {
        let found = cache.longest(tokens, model.config()).unwrap().map_or(0, |prefix| prefix.tokens());
        cache.insert(tokens, &encode(model, tokens), model.config()).unwrap();
        found
    }

    fn held(cache: &PrefixCache) -> usize {
        cache.entries.iter().map(Entry::bytes).sum()
    }

    #[test]
    fn two_alternating_schemas_both_hit() {
        let (model, mut cache) = (model(), PrefixCache::new(64 << 20));
        assert_eq!([1, 2].map(|schema| found(&mut cache, &model, &prompt(schema, 0))), [0, 0]);
        for state in 1..6 {
            for schema in [1, 2] {
                assert_eq!(
                    found(&mut cache, &model, &prompt(schema, state)),
                    20,
                    "schema {schema}, state {state}"
                );
            }
        }
    }

    #[test]
    fn a_shared_beginning_outlives_the_states_it_was_found_in() {
        let model = model();
        let one = encode(&model, &prompt(1, 0)).bytes();
        // Room for the schema and three states beside it.
        let mut cache = PrefixCache::new(4 * one + 4096);
        for state in 0..40 {
            let reused = found(&mut cache, &model, &prompt(1, state));
            assert!(state == 0 || reused == 20, "state {state}: {reused}");
            assert!(held(&cache) <= cache.limit_bytes, "{} of {} bytes", held(&cache), cache.limit_bytes);
            assert_eq!(held(&cache), cache.held_bytes);
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let model = model();
        let one = encode(&model, &prompt(1, 0)).bytes() + 28 * size_of::<u32>();
        let mut cache = PrefixCache::new(2 * one);
        for schema in [1, 2, 3] {
            found(&mut cache, &model, &prompt(schema, 0));
        }
        let kept = [1, 2, 3].map(|schema| cache.seen(&prompt(schema, 0)));
        assert_eq!(kept, [0, 28, 28]);
        assert!(cache.longest(&prompt(2, 0), model.config()).unwrap().is_some());
        found(&mut cache, &model, &prompt(4, 0));
        assert_eq!([2, 3, 4].map(|schema| cache.seen(&prompt(schema, 0))), [28, 0, 28]);
    }

    #[test]
    fn no_room_keeps_nothing() {
        let model = model();
        let mut cache = PrefixCache::new(0);
        for _ in 0..3 {
            assert_eq!(found(&mut cache, &model, &prompt(1, 0)), 0);
        }
        assert_eq!((cache.entries.len(), cache.held_bytes), (0, 0));
    }
}
