//! Generated ids to text, piece by piece: bytes are held back until they are whole characters.
//!
//! A character beyond the vocabulary comes as several byte tokens, which may even lie in different blocks. Used wherever text
//! is given out while it is made. Read next: [`crate::tokenizer`].

use crate::tokenizer::Tokenizer;

/// The bytes of a character that is not whole yet.
#[derive(Debug, Clone, Default)]
pub struct TextStream {
    pending: Vec<u8>,
}

impl TextStream {
    /// What can be given out after this id. Bytes that cannot become a character become U+FFFD.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        self.pending.extend(tokenizer.token_bytes(id));
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.pending[..valid]));
                    self.pending.drain(..valid);
                    let Some(wrong) = error.error_len() else { return text };
                    self.pending.drain(..wrong);
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            }
        }
    }

    /// What is left at the end: nothing, or U+FFFD for a character that never became whole.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}
