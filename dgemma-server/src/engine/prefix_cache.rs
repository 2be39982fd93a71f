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

    /// Keeps a finished sequence, and the beginning it shares with an earlier one.
    pub fn insert(&mut self, tokens: &[u32], prefix: &Prefix, config: &Config) -> Result<(), Error> {
        let shared = self.entries.iter().map(|entry| common(&entry.tokens, tokens)).max().unwrap_or(0);
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
